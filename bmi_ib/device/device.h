/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* device.h - device, registered memory and wake-up. */
#ifndef BMI_IB_DEVICE_H
#define BMI_IB_DEVICE_H

#include "bmi_ib/ib.h"

/* Of a rail or the fabric. */
#define ib_log(x, level, ...) (x)->config.log((x)->config.log_arg, (level), __VA_ARGS__)
#define ib_count(x, id, n)    ((x)->config.stats->value[RME_C_##id] += (n))

static inline int64_t ib_option(const struct ib_rail *rail, const char *name)
{
    return rme_option(rail->config.options, name);
}

/* Returns errno as a negative number; -EIO if a provider failed without setting errno. */
int ib_errno(void);
/* Converts a verbs result (positive or negative errno, or -1 with errno) to a negative
 * errno. */
int ib_error(int ret);
static inline uint32_t ib_min(uint32_t a, uint32_t b)
{
    return a < b ? a : b;
}

/* Returns monotonic time in ms, of the coarse clock. */
uint64_t ib_now_ms(void);

extern const struct rme_option_row ib_options[]; /* options.c */
/* Copies part `i` of an option that '+' divides.  Returns false if the part is missing or
 * longer than `out`. */
bool ib_part(const char *text, unsigned i, char *out, size_t size);

/* ---- device.c ---- */
int ib_device_list(struct rme_fabric *f);
/* Selects the device named `wanted`; "" any, `preferred` first.  Returns 0 or -ENODEV
 * (logged). */
int ib_device_choose(struct ib_rail *rail, const char *wanted, struct ibv_context *preferred);
int ib_device_open(struct ib_rail *rail);
void ib_device_close(struct ib_rail *rail);
/* Frees the list of devices, which closes their contexts. */
void ib_device_unlist(struct rme_fabric *f);
/* Lists the devices again, without those that were removed.  Without any device the list
 * stays. */
void ib_device_relist(struct rme_fabric *f);
/* Selects the device in place of the rail's lost one, if it is there and has an active port. */
bool ib_device_return(struct ib_rail *rail);
/* Queries the ports again and sets dev.down. */
void ib_device_query_ports(struct ib_rail *rail);

/* ---- memory.c ---- */
/* Returns the access flag of the option relaxed_ordering.  Providers without it ignore it. */
int ib_relaxed_ordering(const struct ib_rail *rail);
/* Decides on on-demand paging of user memory (option odp); call after ib_mws_open(). */
int ib_demand_open(struct ib_rail *rail);
/* Registers memory on all live rails (fabric.h), and on others when they are opened again.
 * Needs no lock. */
int ib_reg(struct rme_fabric *f, void *base, size_t length, unsigned access, struct rme_mr *mr);
void ib_dereg(struct rme_fabric *f, struct rme_mr *mr);
/* Deregisters all memory of the engine on a rail, or registers it there.  regs.rails is held
 * for writing. */
void ib_regs_remove_rail(struct ib_rail *rail);
void ib_regs_add_rail(struct ib_rail *rail);
/* Allocates and registers buffer memory of `length` bytes, rounded up to pages.  Returns 0 or a
 * negative errno; the caller frees the memory with ib_memory_put(). */
int ib_memory_get(struct ib_rail *rail, size_t length, struct ib_memory *m);
void ib_memory_put(struct ib_memory *m);

/* Returns the rail's registration behind a key of the engine; NULL: the device was dead. */
static inline struct ibv_mr *ib_key_mr(const struct ib_rail *rail, uint64_t key)
{
    return ((struct ib_keys *)(uintptr_t)key)->mr[rail->number];
}

/* Returns true for soft-RoCE, which has no vendor id: 0 in older kernels, 0xffffff in newer
 * ones.  Its differences are handled where they matter. */
static inline bool ib_is_rxe(const struct ib_rail *rail)
{
    return rail->dev.attr.vendor_id == 0xffffff || rail->dev.attr.vendor_id == 0;
}

/* ---- wake.c ---- */
int ib_wake_open(struct rme_fabric *f);
void ib_wake_close(struct rme_fabric *f);
/* Sets O_NONBLOCK on a descriptor.  Returns 0 or a negative errno. */
int ib_nonblocking(int fd);
/* Adds a descriptor to the epoll set; `hint`: IB_HINT_*.  Returns 0 or a negative errno
 * (logged). */
int ib_wait_add(struct rme_fabric *f, int fd, unsigned hint);
/* Adds the rail's descriptors.  Returns 0 or a negative errno (logged). */
int ib_wait_watch(struct ib_rail *rail);
/* Removes those of the rail's device. */
void ib_wait_unwatch(struct ib_rail *rail);
/* Sleeps until a descriptor is readable; ends a sleep of the engine.  Any thread, no lock. */
void ib_wait(struct rme_fabric *f, int timeout_ms);
void ib_wake(struct rme_fabric *f);

#endif

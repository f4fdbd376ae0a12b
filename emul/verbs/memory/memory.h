/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Protection domains, memory regions and windows. */
#ifndef EMUL_VERBS_MEMORY_H
#define EMUL_VERBS_MEMORY_H

#include "emul/verbs/process/process.h"

struct emu_pd {
    struct ibv_pd pd;
    _Atomic int users;
};

struct emu_mw_link {
    struct emu_mw_link *next, **pprev; /* pprev NULL: in no list */
};

struct emu_mr {
    struct ibv_mr mr;
    uint32_t index;
    struct emu_mw_link *windows; /* last bound to this region; under dev.lock */
};

struct emu_mw {
    struct ibv_mw mw;
    uint32_t index;
    uint32_t key; /* without EMU_RKEY_BIT, also while not bound; under dev.lock */
    struct emu_mw_link of_mr, of_qp;
};

/* Arguments of a bind besides the start address, raddr, and the new key, rkey. */
struct emu_bind {
    uint64_t length;
    uint32_t mw_key, mr_key; /* without EMU_RKEY_BIT */
    unsigned access;
};

/* The QP that a bind is posted to. */
struct emu_binder {
    uint32_t pd, qpn;
    struct emu_mw_link **windows; /* last bound by this QP; under dev.lock */
};

/* key.c */
/* Draws a new key of a free place of the table; 0 when the table is full. Under d->lock. */
uint32_t emu_mr_draw_key(struct emu_dev *d, bool window);
/* Waits for the accesses to a region or window that began before its key was revoked, except
 * those of processes that are stopped, dead or too slow. */
void emu_mr_drain(struct emu_dev *d, uint32_t index);
/* Checks a segment of a local work request that needs the rights `access`. Returns -1 if not
 * permitted, 0, or 1 for an ODP region. */
int emu_mr_local(struct emu_dev *d, uint32_t pd, const struct ibv_sge *sge, uint32_t access,
                 struct iovec *out);
/*
 * Checks an access by key to memory of the process `p`, through a QP, and pins the table entry
 * of the region or window; the caller unpins by emu_mr_unpin(). Returns -1 for a bad key,
 * range, PD, QP or right; else 0, or 1 for an ODP region.
 */
struct emu_pin {
    struct shm_mr *mr;      /* NULL: nothing pinned */
    _Atomic uint32_t *note; /* holds `entry`, unless the owner undid the pin */
    uint32_t entry;         /* 0: all notes were in use; counted in `unnoted` */
};
int emu_mr_pin(struct emu_dev *d, struct emu_peer *p, uint32_t key, bool remote,
               const struct shm_user *user, uint64_t addr, uint64_t len, uint32_t access,
               struct iovec *out, struct emu_pin *pin);
void emu_mr_unpin(struct emu_pin *pin);

/* mr.c */
/* Creates a protection domain that is not counted; NULL with errno. */
struct ibv_pd *emu_pd_new(struct ibv_context *context);
/* Makes the pages of a range present and, if `write`, writable. Returns 0 or a positive
 * errno. */
int emu_mr_populate(const void *addr, size_t length, bool write);

/* mw.c */
struct ibv_mw *emu_alloc_mw(struct ibv_pd *pd, enum ibv_mw_type type);
int emu_dealloc_mw(struct ibv_mw *mw);
/* Execute a bind to a range at `addr`, and a local invalidation. Under sq_lock. */
enum ibv_wc_status emu_mw_bind(struct emu_dev *d, const struct emu_binder *by,
                               const struct emu_bind *b, uint64_t addr, uint32_t rkey);
enum ibv_wc_status emu_mw_invalidate(struct emu_dev *d, uint32_t qpn, uint32_t key);
/* Invalidates a window of `p` that is bound to its QP, on behalf of the poster; false if there
 * is none. */
bool emu_mw_invalidate_remote(struct emu_peer *p, uint32_t qpn, uint32_t rkey);
/* Returns whether a window is bound to the region. Under d->lock. */
bool emu_mw_any(struct emu_dev *d, struct emu_mr *mr);
/* Revokes the keys of a QP's windows. No poster executes at the QP. */
void emu_mw_qp_destroyed(struct emu_dev *d, struct emu_mw_link **windows);

#endif

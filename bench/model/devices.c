/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The devices and hosts; the sources are in doc/design/model.md. */
#include "bench/model/device.h"

#include <stddef.h>
#include <string.h>

/* Published bandwidths as ns per byte. */
#define MIB_S(x)  (1e9 / ((x)*1048576.0))
#define MB_S(x)   (1e3 / (x))
#define GBIT_S(x) (8.0 / (x))

/* Costs of Mellanox adapters on a host of today: libibverbs, windows of mlx5. */
#define MLX_HOST                                                                               \
    .host = "2020", .wqe = 75, .doorbell = 40, .cqe = 20, .wakeup = 7000, .inlined = 220,      \
    .reads = 16, .max_sge = 16, .depth = 15, .segment = 10
#define MLX_MEMORY   .reg = {20000, 150}, .dereg = {15000, 20}
#define MLX5_WINDOWS .windows = 4096, .bind = 1250, .invalidate = 1250

/* The papers' InfiniHost 4X in PCI-X, VAPI. */
#define INFINIHOST                                                                             \
    .host = "2003", .mtu = 2048, .first_byte = 1.75, .fetch = 500, .inlined = 220,             \
    .inline_byte = 1.75, .gap = 1500, .read_gap = 1500, .port_gap = 1500, .segment = 100,      \
    .reads = 4, .max_sge = 16, .depth = 15, .windows = 4096, .bind = 3000, .invalidate = 3000, \
    .reg = {55000, 7500}, .dereg = {60000, 0}, .wqe = 300, .doorbell = 200, .cqe = 100,        \
    .wakeup = 15000

/* Those of bmi_ib. */
static const struct rme_limits rxe_limits = {
    .once = {256u << 10, 2u << 10, 64u << 10}, .list = {16u << 10, 768, 64u << 10}, .read = 1};

struct device model_devices[] = {
    {.name = "infinihost",
     .text = "InfiniHost 4X, PCI-X [000, 001]",
     INFINIHOST,
     .byte = MIB_S(829),
     .read_byte = MIB_S(818),
     .send_byte = MIB_S(825),
     .flight = 5300,
     .deliver = 2100,
     .read_trip = 11200},
    {.name = "infinihost-dafs",
     .text = "InfiniHost 4X, PCI-X [002]",
     INFINIHOST,
     .byte = MB_S(746),
     .read_byte = MB_S(746),
     .send_byte = MB_S(746),
     .flight = 4900,
     .deliver = 2000,
     .read_trip = 11200},
    {.name = "qm500",
     .text = "Elan4 QM500 [004]",
     .host = "2003",
     .mtu = 2048,
     .byte = MB_S(910),
     .read_byte = MB_S(911),
     .send_byte = MB_S(368),
     .first_byte = 1.55,
     .flight = 1330,
     .deliver = 1090,
     .fetch = 270,
     .read_trip = 2850,
     .inlined = 0,
     .gap = 700,
     .read_gap = 700,
     .port_gap = 700,
     .segment = 700,
     .reads = 16,
     .max_sge = 64,
     .segments_apart = true,
     .chains_reads = true,
     .limits = &rme_limits_unregistered,
     .depth = 64,
     .wqe = 200,
     .doorbell = 100,
     .cqe = 30,
     .wakeup = 10000},
    {.name = "cx3-qdr",
     .text = "ConnectX-3, QDR",
     MLX_HOST,
     MLX_MEMORY,
     .mtu = 2048,
     .byte = 0.2605,
     .read_byte = 0.2605,
     .send_byte = 0.2605,
     .first_byte = 0.4895,
     .flight = 855,
     .deliver = 70,
     .fetch = 670,
     .read_trip = 1815,
     .inline_byte = 1.64,
     .gap = 184,
     .read_gap = 210,
     .port_gap = 60,
     .overhead = 16,
     .read_overhead = 60},
    {.name = "cx3-fdr",
     .text = "ConnectX-3, FDR",
     MLX_HOST,
     MLX_MEMORY,
     .mtu = 2048,
     .byte = 0.158,
     .read_byte = 0.158,
     .send_byte = 0.161,
     .first_byte = 0.44,
     .flight = 855,
     .deliver = 70,
     .fetch = 670,
     .read_trip = 2205,
     .inline_byte = 1.74,
     .gap = 184,
     .read_gap = 210,
     .port_gap = 60,
     .overhead = 16,
     .read_overhead = 60},
    {.name = "cx5-edr",
     .text = "ConnectX-5, 100 Gbit/s InfiniBand",
     MLX_HOST,
     MLX_MEMORY,
     MLX5_WINDOWS,
     .mtu = 4096,
     .byte = GBIT_S(98.4),
     .read_byte = GBIT_S(98.2),
     .send_byte = GBIT_S(98.4),
     .first_byte = 0.14,
     .flight = 695,
     .deliver = 0,
     .fetch = 560,
     .read_trip = 1795,
     .inline_byte = 1.0,
     .gap = 270,
     .read_gap = 280,
     .port_gap = 10,
     .overhead = 25,
     .read_overhead = 40},
    {.name = "cx5-roce",
     .text = "ConnectX-5, 100 Gbit/s RoCE, MTU 1024",
     MLX_HOST,
     MLX_MEMORY,
     MLX5_WINDOWS,
     .mtu = 1024,
     .byte = GBIT_S(93),
     .read_byte = GBIT_S(88),
     .send_byte = GBIT_S(93),
     .first_byte = 0.14,
     .flight = 820,
     .deliver = 0,
     .fetch = 560,
     .read_trip = 1960,
     .inline_byte = 1.0,
     .gap = 172,
     .read_gap = 190,
     .port_gap = 10,
     .overhead = 15,
     .read_overhead = 30},
    {.name = "cx6-hdr",
     .text = "ConnectX-6, 200 Gbit/s InfiniBand",
     MLX_HOST,
     MLX_MEMORY,
     MLX5_WINDOWS,
     .mtu = 4096,
     .byte = 0.0409,
     .read_byte = 0.0409,
     .send_byte = 0.0409,
     .first_byte = 0.159,
     .flight = 1735,
     .deliver = 70,
     .fetch = 1050,
     .read_trip = 2700,
     .inline_byte = 0.7,
     .gap = 387,
     .read_gap = 400,
     .port_gap = 8,
     .overhead = 75,
     .read_overhead = 90},
    {.name = "rxe",
     .text = "soft-RoCE in a virtual machine",
     .host = "vm",
     .mtu = 4096,
     .byte = 9.5,
     .read_byte = 9.4,
     .send_byte = 9.5,
     .first_byte = 0,
     .flight = 4000,
     .deliver = 0,
     .fetch = 0,
     .read_trip = 9000,
     .inlined = 220,
     .gap = 5000,
     .read_gap = 5000,
     .port_gap = 5000,
     .segment = 100,
     .reads = 16,
     .max_sge = 16,
     .limits = &rxe_limits,
     .depth = 15,
     .reg = {10000, 400},
     .dereg = {5000, 100},
     .wqe = 500,
     .doorbell = 4500,
     .cqe = 500,
     .wakeup = 20000},
    {0},
};

const struct host model_hosts[] = {
    {.name = "2003",
     .text = "Xeon of 2.4 GHz",
     .copy_cached = MB_S(1300),
     .copy_far = MB_S(640),
     .cache = 256u << 10,
     .lookup = {1500, 50},
     .instructions = 380,
     .per_ns = 1.2},
    {.name = "2020",
     .text = "Xeon of 3 GHz",
     .copy_cached = 0.1,
     .copy_far = 0.14,
     .cache = 1u << 20,
     .lookup = {600, 20},
     .instructions = 380,
     .per_ns = 3},
    {.name = "vm",
     .text = "virtual machine, emulated",
     .copy_cached = 0.5,
     .copy_far = 0.7,
     .cache = 256u << 10,
     .lookup = {6000, 200},
     .instructions = 380,
     .per_ns = 0.2},
    {0},
};

const struct device *model_device(const char *name)
{
    for (const struct device *d = model_devices; d->name; d++)
        if (strcmp(d->name, name) == 0)
            return d;
    return NULL;
}

const struct host *model_host(const char *name)
{
    for (const struct host *h = model_hosts; h->name; h++)
        if (strcmp(h->name, name) == 0)
            return h;
    return NULL;
}

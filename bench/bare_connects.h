/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Connections by librdmacm alone: the baseline for those of an engine. */
#ifndef BENCH_BARE_CONNECTS_H
#define BENCH_BARE_CONNECTS_H

#include <stdint.h>

/*
 * Connects `clients` QPs in `processes` processes, all together, to one server at 127.0.0.1.
 * Returns the seconds until all are established; *again: number of repeated requests. A failure
 * ends the process, as described in ends.h.
 */
double bare_connects(unsigned clients, unsigned processes, uint64_t *again);

#endif

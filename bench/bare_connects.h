/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Connections that librdmacm makes with nothing above it: what those of an engine are measured
 * against. */
#ifndef BENCH_BARE_CONNECTS_H
#define BENCH_BARE_CONNECTS_H

#include <stdint.h>

/* So many queue pairs in so many processes connect at once to one server of 127.0.0.1.  Seconds
 * until all are established; *again: requests that had to be made once more.  What fails ends
 * the process, as ends.h says. */
double bare_connects(unsigned clients, unsigned processes, uint64_t *again);

#endif

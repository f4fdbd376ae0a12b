/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A job over one plain TCP connection, as one side does it: blocking calls, one thread (two
 * when data goes both ways), the same buffers and the same messages as over BMI.
 *
 *   client                                      server
 *   the job                              ->
 *                                        <-     report (error set if it cannot do the job)
 *   for each phase: one byte "go" if a stream goes to the client  ->
 *   messages                             <->    messages
 *                                        <-     report
 */
#ifndef BENCH_TCP_EXCHANGE_H
#define BENCH_TCP_EXCHANGE_H

#include "bench/job.h"

struct tcp_exchange;

/* -ENOMEM; the exchange does not own the socket. */
int tcp_exchange_new(int fd, const struct job *job, bool server, struct tcp_exchange **out);
void tcp_exchange_free(struct tcp_exchange *exchange);

/* Does the messages of a phase, without its report.  0 or a negative errno. */
int tcp_exchange_phase(struct tcp_exchange *exchange, uint64_t phase);

/* Messages of the last phase with wrong contents. */
uint64_t tcp_exchange_bad(const struct tcp_exchange *exchange);

#endif

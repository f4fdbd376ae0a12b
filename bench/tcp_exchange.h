/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A job over one plain TCP connection, on one side: blocking calls, one thread (two for both
 * directions), the same buffers and messages as over BMI.
 *
 *   client                                      server
 *   the job                              ->
 *                                        <-     report (error set if refused)
 *   for each phase: one byte "go" if a stream is sent to the client  ->
 *   messages                             <->    messages
 *                                        <-     report
 */
#ifndef BENCH_TCP_EXCHANGE_H
#define BENCH_TCP_EXCHANGE_H

#include "bench/job.h"

struct tcp_exchange;

/* Returns 0 or -ENOMEM. The socket remains the caller's. */
int tcp_exchange_new(int fd, const struct job *job, bool server, struct tcp_exchange **out);
void tcp_exchange_free(struct tcp_exchange *exchange);

/* Runs the messages of a phase, without its report. Returns 0 or a negative errno. */
int tcp_exchange_phase(struct tcp_exchange *exchange, uint64_t phase);

/* Returns the messages of the last phase with wrong contents. */
uint64_t tcp_exchange_bad(const struct tcp_exchange *exchange);

#endif

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * gossip.h - log lines of the BMI core and its methods, under OrangeFS's names.
 *
 * Lines go to stderr unless gossip_set_sink() is called.  Debug lines are off until their mask
 * is set.  Any thread may log; each line is written immediately.
 */
#ifndef GOSSIP_H
#define GOSSIP_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Receives one line without a newline; kind is 'E' for errors, 'D' for debug lines.  Calls no
 * function of BMI and must return: after an exception or longjmp() BMI cannot be used. */
typedef void (*gossip_sink_fn)(void *arg, char kind, const char *line);

/* Sets the destination of lines; NULL: stderr.  No other thread may be logging. */
void gossip_set_sink(gossip_sink_fn sink, void *arg);

/* Enables the debug lines of `mask`, or disables all. */
int gossip_set_debug_mask(int debug_on, uint64_t mask);
int gossip_get_debug_mask(int *debug_on, uint64_t *mask);

/* Logs an error, or a debug line if enabled for one of the bits of `mask`. */
int gossip_err(const char *format, ...) __attribute__((format(printf, 1, 2)));
void gossip_debug(uint64_t mask, const char *format, ...) __attribute__((format(printf, 2, 3)));

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif

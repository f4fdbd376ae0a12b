/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * gossip.h - log lines of the BMI core and its methods, under OrangeFS's names.
 *
 * libbmi does not export these names, which programs with parts of OrangeFS also have; bmi.h
 * has BMI_set_log_sink().  Debug lines are off until their mask is set.  Any thread may log;
 * each line is written at once.
 */
#ifndef GOSSIP_H
#define GOSSIP_H

#include <stdint.h>

#include "bmi.h"

/* Sets the destination of lines; see BMI_set_log_sink(). */
void gossip_set_sink(BMI_log_sink *sink, void *arg);

/* Enables the debug lines of `mask`, or disables all. */
int gossip_set_debug_mask(int debug_on, uint64_t mask);
int gossip_get_debug_mask(int *debug_on, uint64_t *mask);

/* Logs an error, or a debug line if enabled for one of the bits of `mask`. */
int gossip_err(const char *format, ...) __attribute__((format(printf, 1, 2)));
void gossip_debug(uint64_t mask, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif

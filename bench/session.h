/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Protocol of bmi-perf's clients and servers over BMI.
 *
 *   client                                            server
 *   unexpected SESSION_OPEN_TAG: the job       ->
 *                                              <-     tag: report (error set: refused)
 *   then for the warm-up (if any) and for the timed phase:
 *   tag: empty "go" if the server has a        ->
 *        stream to send
 *   tag + 1: the job's messages                <->    tag + 1
 *                                              <-     tag: report
 *
 * Unexpected requests of a JOB_REQUEST also have tag + 1. JOB_COUNTERS, JOB_METRICS and JOB_RAW
 * are answered by text instead of a report, and have no phases; a report with an error means
 * failure.
 */
#ifndef BENCH_SESSION_H
#define BENCH_SESSION_H

#define SESSION_OPEN_TAG      0
#define SESSION_FIRST_TAG     2
#define SESSION_NEXT_TAG(tag) ((tag) + 2 > 0x3fffffff ? SESSION_FIRST_TAG : (tag) + 2)
#define SESSION_TEXT_MAX      16384 /* bytes of counters */
#define SESSION_METRICS_MAX   (512 * 1024)

#endif

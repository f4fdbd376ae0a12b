/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* program.h - what all programs share: standard streams, signals, the supervisor, sizes. */
#ifndef EMBEDDED_PROGRAM_H
#define EMBEDDED_PROGRAM_H

#include <stdbool.h>
#include <stdint.h>

/*
 * Opens /dev/null for each closed standard stream.  Call before any file is opened, because
 * that file would get the descriptor and receive the output.  The replacement cannot be read
 * (or written), so a use fails as with a closed descriptor.  Returns false, with a line on
 * standard error, if impossible.
 */
bool program_streams(void);

/* Installs a signal handler, unless the signal was ignored at the start of the program, as with
 * nohup and in background jobs of shells. */
void program_catch(int number, void (*handler)(int));

/* Flushes standard output.  After a failure, now or earlier, prints a line with the program's
 * name, the cause, the remedy and `rest`, and returns false. */
bool program_output(const char *program, const char *rest);

/*
 * Reports a change of state to the supervisor like sd_notify(3): sends the text, variables like
 * "READY=1\nSTATUS=...", as one datagram to the unix socket in the environment variable
 * NOTIFY_SOCKET (a path, or an abstract name with a leading '@').  Does nothing without the
 * variable or a listener.
 */
void program_notify(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Parses a whole number, also a multiple of 1024, 1024^2 or 1024^3, such as "300", "64K", "1m".
 * False: not all of the text is such a number below 2^64. */
bool program_size(const char *text, uint64_t *value);

#endif

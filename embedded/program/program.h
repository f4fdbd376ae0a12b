/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* program.h - what a program finds at its start, and leaves at its end. */
#ifndef EMBEDDED_PROGRAM_H
#define EMBEDDED_PROGRAM_H

#include <stdbool.h>

/*
 * Opens /dev/null where standard input, output or error is closed, before anything else opens a
 * file: that would become one of them, and take what is printed.  It cannot be read, or
 * written, so that a program notices as it would have.  False, with a line on standard error,
 * if that is not possible.
 */
bool program_streams(void);

/* Calls `handler` at a signal, unless the program was started with the signal ignored, as by
 * nohup, and by shells in the background. */
void program_catch(int number, void (*handler)(int));

/* Writes out what was printed on standard output.  If that fails, or did before, complains in
 * the program's name, with `rest` behind the cause and the remedy, and returns false. */
bool program_output(const char *program, const char *rest);

/*
 * Tells the supervisor that started the program a change of state, as sd_notify(3) does: sends
 * the text, variables like "READY=1\nSTATUS=...", as one datagram to the unix socket that the
 * environment names in NOTIFY_SOCKET (a path, or with '@' in front an abstract name).  Without
 * that variable, or where nobody listens, nothing happens.
 */
void program_notify(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif

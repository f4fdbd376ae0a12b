/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/program/program.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

bool program_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) >= 0)
            continue;
        if (open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY) != fd) {
            fprintf(stderr,
                    "descriptor %d is closed and cannot be opened as /dev/null: %s; open it\n",
                    fd, strerror(errno));
            return false;
        }
    }
    return true;
}

void program_catch(int number, void (*handler)(int))
{
    struct sigaction action = {.sa_handler = handler}, old;

    if (sigaction(number, NULL, &old) == 0 && old.sa_handler != SIG_IGN)
        sigaction(number, &action, NULL);
}

bool program_output(const char *program, const char *rest)
{
    errno = 0;
    if (fflush(stdout) == 0 && !ferror(stdout))
        return true;
    fprintf(stderr, "%s: standard output: %s; direct it to where it can be written%s\n",
            program, errno ? strerror(errno) : "output incomplete", rest);
    return false;
}

void program_notify(const char *format, ...)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    const char *name = getenv("NOTIFY_SOCKET");
    size_t length = name != NULL ? strlen(name) : 0;
    char text[1024];
    va_list args;
    int n, s;

    if (length < 2 || length > sizeof at.sun_path || (*name != '/' && *name != '@'))
        return;
    memcpy(at.sun_path, name, length);
    if (*name == '@')
        at.sun_path[0] = 0;
    va_start(args, format);
    n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (n < 0)
        return;
    if ((size_t)n >= sizeof text)
        n = (int)sizeof text - 1;
    s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (s < 0)
        return;
    sendto(s, text, (size_t)n, MSG_NOSIGNAL, (struct sockaddr *)&at,
           (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length));
    close(s);
}

bool program_size(const char *text, uint64_t *value)
{
    static const char units[] = "kKmMgG";
    const char *unit;
    int shift = 0;
    char *end;

    if (*text < '0' || *text > '9')
        return false;
    errno = 0;
    *value = strtoull(text, &end, 10);
    unit = *end ? strchr(units, *end) : NULL;
    if (unit != NULL) {
        shift = 10 * (int)((unit - units) / 2 + 1);
        end++;
    }
    if (errno || *end || *value > UINT64_MAX >> shift)
        return false;
    *value <<= shift;
    return true;
}

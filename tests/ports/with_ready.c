/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * with-ready FILE COMMAND…: runs a command with NOTIFY_SOCKET in its environment. Writes the
 * command's message with READY=1 into FILE, a fifo, once, and closes it. If the command ends
 * without such a message, FILE is closed empty. One blocking read of the fifo therefore waits
 * for either:
 *
 *    with-ready fifo server & read -r line < fifo || echo "the server has ended"
 *
 * The command runs in this process, so the shell's $! is its pid. The listening process is a
 * child of the shell, not of the command.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "with-ready: %s: %s\n", what, strerror(errno));
    exit(127);
}

/* Makes an abstract socket whose name the kernel chooses, like @0001f. */
static int name_socket(char *name, size_t size)
{
    struct sockaddr_un at = {.sun_family = AF_UNIX};
    socklen_t length = sizeof at;
    int s = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);

    if (s < 0 || bind(s, (struct sockaddr *)&at, sizeof at.sun_family) ||
        getsockname(s, (struct sockaddr *)&at, &length))
        die("cannot make a socket");
    snprintf(name, size, "@%.*s", (int)(length - offsetof(struct sockaddr_un, sun_path) - 1),
             at.sun_path + 1);
    return s;
}

/* Waits for the message, or for the end of the command, when `ended` becomes readable. */
static _Noreturn void listen_until_ready(int s, int ended, int file)
{
    struct pollfd wait[] = {{.fd = s, .events = POLLIN}, {.fd = ended, .events = POLLIN}};
    char text[4096];
    ssize_t n;

    for (;;) {
        if (poll(wait, 2, -1) < 0)
            continue;
        if (!wait[0].revents)
            _exit(1); /* the command ended without a message */
        n = recv(s, text, sizeof text - 1, 0);
        if (n < 0)
            continue;
        text[n] = 0;
        if (strncmp(text, "READY=1\n", 8) != 0)
            continue;
        text[n++] = '\n';
        _exit(write(file, text, (size_t)n) != n);
    }
}

int main(int argc, char **argv)
{
    char name[sizeof(struct sockaddr_un)];
    int s, file, ended;
    pid_t pid;

    if (argc < 3) {
        fprintf(stderr, "usage: %s FILE COMMAND...\n", argv[0]);
        return 2;
    }
    file = open(argv[1], O_WRONLY | O_CLOEXEC); /* waits for the reader */
    if (file < 0)
        die(argv[1]);
    s = name_socket(name, sizeof name);
    ended = (int)syscall(SYS_pidfd_open, getpid(), 0);
    if (ended < 0)
        die("cannot watch a process");
    fcntl(ended, F_SETFD, FD_CLOEXEC);
    pid = (pid_t)syscall(SYS_clone, CLONE_PARENT | SIGCHLD, 0, 0, 0, 0);
    if (pid < 0)
        die("cannot make a process");
    if (pid == 0) {
        /* Close the output: a reader of the command's output must not wait for this process. */
        close(STDOUT_FILENO);
        close(STDERR_FILENO);
        listen_until_ready(s, ended, file);
    }
    setenv("NOTIFY_SOCKET", name, 1);
    execvp(argv[2], argv + 2);
    die(argv[2]);
}

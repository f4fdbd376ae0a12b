/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocking TCP sockets; see sockets.h. */
#include "bench/sockets.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>
#include "bench/transport.h"
#include "embedded/program/program.h"

#define SILENCE_S 60
#define BATCH     256 /* segments per system call */

/* Splits and resolves host and port. */
static int resolve(const char *address, bool passive, struct addrinfo **found)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC,
                             .ai_socktype = SOCK_STREAM,
                             .ai_flags = passive ? AI_PASSIVE : 0};
    const char *colon = strrchr(address, ':');
    size_t length = colon != NULL ? (size_t)(colon - address) : 0;
    char host[256];

    if (colon == NULL || !colon[1] || length >= sizeof host || (!length && !passive))
        return -EINVAL;
    if (length >= 2 && address[0] == '[' && address[length - 1] == ']') {
        address++;
        length -= 2;
    }
    memcpy(host, address, length);
    host[length] = 0;
    return getaddrinfo(length && strcmp(host, "*") ? host : NULL, colon + 1, &hints, found)
               ? -EHOSTUNREACH
               : 0;
}

static void tune(int fd)
{
    struct timeval silence = {.tv_sec = SILENCE_S};
    int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &silence, sizeof silence);
}

/* Connects, or listens, to the first address found for which that succeeds. */
static int open_any(const char *address, bool passive, int *fd)
{
    struct addrinfo *found, *at;
    int one = 1, rc = resolve(address, passive, &found);

    if (rc)
        return rc;
    rc = -EHOSTUNREACH;
    for (at = found; at != NULL && rc; at = at->ai_next) {
        *fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
        if (*fd < 0) {
            rc = -errno;
            continue;
        }
        if (passive) /* no limit of silence: accept() would end by it */
            setsockopt(*fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        else
            tune(*fd);
        if (passive ? bind(*fd, at->ai_addr, at->ai_addrlen) || listen(*fd, SOMAXCONN)
                    : connect(*fd, at->ai_addr, at->ai_addrlen)) {
            rc = -errno;
            close(*fd);
        } else {
            rc = 0;
        }
    }
    freeaddrinfo(found);
    return rc;
}

int sockets_connect(const char *address, int *fd)
{
    return open_any(address, false, fd);
}

int sockets_wait(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};

    while (poll(&wait, 1, -1) < 0)
        if (errno != EINTR)
            return -errno;
    return 0;
}

int sockets_move(int fd, const struct iovec *iov, size_t count, bool sending)
{
    struct iovec part[BATCH];
    size_t skip = 0; /* bytes of iov[0] already moved */

    while (count) {
        struct msghdr message = {.msg_iov = part, .msg_iovlen = count < BATCH ? count : BATCH};
        ssize_t n;

        if (iov->iov_len == skip) { /* also for empty segments */
            iov++;
            count--;
            skip = 0;
            continue;
        }
        memcpy(part, iov, message.msg_iovlen * sizeof *iov);
        part[0].iov_base = (char *)part[0].iov_base + skip;
        part[0].iov_len -= skip;
        n = sending ? sendmsg(fd, &message, MSG_NOSIGNAL) : recvmsg(fd, &message, MSG_WAITALL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return !n ? -ECONNRESET : errno == EAGAIN ? -ETIMEDOUT : -errno;
        for (skip += (size_t)n; count && skip >= iov->iov_len; count--)
            skip -= iov++->iov_len;
    }
    return 0;
}

int sockets_send(int fd, const void *data, size_t size)
{
    const struct iovec one = {(void *)(uintptr_t)data, size};

    return sockets_move(fd, &one, 1, true);
}

int sockets_receive(int fd, void *data, size_t size)
{
    const struct iovec one = {data, size};

    return sockets_move(fd, &one, 1, false);
}

/* ---- Servers ---- */

struct client {
    int fd;
    void (*serve)(int fd, void *arg);
    void *arg;
};

static void *client_thread(void *arg)
{
    struct client *client = arg;

    client->serve(client->fd, client->arg);
    close(client->fd);
    free(client);
    return NULL;
}

static void announce(const char *address, int listener)
{
    struct sockaddr_storage at;
    socklen_t length = sizeof at;
    int port = 0;

    if (!getsockname(listener, (struct sockaddr *)&at, &length))
        port = ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                              : ((struct sockaddr_in *)&at)->sin_port);
    printf("listening on %s, port %d\n", address, port);
    fflush(stdout);
    program_notify("READY=1\nSTATUS=listening on %s, port %d", address, port);
}

int sockets_serve(const char *address, void (*serve)(int fd, void *arg), void *arg, char *why)
{
    int fd, listener, rc = open_any(address, true, &listener);

    if (rc) {
        snprintf(why, WHY_SIZE, "%s: cannot listen: %s", address, strerror(-rc));
        return -1;
    }
    announce(address, listener);
    while ((fd = accept(listener, NULL, NULL)) >= 0 || errno == EINTR ||
           errno == ECONNABORTED) {
        struct client *client = fd < 0 ? NULL : malloc(sizeof *client);
        pthread_t thread;

        if (fd >= 0)
            tune(fd);
        if (client != NULL)
            *client = (struct client){fd, serve, arg};
        if (client != NULL && !pthread_create(&thread, NULL, client_thread, client)) {
            pthread_detach(thread);
        } else if (fd >= 0) {
            free(client);
            close(fd);
        }
    }
    snprintf(why, WHY_SIZE, "%s: cannot accept: %s", address, strerror(errno));
    close(listener);
    return -1;
}

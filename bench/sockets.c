/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Blocking TCP sockets; see sockets.h. */
#include "bench/sockets.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define BATCH 256 /* segments per system call */

/* Splits and resolves host and port. */
static int resolve(const char *address, bool passive, struct addrinfo **found)
{
    struct addrinfo hints = {.ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM};
    const char *colon = strrchr(address, ':');
    size_t length = colon ? (size_t)(colon - address) : 0;
    char host[256];

    if (!colon || !colon[1] || length >= sizeof host)
        return -EINVAL;
    if (length >= 2 && address[0] == '[' && address[length - 1] == ']') {
        address++;
        length -= 2;
    }
    memcpy(host, address, length);
    host[length] = 0;
    if (passive)
        hints.ai_flags = AI_PASSIVE;
    if (!length && !passive)
        return -EINVAL;
    return getaddrinfo(length && strcmp(host, "*") ? host : NULL, colon + 1, &hints, found)
               ? -EHOSTUNREACH
               : 0;
}

static void tune(int fd)
{
    struct timeval silence = {.tv_sec = SOCKETS_SILENCE_S};
    int one = 1;

    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &silence, sizeof silence);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &silence, sizeof silence);
}

int sockets_connect(const char *address, int *fd)
{
    struct addrinfo *found, *at;
    int rc = resolve(address, false, &found);

    if (rc)
        return rc;
    rc = -EHOSTUNREACH;
    for (at = found; at && rc; at = at->ai_next) {
        int s = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
        if (s < 0) {
            rc = -errno;
            continue;
        }
        tune(s);
        if (!connect(s, at->ai_addr, at->ai_addrlen)) {
            *fd = s;
            rc = 0;
        } else {
            rc = -errno;
            close(s);
        }
    }
    freeaddrinfo(found);
    return rc;
}

int sockets_listen(const char *address, int *fd)
{
    struct addrinfo *found;
    int one = 1, s, rc = resolve(address, true, &found);

    if (rc)
        return rc;
    s = socket(found->ai_family, found->ai_socktype | SOCK_CLOEXEC, found->ai_protocol);
    if (s < 0) {
        rc = -errno;
    } else {
        setsockopt(s, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(s, found->ai_addr, found->ai_addrlen) || listen(s, SOMAXCONN)) {
            rc = -errno;
            close(s);
        } else {
            *fd = s;
        }
    }
    freeaddrinfo(found);
    return rc;
}

int sockets_port(int fd)
{
    struct sockaddr_storage at;
    socklen_t length = sizeof at;

    if (getsockname(fd, (struct sockaddr *)&at, &length))
        return 0;
    return ntohs(at.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&at)->sin6_port
                                          : ((struct sockaddr_in *)&at)->sin_port);
}

/* Returns the error of a system call that moved no data. */
static int failure(ssize_t n)
{
    if (!n)
        return -ECONNRESET;
    return errno == EAGAIN || errno == EWOULDBLOCK ? -ETIMEDOUT : -errno;
}

int sockets_wait(int fd)
{
    struct pollfd wait = {.fd = fd, .events = POLLIN};

    while (poll(&wait, 1, -1) < 0)
        if (errno != EINTR)
            return -errno;
    return 0;
}

int sockets_send(int fd, const void *data, size_t size)
{
    const char *at = data;

    while (size) {
        ssize_t n = send(fd, at, size, MSG_NOSIGNAL);
        if (n > 0) {
            at += n;
            size -= (size_t)n;
        } else if (n == 0 || errno != EINTR) {
            return failure(n);
        }
    }
    return 0;
}

int sockets_receive(int fd, void *data, size_t size)
{
    char *at = data;

    while (size) {
        ssize_t n = recv(fd, at, size, MSG_WAITALL);
        if (n > 0) {
            at += n;
            size -= (size_t)n;
        } else if (n == 0 || errno != EINTR) {
            return failure(n);
        }
    }
    return 0;
}

/* Copies the next part of a list: up to BATCH segments, the first one without its `skip`
 * bytes. */
static size_t batch(struct iovec *part, const struct iovec *iov, size_t count, size_t skip)
{
    size_t n = count < BATCH ? count : BATCH;

    memcpy(part, iov, n * sizeof *iov);
    part[0].iov_base = (char *)part[0].iov_base + skip;
    part[0].iov_len -= skip;
    return n;
}

static int transfer_list(int fd, const struct iovec *iov, size_t count, bool sending)
{
    struct iovec part[BATCH];
    size_t skip = 0; /* bytes of iov[0] already moved */

    while (count) {
        struct msghdr message = {.msg_iov = part, .msg_iovlen = batch(part, iov, count, skip)};
        ssize_t n;

        if (iov[0].iov_len == skip) { /* also for empty segments */
            iov++;
            count--;
            skip = 0;
            continue;
        }
        n = sending ? sendmsg(fd, &message, MSG_NOSIGNAL) : recvmsg(fd, &message, MSG_WAITALL);
        if (n <= 0) {
            if (n == 0 || errno != EINTR)
                return failure(n);
            continue;
        }
        skip += (size_t)n;
        while (count && skip >= iov[0].iov_len) {
            skip -= iov[0].iov_len;
            iov++;
            count--;
        }
    }
    return 0;
}

int sockets_send_list(int fd, const struct iovec *iov, size_t count)
{
    return count == 1 ? sockets_send(fd, iov->iov_base, iov->iov_len)
                      : transfer_list(fd, iov, count, true);
}

int sockets_receive_list(int fd, const struct iovec *iov, size_t count)
{
    return count == 1 ? sockets_receive(fd, iov->iov_base, iov->iov_len)
                      : transfer_list(fd, iov, count, false);
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

void sockets_serve(int listener, void (*serve)(int fd, void *arg), void *arg)
{
    for (;;) {
        struct client *client;
        pthread_t thread;
        int fd = accept(listener, NULL, NULL);

        if (fd < 0) {
            if (errno == EINTR || errno == ECONNABORTED)
                continue;
            return;
        }
        tune(fd);
        client = malloc(sizeof *client);
        if (client)
            *client = (struct client){fd, serve, arg};
        if (!client || pthread_create(&thread, NULL, client_thread, client)) {
            free(client);
            close(fd);
            continue;
        }
        pthread_detach(thread);
    }
}

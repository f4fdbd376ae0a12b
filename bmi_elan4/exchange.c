/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * exchange.c - see exchange.h.
 *
 * A forked child closes the listeners of its parent: otherwise a child without work would keep
 * the port from its parent's successor.
 */
#include "bmi_elan4/exchange.h"
#include "bmi_elan4/kernel.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <unistd.h>

#define AT_ONCE 64 /* clients of a bootstrap server that are served before its other work */

struct bmi_elan4_bootstrap {
    struct bmi_elan4_bootstrap *next;
    int listener;
    bool behind;
    uint8_t conn_info[BMI_ELAN4_CONN_INFO_BYTES];
};

static struct bmi_elan4_bootstrap *bootstraps;

static void in_child(void)
{
    for (; bootstraps; bootstraps = bootstraps->next)
        close(bootstraps->listener);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, in_child);
}

int bmi_elan4_bootstrap_open(const struct sockaddr *addr, socklen_t length,
                             const struct bmi_elan4_conn_info *mine,
                             struct bmi_elan4_bootstrap **out)
{
    static pthread_once_t watched = PTHREAD_ONCE_INIT;
    struct bmi_elan4_bootstrap *d = calloc(1, sizeof(*d));
    int one = 1;

    if (!d)
        return -ENOMEM;
    pthread_once(&watched, watch_forks);
    bmi_elan4_conn_info_encode(mine, d->conn_info);
    d->listener = bmi_elan4_socket(addr->sa_family);
    if (d->listener < 0 ||
        setsockopt(d->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
        bind(d->listener, addr, length) < 0 || listen(d->listener, 128) < 0) {
        int rc = -errno;
        if (d->listener >= 0)
            close(d->listener);
        free(d);
        return rc;
    }
    bmi_elan4_lock();
    d->next = bootstraps;
    bootstraps = d;
    bmi_elan4_unlock();
    *out = d;
    return 0;
}

void bmi_elan4_bootstrap_close(struct bmi_elan4_bootstrap *d)
{
    struct bmi_elan4_bootstrap **at = &bootstraps;

    bmi_elan4_lock();
    while (*at && *at != d)
        at = &(*at)->next;
    if (*at)
        *at = d->next;
    bmi_elan4_unlock();
    close(d->listener);
    free(d);
}

int bmi_elan4_bootstrap_fd(const struct bmi_elan4_bootstrap *d)
{
    return d->listener;
}

int bmi_elan4_bootstrap_serve(struct bmi_elan4_bootstrap *d)
{
    int given = 0, fd = 0;

    for (int n = 0; n < AT_ONCE; n++) {
        fd = bmi_elan4_accept(d->listener, NULL, NULL);
        if (fd < 0)
            break;
        /* a new connection has room for connection data */
        given += send(fd, d->conn_info, sizeof(d->conn_info), MSG_NOSIGNAL | MSG_DONTWAIT) ==
                 (ssize_t)sizeof(d->conn_info);
        close(fd);
    }
    d->behind = fd >= 0 || errno != EAGAIN;
    return given;
}

bool bmi_elan4_bootstrap_behind(const struct bmi_elan4_bootstrap *d)
{
    return d->behind;
}

struct bmi_elan4_query {
    int fd;
    unsigned got;
    uint8_t in[BMI_ELAN4_CONN_INFO_BYTES];
};

int bmi_elan4_query_begin(const struct sockaddr *addr, socklen_t length,
                          struct bmi_elan4_query **out)
{
    struct bmi_elan4_query *c = calloc(1, sizeof(*c));
    int rc = 0;

    if (!c)
        return -ENOMEM;
    c->fd = bmi_elan4_socket(addr->sa_family);
    if (c->fd < 0 ||
        (connect(c->fd, addr, length) < 0 && errno != EINPROGRESS && errno != EINTR))
        rc = -errno;
    if (rc < 0)
        bmi_elan4_query_end(c);
    else
        *out = c;
    return rc;
}

int bmi_elan4_query_step(struct bmi_elan4_query *c, struct bmi_elan4_conn_info *theirs)
{
    /* also reports that the connection was refused */
    ssize_t n = recv(c->fd, c->in + c->got, sizeof(c->in) - c->got, MSG_DONTWAIT);

    if (n < 0)
        return errno == EINTR ? -EAGAIN : -errno;
    if (n == 0)
        return -ECONNRESET;
    c->got += (unsigned)n;
    return c->got < sizeof(c->in) ? -EAGAIN : bmi_elan4_conn_info_decode(c->in, theirs);
}

int bmi_elan4_query_fd(const struct bmi_elan4_query *c)
{
    return c->fd;
}

void bmi_elan4_query_end(struct bmi_elan4_query *c)
{
    if (c->fd >= 0)
        close(c->fd);
    free(c);
}

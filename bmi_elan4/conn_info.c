/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * conn_info.c - see conn_info.h.
 *
 * A forked child closes the listeners of its parent: otherwise a child without work would keep
 * the port from its parent's successor.
 */
#include "bmi_elan4/conn_info.h"
#include "bmi_elan4/kernel.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#define MAGIC   UINT64_C(0x6472616334656d62) /* "bme4card" */
#define VERSION 2
#define AT_ONCE 64 /* clients that a bootstrap server serves before its other work */

/* Returns an FNV-1a hash of the key, so that the key itself is not sent. */
static uint64_t sum_of(const unsigned key[4])
{
    uint64_t sum = UINT64_C(0xcbf29ce484222325);

    for (int i = 0; i < 16; i++)
        sum = (sum ^ (key[i / 4] >> 8 * (i % 4) & 0xff)) * UINT64_C(0x100000001b3);
    return sum;
}

void bmi_elan4_conn_info_fill(struct bmi_elan4_conn_info *conn_info,
                              const struct bmi_elan4_range *r, const unsigned key[4], int node,
                              int context, uint64_t queue, uint64_t generation)
{
    *conn_info = (struct bmi_elan4_conn_info){.magic = MAGIC,
                                              .version = VERSION,
                                              .vp = (uint32_t)bmi_elan4_vp(r, node, context),
                                              .wanted = BMI_ELAN4_ANY_PROCESS,
                                              .range = *r,
                                              .queue = queue,
                                              .generation = generation,
                                              .key = sum_of(key)};
}

int bmi_elan4_conn_info_decode(const uint8_t in[BMI_ELAN4_CONN_INFO_BYTES],
                               struct bmi_elan4_conn_info *conn_info)
{
    memcpy(conn_info, in, BMI_ELAN4_CONN_INFO_BYTES);
    return conn_info->magic != MAGIC || (conn_info->version == VERSION &&
                                         (conn_info->queue == 0 || conn_info->generation == 0))
               ? -EPROTO
               : 0;
}

enum bmi_elan4_verdict bmi_elan4_conn_info_judge(const struct bmi_elan4_conn_info *mine,
                                                 const struct bmi_elan4_conn_info *theirs)
{
    const struct bmi_elan4_range *a = &mine->range, *b = &theirs->range;
    int node, context;

    if (theirs->version != mine->version)
        return BMI_ELAN4_VERSION;
    if (memcmp(a, b, sizeof(*a)) != 0 ||
        bmi_elan4_place(a, (int)theirs->vp, &node, &context) < 0)
        return BMI_ELAN4_RANGE;
    if (theirs->key != mine->key)
        return BMI_ELAN4_KEY;
    if (theirs->wanted != BMI_ELAN4_ANY_PROCESS && theirs->wanted != mine->vp)
        return BMI_ELAN4_OTHER;
    return BMI_ELAN4_WELCOME;
}

const char *bmi_elan4_verdict_text(uint32_t verdict)
{
    static const char *const text[] = {
#define X(NAME, prose) prose,
        BMI_ELAN4_VERDICTS(X)
#undef X
    };

    return verdict < BMI_ELAN4_VERDICT_COUNT ? text[verdict]
                                             : "refused for a reason unknown to this release";
}

/* ---- Over TCP ---- */

/* of the process; under the lock of kernel.h, which is held during forks */
static struct list_head all = LIST_EMPTY_RING(all);

static void close_listeners(void)
{
    struct bmi_elan4_bootstrap *d;

    list_for_each(d, &all, next)
        close(d->listener);
    list_init(&all);
}

int bmi_elan4_bootstrap_open(const struct sockaddr *addr, socklen_t length,
                             const struct bmi_elan4_conn_info *mine,
                             struct bmi_elan4_bootstrap *d)
{
    int one = 1, rc = bmi_elan4_guard_forks();
    int fd;

    if (rc < 0)
        return rc;
    fd = bmi_elan4_socket(addr->sa_family, SOCK_STREAM);
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one)) < 0 ||
        bind(fd, addr, length) < 0 || listen(fd, 128) < 0) {
        rc = -errno;
        if (fd >= 0)
            close(fd);
        return rc;
    }
    *d = (struct bmi_elan4_bootstrap){.listener = fd, .conn_info = *mine};
    bmi_elan4_lock();
    bmi_elan4_in_child = close_listeners;
    list_add_head(&d->next, &all);
    bmi_elan4_unlock();
    return 0;
}

void bmi_elan4_bootstrap_close(struct bmi_elan4_bootstrap *d)
{
    bmi_elan4_lock();
    list_del_init(&d->next);
    close(d->listener);
    bmi_elan4_unlock();
}

int bmi_elan4_bootstrap_serve(struct bmi_elan4_bootstrap *d)
{
    struct pollfd waits = {.fd = d->listener, .events = POLLIN};
    int given = 0, fd = 0;

    /* accept() makes and frees a socket even without a client, which takes six times as long */
    if (poll(&waits, 1, 0) == 0) {
        d->behind = false;
        return 0;
    }
    for (int n = 0; n < AT_ONCE; n++) {
        fd = bmi_elan4_accept(d->listener);
        if (fd < 0)
            break;
        /* a new connection has room for connection data */
        given += send(fd, &d->conn_info, sizeof(d->conn_info), MSG_NOSIGNAL | MSG_DONTWAIT) ==
                 (ssize_t)sizeof(d->conn_info);
        close(fd);
    }
    d->behind = fd >= 0 || errno != EAGAIN;
    return given;
}

int bmi_elan4_query_begin(const struct sockaddr *addr, socklen_t length,
                          struct bmi_elan4_query *c)
{
    int rc;
    *c = (struct bmi_elan4_query){.fd = bmi_elan4_socket(addr->sa_family, SOCK_STREAM)};
    if (c->fd >= 0 &&
        (connect(c->fd, addr, length) == 0 || errno == EINPROGRESS || errno == EINTR))
        return 0;
    rc = -errno;
    bmi_elan4_query_end(c);
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

void bmi_elan4_query_end(struct bmi_elan4_query *c)
{
    if (c->fd >= 0)
        close(c->fd);
    c->fd = -1;
}

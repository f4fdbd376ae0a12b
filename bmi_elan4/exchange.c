/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * exchange.c - see exchange.h.
 *
 * A client sends its card and reads one; a server reads a card, checks it, and replies with its
 * own and the verdict.  A card fits in any socket buffer, so it is sent at once or the
 * connection is dropped.  Silent clients are disconnected after a timeout.  If all places are
 * taken, a new client displaces the oldest one of the address with the most clients: silent
 * clients use a bounded number of descriptors and do not block others.  Without a free
 * descriptor the listener is disabled for a pause, because pending connections would wake the
 * server continuously.
 */
#include "bmi_elan4/exchange.h"
#include "bmi_elan4/forked.h"
#include "bmi_elan4/kernel.h"

#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#define LISTENER BMI_ELAN4_VISITORS /* number of the listener in epoll data */

struct visitor {
    int fd; /* -1: free */
    unsigned got;
    int64_t until;
    uint64_t turn; /* increases with each arrival */
    struct in6_addr from;
    uint8_t in[BMI_ELAN4_CARD_BYTES];
};

struct bmi_elan4_desk {
    int listener, epoll;
    unsigned count;
    uint64_t turns;
    bool shut;     /* the listener is disabled */
    int64_t again; /* ms; when it is enabled although no client leaves; 0: not */
    struct bmi_elan4_card mine;
    struct bmi_elan4_held held; /* the listener, whose port a successor needs */
    struct visitor visitor[BMI_ELAN4_VISITORS];
};

static int watch(struct bmi_elan4_desk *d, int how, int fd, uint32_t number, uint32_t events)
{
    struct epoll_event e = {.events = events, .data.u32 = number};

    return epoll_ctl(d->epoll, how, fd, &e) < 0 ? -errno : 0;
}

int bmi_elan4_desk_open(const struct sockaddr *addr, socklen_t length,
                        const struct bmi_elan4_card *mine, struct bmi_elan4_desk **out)
{
    int one = 1, rc = -ENOMEM;
    struct bmi_elan4_desk *d = calloc(1, sizeof(*d));

    if (!d)
        return rc;
    d->mine = *mine;
    for (int i = 0; i < BMI_ELAN4_VISITORS; i++)
        d->visitor[i].fd = -1;
    d->epoll = bmi_elan4_epoll();
    if (d->epoll < 0) {
        rc = -errno;
        goto err_desk;
    }
    d->listener = bmi_elan4_socket(addr->sa_family);
    if (d->listener < 0) {
        rc = -errno;
        goto err_epoll;
    }
    setsockopt(d->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
    if (bind(d->listener, addr, length) < 0 || listen(d->listener, 128) < 0) {
        rc = -errno;
        goto err_listener;
    }
    rc = watch(d, EPOLL_CTL_ADD, d->listener, LISTENER, EPOLLIN);
    if (rc < 0)
        goto err_listener;
    bmi_elan4_hold(&d->held, d->listener);
    *out = d;
    return 0;

err_listener:
    close(d->listener);
err_epoll:
    close(d->epoll);
err_desk:
    free(d);
    return rc;
}

void bmi_elan4_desk_close(struct bmi_elan4_desk *d)
{
    for (int i = 0; i < BMI_ELAN4_VISITORS; i++)
        if (d->visitor[i].fd >= 0)
            close(d->visitor[i].fd);
    bmi_elan4_let_go(&d->held);
    close(d->listener);
    close(d->epoll);
    free(d);
}

int bmi_elan4_desk_fd(const struct bmi_elan4_desk *d)
{
    return d->epoll;
}

unsigned bmi_elan4_desk_port(const struct bmi_elan4_desk *d)
{
    struct sockaddr_storage a;
    socklen_t n = sizeof(a);

    if (getsockname(d->listener, (struct sockaddr *)&a, &n) < 0)
        return 0;
    return ntohs(a.ss_family == AF_INET6 ? ((struct sockaddr_in6 *)&a)->sin6_port
                                         : ((struct sockaddr_in *)&a)->sin_port);
}

static void open_up(struct bmi_elan4_desk *d)
{
    if (d->shut && watch(d, EPOLL_CTL_MOD, d->listener, LISTENER, EPOLLIN) == 0) {
        d->shut = false;
        d->again = 0;
    }
}

static void shut_up(struct bmi_elan4_desk *d, int64_t again)
{
    if (!d->shut && watch(d, EPOLL_CTL_MOD, d->listener, LISTENER, 0) == 0)
        d->shut = true;
    d->again = again;
}

static void leave(struct bmi_elan4_desk *d, struct visitor *v)
{
    close(v->fd); /* also removes it from the epoll set */
    v->fd = -1;
    d->count--;
    open_up(d);
}

static struct in6_addr address_of(const struct sockaddr_storage *a)
{
    struct in6_addr address = {0};

    if (a->ss_family == AF_INET6)
        address = ((const struct sockaddr_in6 *)a)->sin6_addr;
    else
        memcpy(&address, &((const struct sockaddr_in *)a)->sin_addr, 4);
    return address;
}

static unsigned from_there(const struct bmi_elan4_desk *d, const struct in6_addr *from)
{
    unsigned n = 0;

    for (int i = 0; i < BMI_ELAN4_VISITORS; i++)
        n += d->visitor[i].fd >= 0 && memcmp(&d->visitor[i].from, from, sizeof(*from)) == 0;
    return n;
}

/* Returns a free place, or that of the oldest client of the address with the most clients. */
static struct visitor *make_place(struct bmi_elan4_desk *d)
{
    struct visitor *best = NULL;
    unsigned most = 0;

    for (int i = 0; i < BMI_ELAN4_VISITORS; i++) {
        struct visitor *v = &d->visitor[i];
        if (v->fd < 0)
            return v;
        unsigned n = from_there(d, &v->from);
        if (n > most || (n == most && v->turn < best->turn)) {
            best = v;
            most = n;
        }
    }
    leave(d, best);
    return best;
}

/* Accepts clients, at most as many as there are places, so that each is served before being
 * displaced. */
static void let_in(struct bmi_elan4_desk *d, int64_t now)
{
    int error = 0;

    for (int n = 0; n < BMI_ELAN4_VISITORS && !error; n++) {
        struct sockaddr_storage from = {0};
        socklen_t size = sizeof(from);
        int fd = bmi_elan4_accept(d->listener, (struct sockaddr *)&from, &size);
        if (fd < 0) {
            error = errno;
            break;
        }
        struct visitor *v = make_place(d);
        *v = (struct visitor){.fd = fd,
                              .until = now + BMI_ELAN4_VISIT_MS,
                              .turn = d->turns++,
                              .from = address_of(&from)};
        d->count++;
        if (watch(d, EPOLL_CTL_ADD, fd, (uint32_t)(v - d->visitor), EPOLLIN) < 0)
            leave(d, v);
    }
    if (error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM)
        shut_up(d, now + BMI_ELAN4_PAUSE_MS);
}

/* Replies to a complete card.  Returns true if the own card was sent. */
static bool answer(struct bmi_elan4_desk *d, struct visitor *v)
{
    struct bmi_elan4_card theirs, mine = d->mine;
    uint8_t out[BMI_ELAN4_CARD_BYTES];

    if (bmi_elan4_card_decode(v->in, &theirs) < 0)
        return false;
    mine.verdict = bmi_elan4_card_judge(&mine, &theirs);
    bmi_elan4_card_encode(&mine, out);
    return send(v->fd, out, sizeof(out), MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof(out);
}

/* Serves a client.  Returns true if the own card was sent.  The client is disconnected after
 * the reply, or when it hangs up. */
static bool attend(struct bmi_elan4_desk *d, struct visitor *v)
{
    bool given = false;
    ssize_t n = recv(v->fd, v->in + v->got, sizeof(v->in) - v->got, MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return false;
    if (n > 0)
        v->got += (unsigned)n;
    if (n > 0 && v->got < sizeof(v->in))
        return false;
    if (n > 0)
        given = answer(d, v);
    leave(d, v);
    return given;
}

int bmi_elan4_desk_serve(struct bmi_elan4_desk *d, int64_t now)
{
    struct epoll_event e[BMI_ELAN4_VISITORS + 1];
    int given = 0, n = epoll_wait(d->epoll, e, BMI_ELAN4_VISITORS + 1, 0);
    bool knock = d->again && now >= d->again;

    if (knock)
        open_up(d);
    for (int i = 0; i < n; i++) {
        if (e[i].data.u32 == LISTENER)
            knock = true;
        else if (d->visitor[e[i].data.u32].fd >= 0)
            given += attend(d, &d->visitor[e[i].data.u32]);
    }
    for (int i = 0; i < BMI_ELAN4_VISITORS && d->count; i++)
        if (d->visitor[i].fd >= 0 && d->visitor[i].until <= now)
            leave(d, &d->visitor[i]);
    if (knock)
        let_in(d, now);
    return given;
}

int64_t bmi_elan4_desk_deadline(const struct bmi_elan4_desk *d)
{
    int64_t first = d->again ? d->again : -1;

    for (int i = 0; i < BMI_ELAN4_VISITORS && d->count; i++)
        if (d->visitor[i].fd >= 0 && (first < 0 || d->visitor[i].until < first))
            first = d->visitor[i].until;
    return first;
}

struct bmi_elan4_call {
    int fd;
    bool sent;
    unsigned got;
    uint8_t out[BMI_ELAN4_CARD_BYTES], in[BMI_ELAN4_CARD_BYTES];
};

int bmi_elan4_call_begin(const struct sockaddr *addr, socklen_t length,
                         const struct bmi_elan4_card *mine, struct bmi_elan4_call **out)
{
    struct bmi_elan4_call *c = calloc(1, sizeof(*c));
    int rc = -ENOMEM;

    if (!c)
        return rc;
    bmi_elan4_card_encode(mine, c->out);
    c->fd = bmi_elan4_socket(addr->sa_family);
    if (c->fd < 0) {
        rc = -errno;
        goto err_call;
    }
    if (connect(c->fd, addr, length) < 0 && errno != EINPROGRESS && errno != EINTR) {
        rc = -errno;
        goto err_fd;
    }
    *out = c;
    return 0;

err_fd:
    close(c->fd);
err_call:
    free(c);
    return rc;
}

/* Sends the card once the connection is established.  Returns 0 when sent. */
static int speak(struct bmi_elan4_call *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLOUT};
    int err = 0;
    socklen_t size = sizeof(err);

    if (poll(&p, 1, 0) <= 0)
        return -EAGAIN;
    if (getsockopt(c->fd, SOL_SOCKET, SO_ERROR, &err, &size) < 0)
        return -errno;
    if (err)
        return -err;
    ssize_t n = send(c->fd, c->out, sizeof(c->out), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n != (ssize_t)sizeof(c->out))
        return n < 0 && errno != EAGAIN ? -errno : -ECONNRESET;
    c->sent = true;
    return 0;
}

int bmi_elan4_call_step(struct bmi_elan4_call *c, struct bmi_elan4_card *theirs)
{
    int rc = c->sent ? 0 : speak(c);

    if (rc < 0)
        return rc;
    ssize_t n = recv(c->fd, c->in + c->got, sizeof(c->in) - c->got, MSG_DONTWAIT);
    if (n < 0)
        return errno == EINTR ? -EAGAIN : -errno;
    if (n == 0)
        return -ECONNRESET;
    c->got += (unsigned)n;
    return c->got < sizeof(c->in) ? -EAGAIN : bmi_elan4_card_decode(c->in, theirs);
}

int bmi_elan4_call_fd(const struct bmi_elan4_call *c)
{
    return c->fd;
}

short bmi_elan4_call_events(const struct bmi_elan4_call *c)
{
    return c->sent ? POLLIN : POLLOUT;
}

void bmi_elan4_call_end(struct bmi_elan4_call *c)
{
    close(c->fd);
    free(c);
}

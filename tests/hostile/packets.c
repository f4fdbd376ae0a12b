/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* A link over any medium: messages of the wire protocol and credits; see link.h. */
#include "config.h"
#include "medium.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define CREDITS 32

struct link {
    const struct medium *medium;
    struct end *end;
    struct link_plan plan;
    struct rme_hello peer;
    unsigned ours;   /* remaining credits from the peer */
    unsigned theirs; /* credits that the peer still has */
    unsigned owed;   /* used by the peer and not returned */
};

static const struct medium *const media[] = {
    &medium_verbs,
#ifdef HAVE_BMI_ELAN4
    &medium_elan4,
#endif
};

uint64_t clock_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

bool past(uint64_t deadline)
{
    return clock_us() >= deadline;
}

uint64_t after_ms(int timeout_ms)
{
    return clock_us() + (uint64_t)timeout_ms * 1000;
}

void breathe(void)
{
    usleep(50);
}

bool target_parse(const char *text, struct target *target)
{
    for (unsigned i = 0; i < sizeof media / sizeof media[0]; i++) {
        size_t n = strlen(media[i]->scheme);

        target->medium = media[i];
        if (strncmp(text, media[i]->scheme, n) == 0)
            return media[i]->parse(text + n, target);
    }
    return false;
}

void link_hello(const struct link_plan *plan, struct rme_hello *hello)
{
    *hello = (struct rme_hello){.version = RME_WIRE_VERSION,
                                .version_min = RME_WIRE_VERSION_MIN,
                                .flags = (uint8_t)(RME_HELLO_F_READ | RME_HELLO_F_EARLY_CTS |
                                                   (plan->borrows ? RME_HELLO_F_RING : 0)),
                                .incarnation = clock_us() ^ (uint64_t)getpid() << 40,
                                .rx_size = LINK_MESSAGE,
                                .credits = plan->credits != 0 ? plan->credits : CREDITS,
                                .eager_window = 1 << 20,
                                .unexpected_window = 1 << 18,
                                .rts_max = 1024};
}

/* ---- Connecting ---- */

struct link *link_begin(const struct target *target, const struct link_plan *plan, int *error)
{
    struct link *link = calloc(1, sizeof *link);
    uint8_t own[RME_HELLO_SIZE];
    struct rme_hello hello;
    size_t length = plan->hello != NULL ? plan->hello_length : sizeof own;

    *error = -ENOMEM;
    if (link == NULL)
        return NULL;
    link->medium = target->medium;
    link->plan = *plan;
    link_hello(plan, &hello);
    link->theirs = hello.credits;
    rme_hello_encode(&hello, own);
    link->end = link->medium->begin(target, plan, plan->hello != NULL ? plan->hello : own,
                                    plan->no_hello ? 0 : length, error);
    if (link->end != NULL)
        return link;
    free(link);
    return NULL;
}

/* Asks for more credits than the answer has granted, as an engine's first message does. */
static void ask_for_credits(struct link *link)
{
    struct rme_wire_message m = {.type = RME_WIRE_PONG, .flags = RME_WIRE_F_STALLED};
    bool deaf = link->plan.deaf;

    if (link->ours >= RME_HELLO_CREDITS_MIN)
        return;
    link->plan.deaf = false;
    if (link_say(link, &m, NULL, NULL, 0) == 0)
        link_wait_credits(link, RME_HELLO_CREDITS_MIN, 2000);
    link->plan.deaf = deaf;
}

int link_wait_up(struct link *link)
{
    const struct link_plan *plan = &link->plan;
    uint8_t hello[512];
    struct rme_reject why;
    int length = link->medium->wait_up(link->end, hello, sizeof hello);

    if (length < 0)
        return length;
    if (rme_hello_decode(hello, (size_t)length, &link->peer, &why) != 0)
        return -EPROTO;
    link->ours = link->peer.credits;
    if (!plan->single_credit && !plan->no_receives)
        ask_for_credits(link);
    return 0;
}

struct link *link_open(const struct target *target, const struct link_plan *plan, int *error)
{
    struct link *link = link_begin(target, plan, error);

    if (link == NULL)
        return NULL;
    *error = link_wait_up(link);
    if (*error == 0)
        return link;
    link_drop(link);
    return NULL;
}

static void end_link(struct link *link, bool goodbye)
{
    if (link == NULL)
        return;
    link->medium->drop(link->end, goodbye);
    free(link);
}

void link_drop(struct link *link)
{
    end_link(link, false);
}

void link_close(struct link *link)
{
    end_link(link, true);
}

const struct rme_hello *link_peer(const struct link *link)
{
    return &link->peer;
}

/* ---- Sending ---- */

/* Counts arrivals, each of which has used one of the peer's credits. */
static void count_arrived(struct link *link)
{
    unsigned n = link->medium->arrived(link->end);

    link->owed += n;
    link->theirs -= n < link->theirs ? n : link->theirs;
}

static uint8_t *next_buffer(struct link *link)
{
    uint8_t *buffer = link->medium->room(link->end);

    count_arrived(link);
    return buffer;
}

static int sent(struct link *link, int error)
{
    if (error == 0 && link->ours > 0)
        link->ours--;
    return error;
}

int link_send_bytes(struct link *link, const void *bytes, size_t length)
{
    uint8_t *buffer = next_buffer(link);

    if (buffer == NULL)
        return -ENOTCONN;
    memcpy(buffer, bytes, length);
    return sent(link, link->medium->send(link->end, length));
}

/* Returns the number of credits to return in the next header. */
static uint16_t give_back(struct link *link)
{
    unsigned give = link->owed;

    if (link->plan.returns == LINK_RETURNS_NONE)
        return 0;
    if (link->plan.returns == LINK_RETURNS_ONE)
        give = link->theirs == 0 && give > 0 ? 1 : 0;
    link->owed -= give;
    link->theirs += give;
    return (uint16_t)give;
}

int link_say(struct link *link, const struct rme_wire_message *message,
             const struct rme_wire_segment *segment, const void *payload, size_t length)
{
    uint8_t *buffer = next_buffer(link);
    struct rme_wire_message said = *message;
    size_t head;

    if (buffer == NULL)
        return -ENOTCONN;
    if (said.credits == 0)
        said.credits = give_back(link);
    head = rme_wire_length(said.type, said.nsegment);
    memset(buffer, 0, head);
    rme_wire_encode(&said, buffer);
    for (uint32_t i = 0; i < said.nsegment; i++)
        rme_wire_put_segment(buffer, said.type, i, &segment[i]);
    if (length > 0)
        memcpy(buffer + head, payload, length);
    return sent(link, link->medium->send(link->end, head + length));
}

void link_closes(struct link *link, uint64_t key)
{
    if (link->medium->closes != NULL)
        link->medium->closes(link->end, key);
}

int link_send_imm(struct link *link, uint32_t imm)
{
    return sent(link, link->medium->send_imm(link->end, imm));
}

/* ---- Receiving ---- */

unsigned link_credits(const struct link *link)
{
    return link->ours;
}

static void look(struct link *link)
{
    link->medium->look(link->end);
    count_arrived(link);
}

static bool has_ended(const struct link *link)
{
    return link->medium->ended(link->end);
}

static bool take(struct link *link, struct arrival *arrival)
{
    if (!link->medium->take(link->end, arrival))
        return false;
    if (!arrival->is_imm &&
        rme_wire_decode(arrival->bytes, arrival->length, &arrival->message) == 0)
        link->ours +=
            arrival->message.credits +
            (arrival->message.type == RME_WIRE_CREDIT ? (unsigned)arrival->message.tag : 0);
    return true;
}

void link_idle(struct link *link)
{
    static struct arrival arrival;

    if (link->plan.deaf)
        return;
    look(link);
    while (take(link, &arrival))
        ;
}

bool link_wait_credits(struct link *link, unsigned count, int timeout_ms)
{
    uint64_t deadline = after_ms(timeout_ms);

    while (link->ours < count && !has_ended(link)) {
        link_idle(link);
        if (link->ours >= count || past(deadline))
            break;
        breathe();
    }
    return link->ours >= count && !has_ended(link);
}

int link_receive(struct link *link, struct arrival *arrival, int timeout_ms)
{
    uint64_t deadline = after_ms(timeout_ms);

    for (;;) {
        look(link);
        if (take(link, arrival))
            return 1;
        if (has_ended(link))
            return -ENOTCONN;
        if (past(deadline))
            return 0;
        breathe();
    }
}

bool link_ended(struct link *link, int timeout_ms)
{
    uint64_t deadline = after_ms(timeout_ms);

    for (;;) {
        if (link->plan.deaf)
            link->medium->look_for_end(link->end);
        else
            link_idle(link);
        if (has_ended(link) || past(deadline))
            return has_ended(link);
        usleep(1000);
    }
}

int link_read(struct link *link, uint64_t address, uint64_t key, void *data, size_t length)
{
    return link->medium->read(link->end, address, key, data, length);
}

int link_write(struct link *link, uint64_t address, uint64_t key, const void *data,
               size_t length)
{
    return link->medium->write(link->end, address, key, data, length);
}

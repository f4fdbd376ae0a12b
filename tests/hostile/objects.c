/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Attacks on bmi-iod by valid requests. */
#include "visit.h"

#include <string.h>

/* ---- Unwritten data ---- */

/* Puts or gets a whole object; returns the number of its bytes that are not zero. */
static uint64_t whole(struct attack *a, bool put, bool lies, uint64_t size)
{
    struct visit v = {.attack = a,
                      .link = attack_enter(a),
                      .object = "unwritten",
                      .put = put,
                      .lies = lies,
                      .size = size,
                      .reply_tag = 100};

    if (v.link == NULL || !visit_begin(&v) || !visit_finish(&v))
        complain(a, "a %s of %llu bytes did not end", put ? "put" : "get",
                 (unsigned long long)size);
    link_close(v.link);
    return v.not_zero;
}

/* Puts, and puts again without writing data. A get must then read zeros, never earlier contents
 * of the server's memory. */
void attack_unwritten(struct attack *a)
{
    static const uint64_t sizes[] = {65536, 65537, 512 << 10};
    uint64_t of_others = 0;

    for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0] && a->failures == 0; i++) {
        if (whole(a, true, false, sizes[i]) != 0 || whole(a, false, false, sizes[i]) == 0)
            complain(a, "what was put is not got");
        whole(a, true, true, sizes[i]);
        of_others += whole(a, false, false, sizes[i]);
    }
    if (of_others > 0)
        complain(a, "%llu bytes of others are in objects that nobody has written",
                 (unsigned long long)of_others);
}

/* ---- Lists ---- */

/* Sends as many requests as a client may have, from many clients, which all leave. */
void attack_lists(struct attack *a)
{
    enum { CLIENTS = 20, EACH = 60 };
    static const struct iod_message list = {.op = IOD_OP_LIST};
    struct visit v[CLIENTS];

    for (unsigned i = 0; i < CLIENTS; i++)
        v[i] = (struct visit){
            .attack = a, .link = attack_open(a, &(struct link_plan){0}), .reply_tag = 100};
    for (unsigned n = 0; n < EACH; n++)
        for (unsigned i = 0; i < CLIENTS; i++)
            if (v[i].link != NULL && link_wait_credits(v[i].link, 2, 5000))
                visit_ask(&v[i], &list, NULL);
    for (unsigned i = 0; i < CLIENTS; i++)
        link_drop(v[i].link);
}

/* ---- Prepared parts ---- */

/* Opens and seals one more part; returns its handle, 0: refused. */
static uint64_t prepare(struct visit *v)
{
    struct iod_message open = {.op = IOD_OP_PUT_OPEN,
                               .id = {1, clock_us()},
                               .layout = {2, 65536, 1, 2},
                               .mode = 0600,
                               .buffer_size = 65536,
                               .buffers = 1,
                               .name = iod_string_of("prepared")};
    struct iod_message seal = {.op = IOD_OP_SEAL};
    struct iod_message reply;

    if (!visit_ask(v, &open, &reply))
        return 0;
    seal.handle = reply.handle;
    return visit_ask(v, &seal, &reply) ? seal.handle : 0;
}

/* Clients prepare many parts of one object and leave; the last one commits, which removes the
 * others' parts. */
void attack_prepared(struct attack *a)
{
    enum { CLIENTS = 8, EACH = 50 };
    struct iod_message commit = {.op = IOD_OP_COMMIT};
    struct iod_message reply;
    unsigned prepared = 0;

    for (unsigned i = 0; i < CLIENTS; i++) {
        struct visit v = {.attack = a, .link = attack_enter(a), .reply_tag = 100};

        for (unsigned n = 0; v.link != NULL && n < EACH; n++, prepared++)
            if ((commit.handle = prepare(&v)) == 0)
                break;
        if (i + 1 == CLIENTS && commit.handle != 0 && !visit_ask(&v, &commit, &reply))
            complain(a, "what was prepared cannot be committed");
        link_drop(v.link);
    }
    if (prepared == 0)
        complain(a, "nothing could be prepared");
}

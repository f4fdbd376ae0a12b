/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The attack with keys. The client puts and gets like others, over its own verbs, and keeps
 * every key of CTS and RTS. A key is valid for its operation's bytes, in one
 * direction, on one link, until the operation ends. The following accesses must therefore fail,
 * and one that succeeds counts as stolen:
 *
 * - during the operation: the other direction; bytes behind the last one; another link;
 * - after the operation: any access, on its link or on a new one.
 *
 * A message may close a key of its own link, early or by the report of the end, and no other.
 *
 * Where the server's device has no usable windows a key names a registration and is valid on
 * every link during the operation. The attack "shared-keys" is for such servers: it tries on
 * another link the accesses that must fail on any.
 *
 * A refused access ends its link, so each try needs a link; after a successful try the link is
 * used again.
 */
#include "visit.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define SIZE  65536u /* bytes of a message */
#define KEPT  1024
#define TRIES 8 /* old keys per round */

static struct key kept[KEPT];
static unsigned kept_count;

static void keep(struct visit *v, const struct key *key)
{
    kept[kept_count++ % KEPT] = *key;
    v->attack->keys++;
}

/* Makes one try; closes the link if the access is refused. */
static void try_key(struct visit *v, struct link **link, const struct rme_wire_segment *s,
                    bool write, const char *what)
{
    uint8_t data[8] = "hostile";
    int error;

    if (*link == NULL)
        *link = attack_open(v->attack, &(struct link_plan){0});
    if (*link == NULL)
        return;
    error = write ? link_write(*link, s->address, s->key, data, sizeof data)
                  : link_read(*link, s->address, s->key, data, sizeof data);
    if (error == 0) {
        v->attack->stolen += sizeof data;
        complain(v->attack, "%s: 8 bytes were %s", what, write ? "written" : "read");
        return;
    }
    v->attack->ended++;
    link_drop(*link);
    *link = NULL;
}

/* Closes an open key by a message without its own meaning.  On its link the key is dead
 * then.  Another link ends, and the operation goes on. */
static void close_open_key(struct visit *v, bool elsewhere)
{
    const struct rme_wire_message nothing = {.type = RME_WIRE_CREDIT};
    const struct key key = v->key[0];
    struct link *link = v->link;

    if ((link_peer(link)->flags & RME_HELLO_F_CLOSES) == 0)
        return; /* its keys are not of windows */
    if (elsewhere)
        link = attack_open(v->attack, &(struct link_plan){0});
    if (link == NULL)
        return;
    link_closes(link, key.segment.key);
    (void)link_say(link, &nothing, NULL, NULL, 0);
    if (!elsewhere) {
        try_key(v, &v->link, &key.segment, key.writable, "a key that a message has closed");
        return;
    }
    if (!link_ended(link, 5000))
        complain(v->attack, "a message could close a key of another link");
    v->attack->ended++;
    link_drop(link);
    if (!visit_finish(v))
        complain(v->attack, "an operation ended by a message of another link");
}

/* Tries a key during its operation. */
static void try_open_key(struct visit *v, unsigned how, bool shared)
{
    struct key key = v->key[v->keys - 1];
    struct rme_wire_segment behind = {key.segment.address + key.segment.length, key.segment.key,
                                      8};
    struct link *other = NULL;

    switch (how) {
    case 0:
        try_key(v, &v->link, &key.segment, !key.writable, "the wrong direction of an open key");
        break;
    case 1:
        try_key(v, &v->link, &behind, key.writable, "behind the end of an open key");
        break;
    case 2:
        if (shared)
            try_key(v, &other, &behind, key.writable,
                    "behind the end of an open key of another link");
        else
            try_key(v, &other, &key.segment, key.writable, "an open key of another link");
        link_drop(other);
        break;
    default:
        break;
    }
}

/* Tries keys of ended operations. */
static void try_old_keys(struct visit *v)
{
    struct link *link = NULL;

    try_key(v, &v->link, &v->key[0].segment, v->attack->round / 2 % 2,
            "a key whose operation has ended, on its link");
    for (unsigned i = 0; i < TRIES && v->attack->failures == 0 && !attack_over(v->attack);
         i++) {
        struct key *old =
            &kept[(v->attack->round * 31 + i * 7) % (kept_count < KEPT ? kept_count : KEPT)];

        try_key(v, &link, &old->segment, i % 2,
                "a key whose operation has ended, on a new link");
    }
    link_drop(link);
}

static void visit(struct attack *a, bool shared)
{
    struct visit v = {.attack = a,
                      .object = "kept-keys",
                      .put = a->round % 2 == 0,
                      .closes = a->round / 12 % 2 == 0,
                      .size = SIZE,
                      .reply_tag = 100,
                      .learnt = keep};
    unsigned how = a->round / 2 % 6;

    v.link = attack_open(a, &(struct link_plan){0});
    if (v.link == NULL)
        return;
    if (a->round < 2)
        how = 3; /* needs an object to get, and a first key */
    if (!visit_begin(&v)) {
        if (a->round == 0)
            complain(a, "no key was given");
    } else if (how == 3) {
        if (visit_finish(&v)) {
            usleep(10000);
            try_old_keys(&v);
        } else if (a->failures == 0 && a->round < 2) {
            complain(a, "the operation did not end");
        }
    } else if (how >= 4) {
        close_open_key(&v, how == 4);
    } else {
        try_open_key(&v, how, shared);
    }
    link_drop(v.link);
}

void attack_keys(struct attack *a)
{
    visit(a, false);
}

void attack_shared_keys(struct attack *a)
{
    visit(a, true);
}

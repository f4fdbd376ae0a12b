/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/listing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool add_part(struct listing *l, struct remote *r, const struct iod_entry *entry)
{
    struct listing_part *part;

    if (l->count == l->room) {
        size_t room = l->room ? 2 * l->room : 64;
        part = realloc(l->part, room * sizeof *part);
        if (part == NULL)
            return client_fail(&l->client, "no memory for %zu objects; close other programs",
                               room);
        l->part = part;
        l->room = room;
    }
    part = &l->part[l->count++];
    r->last = l->count;
    part->entry = *entry;
    part->entry.name.text = NULL;
    part->server = r->uri;
    memcpy(part->name, entry->name.text, entry->name.length);
    part->name[entry->name.length] = 0;
    return true;
}

static bool makes_no_sense(struct remote *r)
{
    return remote_fail(r, "invalid reply; are client and server of the same release?");
}

/* Returns true if the last part follows the one before, of the same server. */
static bool ascends(const struct listing *l, size_t before)
{
    const struct listing_part *a = &l->part[before - 1], *b = &l->part[l->count - 1];
    int order = before ? strcmp(a->name, b->name) : -1;

    return order < 0 || (order == 0 && iod_id_compare(iod_entry_place(&a->entry),
                                                      iod_entry_place(&b->entry)) < 0);
}

/* Stores one answer; if more follow, requests those behind its last one.  Entries must ascend,
 * so that a server cannot repeat itself endlessly. */
static bool take_answer(struct listing *l, struct remote *r)
{
    struct iod_message request = {.op = IOD_OP_LIST};
    const struct listing_part *last;
    struct iod_entry entry;
    uint32_t at = 0;

    r->state = REMOTE_IDLE;
    r->unread += r->reply.unread;
    while (iod_entry_next(&r->reply.entries, &at, &entry)) {
        size_t before = r->last;

        if (!add_part(l, r, &entry))
            return false;
        if (!ascends(l, before))
            return makes_no_sense(r);
    }
    if (!(r->reply.flags & IOD_FLAG_MORE))
        return true;
    if (r->reply.entries.count == 0)
        return makes_no_sense(r);
    last = &l->part[r->last - 1];
    request.name = iod_string_of(last->name);
    request.id = iod_entry_place(&last->entry);
    return remote_ask(r, &request);
}

static bool all_listed(struct client *client)
{
    bool listed = true;

    for (int i = 0; i < client->count && !client->failed; i++) {
        struct remote *r = client->remote[i];
        if (r->state == REMOTE_ANSWERED)
            take_answer((struct listing *)client, r);
        listed &= r->state == REMOTE_IDLE;
    }
    return listed && !client->failed;
}

bool listing_take(struct listing *l, const struct client_options *options,
                  const struct args_list *servers)
{
    struct client *client = &l->client;
    struct iod_message request = {.op = IOD_OP_LIST};

    *l = (struct listing){0};
    if (!client_open(client, options))
        return false;
    for (int i = 0; i < servers->count; i++)
        if (client_remote(client, servers->item[i]) == NULL)
            return false;
    return client_ask_all(client, &request, 0) && client_wait(client, all_listed);
}

void listing_end(struct listing *l)
{
    client_close(&l->client);
    free(l->part);
    l->part = NULL;
    l->count = l->room = 0;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * copy_remove.c - removes a file from its servers.
 *
 * The first server decides, as in a copy in: once it has removed its part the file is gone, and
 * the other parts follow.  A part whose first server has no file of that name is a leftover and
 * is removed by naming its server.  Once the first server is asked, interrupts are ignored, or
 * parts would be left.
 *
 * A part that cannot be read at the named server is removed there only: its list of servers is
 * unknown, and the other parts are an incomplete file.
 */
#include "config.h"
#include "embedded/iod/clock.h"
#include "embedded/iod/copy.h"
#include "embedded/iod/store.h"
#include "embedded/iod/text.h"

#include <stdio.h>
#include <string.h>

static bool ask_removal(struct copy *copy, struct remote *r, struct iod_id id)
{
    struct iod_message request = {
        .op = IOD_OP_REMOVE, .id = id, .name = iod_string_of(copy->name)};

    r->lenient = true;
    return remote_ask(r, &request) && client_wait_answers(&copy->client);
}

/* Removes the other parts; returns false if one is left. */
static bool remove_others(struct copy *copy, struct iod_id id)
{
    struct client *client = &copy->client;
    char why[CLIENT_WHY];

    for (int i = 1; i < copy->parts; i++) {
        struct remote *r = copy->part[i];

        if (copy_close_part(r) && ask_removal(copy, r, id) &&
            (r->reply.status == IOD_OK || r->reply.status == IOD_STALE || copy_refused(r)))
            continue;
        memcpy(why, client->why, sizeof why);
        client->failed = false;
        return client_fail(
            client, "%.800s; the file is removed, but not this part: remove the part there",
            why);
    }
    return true;
}

static enum find remove_damaged(struct copy *copy, struct remote *at)
{
    struct iod_id any = {1, STORE_DAMAGED};

    copy->client.failed = false;
    if (!ask_removal(copy, at, any))
        return FIND_FAILED;
    if (at->reply.status == IOD_STALE)
        return FIND_AGAIN;
    if (at->reply.status != IOD_OK && !copy_refused(at))
        return FIND_FAILED;
    snprintf(copy->note, sizeof copy->note,
             "%.300s/%.250s: damaged object removed at this server only; remove parts at other "
             "servers there",
             at->uri, copy->name);
    text_no_controls(copy->note);
    return FIND_GOOD;
}

static enum find remove_found(struct copy *copy, struct remote *head)
{
    struct remote *first = copy->part[0];
    struct iod_id id = head->id;

    copy->client.o.interrupted = NULL;
    if (!copy_close_part(head) || !ask_removal(copy, first, id))
        return FIND_FAILED;
    if (first->reply.status == IOD_STALE && head->layout.index == 0)
        return FIND_AGAIN; /* replaced meanwhile */
    if (first->reply.status != IOD_OK && first->reply.status != IOD_STALE) {
        copy_refused(first);
        return FIND_FAILED;
    }
    return remove_others(copy, id) ? FIND_GOOD : FIND_FAILED;
}

bool copy_remove(struct copy *copy, const struct copy_options *options, const char *address,
                 const char *name)
{
    bool good = copy_begin(copy, options) && copy_set_name(copy, name);
    int64_t deadline = clock_ms() + options->client.timeout_ms;
    enum find result = good ? FIND_AGAIN : FIND_FAILED;

    copy->address = address;
    while (result == FIND_AGAIN && clock_ms() < deadline) {
        struct remote *head = copy_find_head(copy);
        struct remote *at = copy->client.count ? copy->client.remote[0] : NULL;

        copy->client.o.interrupted = options->client.interrupted;
        if (head)
            result = remove_found(copy, head);
        else if (at && at->state == REMOTE_ANSWERED &&
                 (at->reply.status == IOD_DAMAGED || at->reply.status == IOD_IO))
            result = remove_damaged(copy, at);
        else
            result = FIND_FAILED;
    }
    if (result == FIND_AGAIN)
        client_fail(&copy->client, "%s/%s: being overwritten by others; remove the file again",
                    address, name);
    copy_end(copy);
    return result == FIND_GOOD;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * copy_remove.c - removes a file from its servers.
 *
 * The first server decides, as in a copy in: once it has removed its part the file is gone, and
 * the other parts follow.  Once the first server is asked, interrupts are ignored, or parts
 * would be left.  A part that cannot be read is removed without the others, whose copy is
 * unknown.
 */
#include "config.h"
#include "embedded/iod/clock.h"
#include "embedded/iod/copy.h"
#include "embedded/iod/store.h"
#include "embedded/iod/text.h"

#include <stdio.h>
#include <string.h>

enum result { DONE, AGAIN, FAILED }; /* FAILED: the session has failed */

/* Asks for the removal and waits.  Returns false if the session failed; a missing part is no
 * failure. */
static bool remove_at(struct copy *copy, struct remote *r, struct iod_id id)
{
    struct iod_message request = {
        .op = IOD_OP_REMOVE, .id = id, .name = iod_string_of(copy->name)};

    r->lenient = true;
    return copy_close_part(r) && remote_ask(r, &request) &&
           client_wait_answers(&copy->client) &&
           (r->reply.status == IOD_OK || r->reply.status == IOD_STALE || copy_refused(r));
}

/* Removes the other parts; returns false if one is left. */
static bool remove_others(struct copy *copy, struct iod_id id)
{
    struct client *client = &copy->client;
    char why[CLIENT_WHY];

    for (int i = 1; i < client->count; i++) {
        if (remove_at(copy, client->remote[i], id))
            continue;
        memcpy(why, client->why, sizeof why);
        client->failed = false;
        return client_fail(client,
                           "%.800s; the file is removed, but not this part: copy a file to the "
                           "name again and remove that",
                           why);
    }
    return true;
}

/* Removes the file that the first server has open, or a damaged one. */
static enum result remove_found(struct copy *copy, struct remote *first, bool damaged)
{
    struct iod_id any = {1, STORE_DAMAGED}, id = damaged ? any : first->id;

    if (!damaged && (int)first->layout.count > copy->client.count) {
        remote_fail(first, "striped over %u servers; name all of them with --servers",
                    first->layout.count);
        return FAILED;
    }
    copy->client.o.interrupted = NULL;
    if (!remove_at(copy, first, id))
        return FAILED;
    if (first->reply.status == IOD_STALE)
        return AGAIN; /* replaced meanwhile */
    if (!damaged)
        return remove_others(copy, id) ? DONE : FAILED;
    snprintf(copy->note, sizeof copy->note,
             "%.300s/%.250s: damaged object removed; parts at other servers go with the next "
             "copy to the name",
             first->uri, copy->name);
    text_no_controls(copy->note);
    return DONE;
}

/* Opens the file at the first server and removes it. */
static enum result remove_once(struct copy *copy)
{
    struct remote *first = copy->client.remote[0];

    copy->client.o.interrupted = copy->o.client.interrupted;
    if (!copy_open_at(copy, first, (struct iod_id){0}))
        return FAILED;
    if (first->open)
        return remove_found(copy, first, false);
    if (first->reply.status == IOD_DAMAGED || first->reply.status == IOD_IO)
        return remove_found(copy, first, true);
    copy_refused(first);
    return FAILED;
}

bool copy_remove(struct copy *copy, const struct copy_options *options, const char *address,
                 const char *name)
{
    int64_t deadline = clock_ms() + options->client.timeout_ms;
    enum result result = copy_begin(copy, options, address, name) ? AGAIN : FAILED;

    while (result == AGAIN && clock_ms() < deadline)
        result = remove_once(copy);
    if (result == AGAIN)
        client_fail(&copy->client, "%s/%s: being overwritten by others; remove the file again",
                    address, name);
    copy_end(copy);
    return result == DONE;
}

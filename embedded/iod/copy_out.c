/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * copy_out.c - copies from servers to a file: creates the temporary file, finds the parts of
 * the object (copy_find.c), gets their data extents, moves the data and names the file.
 */
#include "config.h"
#include "embedded/iod/copy.h"
#include "embedded/iod/layout.h"
#include "embedded/iod/target.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- extents ---- */

static bool makes_no_sense(struct remote *r)
{
    return remote_fail(r, "invalid reply; are client and server of the same release?");
}

/* Appends the extents of a reply: in order, inside the object, and at least one if more
 * follow. */
static bool take_extents(struct remote *r)
{
    uint64_t size = layout_object_size(&r->layout);

    if (r->reply.extents.count == 0 && (r->reply.flags & IOD_FLAG_MORE))
        return makes_no_sense(r);
    for (uint32_t i = 0; i < r->reply.extents.count; i++) {
        struct iod_extent e = iod_extents_at(&r->reply.extents, i);
        const struct iod_extent *last =
            r->extents.count ? &r->extents.item[r->extents.count - 1] : NULL;

        if (e.offset + e.length > size || (last && e.offset < last->offset + last->length))
            return makes_no_sense(r);
        if (extent_list_add(&r->extents, e.offset, e.length) < 0)
            return remote_fail(r,
                               "no memory for the list of data ranges; close other programs");
    }
    return true;
}

/* Requests further extents; returns true when those of all servers are complete. */
static bool all_known(struct client *client)
{
    bool known = true;

    for (int i = 0; i < client->count && !client->failed; i++) {
        struct remote *r = client->remote[i];
        struct iod_message request = {.op = IOD_OP_EXTENTS, .handle = r->handle};

        if (!r->used)
            continue;
        if (r->state == REMOTE_ANSWERED) {
            r->state = REMOTE_IDLE;
            request.from = r->reply.from;
            if (take_extents(r) && (r->reply.flags & IOD_FLAG_MORE))
                remote_ask(r, &request);
        }
        known &= r->state == REMOTE_IDLE;
    }
    return known && !client->failed;
}

static bool learn_extents(struct copy *copy)
{
    struct iod_message request = {.op = IOD_OP_EXTENTS};

    for (int i = 0; i < copy->client.count; i++)
        copy->client.remote[i]->lenient = false;
    copy->size = copy->part[0]->layout.size;
    copy->strip = copy->part[0]->layout.strip;
    copy->servers = copy->parts;
    return client_ask_all(&copy->client, &request, 0) && client_wait(&copy->client, all_known);
}

/* ---- the whole copy ---- */

static bool move_to_target(struct copy *copy, struct target *target, mode_t mode)
{
    struct client *client = &copy->client;
    char why[CLIENT_WHY];

    copy->fd = target->fd;
    copy->sparse = !target->device;
    copy->path = target->path;
    if (!target_resize(target, copy->size, why, sizeof why))
        return client_fail(client, "%s", why);
    if (!copy_data(copy))
        return false;
    if (!target_finish(target, mode, copy->o.sync, why, sizeof why))
        return client_fail(client, "%s", why);
    return true;
}

bool copy_out(struct copy *copy, const struct copy_options *options, const char *address,
              const char *name, const char *destination)
{
    struct client *client = &copy->client;
    struct target target = {.fd = -1};
    char why[CLIENT_WHY];
    bool good = copy_begin(copy, options) && copy_set_name(copy, name);

    if (good && (!target_find(&target, destination, name, why, sizeof why) ||
                 !target_open(&target, why, sizeof why)))
        good = client_fail(client, "%s", why);
    good = good && copy_find(copy, address) && learn_extents(copy) &&
           move_to_target(copy, &target, copy->part[0]->mode);
    copy_end(copy); /* before the file is closed: workers may still write to it */
    target_close(&target);
    return good;
}

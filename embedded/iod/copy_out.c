/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Servers to a file: make the temporary file, open the object at each server, check that the
 * parts fit together, learn where they have data, move it, and give the file its name.
 *
 * With --servers exactly those are asked, in any order: each part says which one it is.
 * Without, the object is opened at the one address given, and if it is striped, the other parts
 * are looked for where the copy in recorded them, as far as the user admits those hosts: whoever
 * may write an object chooses what is recorded with it.
 */
#include "config.h"
#include "embedded/iod/copy.h"
#include "embedded/iod/layout.h"
#include "embedded/iod/target.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* ---- opening the parts
 * ------------------------------------------------------------------------- */

static bool ask_open(struct copy *copy, struct remote *r)
{
    struct iod_request request = {
        .op = IOD_OP_GET_OPEN,
        .buffer_size = copy->o.buffer_size,
        .buffers = copy->o.buffers,
        .name = iod_string_of(copy->name),
    };

    return remote_ask(r, &request);
}

static bool take_part(struct copy *copy, struct remote *r)
{
    r->layout = r->reply.layout;
    r->upload = r->reply.upload;
    return copy_take_grant(copy, r);
}

/* All servers from number `first` on. */
static bool open_parts(struct copy *copy, int first)
{
    struct client *client = &copy->client;

    for (int i = first; i < client->count; i++)
        if (!ask_open(copy, client->remote[i]))
            return false;
    if (!client_wait_answers(client))
        return false;
    for (int i = first; i < client->count; i++)
        if (!take_part(copy, client->remote[i]))
            return false;
    return true;
}

/* The server list recorded with the object, which must have an address for each part. */
static bool read_recorded(struct remote *r, struct args_list *recorded)
{
    char text[IOD_SERVERS_MAX + 1];

    memcpy(text, r->reply.servers.text, r->reply.servers.length);
    text[r->reply.servers.length] = 0;
    if (args_split(text, recorded) != ARGS_GOOD || recorded->count != (int)r->layout.count)
        return remote_fail(r,
                           "it is striped over %u servers, which are not recorded; name them "
                           "with --servers",
                           r->layout.count);
    return true;
}

/* May this copy go there? */
static bool check_recorded(struct copy *copy, struct remote *r, const char *uri, uint32_t part)
{
    char host[256];

    if (copy->o.allow && access_host_of(uri, host, sizeof host) &&
        access_admits_name(copy->o.allow, host))
        return true;
    return remote_fail(r,
                       "part %u of %u is recorded at %.200s, which was not named; give all "
                       "servers with --servers, or admit hosts with --allow",
                       part + 1, r->layout.count, uri);
}

static bool open_recorded(struct copy *copy, const char *address, struct args_list *recorded)
{
    struct remote *r = client_add(&copy->client, address);

    if (!r || !open_parts(copy, 0))
        return false;
    if (r->layout.count == 1)
        return true;
    if (!read_recorded(r, recorded))
        return false;
    for (int i = 0; i < recorded->count; i++)
        if (i != (int)r->layout.index &&
            (!check_recorded(copy, r, recorded->item[i], (uint32_t)i) ||
             !client_add(&copy->client, recorded->item[i])))
            return false;
    return open_parts(copy, 1);
}

static bool open_given(struct copy *copy)
{
    for (int i = 0; i < copy->o.servers->count; i++)
        if (!client_add(&copy->client, copy->o.servers->item[i]))
            return false;
    return open_parts(copy, 0);
}

/* ---- do the parts fit together?
 * ---------------------------------------------------------------- */

static bool check_part(struct remote *r, const struct remote *first, const struct remote **seen)
{
    uint32_t index = r->layout.index;

    if (r->upload != first->upload || r->layout.size != first->layout.size ||
        r->layout.strip != first->layout.strip || r->layout.count != first->layout.count)
        return remote_fail(r,
                           "this part and the one at %s are of different copies; copy the file "
                           "in again",
                           first->uri);
    if (seen[index])
        return remote_fail(r, "part %u of %u is here and at %s; name each server once",
                           index + 1, r->layout.count, seen[index]->uri);
    seen[index] = r;
    return true;
}

static bool check_layout(struct copy *copy)
{
    struct client *client = &copy->client;
    struct remote *first = client->remote[0];
    const struct remote *seen[IOD_STRIPE_MAX] = {NULL};

    if ((int)first->layout.count != client->count)
        return remote_fail(first,
                           "it is striped over %u servers, and --servers names %d; name the "
                           "right ones, or leave --servers out to use those recorded",
                           first->layout.count, client->count);
    for (int i = 0; i < client->count; i++)
        if (!check_part(client->remote[i], first, seen))
            return false;
    copy->size = first->layout.size;
    copy->strip = first->layout.strip;
    copy->servers = client->count;
    return true;
}

/* ---- where is data?
 * ---------------------------------------------------------------------------- */

/* Takes one reply's extents: behind those before, and inside the object. */
static bool take_extents(struct remote *r)
{
    uint64_t size = layout_object_size(&r->layout);

    for (uint32_t i = 0; i < r->reply.extents.count; i++) {
        struct iod_extent e = iod_extents_at(&r->reply.extents, i);
        const struct iod_extent *last =
            r->extents.count ? &r->extents.item[r->extents.count - 1] : NULL;

        if (e.offset + e.length > size || (last && e.offset < last->offset + last->length))
            return remote_fail(
                r, "the answer makes no sense; are client and server of one release?");
        if (extent_list_add(&r->extents, e.offset, e.length) < 0)
            return remote_fail(r,
                               "no memory for the list of data ranges; close other programs");
    }
    return true;
}

/* Asks on where there is more; true when all is known of all servers. */
static bool all_known(struct client *client)
{
    bool known = true;

    for (int i = 0; i < client->count && !client->failed; i++) {
        struct remote *r = client->remote[i];
        struct iod_request request = {.op = IOD_OP_EXTENTS, .handle = r->handle};

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
    struct iod_request request = {.op = IOD_OP_EXTENTS};

    return client_ask_all(&copy->client, &request) && client_wait(&copy->client, all_known);
}

/* ---- all of it
 * --------------------------------------------------------------------------------- */

static bool move_to_target(struct copy *copy, struct target *target, mode_t mode)
{
    struct client *client = &copy->client;
    char why[CLIENT_WHY];

    copy->fd = target->fd;
    copy->sparse = !target->device;
    copy->path = target->path;
    if (!copy_data(copy))
        return false;
    if (!target_finish(target, copy->size, mode, copy->o.sync, why, sizeof why))
        return client_fail(client, "%s", why);
    return true;
}

bool copy_out(struct copy *copy, const struct copy_options *options, const char *address,
              const char *name, const char *destination)
{
    struct client *client = &copy->client;
    struct args_list recorded = {0};
    struct target target = {.fd = -1};
    char why[CLIENT_WHY];
    bool good = copy_begin(copy, options) && copy_set_name(copy, name);

    if (good && (!target_find(&target, destination, name, why, sizeof why) ||
                 !target_open(&target, why, sizeof why)))
        good = client_fail(client, "%s", why);
    good = good && (copy->o.servers->count ? open_given(copy)
                                           : open_recorded(copy, address, &recorded));
    if (good) {
        mode_t mode = client->remote[0]->reply.mode;
        good = check_layout(copy) && learn_extents(copy) && move_to_target(copy, &target, mode);
    }
    copy_end(copy); /* before the file is closed: workers may still write to it */
    target_close(&target);
    args_list_free(&recorded);
    return good;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * copy_out.c - copies from servers to a file: creates the temporary file, opens the parts of
 * one copy of the file, moves the data and names the file.
 *
 * A file belongs to its first server (store.h), where its name is opened.  The other parts are
 * opened by the id found there, at whichever of the servers has them.  A part that is gone was
 * replaced meanwhile: the search starts again, at a file with another id.
 */
#include "config.h"
#include "embedded/iod/clock.h"
#include "embedded/iod/copy.h"
#include "embedded/iod/target.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define PAUSE_NS 20000000 /* ns before a restart */

static bool check_part(struct remote *r, const struct remote *head, bool *seen)
{
    const struct iod_layout *a = &r->layout, *b = &head->layout;

    if (iod_id_compare(r->id, head->id) != 0 || a->size != b->size || a->strip != b->strip ||
        a->count != b->count || seen[a->index])
        return remote_fail(
            r, "this part and the part at %s are of different copies; copy the file in again",
            head->uri);
    seen[a->index] = true;
    return true;
}

/* Opens the parts of the copy that the first server has; *parts: their number.  Returns false
 * if the session failed. */
static bool open_parts(struct copy *copy, uint32_t *parts)
{
    struct remote *head = copy->client.remote[0];
    bool seen[IOD_STRIPE_MAX] = {true};

    if (!copy_open_at(copy, head, (struct iod_id){0}) || (!head->open && !copy_refused(head)))
        return false;
    if (head->layout.index)
        return remote_fail(head, "invalid reply; are client and server of the same release?");
    *parts = 1;
    for (int i = 1; i < copy->client.count; i++) {
        struct remote *r = copy->client.remote[i];

        if (!copy_open_at(copy, r, head->id) ||
            (!r->open && r->reply.status != IOD_STALE && !copy_refused(r)) ||
            (r->open && !check_part(r, head, seen)))
            return false;
        r->used = r->open;
        *parts += r->open;
    }
    return true;
}

static bool find_parts(struct copy *copy)
{
    int64_t deadline = clock_ms() + copy->client.o.timeout_ms;
    struct timespec pause = {.tv_nsec = PAUSE_NS};
    struct remote *head = copy->client.remote[0];
    struct iod_id before = {0};
    uint32_t parts = 0;

    while (open_parts(copy, &parts)) {
        if (parts == head->layout.count)
            return true;
        if (iod_id_compare(before, head->id) == 0)
            return remote_fail(head,
                               "%u of %u parts are at the named servers; name all servers of "
                               "the file with --servers, or copy the file in again",
                               parts, head->layout.count);
        if (clock_ms() >= deadline)
            return remote_fail(head, "being overwritten by others; copy the file again");
        before = head->id;
        nanosleep(&pause, NULL);
    }
    return false;
}

static bool move_to_target(struct copy *copy, struct target *target)
{
    const struct remote *head = copy->client.remote[0];
    struct client *client = &copy->client;
    char why[CLIENT_WHY];

    copy->fd = target->fd;
    copy->path = target->path;
    copy->size = head->layout.size;
    copy->strip = head->layout.strip;
    copy->servers = (int)head->layout.count;
    if (!target_resize(target, copy->size, why, sizeof why))
        return client_fail(client, "%s", why);
    if (!copy_data(copy))
        return false;
    if (!target_finish(target, head->mode, why, sizeof why))
        return client_fail(client, "%s", why);
    return true;
}

bool copy_out(struct copy *copy, const struct copy_options *options, const char *address,
              const char *name, const char *destination)
{
    struct client *client = &copy->client;
    struct target target = {.fd = -1};
    char why[CLIENT_WHY];
    bool good = copy_begin(copy, options, address, name);

    if (good && (!target_find(&target, destination, name, why, sizeof why) ||
                 !target_open(&target, why, sizeof why)))
        good = client_fail(client, "%s", why);
    good = good && find_parts(copy) && move_to_target(copy, &target);
    copy_end(copy); /* before the file is closed: workers may still write to it */
    target_close(&target);
    return good;
}

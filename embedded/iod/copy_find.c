/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * copy_find.c - finds the servers of a file, and opens its parts.
 *
 * A file belongs to its first server (store.h).  At any other server of the file the name leads
 * to a part, whose list of servers begins with the first one.  The object of the name there is
 * the file; its other parts are opened by its id.  A part that is gone was replaced meanwhile:
 * the search starts again, at a file with another id.
 */
#include "config.h"
#include "embedded/iod/clock.h"
#include "embedded/iod/copy.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define PAUSE_NS 20000000 /* ns before a restart */

bool copy_close_part(struct remote *r)
{
    struct iod_message request = {.op = IOD_OP_CLOSE, .handle = r->handle};
    bool open = r->open;

    r->state = REMOTE_IDLE;
    r->open = false;
    return !open || (remote_ask(r, &request) && client_wait_answers(r->client));
}

bool copy_open_at(struct copy *copy, struct remote *r, struct iod_id id)
{
    struct iod_message request = {
        .op = IOD_OP_GET_OPEN,
        .id = id,
        .buffer_size = copy->o.buffer_size,
        .buffers = copy->o.buffers,
        .name = iod_string_of(copy->name),
    };

    r->lenient = true;
    if (!copy_close_part(r) || !remote_ask(r, &request) || !client_wait_answers(&copy->client))
        return false;
    if (r->reply.status != IOD_OK)
        return true;
    r->layout = r->reply.layout;
    r->id = r->reply.id;
    r->mode = r->reply.mode;
    memcpy(r->servers, r->reply.servers.text, r->reply.servers.length);
    r->servers[r->reply.servers.length] = 0;
    return copy_take_grant(copy, r);
}

bool copy_refused(struct remote *r)
{
    if (r->state == REMOTE_ANSWERED && r->reply.status != IOD_OK)
        return remote_fail(r, "%.*s", (int)r->reply.text.length, r->reply.text.text);
    return remote_fail(r, "no such object; see what there is with bmi-ls");
}

/* ---- the recorded list, which is chosen by any client that may write the object ---- */

/* Returns true if this copy may contact the server. */
static bool may_go(const struct copy *copy, const char *uri)
{
    char host[256];

    for (int i = 0; i < copy->o.servers->count; i++)
        if (strcmp(uri, copy->o.servers->item[i]) == 0)
            return true;
    return strcmp(uri, copy->address) == 0 ||
           (copy->o.allow && access_host_of(uri, host, sizeof host) &&
            access_admits_name(copy->o.allow, host));
}

/* Sets `recorded` and `part` to the servers of the open part. */
static bool take_list(struct copy *copy, struct remote *r)
{
    struct args_list *list = &copy->recorded;

    args_list_free(list);
    copy->parts = (int)r->layout.count;
    copy->part[0] = r;
    if (copy->parts == 1)
        return true;
    if (args_split(r->servers, list) != ARGS_GOOD || list->count != copy->parts)
        return remote_fail(
            r, "striped over %u servers, which are not recorded; copy the file in again",
            r->layout.count);
    for (int i = 0; i < copy->parts; i++) {
        copy->part[i] = r;
        if (i == (int)r->layout.index)
            continue;
        if (!may_go(copy, list->item[i]))
            return remote_fail(r,
                               "part %d of %u is at %.200s, by a record that is not trusted; "
                               "admit its host with --allow, or name the servers with "
                               "bmi-cp's --servers",
                               i + 1, r->layout.count, list->item[i]);
        copy->part[i] = client_remote(&copy->client, list->item[i]);
        if (!copy->part[i])
            return false;
    }
    return true;
}

struct remote *copy_find_head(struct copy *copy)
{
    static const struct iod_id by_name;
    struct remote *at = client_remote(&copy->client, copy->address), *head;

    if (!at || !copy_open_at(copy, at, by_name))
        return NULL;
    if (!at->open)
        return copy_refused(at) ? at : NULL;
    if (!take_list(copy, at))
        return NULL;
    head = copy->part[0];
    if (at->layout.index == 0 || head == at)
        return at;
    if (!copy_open_at(copy, head, by_name))
        return NULL;
    if (head->open && head->layout.index == 0)
        return copy_close_part(at) && take_list(copy, head) ? head : NULL;
    if (!head->open && head->reply.status != IOD_NOT_FOUND)
        return copy_refused(head) ? at : NULL;
    return copy_close_part(head) ? at : NULL;
}

/* ---- copies out ---- */

static bool check_part(struct remote *r, const struct remote *head, int index)
{
    if (iod_id_compare(r->id, head->id) != 0 || r->layout.size != head->layout.size ||
        r->layout.strip != head->layout.strip || r->layout.count != head->layout.count ||
        (int)r->layout.index != index)
        return remote_fail(
            r, "this part and the part at %s are of different copies; copy the file in again",
            head->uri);
    return true;
}

/* Opens the other parts.  FIND_AGAIN: one is gone; *odd is its server. */
static enum find open_parts(struct copy *copy, struct remote *head, struct remote **odd)
{
    for (int i = 1; i < copy->parts; i++) {
        struct remote *r = copy->part[i];

        if (r == head || !copy_open_at(copy, r, head->id))
            return FIND_FAILED;
        *odd = r;
        if (!r->open && r->reply.status == IOD_STALE)
            return FIND_AGAIN;
        if (!r->open ? !copy_refused(r) : !check_part(r, head, i))
            return FIND_FAILED;
    }
    return FIND_GOOD;
}

bool copy_find(struct copy *copy, const char *address)
{
    int64_t deadline = clock_ms() + copy->client.o.timeout_ms;
    struct timespec pause = {.tv_nsec = PAUSE_NS};
    struct remote *head, *odd = NULL;
    struct iod_id before = {0};
    enum find found;

    copy->address = address;
    do {
        head = copy_find_head(copy);
        if (!head)
            return false;
        if (head->layout.index)
            return remote_fail(head, "no such object; see what there is with bmi-ls");
        found = open_parts(copy, head, &odd);
        if (found == FIND_AGAIN && iod_id_compare(before, head->id) == 0)
            return remote_fail(odd, "part of the file is missing here; copy the file in again");
        before = head->id;
        if (found == FIND_AGAIN)
            nanosleep(&pause, NULL);
    } while (found == FIND_AGAIN && clock_ms() < deadline);
    if (found == FIND_AGAIN)
        return remote_fail(odd, "being overwritten by others; copy the file again");
    for (int i = 0; i < copy->client.count; i++)
        copy->client.remote[i]->used = false;
    for (int i = 0; i < copy->parts && found == FIND_GOOD; i++)
        copy->part[i]->used = true;
    return found == FIND_GOOD;
}

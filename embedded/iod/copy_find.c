/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * copy_find.c - finds the copy of a file to be copied out, and its parts.
 *
 * The commit at the first server decides a copy in (store.h).  If the client or a server dies
 * about then, other servers have prepared parts only, or the parts of an earlier copy.  A copy
 * out completes the commit:
 *
 *  - A server reports a prepared part above its object of this name.  The upload is looked up
 *    at its first server: if found, it was decided; if unknown there, it cannot be decided any
 *    more and the part is dropped; if its client is still at work, it is ignored.
 *  - If no object has the name, a lower upload may be prepared that was decided: its first
 *    server has the name.
 *  - Any part leads to the first server of its upload.  If a higher upload has the name there,
 *    that one is used.
 *  - The other parts are opened by upload, which commits prepared ones.  A server with a higher
 *    upload was overwritten meanwhile: the search restarts there.
 *
 * A server at a limit is asked again, with nothing held at other servers meanwhile.
 *
 * With --servers exactly these servers are asked, in any order: the highest upload that has the
 * name at one of them was decided, and the others have it, or its part prepared.
 */
#include "config.h"
#include "embedded/iod/clock.h"
#include "embedded/iod/copy.h"

#include <errno.h>
#include <string.h>
#include <time.h>

#define PAUSE_NS  20000000 /* ns before a restart */
#define EMPTY_MAX 5        /* a server that has no part this often will not have one */

enum found { FOUND, AGAIN, FAILED };

/* ---- one server ---- */

static void forget_answer(struct remote *r)
{
    r->state = REMOTE_IDLE;
    r->open = false;
    r->upload = r->version = r->pending = 0;
}

bool copy_close_part(struct remote *r)
{
    struct iod_request request = {.op = IOD_OP_CLOSE, .handle = r->handle};
    bool open = r->open;

    forget_answer(r);
    return !open || (remote_ask(r, &request) && client_wait_answers(r->client));
}

/* Opens at a server where nothing is open.  `hasty`: something is open elsewhere. */
static bool ask_open(struct copy *copy, struct remote *r, uint64_t upload, bool hasty)
{
    struct iod_request request = {
        .op = IOD_OP_GET_OPEN,
        .upload = upload,
        .buffer_size = copy->o.buffer_size,
        .buffers = copy->o.buffers,
        .name = iod_string_of(copy->name),
    };

    r->lenient = true;
    r->hasty = hasty;
    return remote_ask(r, &request);
}

static void take_text(char *to, const struct iod_string *from)
{
    memcpy(to, from->text, from->length);
    to[from->length] = 0;
}

/* Stores the answer to an open; r->open is false after a refusal.  Returns false if the session
 * failed. */
static bool take_answer(struct copy *copy, struct remote *r)
{
    if (r->reply.status != IOD_OK)
        return true;
    r->layout = r->reply.layout;
    r->upload = r->open ? r->reply.upload : 0;
    r->version = r->open ? r->reply.version : 0;
    r->mode = r->reply.mode;
    r->pending = r->reply.pending;
    take_text(r->servers, &r->reply.servers);
    take_text(r->pending_servers, &r->reply.pending_servers);
    return copy_take_grant(copy, r);
}

bool copy_open_at(struct copy *copy, struct remote *r, uint64_t upload)
{
    return copy_close_part(r) && ask_open(copy, r, upload, false) &&
           client_wait_answers(&copy->client) && take_answer(copy, r);
}

/* As copy_open_at() for a server that is not required. */
static bool open_if_there(struct copy *copy, struct remote *r, uint64_t upload)
{
    struct client *client = &copy->client;

    if (copy_open_at(copy, r, upload))
        return true;
    if (r->lost && !(client->o.interrupted && *client->o.interrupted)) {
        remote_give_up(r);
        client->failed = false;
        forget_answer(r);
    }
    return false;
}

/* If a server is at a limit, closes everything and waits, because two copies could wait for
 * each other. */
static bool make_room(struct copy *copy, bool *full)
{
    struct client *client = &copy->client;

    *full = false;
    for (int i = 0; i < client->count; i++)
        if (remote_at_bound(client->remote[i])) {
            copy->odd = client->remote[i];
            *full = true;
        }
    copy->full = *full;
    if (!*full)
        return true;
    if (!client_give_back(client) || !client_pause(client))
        return false;
    for (int i = 0; i < client->count; i++)
        forget_answer(client->remote[i]);
    return true;
}

/* Fails the copy with the server's error. */
bool copy_refused(struct remote *r)
{
    if (r->state == REMOTE_ANSWERED && r->reply.status != IOD_OK)
        return remote_fail(r, "%.*s", (int)r->reply.text.length, r->reply.text.text);
    return remote_fail(r, "no such object; see what there is with bmi-ls");
}

static bool is_above(const struct remote *a, const struct remote *b)
{
    return a->version != b->version ? a->version > b->version : a->upload > b->upload;
}

/* Records a part below the decided upload without a prepared one.  Returns true if the previous
 * look found the same: the parts are of different copies.  One look is not sufficient, because
 * the name may have been removed and copied in again between the two answers. */
static bool left_behind_again(struct copy *copy, const struct remote *r,
                              const struct remote *head)
{
    bool behind = r->open && !r->pending && !is_above(r, head);
    bool again = copy->behind == r->upload && copy->ahead == head->upload;

    copy->behind = behind ? r->upload : 0;
    copy->ahead = head->upload;
    return behind && again;
}

static bool parts_differ(struct remote *r)
{
    return remote_fail(r, "the parts are of different copies; copy the file in again");
}

/* ---- recorded lists ---- */

/* Returns true if this copy may contact the server.  The recorded list is chosen by any client
 * that may write the object. */
static bool may_go(const struct copy *copy, const char *uri)
{
    char host[256];

    return strcmp(uri, copy->address) == 0 ||
           (copy->o.allow && access_host_of(uri, host, sizeof host) &&
            access_admits_name(copy->o.allow, host));
}

struct remote *copy_go(struct copy *copy, struct remote *r, const char *uri, uint32_t part)
{
    if (may_go(copy, uri))
        return client_remote(&copy->client, uri);
    remote_fail(
        r,
        "part %u of %u is at %.200s, by a record that is not trusted; admit its host with "
        "--allow, or name all servers with bmi-cp's --servers",
        part + 1, r->layout.count, uri);
    return NULL;
}

/* Splits the recorded server list, which must have an address for each part. */
bool copy_recorded(struct remote *r, struct args_list *recorded)
{
    if (args_split(r->servers, recorded) != ARGS_GOOD ||
        recorded->count != (int)r->layout.count)
        return remote_fail(
            r,
            "striped over %u servers, which are not recorded; name them with bmi-cp's "
            "--servers, or copy the file in again",
            r->layout.count);
    return true;
}

/* ---- prepared parts ---- */

static bool give_up_pending(struct copy *copy, struct remote *r)
{
    struct iod_request request = {
        .op = IOD_OP_FORGET, .upload = r->pending, .name = iod_string_of(copy->name)};
    bool good = remote_ask(r, &request) && client_wait_answers(&copy->client);

    r->pending = 0;
    return good;
}

/* Returns the first server of the upload prepared at `r`; NULL: not accessible. */
static struct remote *first_of_pending(struct copy *copy, struct remote *r)
{
    struct args_list list = {0};
    struct remote *head = NULL;

    if (args_split(r->pending_servers, &list) == ARGS_GOOD && list.count > 1 &&
        may_go(copy, list.item[0]) && strcmp(list.item[0], r->uri) != 0)
        head = client_remote(&copy->client, list.item[0]);
    args_list_free(&list);
    return head && !head->lost ? head : NULL;
}

/* Returns the first server with the prepared upload open, if decided; else NULL. */
static struct remote *decided(struct copy *copy, struct remote *r)
{
    struct remote *head = first_of_pending(copy, r);

    if (!head || !open_if_there(copy, head, r->pending))
        return NULL;
    if (!head->open && head->reply.status == IOD_STALE)
        give_up_pending(copy, r);
    return head->open ? head : NULL;
}

static struct remote *below_pending(struct copy *copy, struct remote *r)
{
    struct remote *head = first_of_pending(copy, r);

    return head && open_if_there(copy, head, 0) && head->open ? head : NULL;
}

/* ---- by recorded list ---- */

/* Opens the other parts of the upload that is open at its first server.  AGAIN: *start may
 * change. */
static enum found open_others(struct copy *copy, struct remote *head,
                              const struct args_list *list, struct remote **start)
{
    bool full;

    copy->part[0] = head;
    copy->parts = list->count;
    for (int i = 1; i < list->count; i++) {
        copy->part[i] = copy_go(copy, head, list->item[i], (uint32_t)i);
        if (!copy->part[i] || !copy_close_part(copy->part[i]))
            return FAILED;
    }
    for (int i = 1; i < list->count; i++)
        if (!ask_open(copy, copy->part[i], head->upload, true))
            return FAILED;
    if (!client_wait_answers(&copy->client) || !make_room(copy, &full))
        return FAILED;
    if (full)
        return AGAIN;
    for (int i = 1; i < list->count; i++)
        if (!take_answer(copy, copy->part[i]))
            return FAILED;
    for (int i = 1; i < list->count; i++) {
        struct remote *r = copy->part[i];

        if (r->open)
            continue;
        if (r->reply.status != IOD_STALE) {
            copy_refused(r);
            return FAILED;
        }
        if (!copy_open_at(copy, r, 0))
            return FAILED;
        if (left_behind_again(copy, r, head)) {
            parts_differ(r);
            return FAILED;
        }
        if (r->open && is_above(r, head))
            *start = r;
        copy->odd = r;
        return AGAIN;
    }
    return FOUND;
}

/* Moves from an open part to the first server of its upload.  NULL: see *result. */
static struct remote *go_to_head(struct copy *copy, struct remote *at, const char *uri,
                                 struct remote **start, enum found *result)
{
    struct remote *head;

    *result = FAILED;
    if (at->layout.index == 0)
        return at;
    head = copy_go(copy, at, uri, 0);
    if (!head || !copy_open_at(copy, head, 0))
        return NULL;
    if (head->open && head->upload == at->upload)
        return head;
    if (!head->open && !head->pending && head->reply.status != IOD_NOT_FOUND) {
        copy_refused(head);
        return NULL;
    }
    if (head->open && is_above(head, at))
        *start = head;
    copy->odd = head;
    *result = AGAIN;
    return NULL;
}

static enum found query_from(struct copy *copy, struct remote **start)
{
    struct remote *at = *start, *head;
    struct args_list list = {0};
    enum found result = FAILED;

    if (!copy_open_at(copy, at, 0))
        return FAILED;
    if (!at->open && !at->pending) {
        copy_refused(at);
        return FAILED;
    }
    head = at->pending ? decided(copy, at) : NULL;
    if (!head && !at->open && !copy->client.failed)
        head = below_pending(copy, at);
    if (copy->client.failed)
        return FAILED;
    at = head ? head : at;
    if (!at->open) {
        remote_fail(at, "no such object; see what there is with bmi-ls");
        return FAILED;
    }
    if (at->layout.count == 1) {
        copy->part[0] = at;
        copy->parts = 1;
        return FOUND;
    }
    if (!copy_recorded(at, &list))
        goto out;
    head = go_to_head(copy, at, list.item[0], start, &result);
    if (head)
        result = open_others(copy, head, &list, start);
out:
    args_list_free(&list);
    return result;
}

/* ---- by --servers ---- */

/* Opens `upload` at the servers that do not have it open.  FOUND: all have answered. */
static enum found open_missing(struct copy *copy, uint64_t upload)
{
    bool full;

    for (int i = 0; i < copy->parts; i++)
        if ((!copy->part[i]->open || copy->part[i]->upload != upload) &&
            !copy_close_part(copy->part[i]))
            return FAILED;
    for (int i = 0; i < copy->parts; i++)
        if (!copy->part[i]->open && !ask_open(copy, copy->part[i], upload, copy->parts > 1))
            return FAILED;
    if (!client_wait_answers(&copy->client) || !make_room(copy, &full))
        return FAILED;
    for (int i = 0; i < copy->parts && !full; i++)
        if (copy->part[i]->state == REMOTE_ANSWERED && !take_answer(copy, copy->part[i]))
            return FAILED;
    return full ? AGAIN : FOUND;
}

static enum found query_given(struct copy *copy)
{
    struct remote *best = NULL;
    enum found result;

    for (int i = 0; i < copy->parts; i++)
        if (!copy_close_part(copy->part[i]))
            return FAILED;
    if ((result = open_missing(copy, 0)) != FOUND)
        return result;
    for (int i = 0; i < copy->parts; i++) {
        struct remote *r = copy->part[i];

        if (!r->open && !r->pending && r->reply.status != IOD_NOT_FOUND) {
            copy_refused(r);
            return FAILED;
        }
        if (r->open && (!best || is_above(r, best)))
            best = r;
    }
    if (!best) {
        copy_refused(copy->part[0]);
        return FAILED;
    }
    if ((int)best->layout.count != copy->parts) {
        remote_fail(
            best,
            "striped over %u servers, but --servers names %d; name all of them, or omit "
            "--servers to use the recorded ones",
            best->layout.count, copy->parts);
        return FAILED;
    }
    if ((result = open_missing(copy, best->upload)) != FOUND)
        return result;
    for (int i = 0; i < copy->parts; i++) {
        copy->odd = copy->part[i];
        if (copy->odd->open)
            continue;
        if (!copy_open_at(copy, copy->odd, 0))
            return FAILED;
        if (left_behind_again(copy, copy->odd, best)) {
            parts_differ(copy->odd);
            return FAILED;
        }
        if (copy->odd->open || copy->odd->pending || ++copy->empty < EMPTY_MAX)
            return AGAIN;
        copy_refused(copy->odd);
        return FAILED;
    }
    return FOUND;
}

/* ---- both ---- */

bool copy_find(struct copy *copy, const char *address)
{
    const struct args_list *given = copy->o.servers;
    int64_t deadline = clock_ms() + copy->client.o.timeout_ms;
    struct timespec pause = {.tv_nsec = PAUSE_NS};
    struct remote *start = NULL;
    enum found found = AGAIN;

    copy->address = address;
    if (given->count == 0 && !(start = client_remote(&copy->client, address)))
        return false;
    copy->parts = given->count;
    for (int i = 0; i < given->count; i++)
        if (!(copy->part[i] = client_remote(&copy->client, given->item[i])))
            return false;
    while ((found = start ? query_from(copy, &start) : query_given(copy)) == AGAIN &&
           clock_ms() < deadline)
        nanosleep(&pause, NULL);
    if (found == AGAIN && copy->full)
        return remote_fail(copy->odd,
                           "too many open transfers; wait for other copies to end, or "
                           "raise bmi-iod's --transfers");
    if (found == AGAIN)
        return parts_differ(copy->odd);
    for (int i = 0; i < copy->client.count; i++)
        copy->client.remote[i]->used = false;
    for (int i = 0; i < copy->parts && found == FOUND; i++)
        copy->part[i]->used = true;
    return found == FOUND;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * copy_remove.c - removes a file from its servers.
 *
 * The first server decides, as in a copy in: once it has removed the upload the file is gone,
 * and the other parts follow.  A part whose first server has no file of that name is a leftover
 * of a removal and is removed by naming its server.  If the first server has a higher upload,
 * that is the file, and the removal restarts there.  Once the first server is asked, interrupts
 * are ignored, or parts would be left.
 *
 * A part that cannot be read at the named server is removed there only: its list of servers is
 * unknown, and the other parts are an incomplete file.
 */
#include "config.h"
#include "embedded/iod/clock.h"
#include "embedded/iod/copy.h"
#include "embedded/iod/text.h"

#include <stdio.h>
#include <string.h>

#define NO_UPLOAD UINT64_MAX /* removes only an object that cannot be read */

enum removal { REMOVED, AGAIN, FAILED };

/* Upload to be removed, according to its part at some server. */
struct target_upload {
    uint64_t upload;
    bool damaged; /* unreadable; the other fields are invalid */
    bool decided; /* false: prepared, its first server decides */
    struct args_list list;
};

static bool ask_removal(struct copy *copy, struct remote *r, uint64_t upload)
{
    struct iod_request request = {
        .op = IOD_OP_REMOVE, .upload = upload, .name = iod_string_of(copy->name)};

    r->lenient = true;
    r->hasty = false;
    return remote_ask(r, &request);
}

static bool is_absent(const struct remote *r)
{
    return r->reply.status == IOD_OK || r->reply.status == IOD_STALE;
}

static bool find_upload(struct copy *copy, struct remote *at, struct target_upload *t)
{
    if (!copy_open_at(copy, at, 0))
        return false;
    t->damaged = at->reply.status == IOD_DAMAGED || at->reply.status == IOD_IO;
    if (t->damaged)
        return true;
    t->decided = at->open;
    t->upload = at->open ? at->upload : at->pending;
    if (!t->upload)
        return copy_refused(at);
    if (t->decided) {
        if (at->layout.count > 1 && !copy_recorded(at, &t->list))
            return false;
    } else {
        memcpy(at->servers, at->pending_servers, sizeof at->servers);
        if (args_split(at->servers, &t->list) != ARGS_GOOD || t->list.count < 2)
            return remote_fail(at, "no such object; see what there is with bmi-ls");
    }
    return copy_close_part(at);
}

/* Removes at the first server.  AGAIN: *start has another upload, above this one, or, if this
 * one is prepared and undecided, instead of it. */
static enum removal remove_first(struct copy *copy, struct remote *head,
                                 const struct target_upload *t, struct remote **start)
{
    if (!ask_removal(copy, head, t->upload) || !client_wait_answers(&copy->client))
        return FAILED;
    if (head->reply.status == IOD_OK)
        return REMOVED;
    if (!is_absent(head) && (t->decided || head->reply.status != IOD_BUSY)) {
        copy_refused(head);
        return FAILED;
    }
    if (!copy_open_at(copy, head, 0))
        return FAILED;
    if (!head->open && head->reply.status != IOD_OK && head->reply.status != IOD_NOT_FOUND) {
        copy_refused(head);
        return FAILED;
    }
    *start = head;
    if (head->open)
        return AGAIN;
    if (t->decided)
        return REMOVED;
    remote_fail(head, "no such object; see what there is with bmi-ls");
    return FAILED;
}

static enum removal remove_others(struct copy *copy, struct remote *at,
                                  const struct target_upload *t)
{
    struct client *client = &copy->client;
    char why[CLIENT_WHY];

    for (int i = 1; i < t->list.count; i++) {
        struct remote *r = copy_go(copy, at, t->list.item[i], (uint32_t)i);

        if (!r || !copy_close_part(r) || !ask_removal(copy, r, t->upload))
            goto left;
    }
    if (!client_wait_answers(client))
        goto left;
    for (int i = 1; i < t->list.count; i++) {
        struct remote *r = client_remote(client, t->list.item[i]);

        if (!r || (!is_absent(r) && !copy_refused(r)))
            goto left;
    }
    return REMOVED;

left:
    memcpy(why, client->why, sizeof why);
    client->failed = false;
    client_fail(client, "%.800s; the file is removed, but not this part: remove the part there",
                why);
    return FAILED;
}

static enum removal remove_damaged(struct copy *copy, struct remote *at)
{
    if (!ask_removal(copy, at, NO_UPLOAD) || !client_wait_answers(&copy->client))
        return FAILED;
    if (at->reply.status == IOD_STALE)
        return AGAIN;
    if (!is_absent(at)) {
        copy_refused(at);
        return FAILED;
    }
    snprintf(copy->note, sizeof copy->note,
             "%.300s/%.250s: damaged object removed at this server only; remove parts at other "
             "servers there",
             at->uri, copy->name);
    text_no_controls(copy->note);
    return REMOVED;
}

static enum removal remove_from(struct copy *copy, struct remote **start)
{
    struct target_upload t = {0};
    struct remote *at = *start, *head = at;
    enum removal result = FAILED;

    if (!find_upload(copy, at, &t))
        goto out;
    if (t.damaged) {
        result = remove_damaged(copy, at);
        goto out;
    }
    for (int i = t.list.count - 1; i >= 0 && head; i--) /* before anything is removed */
        head = copy_go(copy, at, t.list.item[i], (uint32_t)i);
    copy->client.o.interrupted = NULL;
    if (head)
        result = remove_first(copy, head, &t, start);
    if (result == REMOVED)
        result = remove_others(copy, at, &t);
    copy->client.o.interrupted = copy->o.client.interrupted;
out:
    args_list_free(&t.list);
    return result;
}

bool copy_remove(struct copy *copy, const struct copy_options *options, const char *address,
                 const char *name)
{
    bool good = copy_begin(copy, options) && copy_set_name(copy, name);
    int64_t deadline = clock_ms() + options->client.timeout_ms;
    enum removal result = FAILED;
    struct remote *start = NULL;

    copy->address = address;
    if (good)
        start = client_remote(&copy->client, address);
    if (start)
        while ((result = remove_from(copy, &start)) == AGAIN && clock_ms() < deadline)
            ;
    if (result == AGAIN)
        remote_fail(start, "being overwritten by others; remove the file again");
    copy_end(copy);
    return result == REMOVED;
}

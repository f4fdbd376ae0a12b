/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * copy.c - session and data movement of a copy.  One request and one flow move the data of each
 * server.  Servers progress independently; all flows share a pool with room for `buffers`
 * messages of each.
 */
#include "config.h"
#include "embedded/iod/copy.h"
#include "embedded/iod/clock.h"
#include "embedded/iod/layout.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>

static void show_progress(struct client *client, void *arg)
{
    struct copy *copy = arg;
    uint64_t done = 0;

    for (int i = 0; i < client->count; i++) {
        const struct remote *r = client->remote[i];
        done += r->moved + (r->flow != NULL ? flow_status(r->flow).bytes : 0);
    }
    progress_show(&copy->progress, done);
}

static bool set_name(struct copy *copy, const char *name)
{
    size_t length = strlen(name);

    if (length == 0)
        return client_fail(&copy->client, "the remote name is empty; write ADDR/name");
    if (length > IOD_NAME_MAX)
        return client_fail(&copy->client, "%.60s...: the name has %zu bytes; use at most %d",
                           name, length, IOD_NAME_MAX);
    memcpy(copy->name, name, length + 1);
    copy->client.subject = copy->name;
    return true;
}

bool copy_begin(struct copy *copy, const struct copy_options *options, const char *address,
                const char *name)
{
    *copy = (struct copy){.o = *options, .fd = -1, .address = address};
    if (!client_open(&copy->client, &options->client))
        return false;
    copy->client.tick = show_progress;
    copy->client.tick_arg = copy;
    if (!set_name(copy, name) || client_remote(&copy->client, address) == NULL)
        return false;
    for (int i = 0; i < options->servers->count; i++)
        if (client_remote(&copy->client, options->servers->item[i]) == NULL)
            return false;
    return true;
}

void copy_end(struct copy *copy)
{
    progress_end(&copy->progress);
    client_close(&copy->client);
}

/* ---- objects ---- */

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
    return copy_take_grant(copy, r);
}

bool copy_refused(struct remote *r)
{
    return remote_fail(r, "%.*s", (int)r->reply.text.length, r->reply.text.text);
}

bool copy_take_grant(struct copy *copy, struct remote *r)
{
    r->buffer_size = r->reply.buffer_size;
    r->buffers = r->reply.buffers;
    if (r->buffer_size > copy->o.buffer_size || r->buffers > copy->o.buffers)
        return remote_fail(
            r, "the server grants more than was requested; are client and server of the same "
               "release?");
    return true;
}

/* ---- data ---- */

static bool start_flow(struct copy *copy, struct remote *r, bmi_msg_tag_t tag)
{
    struct flow_config config = {
        .context = copy->client.context,
        .workers = copy->client.workers,
        .pool = copy->client.pool,
        .addr = r->addr,
        .tag = tag,
        .send = copy->put,
        .move = file_move,
        .file = &r->file,
        .size = layout_object_size(&r->layout),
        .message = r->buffer_size,
        .depth = r->buffers,
        .done = client_flow_ended,
        .arg = r,
    };
    int error;

    r->file = (struct file_part){.fd = copy->fd, .layout = r->layout};
    atomic_store(&r->flow_ended, false);
    error = flow_start(&config, &r->flow);
    if (error)
        return remote_fail(r, "cannot start the transfer: %s; use fewer --buffers",
                           strerror(-error));
    return true;
}

/* Starts the transfer of a server.  Receives are posted before the request, sends after it. */
static bool start_part(struct copy *copy, struct remote *r)
{
    struct iod_message request = {.op = copy->put ? IOD_OP_WRITE : IOD_OP_READ,
                                  .handle = r->handle,
                                  .data_tag = copy->client.tag++};

    r->lenient = false;
    r->state = REMOTE_IDLE; /* all answers so far are handled */
    if (!r->used || layout_object_size(&r->layout) == 0)
        return true;
    if (copy->put)
        return remote_ask(r, &request) && start_flow(copy, r, request.data_tag);
    return start_flow(copy, r, request.data_tag) && remote_ask(r, &request);
}

static bool file_failed(struct copy *copy, int error)
{
    const char *remedy = "check the disk";
    struct stat now;

    if (error == -ENODATA) {
        bool shorter = fstat(copy->fd, &now) < 0 || (uint64_t)now.st_size < copy->size;

        return client_fail(
            &copy->client, "%s: %s", copy->path,
            shorter
                ? "truncated during the copy; copy again"
                : "fewer bytes than the file's size; copy the data to a regular file first");
    }
    if (error == -ENOSPC || error == -EDQUOT)
        remedy = "free space there or choose another destination";
    else if (error == -EFBIG && file_size_is_limited())
        remedy = "raise the file size limit (ulimit -f)";
    return client_fail(&copy->client, "%s: cannot %s: %s; %s", copy->path,
                       copy->put ? "read" : "write", strerror(-error), remedy);
}

/* Handles the end of a server's transfer.  Returns true if nothing remains for the server. */
static bool step(struct copy *copy, struct remote *r)
{
    struct flow_status status;

    if (r->flow != NULL && atomic_load(&r->flow_ended)) {
        status = flow_status(r->flow);
        if (status.error && status.side == FLOW_FILE)
            return file_failed(copy, status.error);
        if (status.error && status.side == FLOW_MEMORY)
            return client_fail(&copy->client, "no memory for buffers; use smaller --buffers or "
                                              "--buffer-size");
        if (status.error || r->state != REMOTE_ANSWERED)
            return false; /* the session handles network errors */
        r->moved = status.bytes;
        flow_free(r->flow);
        r->flow = NULL;
        r->state = REMOTE_IDLE;
    }
    return r->flow == NULL && r->state != REMOTE_ASKED; /* asked: a keep-alive */
}

static bool all_moved(struct client *client)
{
    struct copy *copy = (struct copy *)client;
    bool done = true;

    for (int i = 0; i < client->count && !client->failed; i++)
        done &= step(copy, client->remote[i]);
    return done && !client->failed;
}

bool copy_data(struct copy *copy)
{
    struct client *client = &copy->client;
    int error = pool_new(client->workers, client->remote[0]->addr, copy->o.buffer_size,
                         (int)copy->o.buffers * client->count, false, &client->pool);

    if (error)
        return client_fail(client, "no memory for buffers; close other programs");
    progress_begin(&copy->progress, copy->o.bar, copy->size);
    for (int i = 0; i < client->count; i++)
        if (!start_part(copy, client->remote[i]))
            return false;
    client_wait(client, all_moved);
    progress_end(&copy->progress);
    return !client->failed;
}

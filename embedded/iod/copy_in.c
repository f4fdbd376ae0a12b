/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * copy_in.c - copies a file to servers: opens an upload at each, moves the data, seals all,
 * commits at the first server, then at the others (store.h).  The first server is that of the
 * object's name, also if --servers has another order.
 *
 * Before the first server commits, any failure aborts the whole copy.  This commit decides.
 * Once it is requested the client drops nothing and ignores interrupts; if the client or a
 * server dies, the file is complete.  The copy has therefore succeeded when the first server
 * confirms; the others only remove the parts of the replaced file.  If the first server's disk
 * fails, the decision is unknown.
 */
#include "config.h"
#include "embedded/iod/copy.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool open_source(struct copy *copy, const char *source, struct stat *st)
{
    struct client *client = &copy->client;
    char byte;

    copy->path = source;
    copy->fd = open(source, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* O_NONBLOCK: do not block on a
                                                                 * FIFO */
    if (copy->fd < 0)
        return client_fail(client, "%.*s: cannot read: %s; %s", PATH_MAX, source,
                           strerror(errno),
                           errno == ENOENT   ? "check the name"
                           : errno == EACCES ? "get permission to read it"
                                             : "choose another file");
    if (fstat(copy->fd, st) < 0)
        return client_fail(client, "%s: %s; check the disk", source, strerror(errno));
    if (S_ISDIR(st->st_mode))
        return client_fail(client, "%s: is a directory; copy its files one by one", source);
    if (!S_ISREG(st->st_mode))
        return client_fail(client, "%s: is not a regular file; copy a file", source);
    if (st->st_size == 0 && pread(copy->fd, &byte, 1, 0) > 0) /* as in /proc */
        return client_fail(client, "%s: unknown size; copy the data to a regular file first",
                           source);
    return true;
}

static bool open_uploads(struct copy *copy, mode_t mode)
{
    struct iod_message request = {
        .op = IOD_OP_PUT_OPEN,
        .mode = mode & 0777,
        .buffer_size = copy->o.buffer_size,
        .buffers = copy->o.buffers,
        .name = iod_string_of(copy->name),
    };
    struct remote *first = copy->client.remote[0];

    for (int i = 0; i < copy->client.count; i++)
        copy->client.remote[i]->layout =
            (struct iod_layout){.size = copy->size,
                                .strip = copy->strip,
                                .index = (uint32_t)i,
                                .count = (uint32_t)copy->client.count};
    request.layout = first->layout;
    if (!remote_ask(first, &request) || !client_wait_answers(&copy->client))
        return false;
    request.id = first->reply.id;
    if (!client_ask_all(&copy->client, &request, 1))
        return false;
    for (int i = 0; i < copy->client.count; i++)
        if (!copy_take_grant(copy, copy->client.remote[i]))
            return false;
    return true;
}

/* Sets whether the parts are dropped at the end. */
static void keep_open(struct client *client, bool open)
{
    for (int i = 0; i < client->count; i++)
        client->remote[i]->open = open;
}

/* Returns true if the disk failed, possibly after the rename, which decides: syncing the folder
 * follows. */
static bool disk_failed(const struct iod_message *reply)
{
    return reply->status == IOD_IO || reply->status == IOD_NO_SPACE ||
           reply->status == IOD_QUOTA || reply->status == IOD_READ_ONLY;
}

/* Commits at the first server, which decides.  Returns false if the session failed. */
static bool commit_first(struct copy *copy)
{
    struct client *client = &copy->client;
    struct remote *first = client->remote[0];
    struct iod_message commit = {.op = IOD_OP_COMMIT, .handle = first->handle};
    const volatile sig_atomic_t *interrupted = client->o.interrupted;
    char why[CLIENT_WHY];

    if (interrupted != NULL && *interrupted) {
        client_wait_answers(client); /* reports the interrupt */
        return false;
    }
    client->o.interrupted = NULL;
    keep_open(client, false);
    if (remote_ask(first, &commit) && client_wait_answers(client))
        return true;
    if (first->state == REMOTE_ANSWERED && !disk_failed(&first->reply)) {
        /* refused: nothing was committed */
        keep_open(client, true);
        return false;
    }
    memcpy(why, client->why, sizeof why);
    client->failed = false;
    return client_fail(
        client, "%.800s; unknown whether the whole copy was committed or nothing: copy again",
        why);
}

static void commit_others(struct copy *copy)
{
    struct client *client = &copy->client;
    struct iod_message commit = {.op = IOD_OP_COMMIT};

    if (client_ask_all(client, &commit, 1))
        return;
    client->failed = false;
    snprintf(
        copy->note, sizeof copy->note,
        "%.800s; committed, but this server may keep the replaced part until the next copy in",
        client->why);
}

static bool finish_uploads(struct copy *copy)
{
    struct iod_message seal = {.op = IOD_OP_SEAL};

    if (!client_ask_all(&copy->client, &seal, 0) || !commit_first(copy))
        return false;
    if (copy->client.remote[0]->reply.flags & IOD_FLAG_REPLACED)
        keep_open(&copy->client, true); /* to give the other parts up */
    else
        commit_others(copy);
    return true;
}

bool copy_in(struct copy *copy, const struct copy_options *options, const char *source,
             const char *address, const char *name)
{
    struct stat st;
    bool good = copy_begin(copy, options, address, name) && open_source(copy, source, &st);

    copy->put = true;
    if (good) {
        copy->size = (uint64_t)st.st_size;
        copy->strip = copy->o.strip;
        copy->servers = copy->client.count;
        good = open_uploads(copy, st.st_mode) && copy_data(copy) && finish_uploads(copy);
    }
    copy_end(copy); /* before the file is closed: workers may still read it */
    if (copy->fd >= 0)
        close(copy->fd);
    return good;
}

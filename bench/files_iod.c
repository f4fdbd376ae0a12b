/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Files on bmi-iod, by the session of bmi-cp (embedded/iod/client.h). Data is sent from, and
 * received into, the caller's memory.
 *
 *   make     PUT_OPEN, WRITE, SEAL, COMMIT: atomic replacement
 *   read     GET_OPEN, READ, CLOSE
 *   look     GET_OPEN, CLOSE
 *   remove   REMOVE
 */
#include "config.h"
#include "bench/files.h"
#include "embedded/iod/client.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Data of one request at one server. */
struct part {
    struct net_op op;
    bool posted, writes;
    int error;
    int64_t bytes;
    struct iod_extent extent[2 * FILES_PIECES];
    struct iovec memory[2 * FILES_PIECES];
    unsigned count;
};

struct iod_files {
    struct client client; /* first: the callback of client_wait() converts it to the files */
    struct files files;
    struct part *part; /* one per server */
    uint64_t origin;   /* of the last file made */
    uint64_t size;     /* of the striped file */
    char name[IOD_NAME_MAX + 1];
    char servers[IOD_SERVERS_MAX + 1];
    bool writes;
};

static struct iod_files *of(struct files *files)
{
    return (struct iod_files *)((char *)files - offsetof(struct iod_files, files));
}

static bool failed(struct iod_files *f)
{
    snprintf(f->files.why, sizeof f->files.why, "%.1000s", f->client.why);
    return false;
}

/* ---- requests and data ---- */

static void data_done(struct net_op *op, int error, int64_t actual)
{
    struct part *p = (struct part *)((char *)op - offsetof(struct part, op));

    op->id = 0;
    p->posted = false;
    p->error = error ? error : p->writes || actual == p->bytes ? 0 : -EPROTO;
}

static bool post(struct iod_files *f, struct remote *r, struct part *p, bool writes,
                 bmi_msg_tag_t tag)
{
    struct net_memory memory = {
        .type = BMI_EXT_ALLOC, .pieces = (int)p->count, .piece = p->memory};
    int64_t actual = p->bytes;
    int result;

    p->op.done = data_done;
    p->writes = writes;
    p->error = 0;
    if (p->bytes > r->buffer_size)
        return remote_fail(r, "the server grants messages of %u bytes, but %lld are needed",
                           r->buffer_size, (long long)p->bytes);
    result =
        writes ? net_send(f->client.context, r->addr, &memory, p->bytes, tag, &p->op)
               : net_recv(f->client.context, r->addr, &memory, p->bytes, tag, &p->op, &actual);
    p->posted = result == 0;
    if (result < 0)
        return remote_lost(r, result);
    return result == 0 || actual == p->bytes || remote_lost(r, -EPROTO);
}

static bool all_done(struct client *client)
{
    struct iod_files *f = (struct iod_files *)client;
    bool done = true;

    for (int i = 0; i < client->count && !client->failed; i++) {
        if (f->part[i].error)
            remote_lost(client->remote[i], f->part[i].error);
        done &= client->remote[i]->state != REMOTE_ASKED && !f->part[i].posted;
    }
    return done && !client->failed;
}

/* Starts the transfer of a server's part. A receive is posted before the request, a send after
 * it; replies are awaited later. */
static bool start_part(struct iod_files *f, unsigned i, bool writes)
{
    struct remote *r = f->client.remote[i];
    struct part *p = &f->part[i];
    struct iod_message request = {.op = writes ? IOD_OP_WRITE : IOD_OP_READ,
                                  .handle = r->handle,
                                  .data_tag = f->client.tag++,
                                  .extents = {.array = p->extent, .count = p->count}};

    if (writes)
        return remote_ask(r, &request) && post(f, r, p, true, request.data_tag);
    return post(f, r, p, false, request.data_tag) && remote_ask(r, &request);
}

static bool ask(struct iod_files *f, struct remote *r, struct iod_message *request)
{
    request->handle = r->handle;
    return remote_ask(r, request) && client_wait_answers(&f->client);
}

static bool opened(struct remote *r)
{
    r->open = r->reply.handle != 0;
    r->handle = r->reply.handle;
    r->buffer_size = r->reply.buffer_size;
    return r->open || remote_fail(r, "no such object");
}

/* ---- small files ---- */

static struct remote *home(struct iod_files *f, const char *name, struct part **part)
{
    unsigned i = files_home(&f->files, name);

    *part = &f->part[i];
    return f->client.remote[i];
}

static void whole(struct part *p, char *data, size_t size)
{
    p->extent[0] = (struct iod_extent){0, size};
    p->memory[0] = (struct iovec){data, size};
    p->bytes = (int64_t)size;
    p->count = 1;
}

static bool move_whole(struct iod_files *f, const char *name, bool writes)
{
    return start_part(f, files_home(&f->files, name), writes) &&
           client_wait(&f->client, all_done);
}

static bool make(struct files *files, const char *name, char *data, size_t size, uint64_t *id)
{
    struct iod_files *f = of(files);
    struct part *p;
    struct remote *r = home(f, name, &p);
    struct iod_message open = {.op = IOD_OP_PUT_OPEN,
                               .layout = {size, FILES_STRIP, 0, 1},
                               .mode = 0600,
                               .buffer_size = FILES_BYTES,
                               .buffers = 1,
                               .name = iod_string_of(name),
                               .servers = iod_string_of(r->uri)};
    struct iod_message seal = {.op = IOD_OP_SEAL}, commit = {.op = IOD_OP_COMMIT};

    whole(p, data, size);
    if (!ask(f, r, &open) || !opened(r))
        return failed(f);
    *id = r->reply.id.upload;
    f->origin = r->reply.id.origin;
    if ((size && !move_whole(f, name, true)) || !ask(f, r, &seal) || !ask(f, r, &commit))
        return failed(f);
    r->open = false;
    return !(r->reply.flags & IOD_FLAG_REPLACED) ||
           remote_fail(r, "another file has the name") || failed(f);
}

static bool open_to_read(struct iod_files *f, const char *name, struct remote *r)
{
    struct iod_message open = {.op = IOD_OP_GET_OPEN,
                               .buffer_size = FILES_BYTES,
                               .buffers = 1,
                               .name = iod_string_of(name)};

    return ask(f, r, &open) && opened(r);
}

static bool close_read(struct iod_files *f, struct remote *r)
{
    struct iod_message close = {.op = IOD_OP_CLOSE};

    r->open = false;
    return ask(f, r, &close);
}

static bool look(struct files *files, const char *name, uint64_t *size)
{
    struct iod_files *f = of(files);
    struct part *p;
    struct remote *r = home(f, name, &p);

    if (!open_to_read(f, name, r))
        return failed(f);
    *size = r->reply.layout.size;
    return close_read(f, r) || failed(f);
}

static bool read_whole(struct files *files, const char *name, char *data, size_t size)
{
    struct iod_files *f = of(files);
    struct part *p;
    struct remote *r = home(f, name, &p);

    whole(p, data, size);
    if (!open_to_read(f, name, r))
        return failed(f);
    if (r->reply.layout.size != size) {
        remote_fail(r, "%s has %llu bytes, not %zu", name,
                    (unsigned long long)r->reply.layout.size, size);
        return failed(f);
    }
    return ((!size || move_whole(f, name, false)) && close_read(f, r)) || failed(f);
}

static bool remove_file(struct files *files, const char *name, uint64_t id)
{
    struct iod_files *f = of(files);
    struct part *p;
    struct remote *r = home(f, name, &p);
    struct iod_message request = {
        .op = IOD_OP_REMOVE, .id = {f->origin, id}, .name = iod_string_of(name)};

    return ask(f, r, &request) || failed(f);
}

/* ---- a striped file ---- */

static bool begin(struct files *files, const char *name, uint64_t size, bool writes)
{
    struct iod_files *f = of(files);
    struct client *client = &f->client;
    struct iod_message open = {.op = writes ? IOD_OP_PUT_OPEN : IOD_OP_GET_OPEN,
                               .mode = 0600,
                               .buffer_size = FILES_BYTES,
                               .buffers = 1,
                               .name = iod_string_of(name),
                               .servers = iod_string_of(f->servers)};

    f->writes = writes;
    for (unsigned i = 0; i < files->servers; i++)
        client->remote[i]->layout =
            (struct iod_layout){size, FILES_STRIP, i, (uint32_t)files->servers};
    open.layout = client->remote[0]->layout;
    if (!ask(f, client->remote[0], &open))
        return failed(f);
    open.id = client->remote[0]->reply.id;
    if (!client_ask_all(client, &open, 1))
        return failed(f);
    for (unsigned i = 0; i < files->servers; i++) {
        struct remote *r = client->remote[i];

        if (!opened(r))
            return failed(f);
        if (!writes && (r->reply.layout.size != size || r->reply.layout.index != i)) {
            remote_fail(r, "%s is another file", name);
            return failed(f);
        }
    }
    return true;
}

static bool move(struct files *files, const struct files_piece *piece, unsigned count)
{
    struct iod_files *f = of(files);

    for (unsigned i = 0; i < files->servers; i++)
        f->part[i].bytes = f->part[i].count = 0;
    for (unsigned k = 0; k < count; k++) {
        struct files_piece rest = piece[k];

        while (rest.length) {
            unsigned i;
            struct files_piece cut = files_cut(files, &rest, &i);
            struct part *p = &f->part[i];

            p->extent[p->count] = (struct iod_extent){cut.offset, cut.length};
            p->memory[p->count++] = (struct iovec){cut.memory, cut.length};
            p->bytes += (int64_t)cut.length;
        }
    }
    for (unsigned i = 0; i < files->servers; i++)
        if (f->part[i].count && !start_part(f, i, f->writes))
            return failed(f);
    return client_wait(&f->client, all_done) || failed(f);
}

static bool end(struct files *files)
{
    struct iod_files *f = of(files);
    struct client *client = &f->client;
    struct iod_message seal = {.op = IOD_OP_SEAL}, commit = {.op = IOD_OP_COMMIT},
                       close = {.op = IOD_OP_CLOSE};

    for (unsigned i = 0; i < files->servers; i++)
        client->remote[i]->open = false;
    if (!f->writes)
        return client_ask_all(client, &close, 0) || failed(f);
    return (client_ask_all(client, &seal, 0) && ask(f, client->remote[0], &commit) &&
            client_ask_all(client, &commit, 1)) ||
           failed(f);
}

/* ---- start and end ---- */

static void close_files(struct files *files)
{
    struct iod_files *f = of(files);

    client_close(&f->client);
    free(f->part);
    free(f);
}

static const struct files_ops ops = {.make = make,
                                     .look = look,
                                     .read = read_whole,
                                     .remove = remove_file,
                                     .begin = begin,
                                     .move = move,
                                     .end = end,
                                     .close = close_files};

struct files *files_open_iod(const struct files_config *config, char *why, size_t size)
{
    struct client_options options = {
        .options = config->options, .timeout_ms = 30000, .threads = 1};
    struct iod_files *f = calloc(1, sizeof *f);
    bool good;

    snprintf(why, size, "out of memory");
    if (!f)
        return NULL;
    f->files = (struct files){.ops = &ops, .servers = config->servers};
    f->part = calloc(config->servers, sizeof *f->part);
    good = client_open(&f->client, &options) && f->part;
    for (unsigned i = 0; good && i < config->servers; i++) {
        size_t at = strlen(f->servers);

        good = client_remote(&f->client, config->server[i]) != NULL;
        snprintf(f->servers + at, sizeof f->servers - at, "%s%s", i ? "," : "",
                 config->server[i]);
    }
    if (good)
        return &f->files;
    if (f->client.failed)
        snprintf(why, size, "%s", f->client.why);
    close_files(&f->files);
    return NULL;
}

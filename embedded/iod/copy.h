/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* copy.h - a copy in (file to servers), a copy out (servers to file), or a removal. */
#ifndef IOD_COPY_H
#define IOD_COPY_H

#include "embedded/iod/args.h"
#include "embedded/iod/client.h"
#include "embedded/iod/progress.h"

struct copy_options {
    struct client_options client;
    const struct args_list *servers; /* of --servers; count 0: not given */
    uint64_t strip;                  /* bytes; for copies in */
    uint32_t buffers;                /* messages in flight per server */
    uint32_t buffer_size;            /* bytes of a message */
    bool bar;                        /* show progress on a terminal */
};

/* Copy in progress.  copy_in() and copy_out() set `size` to `servers` for the report. */
struct copy {
    struct client client; /* first member: the session's callbacks convert the pointer */
    struct copy_options o;
    struct progress progress;
    const char *address;         /* of the first server */
    char name[IOD_NAME_MAX + 1]; /* of the object */
    const char *path;            /* of the local file, for messages */
    int fd;
    bool put;
    uint64_t size; /* bytes of the file */
    uint64_t strip;
    int servers;
    char note[CLIENT_WHY]; /* remark on a success; empty: none */
};

/*
 * Runs a session with one copy.  `address`, of the first server, and `name` are those of the
 * object.  Returns false on failure, with one line in copy->client.why.
 */
bool copy_in(struct copy *copy, const struct copy_options *options, const char *source,
             const char *address, const char *name);
bool copy_out(struct copy *copy, const struct copy_options *options, const char *address,
              const char *name, const char *destination);

/* Removes the file from its servers. */
bool copy_remove(struct copy *copy, const struct copy_options *options, const char *address,
                 const char *name);

/* ---- shared by these (copy.c) ---- */

/* Starts the session with all servers, of which `address` is the first. */
bool copy_begin(struct copy *copy, const struct copy_options *options, const char *address,
                const char *name);
void copy_end(struct copy *copy);

/* Opens the object of a copy (id.upload 0: of the name) and waits.  Returns false if the
 * session failed; r->open: found. */
bool copy_open_at(struct copy *copy, struct remote *r, struct iod_id id);
/* Closes what is open there, if anything, and waits. */
bool copy_close_part(struct remote *r);
/* Fails the session with the server's error; returns false. */
bool copy_refused(struct remote *r);

/* Stores the grant of an open reply, after a check. */
bool copy_take_grant(struct copy *copy, struct remote *remote);

/* Moves the data of all servers. */
bool copy_data(struct copy *copy);

#endif

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
    const struct access *allow;      /* hosts that a recorded list may name; NULL: none */
    uint64_t strip;                  /* bytes; for copies in */
    uint32_t buffers;                /* messages in flight per server */
    uint32_t buffer_size;            /* bytes of a message */
    int list;                        /* segments of memory per message */
    bool sync;                       /* out: sync the file before success */
    bool bar;                        /* show progress on a terminal */
};

/* Copy in progress.  copy_in() and copy_out() set `size` to `servers` for the report. */
struct copy {
    struct client client; /* first member: the session's callbacks convert the pointer */
    struct copy_options o;
    struct progress progress;
    char name[IOD_NAME_MAX + 1]; /* of the object */
    const char *path;            /* of the local file, for messages */
    int fd;
    bool put;
    bool sparse;
    uint64_t size; /* bytes of the file */
    uint64_t data; /* bytes to be moved: without holes */
    uint64_t strip;
    int servers;
    char note[CLIENT_WHY]; /* remark on a success; empty: none */

    /* results of copy_find() */
    const char *address; /* address at which the object was named */
    struct remote *part[IOD_STRIPE_MAX];
    int parts;
    struct args_list recorded; /* addresses of the parts, if several */
};

/*
 * Runs a session with one copy.  `address` and `name` are those of the object.  Returns false
 * on failure, with one line in copy->client.why.
 */
bool copy_in(struct copy *copy, const struct copy_options *options, const char *source,
             const char *address, const char *name);
bool copy_out(struct copy *copy, const struct copy_options *options, const char *address,
              const char *name, const char *destination);

/* Removes the file from its servers, and leftovers whose first server has no such file. */
bool copy_remove(struct copy *copy, const struct copy_options *options, const char *address,
                 const char *name);

/* ---- copies out and removals (copy_find.c) ---- */

enum find { FIND_GOOD, FIND_AGAIN, FIND_FAILED }; /* FIND_FAILED: the session has failed */

/* Opens the part of a copy (id.upload 0: the object of the name) and waits.  Returns false if
 * the session failed; r->open: found. */
bool copy_open_at(struct copy *copy, struct remote *r, struct iod_id id);
/* Closes what is open there, if anything, and waits. */
bool copy_close_part(struct remote *r);
/* Fails the session with the server's error; returns false. */
bool copy_refused(struct remote *r);
/* Opens the object of the name, and finds its servers: `recorded` and `part`, all of which this
 * copy may contact.  Returns the server with part 0 open, or if the first server has no object
 * of the name that with a left part; NULL: the session has failed. */
struct remote *copy_find_head(struct copy *copy);
/* For copies out: opens all parts of one copy of the file. */
bool copy_find(struct copy *copy, const char *address);

/* For both directions: the session. */
bool copy_begin(struct copy *copy, const struct copy_options *options);
void copy_end(struct copy *copy);

/* For both: moves the extents of all servers, and makes the pool of buffers. */
bool copy_data(struct copy *copy);

/* For both: stores the name; returns false if the name is invalid. */
bool copy_set_name(struct copy *copy, const char *name);

/* For both: stores the grant of an open reply, after a check. */
bool copy_take_grant(struct copy *copy, struct remote *remote);

#endif

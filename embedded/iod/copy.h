/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * copy.h - one copy, in (a file to servers) or out (servers to a file), or its removal.
 */
#ifndef IOD_COPY_H
#define IOD_COPY_H

#include "embedded/iod/args.h"
#include "embedded/iod/client.h"
#include "embedded/iod/progress.h"

struct copy_options {
    struct client_options client;
    const struct args_list *servers; /* of --servers; count 0: not given */
    const struct access *allow;      /* hosts that a stored list may name; NULL: none */
    uint64_t strip;                  /* bytes; for copies in */
    uint32_t buffers;                /* messages in flight per server */
    uint32_t buffer_size;            /* bytes of a message */
    int list;                        /* pieces of memory per message */
    bool sync;                       /* out: the file is on the disk before success */
    bool bar;                        /* show progress on a terminal */
};

/* A copy under way.  copy_in() and copy_out() fill `size` to `servers` for the report. */
struct copy {
    struct client client; /* first: the session's callbacks get at the copy from it */
    struct copy_options o;
    struct progress progress;
    char name[IOD_NAME_MAX + 1]; /* of the object */
    const char *path;            /* of the local file, for messages */
    int fd;
    bool put;
    bool sparse;
    uint64_t size; /* bytes of the file */
    uint64_t data; /* bytes that had to be moved: without holes */
    uint64_t strip;
    int servers;
    char note[CLIENT_WHY]; /* of what succeeded; empty: nothing to say */

    /* what copy_find() found */
    const char *address; /* where the object was named */
    struct remote *part[IOD_STRIPE_MAX];
    int parts;
    uint64_t behind; /* the upload that was below the decided one, `ahead`, at the last look */
    uint64_t ahead;
    int empty;          /* how often a server had no part at all */
    struct remote *odd; /* a server whose part is of another copy, */
    bool full;          /* or that was at a bound */
};

/*
 * Starts the session, copies, ends the session.  `address` is where the object is named, `name`
 * its name.  On failure they return false, and copy->client.why is one line.
 */
bool copy_in(struct copy *copy, const struct copy_options *options, const char *source,
             const char *address, const char *name);
bool copy_out(struct copy *copy, const struct copy_options *options, const char *address,
              const char *name, const char *destination);

/* Removes the file from its servers, and what is left of it where its first server has none. */
bool copy_remove(struct copy *copy, const struct copy_options *options, const char *address,
                 const char *name);

/* For copies out: opens the parts of one copy of the file, `part` to `parts`.  See
 * copy_find.c. */
bool copy_find(struct copy *copy, const char *address);

/* ---- For copies out and removals (copy_find.c).  False, NULL: the session has failed. ---- */

/* Opens an upload, with 0 what has the name, and waits: r->open says whether it is there. */
bool copy_open_at(struct copy *copy, struct remote *r, uint64_t upload);
/* Closes what is open there, if anything is, and waits. */
bool copy_close_part(struct remote *r);
/* Fails the session with what the server has said; always false. */
bool copy_refused(struct remote *r);
/* The server that is recorded at `r` for a part, if one may go there. */
struct remote *copy_go(struct copy *copy, struct remote *r, const char *uri, uint32_t part);
/* The servers that are recorded with what is open at `r`; the caller's. */
bool copy_recorded(struct remote *r, struct args_list *recorded);

/* For both: the session. */
bool copy_begin(struct copy *copy, const struct copy_options *options);
void copy_end(struct copy *copy);

/* For both: moves the extents of all servers; the pool of buffers is made on the way. */
bool copy_data(struct copy *copy);

/* For both: takes the name; false when it is not one. */
bool copy_set_name(struct copy *copy, const char *name);

/* For both: what an open reply grants, checked. */
bool copy_take_grant(struct copy *copy, struct remote *remote);

#endif

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * store.h - objects in a folder.
 *
 * One object is one file: a head of 4096 bytes (layout, mode, upload, server list, check sum),
 * then the object's bytes, holes included.  An upload writes to a hidden temporary file;
 * sealing it writes the head, committing it renames it to the object's name.  So an object is
 * there whole or not at all, and one that is overwritten stays until then, also for those who
 * have it open.  Temporary files that a crash left are removed when the store is opened.
 *
 * All functions may block on the disk.  A store may be used by any number of threads; an object
 * by one at a time, except for its descriptor.  Errors are -errno.
 */
#ifndef IOD_STORE_H
#define IOD_STORE_H

#include <stdbool.h>

#include "embedded/iod/extents.h"

#define STORE_HEAD 4096 /* bytes before an object's data */

struct store;
struct object;

/* What is recorded with an object. */
struct object_meta {
    struct iod_layout layout;
    uint64_t
        upload;    /* which copy this object belongs to; the same on all servers of a stripe */
    uint32_t mode; /* permission bits of the file */
    char servers[IOD_SERVERS_MAX + 1];
};

/*
 * Opens a store; the folder must exist, and no other server may use it (-EWOULDBLOCK).  With
 * `sync`, data and names are on the disk before a seal and a commit report success; without,
 * they are when the system writes them back.
 */
int store_open(const char *folder, bool sync, struct store **out);
void store_close(struct store *store);
int store_removed(const struct store *store); /* temporary files that store_open removed */

/* Begins an upload. */
int store_create(struct store *store, const struct iod_string *name,
                 const struct object_meta *meta, struct object **out);

/* Gives it its size and its head, and what `sync` asks for. */
int store_seal(struct object *object);

/* Makes it the object of its name.  Only after store_seal(). */
int store_commit(struct object *object);

/* Opens an object to read.  -ENOENT; -EUCLEAN when the file is not what the store wrote. */
int store_lookup(struct store *store, const struct iod_string *name, struct object **out);

/* Ends the use of an object; an upload that was not committed is removed. */
void store_release(struct object *object);

int object_fd(const struct object *object);
const struct object_meta *object_meta(const struct object *object);

/*
 * Packs entries of the objects whose names sort behind `after` into `buf`, as many as fit.
 * Damaged objects and foreign files are left out.
 */
int store_list(struct store *store, const struct iod_string *after, uint8_t *buf, size_t size,
               struct iod_entries *entries, bool *more);

#endif

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * store.h - objects in a folder or in memory.
 *
 * An object in a folder is one file: a head of 4096 bytes (name, layout, mode, upload,
 * checksum) and the object's data.  An upload writes to a hidden file; a
 * rename gives the file its name.  An object is therefore complete or absent, and an
 * overwritten one remains until the rename, and for those that have it open.  In memory
 * (memory.h) the list of objects takes the part of the folder.
 *
 * A file belongs to its first server, which has part 0 under the file's name and decides: the
 * commit of part 0 replaces the whole file.  All other parts are immutable objects of their
 * own (".part-ORIGIN-UPLOAD") from their seal on, before the decision, so that a decided copy
 * is complete whichever process dies afterwards.  A copy is identified by the store of its
 * part 0 (`origin`) and a number that this store gave when part 0 began (`upload`).
 *
 * Numbers of a store ascend, also across restarts.  A commit of part 0 cancels all uploads of
 * the name with lower numbers: their commits succeed without effect, as if they had been
 * committed before and replaced.  A part below a decided number of the same name and origin is
 * therefore never used any more; the commit of another part removes such parts of its name.
 *
 * All functions may block on the disk.  Any number of threads may use a store; one at a time an
 * object, except for object_read() and object_write().  Errors are -errno.  -EIDRM: the folder
 * was removed; -EISDIR: a name belongs to something that is not a regular file, which the store
 * did not create; -EXFULL: the memory of a store in memory is used up.
 */
#ifndef IOD_STORE_H
#define IOD_STORE_H

#include <stdbool.h>

#include "embedded/iod/net.h"
#include "embedded/iod/proto.h"

#define STORE_LOCK_FILE ".bmi-iod.lock" /* objects' files have no leading dot, or are parts */
#define STORE_HEAD      4096            /* bytes before an object's data */
#define STORE_MEMORY    "memory:"       /* begins the place of a store in memory */

struct store;
struct object;

/* Metadata recorded with an object. */
struct object_meta {
    struct iod_layout layout;
    struct iod_id id;
    uint32_t mode; /* permission bits of the file */
    char name[IOD_NAME_MAX + 1];
};

/*
 * Opens a store: a folder, which must exist, not be used by another server (-EWOULDBLOCK), and
 * be empty (-ENOTEMPTY) or contain the lock file of a store; or "memory:BYTES" (-EINVAL: not a
 * number).  With `sync`, data and names are on the disk before a seal and a commit return.
 */
int store_open(const char *place, bool sync, struct store **out);
void store_close(struct store *store);
/* Returns true if the folder is the store of a server, running or not. */
bool store_is(const char *folder);

/* Begins an upload; gives meta->id to part 0 (id.upload 0).  Returns -EEXIST if another part of
 * the same copy is here. */
int store_create(struct store *store, const struct iod_string *name,
                 const struct object_meta *meta, struct object **out);

/* Completes an upload with its head. */
int store_seal(struct object *object);

/* Part 0: gives the name to a sealed upload; *lost: it was cancelled by a higher one.  Another
 * part, whose copy is decided: removes the parts that the copy replaced. */
int store_commit(struct object *object, bool *lost);

/*
 * Opens an object for reading.  `id.upload` 0: the object of the name (-ENOENT: none).  Else
 * the object of this copy, which -ESTALE: is not here, -EBUSY: is not sealed.  -EUCLEAN: a
 * damaged file.
 */
int store_lookup(struct store *store, const struct iod_string *name, struct iod_id id,
                 struct object **out);

/*
 * Removes the object of the name if it is of this copy, and all parts of the name from the
 * origin up to this upload; open ones remain readable.  Returns -ESTALE if none is here, -EBUSY
 * if the upload is in progress.  STORE_DAMAGED removes an object that cannot be read.
 */
#define STORE_DAMAGED UINT64_MAX
int store_remove(struct store *store, const struct iod_string *name, struct iod_id id);

/* Ends the use of an object.  Removes an uncommitted upload, unless it is a sealed part and
 * `give_up` is false: its copy may be decided. */
void store_release(struct object *object, bool give_up);

/* Reads or writes `length` bytes from `offset` on, in memory. */
int object_move(void *object, uint64_t offset, char *bytes, uint64_t length, bool write);

const struct object_meta *object_meta(const struct object *object);
int64_t object_mtime(const struct object *object); /* seconds since 1970, of the copy */

/* Objects that cannot be read: damaged ones, foreign files, files without permission. */
struct store_unread {
    void (*report)(void *arg, const char *name, int error);
    void *arg;
    uint32_t count; /* number among the names listed */
};

/*
 * Packs entries of the objects behind `after` (0: from the beginning) into `buf`, as many as
 * fit, in the order of iod_entry_compare().  Unreadable objects are omitted and counted.
 */
int store_list(struct store *store, const struct iod_entry *after, uint8_t *buf, size_t size,
               struct iod_entries *entries, bool *more, struct store_unread *unread);

#endif

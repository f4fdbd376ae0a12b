/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * store.h - objects in a folder.
 *
 * An object is one file: a head of 4096 bytes (name, layout, mode, upload, server list,
 * checksums), the object's data with holes, and the checksums of its blocks (blocks.h).  An
 * upload writes to a hidden file; sealing writes the head, committing renames the file to the
 * object's name.  An object is therefore complete or absent, and an overwritten one remains
 * until the rename, and for those that have it open.
 *
 * A file striped over several servers is committed at its first server, part 0, which decides:
 * before, the copy has no effect; afterwards the other parts follow.  Sealing any other part
 * prepares it: the part survives (`.prepared-N`) the loss of its client and the end of the
 * server, until it is committed or dropped, by its client or by a client that has queried the
 * first server (store_lookup() with an upload, store_remove(), store_forget()).  Part 0, and
 * unsealed parts, are removed with their client, or when the store is opened.
 *
 * Uploads of a name are ordered by version, then by upload number; a client uses a version
 * above all that it has seen.  A commit below a higher one changes nothing and succeeds, so the
 * same upload remains at all servers in any order of commits.
 *
 * The first server also decides a removal; the other parts are removed afterwards, and block
 * lower uploads until then.  The first server therefore does not commit an upload below one
 * that was removed since its begin; the client seals it again, above that one.  A client that
 * begins later, at the first server before the others, sees those parts and uses a version
 * above them.
 *
 * All functions may block on the disk.  Any number of threads may use a store; one at a time an
 * object, except for object_read() and object_write().  Errors are -errno.  -EIDRM: the folder
 * was removed; the store must be opened again.  -EISDIR: an object's name belongs to something
 * that is not a regular file, which the store did not create.
 */
#ifndef IOD_STORE_H
#define IOD_STORE_H

#include <stdbool.h>

#include "embedded/iod/blocks.h"
#include "embedded/iod/extents.h"

#define STORE_LOCK_FILE    ".bmi-iod.lock"     /* objects' files have no leading dot */
#define STORE_HEAD         4096                /* bytes before an object's data */
#define STORE_VERSION_STEP (UINT64_C(1) << 32) /* maximum increase of a version */

struct store;
struct object;

/* Metadata recorded with an object. */
struct object_meta {
    struct iod_layout layout;
    /* copy of the file; equal on all servers of a stripe */
    uint64_t upload;
    uint64_t version;
    uint32_t mode; /* permission bits of the file */
    struct blocks_sum table;
    char name[IOD_NAME_MAX + 1];
    char servers[IOD_SERVERS_MAX + 1];
};

/*
 * Opens a store.  The folder must exist, not be used by another server (-EWOULDBLOCK), and be
 * empty (-ENOTEMPTY) or contain the lock file of a store.  With `sync`, data and names are on
 * the disk before a seal and a commit return; otherwise after the system's write-back.
 */
int store_open(const char *folder, bool sync, struct store **out);
void store_close(struct store *store);
/* Returns true if the folder is the store of a server, running or not. */
bool store_is(const char *folder);
int store_removed(const struct store *store);  /* unfinished uploads removed by store_open() */
int store_prepared(const struct store *store); /* prepared uploads found by store_open() */

/* Remaining files of an earlier run: their number, and error and name of the first. */
struct store_left {
    int count, error;
    char file[256];
};

/* Return unfinished uploads that store_open() could not remove, and prepared ones that it could
 * not read, which cannot be completed. */
const struct store_left *store_stuck(const struct store *store);
const struct store_left *store_unreadable(const struct store *store);

/* Begins an upload.  Returns -EEXIST if another part of the same copy is here, with which it
 * would compete for the name; the same part may begin again. */
int store_create(struct store *store, const struct iod_string *name,
                 const struct object_meta *meta, struct object **out);

/* Returns in *version the highest version of a name here, including prepared uploads; 0:
 * none. */
int store_version(struct store *store, const struct iod_string *name, uint64_t *version);

/* Completes an upload: head, and the sync.  Repeated with a higher version if store_commit()
 * requires that.  Returns -EINVAL if the version is 0, lower than before, or too high; -ESTALE
 * if another client has committed the upload. */
int store_seal(struct object *object, uint64_t version);

/* Commits a sealed upload.  *upload: the one that has the name afterwards, another one if that
 * is above; 0: not committed, because an upload above it was removed since its begin.
 * The upload must then be sealed again above *version, with its other parts, and committed
 * again. */
int store_commit(struct object *object, uint64_t *upload, uint64_t *version);

/*
 * Opens an object for reading.  `upload` 0: the one that has the name (-ENOENT: none).  Else
 * this upload, which is committed if prepared, because the caller knows its decision.  Returns
 * -ESTALE if it is not here, -EBUSY if its client still works on it, -EUCLEAN for a corrupted
 * file.
 */
int store_lookup(struct store *store, const struct iod_string *name, uint64_t upload,
                 struct object **out);

/* Returns the highest prepared upload of a name, or -ENOENT.  To see the object of the name,
 * too, look that up afterwards: an upload committed in between is then seen twice instead of
 * missed. */
int store_pending(struct store *store, const struct iod_string *name, struct object_meta *meta);

/* Returns true if upload a of a name is above b. */
bool store_above(const struct object_meta *a, const struct object_meta *b);

/* Gives up a prepared upload that is unknown at its first server.  Returns -EBUSY if its client
 * is connected. */
int store_forget(struct store *store, const struct iod_string *name, uint64_t upload);

/*
 * Removes the object of the name, if it is this upload; open files of it remain readable.  A
 * file that cannot be read as an object is removed with any upload.  A prepared upload is
 * committed before, as by store_lookup().  Returns -ESTALE if it is not here, -EBUSY if its
 * client still works on it.
 */
int store_remove(struct store *store, const struct iod_string *name, uint64_t upload);

/* Ends the use of an object.  Removes an uncommitted upload, unless it is prepared and
 * `give_up` is false. */
void store_release(struct object *object, bool give_up);

/* Read and write data, as blocks_read() and blocks_write(). */
int object_read(struct object *object, struct extent_cursor from, void *memory,
                uint64_t length);
int object_write(struct object *object, struct extent_cursor from, const void *memory,
                 uint64_t length);

/* Appends data ranges from byte `from` on, at most `max`; *next: where to continue, the size at
 * the end.  A scan from start to end also verifies the table (-EUCLEAN). */
int object_extents(struct object *object, uint64_t from, size_t max, struct extent_list *list,
                   uint64_t *next);

const struct object_meta *object_meta(const struct object *object);

/* Names of objects that cannot be read: damaged objects, foreign files, files without
 * permission. */
struct store_unread {
    /* receives a name and its error, unless reported recently */
    void (*report)(void *arg, const char *name, int error);
    void *arg;
    uint32_t count; /* number among the names listed */
};

/*
 * Packs entries of the objects whose names sort behind `after` into `buf`, as many as fit.
 * Unreadable objects are omitted and counted; anything but files, as lost+found, is ignored.
 */
int store_list(struct store *store, const struct iod_string *after, uint8_t *buf, size_t size,
               struct iod_entries *entries, bool *more, struct store_unread *unread);

#endif

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * store.h - objects in a folder.
 *
 * One object is one file: a head of 4096 bytes (name, layout, mode, upload, server list, check
 * sums), then the object's bytes, holes included, then the check sums of its blocks
 * (blocks.h).  An upload writes to a hidden file; sealing it writes the head, committing it
 * renames it to the object's name.  So an object is there whole or not at all, and one that is
 * overwritten stays until then, also for those who have it open.
 *
 * A file that is striped over several servers is committed at its first server, part 0, and
 * that decides: until then it is as if the copy had never been, from then on the other parts
 * only have to follow.  So sealing any other part prepares it: it stays (`.prepared-N`),
 * through the loss of its client and the end of the server, until it is committed or given up,
 * by its client or by somebody who has asked the first server (store_lookup with an upload,
 * store_remove, store_forget).  Part 0, and what is not sealed, goes with its client, or when
 * the store is opened.
 *
 * Uploads of one name are ordered by version, then by upload number; a client takes a version
 * above all that it has seen.  A commit that comes behind a higher one changes nothing and
 * succeeds, so that whatever order the commits of several clients come in at the servers, the
 * same one stays everywhere.
 *
 * A removal is decided at the first server, too, and the parts elsewhere go after it: for a
 * while they keep out there whatever is lower.  So the first server decides for no upload that
 * is lower than one removed since it began; its client seals it anew, above that one.  Who
 * begins later, at the first server before the others, sees those parts, and comes above them.
 *
 * All functions may block on the disk.  A store may be used by any number of threads; an object
 * by one at a time, except for object_read() and object_write().  Errors are -errno; -EIDRM:
 * the folder was removed, and nothing can be stored or found until the store is opened anew;
 * -EISDIR: what stands under an object's name is no regular file, which the store never wrote.
 */
#ifndef IOD_STORE_H
#define IOD_STORE_H

#include <stdbool.h>

#include "embedded/iod/blocks.h"
#include "embedded/iod/extents.h"

#define STORE_LOCK_FILE    ".bmi-iod.lock"     /* no object's file begins with a dot */
#define STORE_HEAD         4096                /* bytes before an object's data */
#define STORE_VERSION_STEP (UINT64_C(1) << 32) /* a version is not further above the last one */

struct store;
struct object;

/* What is recorded with an object. */
struct object_meta {
    struct iod_layout layout;
    /* which copy this object belongs to; the same on all servers of a stripe */
    uint64_t upload;
    uint64_t version;
    uint32_t mode; /* permission bits of the file */
    struct blocks_sum table;
    char name[IOD_NAME_MAX + 1];
    char servers[IOD_SERVERS_MAX + 1];
};

/*
 * Opens a store; the folder must exist, no other server may use it (-EWOULDBLOCK), and it is
 * empty (-ENOTEMPTY) or was a store before, which its lock file says.  With
 * `sync`, data and names are on the disk before a seal and a commit report success; without,
 * they are when the system writes them back.
 */
int store_open(const char *folder, bool sync, struct store **out);
void store_close(struct store *store);
/* Is this folder the store of a server, of one that is not running, too? */
bool store_is(const char *folder);
int store_removed(const struct store *store);  /* unfinished uploads that store_open removed */
int store_prepared(const struct store *store); /* prepared ones that it found */

/* Files of an earlier run that stay, and why, of the first one. */
struct store_left {
    int count, error;
    char file[256];
};

/* Unfinished uploads that store_open could not remove, and prepared ones that it could not
 * read, which nobody can complete. */
const struct store_left *store_stuck(const struct store *store);
const struct store_left *store_unreadable(const struct store *store);

/* Begins an upload.  -EEXIST: another part of the same copy is here, which would take the name
 * from this one, or this one from it; the same part may begin again. */
int store_create(struct store *store, const struct iod_string *name,
                 const struct object_meta *meta, struct object **out);

/* The highest version that a name has here, prepared uploads included; 0: none. */
int store_version(struct store *store, const struct iod_string *name, uint64_t *version);

/* Completes it: head, and what `sync` asks for.  Again with a higher version, where
 * store_commit() asks for one.  -EINVAL: the version is 0, lower than before, or too high;
 * -ESTALE: it is no upload any more, as somebody has committed it. */
int store_seal(struct object *object, uint64_t version);

/* Makes it the object of its name.  Only after store_seal().  *upload is the one that then has
 * the name: another one when this one came behind it; 0: nothing was done, as one above it has
 * been removed since it began.  Then it is to be sealed anew, above *version, with its other
 * parts, and committed again. */
int store_commit(struct object *object, uint64_t *upload, uint64_t *version);

/*
 * Opens an object to read.  With `upload` 0 the one that has the name: -ENOENT.  Else that
 * upload:  where it is only prepared, it is committed, for whoever asks knows that it was
 * decided.  -ESTALE: it is not here; -EBUSY: it is not here yet, its client still works on it.
 * -EUCLEAN: the file is not what the store wrote.
 */
int store_lookup(struct store *store, const struct iod_string *name, uint64_t upload,
                 struct object **out);

/* The highest prepared upload of a name.  -ENOENT: there is none.  Who wants to know also what
 * has the name looks that up afterwards: what gets the name in between is then seen twice. */
int store_pending(struct store *store, const struct iod_string *name, struct object_meta *meta);

/* Which of two uploads of a name stays. */
bool store_above(const struct object_meta *a, const struct object_meta *b);

/* Gives a prepared upload up, which its first server does not know.  -EBUSY: its client is
 * here. */
int store_forget(struct store *store, const struct iod_string *name, uint64_t upload);

/*
 * Removes what has the name, if it is that upload; who has it open keeps it until then.  A file
 * that cannot be read as an object is removed whatever the upload, as nobody can tell it.
 * Where the upload is only prepared, it is committed before, as by store_lookup().  -ESTALE: it
 * is not here; -EBUSY: it is not here yet, its client still works on it.
 */
int store_remove(struct store *store, const struct iod_string *name, uint64_t upload);

/* Ends the use of an object.  An upload that was not committed is removed, unless it is
 * prepared and not to be given up. */
void store_release(struct object *object, bool give_up);

/* Data, as blocks_read() and blocks_write(). */
int object_read(struct object *object, struct extent_cursor from, void *memory,
                uint64_t length);
int object_write(struct object *object, struct extent_cursor from, const void *memory,
                 uint64_t length);

/* Where data is from byte `from` on, at most `max` ranges; *next is where to go on, the size at
 * the end.  Who asks from the start to the end learns whether the table is what it should
 * be. */
int object_extents(struct object *object, uint64_t from, size_t max, struct extent_list *list,
                   uint64_t *next);

const struct object_meta *object_meta(const struct object *object);

/* What has an object's name and cannot be read as one: damaged objects, foreign files, what the
 * server may not read. */
struct store_unread {
    /* Takes a name and the error when the store has not said so before, or not lately. */
    void (*say)(void *arg, const char *name, int error);
    void *arg;
    uint32_t count; /* how many there are among the names listed */
};

/*
 * Packs entries of the objects whose names sort behind `after` into `buf`, as many as fit.
 * What cannot be read is left out and counted; what is no file, as lost+found of a file system,
 * is nobody's object.
 */
int store_list(struct store *store, const struct iod_string *after, uint8_t *buf, size_t size,
               struct iod_entries *entries, bool *more, struct store_unread *unread);

#endif

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * store_impl.h - the store's insides, shared by store.c (objects), store_uploads.c (uploads of
 * all names, and who wins) and store_list.c (listing).
 *
 * `lock` guards the list of uploads and decides which commit comes first: it is held while a
 * commit reads what has the name, and renames.
 */
#ifndef IOD_STORE_IMPL_H
#define IOD_STORE_IMPL_H

#include <dirent.h>
#include <pthread.h>

#include "embedded/iod/name.h"
#include "embedded/iod/store.h"

#define STORE_UPLOAD   ".upload-"
#define STORE_PREPARED ".prepared-"
#define STORE_BUCKETS  256

/* An upload that is not committed. */
struct upload {
    struct upload *next; /* of the bucket */
    char name[IOD_NAME_MAX + 1];
    uint64_t version; /* 0: not sealed */
    uint64_t number;  /* the upload */
    uint32_t index;   /* which part of the file it is */
    /* the highest that had the name and was removed since this one began; 0: none */
    uint64_t removed_version, removed_number;
    char file[40];
    bool prepared;        /* it outlives its client */
    struct object *owner; /* its client is here; NULL: gone */
};

struct store {
    int folder; /* descriptor */
    int lock_fd;
    bool sync;
    int removed, found;
    struct store_left stuck, unreadable;
    pthread_mutex_t lock; /* guards what follows */
    uint64_t files;       /* hidden files made so far: their names */
    struct upload *uploads[STORE_BUCKETS];
    struct upload *dropped;         /* of no bucket any more; their files are not removed yet */
    uint64_t unread[STORE_BUCKETS]; /* what was said of objects that cannot be read: hashes */
};

struct object {
    struct store *store;
    struct object_meta meta;
    struct blocks blocks;
    struct blocks_scan scan; /* of object_extents() */
    bool scan_whole;         /* it began at the start */
    int fd;
    int replaced; /* the object that a commit took the name from; -1: none */
    char file[NAME_FILE_MAX];
    struct upload *upload; /* NULL: not, or no longer, an upload; under the store's lock */
};

/* store.c */
/* -errno; -EIDRM where a file is not found as the folder itself was removed */
int store_errno(const struct store *store);
/* After names have changed: writes the folder out where the store is to.  0 or -EIO. */
int store_sync(const struct store *store);
/* Is that what one gets where there is nothing, or something that is no whole object?  All else
 * says nothing about what is there. */
bool store_no_object(int error);
int store_stream(const struct store *store, DIR **out); /* a fresh stream of the folder */
int store_read_head(int fd, struct object_meta *meta);  /* -EISDIR: it is no regular file */
/* To read; a descriptor.  -EISDIR: it is a symbolic link or a socket. */
int store_open_file(const struct store *store, const char *file);

/* store_uploads.c; all but uploads_load() with the lock held */
int uploads_load(struct store *store);
void uploads_free(struct store *store);
struct upload *upload_add(struct store *store, const struct object_meta *meta,
                          struct object *owner);
void upload_take_file(struct store *store, struct upload *upload); /* another one, the next */
struct upload *upload_find(struct store *store, const char *name, uint64_t number);
struct upload *upload_highest(struct store *store, const char *name, uint64_t version,
                              uint64_t number); /* prepared, above these; NULL: none */
void upload_remove(struct store *store, struct upload *upload); /* and its file */
/* Gives the lock back, and then removes the files that commits have dropped, which may be many.
 * Where the process ends before, the next commit of the name finds them again. */
void uploads_unlock(struct store *store);
/* What had the name is removed, and all uploads of the name learn of it. */
void upload_tell_removed(struct store *store, const char *name, uint64_t version,
                         uint64_t number);
bool upload_below_removed(const struct upload *upload);
int upload_prepare(struct store *store, struct upload *upload);

/* Gives the upload the name, unless a higher one has it, or, if it is another part than the
 * first, had it and was removed since this one began; the upload is freed, and its owner has
 * none any more, unless it could not be renamed.  *replaced is a descriptor of what had the
 * name, or -1; *number the higher one of both. */
int upload_commit(struct store *store, struct upload *upload, const char *file, int *replaced,
                  uint64_t *number);

/* Is (version, number) a above b? */
bool upload_above(uint64_t version_a, uint64_t number_a, uint64_t version_b, uint64_t number_b);

#endif

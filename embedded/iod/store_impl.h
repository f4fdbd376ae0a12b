/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * store_impl.h - internals of the store, shared by store.c (objects), store_uploads.c (uploads
 * of all names, and their order) and store_list.c (listing).
 *
 * `lock` protects the list of uploads and orders commits: a commit holds it while it reads the
 * object of the name, and renames.
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

/* files of lower uploads that one commit removes: 0.3 ms for small ones, 28 to 44 ms for files
 * of 1 MiB (ext4) */
#define STORE_DROP_MAX 64

/* Upload that is not committed. */
struct upload {
    struct upload *next; /* next of the bucket */
    char name[IOD_NAME_MAX + 1];
    uint64_t version; /* 0: not sealed */
    uint64_t number;  /* the upload */
    uint32_t index;   /* part of the file */
    /* highest upload of the name removed since the begin of this one; 0: none */
    uint64_t removed_version, removed_number;
    char file[40];
    bool prepared;        /* survives its client */
    struct object *owner; /* object of its client; NULL: client gone */
};

struct store {
    int folder; /* descriptor */
    int lock_fd;
    bool sync;
    int removed, found;
    struct store_left stuck, unreadable;
    pthread_mutex_t lock; /* protects the following fields */
    uint64_t files;       /* number of hidden files so far, used for their names */
    struct upload *uploads[STORE_BUCKETS];
    struct upload *dropped;         /* in no bucket; their files are to be removed */
    uint64_t unread[STORE_BUCKETS]; /* hashes of unreadable objects that were reported */
};

struct object {
    struct store *store;
    struct object_meta meta;
    struct blocks blocks;
    struct blocks_scan scan; /* of object_extents() */
    bool scan_whole;         /* the scan began at the start */
    int fd;
    int replaced; /* descriptor of the object replaced by a commit; -1: none */
    char file[NAME_FILE_MAX];
    struct upload *upload; /* NULL: never or no longer an upload; under the store's lock */
};

/* store.c */
/* returns -errno, or -EIDRM for ENOENT if the folder was removed */
int store_errno(const struct store *store);
/* syncs the folder after names have changed, if configured; returns 0 or -EIO */
int store_sync(const struct store *store);
/* returns true for errors that mean no object, or an invalid one; all others leave that
 * unknown */
bool store_no_object(int error);
int store_stream(const struct store *store, DIR **out); /* opens a new stream of the folder */
/* returns the next entry of a stream; NULL: the end, *error is 0, or -errno of a failure */
struct dirent *store_next(DIR *dir, int *error);
int store_read_head(int fd, struct object_meta *meta); /* -EISDIR: not a regular file */
/* opens for reading; -EISDIR: a symbolic link or socket */
int store_open_file(const struct store *store, const char *file);

/* store_uploads.c; with the lock held, except for uploads_load() */
int uploads_load(struct store *store);
void uploads_free(struct store *store);
/* adds an upload, NULL: no memory */
struct upload *upload_add(struct store *store, const struct object_meta *meta,
                          struct object *owner);
void upload_take_file(struct store *store, struct upload *upload); /* the next file name */
struct upload *upload_find(struct store *store, const char *name, uint64_t number);
struct upload *upload_highest(struct store *store, const char *name, uint64_t version,
                              uint64_t number); /* highest prepared upload above these; NULL:
                                                 * none */
void upload_remove(struct store *store, struct upload *upload); /* with its file */
/* Releases the lock, then removes the files that a commit has dropped.  The next commit of the
 * name finds those above STORE_DROP_MAX, and all if the process ends before. */
void uploads_unlock(struct store *store);
/* Records at all uploads of the name that its object was removed. */
void upload_report_removed(struct store *store, const char *name, uint64_t version,
                           uint64_t number);
/* returns true if an upload above this one was removed since its begin */
bool upload_below_removed(const struct upload *upload);
/* renames the file of an upload, which then survives its client; 0 or -errno */
int upload_prepare(struct store *store, struct upload *upload);

/* Gives the name to the upload, unless a higher one has it, or, for parts other than the first,
 * had it and was removed since the begin of this one.  Frees the upload and clears its owner's
 * reference, unless the rename failed.  *replaced: descriptor of the previous object, or -1;
 * *number: the higher upload of both. */
int upload_commit(struct store *store, struct upload *upload, const char *file, int *replaced,
                  uint64_t *number);

/* Returns true if (version, number) a is above b. */
bool upload_above(uint64_t version_a, uint64_t number_a, uint64_t version_b, uint64_t number_b);

#endif

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * store_impl.h - internals of the store, shared by store.c (objects) and store_list.c (the
 * sorted list of all objects).  `lock` protects the lists and orders commits.
 */
#ifndef IOD_STORE_IMPL_H
#define IOD_STORE_IMPL_H

#include <pthread.h>

#include "embedded/iod/memory.h"
#include "embedded/iod/name.h"
#include "embedded/iod/store.h"

/* Complete object.  Its key is name and id; the id is zero for the object that has the name. */
struct item {
    struct iod_id key;
    struct memory_file *data; /* of a store in memory, with its metadata; else NULL */
    struct object_meta *meta;
    int64_t mtime;
    char name[];
};

struct store {
    int folder, lock_fd; /* -1 in memory */
    bool sync;
    struct memory *memory; /* NULL: in a folder */
    uint64_t origin;
    pthread_mutex_t lock; /* protects the following fields */
    uint64_t next;        /* number of the next upload */
    uint64_t files;       /* hidden files so far, for their names */
    struct object *uploads;
    struct item **item; /* sorted */
    size_t items, room;
};

struct object {
    struct store *store;
    struct object_meta meta;
    int fd; /* -1 in memory */
    int64_t mtime;
    struct memory_file *data;
    /* of an upload */
    struct object *next;
    char temp[40];
    bool upload;    /* in the store's list */
    bool named;     /* part 0 was committed, or another part was sealed */
    bool committed; /* stays without its client */
    bool lost;      /* a higher upload was committed */
};

bool store_is_gone(const struct store *store); /* the folder was removed */

/* store_list.c; with the lock held */
/* returns the position of the first item not before this key */
size_t items_at(const struct store *store, const char *name, struct iod_id key);
struct item *items_find(const struct store *store, const char *name, struct iod_id key);
/* Adds a new item in its place, or with `last` behind all: items_sort() follows.  NULL: no
 * memory. */
struct item *items_add(struct store *store, const char *name, struct iod_id key, bool last);
void items_sort(struct store *store);
void items_remove(struct store *store, struct item *item); /* frees it */

#endif

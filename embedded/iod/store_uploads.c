/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/store_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

bool upload_above(uint64_t version_a, uint64_t number_a, uint64_t version_b, uint64_t number_b)
{
    return version_a != version_b ? version_a > version_b : number_a > number_b;
}

static struct upload **bucket_of(struct store *store, const char *name)
{
    unsigned hash = 2166136261u;

    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return &store->uploads[hash % STORE_BUCKETS];
}

void upload_take_file(struct store *store, struct upload *upload)
{
    snprintf(upload->file, sizeof upload->file, STORE_UPLOAD "%llu",
             (unsigned long long)store->files++);
}

struct upload *upload_add(struct store *store, const struct object_meta *meta,
                          struct object *owner)
{
    struct upload *upload = calloc(1, sizeof *upload);
    struct upload **bucket = bucket_of(store, meta->name);

    if (!upload)
        return NULL;
    memcpy(upload->name, meta->name, sizeof upload->name);
    upload->number = meta->upload;
    upload->index = meta->layout.index;
    upload->owner = owner;
    upload_take_file(store, upload);
    upload->next = *bucket;
    *bucket = upload;
    return upload;
}

struct upload *upload_find(struct store *store, const char *name, uint64_t number)
{
    struct upload *upload = *bucket_of(store, name);

    while (upload && (upload->number != number || strcmp(upload->name, name) != 0))
        upload = upload->next;
    return upload;
}

struct upload *upload_highest(struct store *store, const char *name, uint64_t version,
                              uint64_t number)
{
    struct upload *best = NULL;

    for (struct upload *u = *bucket_of(store, name); u; u = u->next) {
        if (!u->prepared || strcmp(u->name, name) != 0 ||
            !upload_above(u->version, u->number, version, number))
            continue;
        best = u;
        version = u->version;
        number = u->number;
    }
    return best;
}

/* Frees an upload without removing its file. */
static void drop(struct store *store, struct upload *upload)
{
    struct upload **at = bucket_of(store, upload->name);

    while (*at != upload)
        at = &(*at)->next;
    *at = upload->next;
    if (upload->owner)
        upload->owner->upload = NULL;
    free(upload);
}

void upload_remove(struct store *store, struct upload *upload)
{
    unlinkat(store->folder, upload->file, 0);
    drop(store, upload);
}

void upload_report_removed(struct store *store, const char *name, uint64_t version,
                           uint64_t number)
{
    for (struct upload *u = *bucket_of(store, name); u; u = u->next)
        if (strcmp(u->name, name) == 0 &&
            upload_above(version, number, u->removed_version, u->removed_number)) {
            u->removed_version = version;
            u->removed_number = number;
        }
}

bool upload_below_removed(const struct upload *upload)
{
    return upload_above(upload->removed_version, upload->removed_number, upload->version,
                        upload->number);
}

int upload_prepare(struct store *store, struct upload *upload)
{
    char file[sizeof upload->file];

    snprintf(file, sizeof file, STORE_PREPARED "%llu", (unsigned long long)store->files++);
    if (renameat(store->folder, upload->file, store->folder, file) < 0)
        return store_errno(store);
    memcpy(upload->file, file, sizeof file);
    upload->prepared = true;
    return store_sync(store);
}

/* Drops lower prepared uploads of the name without clients, which are no longer needed; at
 * most STORE_DROP_MAX, because the committing client waits for the removal of their files. */
static void drop_lower(struct store *store, const struct upload *upload)
{
    struct upload **at = bucket_of(store, upload->name), *u;
    int dropped = 0;

    while ((u = *at) && dropped < STORE_DROP_MAX) {
        if (!u->prepared || u->owner || strcmp(u->name, upload->name) != 0 ||
            !upload_above(upload->version, upload->number, u->version, u->number)) {
            at = &u->next;
            continue;
        }
        *at = u->next;
        u->next = store->dropped;
        store->dropped = u;
        dropped++;
    }
}

void uploads_unlock(struct store *store)
{
    struct upload *upload = store->dropped, *next;

    store->dropped = NULL;
    pthread_mutex_unlock(&store->lock);
    for (; upload; upload = next) {
        next = upload->next;
        unlinkat(store->folder, upload->file, 0);
        free(upload);
    }
}

int upload_commit(struct store *store, struct upload *upload, const char *file, int *replaced,
                  uint64_t *number)
{
    struct object_meta old;
    int error;

    *replaced = -1;
    *number = upload->number;
    if (upload->index > 0 && upload_below_removed(upload)) {
        *number = upload->removed_number;
        upload_remove(store, upload);
        return 0;
    }
    /* The old object's file is kept open, so that its deletion happens at the close, not
     * here. */
    *replaced = store_open_file(store, file);
    error = *replaced < 0 ? *replaced : store_read_head(*replaced, &old);
    if (error == -EISDIR || (error && !store_no_object(error)))
        goto failed;
    if (!error && upload_above(old.version, old.upload, upload->version, upload->number)) {
        *number = old.upload;
        upload_remove(store, upload);
        return 0;
    }
    if (renameat(store->folder, upload->file, store->folder, file) < 0) {
        error = store_errno(store);
        goto failed;
    }
    error = store_sync(store);
    drop_lower(store, upload);
    drop(store, upload);
    return error;

failed:
    if (*replaced >= 0)
        close(*replaced);
    *replaced = -1;
    return error;
}

/* ---- leftovers of an earlier run ---- */

static void stays(struct store_left *left, const char *file, int error)
{
    if (left->count++ > 0)
        return;
    left->error = error;
    snprintf(left->file, sizeof left->file, "%s", file);
}

static int load_prepared(struct store *store, const char *file)
{
    struct object_meta meta;
    struct upload *upload;
    uint64_t n = strtoull(file + strlen(STORE_PREPARED), NULL, 10);
    int fd = store_open_file(store, file);
    int error = fd < 0 ? fd : store_read_head(fd, &meta);

    if (fd >= 0)
        close(fd);
    if (store->files <= n)
        store->files = n + 1;
    if (error) { /* foreign or damaged: kept and ignored */
        stays(&store->unreadable, file, error);
        return 0;
    }
    upload = upload_add(store, &meta, NULL);
    if (!upload)
        return -ENOMEM;
    snprintf(upload->file, sizeof upload->file, "%s", file);
    upload->version = meta.version;
    upload->prepared = true;
    store->found++;
    return 0;
}

/* Returns true for names made by upload_take_file() or upload_prepare(). */
static bool is_ours(const char *file, const char *prefix)
{
    size_t length = strlen(prefix);

    return strncmp(file, prefix, length) == 0 && file[length] &&
           file[length + strspn(file + length, "0123456789")] == 0;
}

int uploads_load(struct store *store)
{
    struct dirent *entry;
    DIR *dir;
    int error = store_stream(store, &dir);

    if (error)
        return error;
    while (!error && (entry = store_next(dir, &error))) {
        if (is_ours(entry->d_name, STORE_UPLOAD)) {
            if (unlinkat(store->folder, entry->d_name, 0) == 0)
                store->removed++;
            else
                stays(&store->stuck, entry->d_name, -errno);
        } else if (is_ours(entry->d_name, STORE_PREPARED)) {
            error = load_prepared(store, entry->d_name);
        }
    }
    closedir(dir);
    return error;
}

void uploads_free(struct store *store)
{
    for (int i = 0; i < STORE_BUCKETS; i++) {
        while (store->uploads[i]) {
            struct upload *upload = store->uploads[i];

            store->uploads[i] = upload->next;
            free(upload);
        }
    }
}

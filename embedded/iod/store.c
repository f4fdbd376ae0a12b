/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/store.h"
#include "embedded/iod/layout.h"
#include "embedded/iod/name.h"
#include "embedded/iod/object_head.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define LOCK_FILE   ".bmi-iod.lock"
#define TEMP_PREFIX ".upload-" /* no object's file begins with a dot */

struct store {
    int folder; /* descriptor */
    int lock_fd;
    bool sync;
    int removed;
    pthread_mutex_t lock; /* guards the number below */
    uint64_t uploads;
};

struct object {
    struct store *store;
    struct object_meta meta;
    int fd;
    int replaced; /* the object that a commit took the name from; -1: none */
    char file[NAME_FILE_MAX];
    char temp[40]; /* empty: not, or no longer, an upload */
};

/* ---- the store
 * --------------------------------------------------------------------------------- */

/* A fresh stream of the folder's entries. */
static int open_stream(const struct store *store, DIR **out)
{
    int fd = openat(store->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    int error = -errno;

    if (!dir) {
        if (fd >= 0)
            close(fd);
        return error;
    }
    *out = dir;
    return 0;
}

static int remove_leftovers(struct store *store)
{
    struct dirent *entry;
    DIR *dir;
    int error = open_stream(store, &dir);

    if (error)
        return error;
    while ((entry = readdir(dir)))
        if (strncmp(entry->d_name, TEMP_PREFIX, strlen(TEMP_PREFIX)) == 0 &&
            unlinkat(store->folder, entry->d_name, 0) == 0)
            store->removed++;
    closedir(dir);
    return 0;
}

int store_open(const char *folder, bool sync, struct store **out)
{
    struct store *store = calloc(1, sizeof *store);
    int error;

    if (!store)
        return -ENOMEM;
    store->sync = sync;
    store->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store->folder < 0) {
        error = -errno;
        goto no_folder;
    }
    store->lock_fd = openat(store->folder, LOCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (store->lock_fd < 0) {
        error = -errno;
        goto no_lock_file;
    }
    if (flock(store->lock_fd, LOCK_EX | LOCK_NB) < 0) {
        error = -errno;
        goto not_locked;
    }
    error = remove_leftovers(store);
    if (error)
        goto not_locked;
    pthread_mutex_init(&store->lock, NULL);
    *out = store;
    return 0;

not_locked:
    close(store->lock_fd);
no_lock_file:
    close(store->folder);
no_folder:
    free(store);
    return error;
}

void store_close(struct store *store)
{
    close(store->lock_fd);
    close(store->folder);
    pthread_mutex_destroy(&store->lock);
    free(store);
}

int store_removed(const struct store *store)
{
    return store->removed;
}

/* ---- uploads
 * ----------------------------------------------------------------------------------- */

static int object_new(struct store *store, const struct iod_string *name, struct object **out)
{
    struct object *object = calloc(1, sizeof *object);
    int error;

    if (!object)
        return -ENOMEM;
    object->store = store;
    object->fd = -1;
    object->replaced = -1;
    error = name_encode(name, object->file, sizeof object->file);
    if (error) {
        free(object);
        return error;
    }
    *out = object;
    return 0;
}

int store_create(struct store *store, const struct iod_string *name,
                 const struct object_meta *meta, struct object **out)
{
    struct object *object;
    int error = object_new(store, name, &object);

    if (error)
        return error;
    object->meta = *meta;
    pthread_mutex_lock(&store->lock);
    snprintf(object->temp, sizeof object->temp, TEMP_PREFIX "%llu",
             (unsigned long long)store->uploads++);
    pthread_mutex_unlock(&store->lock);
    object->fd =
        openat(store->folder, object->temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (object->fd < 0) {
        error = -errno;
        free(object);
        return error;
    }
    *out = object;
    return 0;
}

static int write_all(int fd, const uint8_t *buf, size_t length)
{
    size_t at = 0;

    while (at < length) {
        ssize_t n = pwrite(fd, buf + at, length - at, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        at += (size_t)n;
    }
    return 0;
}

int store_seal(struct object *object)
{
    uint8_t head[STORE_HEAD];
    uint64_t size = STORE_HEAD + layout_object_size(&object->meta.layout);
    int error;

    if (ftruncate(object->fd, (off_t)size) < 0)
        return -errno;
    object_head_encode(&object->meta, head);
    error = write_all(object->fd, head, sizeof head);
    if (!error && object->store->sync && fsync(object->fd) < 0)
        error = -errno;
    return error;
}

int store_commit(struct object *object)
{
    struct store *store = object->store;

    /* Held open, the old object takes its time to go when we are released, not now. */
    object->replaced =
        openat(store->folder, object->file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    if (renameat(store->folder, object->temp, store->folder, object->file) < 0)
        return -errno;
    object->temp[0] = 0;
    if (store->sync && fsync(store->folder) < 0)
        return -errno;
    return 0;
}

/* ---- finished objects
 * -------------------------------------------------------------------------- */

static int read_head(int fd, struct object_meta *meta)
{
    uint8_t head[STORE_HEAD];
    struct stat st;
    ssize_t n = pread(fd, head, sizeof head, 0);
    int error;

    if (n < 0 || fstat(fd, &st) < 0)
        return -errno;
    if (n < STORE_HEAD)
        return -EUCLEAN;
    error = object_head_decode(head, meta);
    if (error)
        return error;
    if ((uint64_t)st.st_size != STORE_HEAD + layout_object_size(&meta->layout))
        return -EUCLEAN;
    return 0;
}

int store_lookup(struct store *store, const struct iod_string *name, struct object **out)
{
    struct object *object;
    int error = object_new(store, name, &object);

    if (error)
        return error;
    object->fd =
        openat(store->folder, object->file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    error = object->fd < 0 ? -errno : read_head(object->fd, &object->meta);
    if (error) {
        store_release(object);
        return error;
    }
    *out = object;
    return 0;
}

void store_release(struct object *object)
{
    if (object->temp[0])
        unlinkat(object->store->folder, object->temp, 0);
    if (object->fd >= 0)
        close(object->fd);
    if (object->replaced >= 0)
        close(object->replaced);
    free(object);
}

int object_fd(const struct object *object)
{
    return object->fd;
}

const struct object_meta *object_meta(const struct object *object)
{
    return &object->meta;
}

/* ---- listing
 * ----------------------------------------------------------------------------------- */

struct names {
    char **item;
    size_t count, room;
};

static void names_free(struct names *names)
{
    for (size_t i = 0; i < names->count; i++)
        free(names->item[i]);
    free(names->item);
}

static int names_add(struct names *names, const char *name)
{
    if (names->count == names->room) {
        size_t room = names->room ? 2 * names->room : 64;
        char **item = realloc(names->item, room * sizeof *item);
        if (!item)
            return -ENOMEM;
        names->item = item;
        names->room = room;
    }
    names->item[names->count] = strdup(name);
    if (!names->item[names->count])
        return -ENOMEM;
    names->count++;
    return 0;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* The decoded names behind `after`, sorted by their bytes. */
static int collect_names(struct store *store, const struct iod_string *after,
                         struct names *names)
{
    char name[IOD_NAME_MAX + 1], last[IOD_NAME_MAX + 1];
    struct dirent *entry;
    DIR *dir;
    int error = open_stream(store, &dir);

    if (error)
        return error;
    snprintf(last, sizeof last, "%.*s", (int)after->length, after->text);
    while (!error && (entry = readdir(dir)))
        if (name_decode(entry->d_name, name, sizeof name) > 0 && strcmp(name, last) > 0)
            error = names_add(names, name);
    closedir(dir);
    if (!error && names->count)
        qsort(names->item, names->count, sizeof names->item[0], compare_names);
    return error;
}

/* False when the object is not one, or gone by now. */
static bool describe(struct store *store, const char *name, struct iod_entry *entry)
{
    struct object *object;
    struct stat st;
    bool good;

    entry->name = iod_string_of(name);
    if (store_lookup(store, &entry->name, &object) < 0)
        return false;
    good = fstat(object->fd, &st) == 0;
    if (good) {
        entry->layout = object->meta.layout;
        entry->upload = object->meta.upload;
        entry->stored = (uint64_t)st.st_size - STORE_HEAD;
        entry->mtime = (uint64_t)st.st_mtime;
    }
    store_release(object);
    return good;
}

int store_list(struct store *store, const struct iod_string *after, uint8_t *buf, size_t size,
               struct iod_entries *entries, bool *more)
{
    struct names names = {0};
    struct iod_entry entry;
    int error = collect_names(store, after, &names);

    *more = false;
    *entries = (struct iod_entries){.wire = buf};
    for (size_t i = 0; i < names.count && !error && !*more; i++) {
        if (!describe(store, names.item[i], &entry))
            continue;
        if (iod_entry_append(&entry, buf, size, &entries->length))
            entries->count++;
        else
            *more = true;
    }
    names_free(&names);
    return error;
}

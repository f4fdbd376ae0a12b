/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/layout.h"
#include "embedded/iod/object_head.h"
#include "embedded/iod/store_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the store ---- */

static bool is_removed(const struct store *store)
{
    struct stat st;

    return fstat(store->folder, &st) == 0 && st.st_nlink == 0;
}

int store_errno(const struct store *store)
{
    int error = -errno;

    return error == -ENOENT && is_removed(store) ? -EIDRM : error;
}

int store_stream(const struct store *store, DIR **out)
{
    int fd = openat(store->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    int error = store_errno(store);

    if (!dir) {
        if (fd >= 0)
            close(fd);
        return error;
    }
    if (is_removed(store)) { /* it can be read still, and is empty */
        closedir(dir);
        return -EIDRM;
    }
    *out = dir;
    return 0;
}

int store_open_file(const struct store *store, const char *file)
{
    int fd = openat(store->folder, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    return fd < 0 ? store_errno(store) : fd;
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
    store->lock_fd = openat(store->folder, STORE_LOCK_FILE, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (store->lock_fd < 0) {
        error = -errno;
        goto no_lock_file;
    }
    if (flock(store->lock_fd, LOCK_EX | LOCK_NB) < 0) {
        error = -errno;
        goto not_locked;
    }
    error = uploads_load(store);
    if (error)
        goto not_loaded;
    pthread_mutex_init(&store->lock, NULL);
    *out = store;
    return 0;

not_loaded:
    uploads_free(store);
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
    uploads_free(store);
    close(store->lock_fd);
    close(store->folder);
    pthread_mutex_destroy(&store->lock);
    free(store);
}

int store_removed(const struct store *store)
{
    return store->removed;
}

int store_prepared(const struct store *store)
{
    return store->found;
}

/* ---- objects ---- */

/* The name as a text.  -EINVAL, -ENAMETOOLONG: it is none. */
static int name_text(const struct iod_string *name, char *text)
{
    if (name->length == 0 || memchr(name->text, 0, name->length))
        return -EINVAL;
    if (name->length > IOD_NAME_MAX)
        return -ENAMETOOLONG;
    memset(text, 0, IOD_NAME_MAX + 1);
    memcpy(text, name->text, name->length);
    return 0;
}

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
    blocks_init(&object->blocks, -1, STORE_HEAD, 0);
    *out = object;
    return 0;
}

static void object_free(struct object *object)
{
    blocks_destroy(&object->blocks);
    if (object->fd >= 0)
        close(object->fd);
    if (object->replaced >= 0)
        close(object->replaced);
    free(object);
}

/* Its layout is known, and its file is open. */
static void object_ready(struct object *object)
{
    object->blocks.fd = object->fd;
    object->blocks.size = layout_object_size(&object->meta.layout);
}

void store_release(struct object *object, bool give_up)
{
    struct store *store = object->store;

    pthread_mutex_lock(&store->lock);
    if (object->upload && object->upload->prepared && !give_up)
        object->upload->owner = NULL;
    else if (object->upload)
        upload_remove(store, object->upload);
    pthread_mutex_unlock(&store->lock);
    object_free(object);
}

const struct object_meta *object_meta(const struct object *object)
{
    return &object->meta;
}

int object_read(struct object *object, struct extent_cursor from, void *memory, uint64_t length)
{
    return blocks_read(&object->blocks, from, memory, length);
}

int object_write(struct object *object, struct extent_cursor from, const void *memory,
                 uint64_t length)
{
    return blocks_write(&object->blocks, from, memory, length);
}

int object_extents(struct object *object, uint64_t from, size_t max, struct extent_list *list,
                   uint64_t *next)
{
    const struct blocks *b = &object->blocks;
    struct blocks_scan *scan = &object->scan;
    int error;

    if (from == 0 || from != scan->next * BLOCK_SIZE) {
        *scan = (struct blocks_scan){.next = from / BLOCK_SIZE};
        object->scan_whole = from == 0;
    }
    error = blocks_walk(&object->blocks, scan, max, list);
    if (error)
        return error;
    *next = scan->next < blocks_count(b) ? scan->next * BLOCK_SIZE : b->size;
    if (object->scan_whole && scan->next == blocks_count(b) &&
        (scan->seen.sum != object->meta.table.sum ||
         scan->seen.count != object->meta.table.count))
        return -EUCLEAN;
    return 0;
}

/* ---- uploads ---- */

int store_create(struct store *store, const struct iod_string *name,
                 const struct object_meta *meta, struct object **out)
{
    struct object *object;
    int error = object_new(store, name, &object);

    if (error)
        return error;
    object->meta = *meta;
    error = name_text(name, object->meta.name);
    if (error)
        goto failed;
    pthread_mutex_lock(&store->lock);
    object->upload = upload_add(store, &object->meta, object);
    pthread_mutex_unlock(&store->lock);
    if (!object->upload) {
        error = -ENOMEM;
        goto failed;
    }
    object->fd = openat(store->folder, object->upload->file,
                        O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (object->fd < 0) {
        error = store_errno(store);
        goto failed;
    }
    object_ready(object);
    if (ftruncate(object->fd, (off_t)blocks_file_size(&object->blocks)) < 0) {
        error = -errno;
        goto failed;
    }
    *out = object;
    return 0;

failed:
    store_release(object, true);
    return error;
}

static int write_head(struct object *object)
{
    uint8_t head[STORE_HEAD];
    size_t at = 0;

    object_head_encode(&object->meta, head);
    while (at < sizeof head) {
        ssize_t n = pwrite(object->fd, head + at, sizeof head - at, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        at += (size_t)n;
    }
    return 0;
}

uint64_t store_version(struct store *store, const struct iod_string *name)
{
    struct object_meta meta;
    struct object *object;
    uint64_t version = 0;

    if (store_lookup(store, name, 0, &object) == 0) {
        version = object->meta.version;
        store_release(object, false);
    }
    if (store_pending(store, name, version, UINT64_MAX, &meta))
        version = meta.version;
    return version;
}

int store_seal(struct object *object, uint64_t version)
{
    struct store *store = object->store;
    struct iod_string name = iod_string_of(object->meta.name);
    struct blocks_scan scan = {0};
    int error;

    if (version == 0 || version > store_version(store, &name) + STORE_VERSION_STEP)
        return -EINVAL;
    error = blocks_walk(&object->blocks, &scan, 0, NULL);
    if (error)
        return error;
    object->meta.version = version;
    object->meta.table = scan.seen;
    error = write_head(object);
    if (!error && store->sync && fsync(object->fd) < 0)
        error = -errno;
    if (error)
        return error;
    pthread_mutex_lock(&store->lock);
    object->upload->version = version;
    if (object->meta.layout.index > 0)
        error = upload_prepare(store, object->upload);
    pthread_mutex_unlock(&store->lock);
    return error;
}

int store_commit(struct object *object, uint64_t *upload)
{
    struct store *store = object->store;
    int error = 0;

    pthread_mutex_lock(&store->lock);
    *upload = object->meta.upload; /* somebody may have rolled it forward */
    if (object->upload)
        error = upload_commit(store, object->upload, object->file, &object->replaced, upload);
    pthread_mutex_unlock(&store->lock);
    return error;
}

/* ---- finished objects ---- */

int store_read_head(int fd, struct object_meta *meta)
{
    uint8_t head[STORE_HEAD];
    struct blocks blocks = {.base = STORE_HEAD};
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
    blocks.size = layout_object_size(&meta->layout);
    if ((uint64_t)st.st_size != blocks_file_size(&blocks))
        return -EUCLEAN;
    return 0;
}

/* Opens what has the name. */
static int open_named(struct object *object)
{
    object->fd = store_open_file(object->store, object->file);
    if (object->fd < 0)
        return object->fd;
    return store_read_head(object->fd, &object->meta);
}

/* Commits a prepared upload for somebody who knows that it was decided. */
static int roll_forward(struct store *store, const char *name, const char *file,
                        uint64_t number)
{
    struct upload *upload;
    uint64_t now = 0;
    int replaced = -1, error;

    pthread_mutex_lock(&store->lock);
    upload = upload_find(store, name, number);
    if (!upload)
        error = -ESTALE;
    else if (!upload->prepared)
        error = -EBUSY;
    else
        error = upload_commit(store, upload, file, &replaced, &now);
    pthread_mutex_unlock(&store->lock);
    if (replaced >= 0)
        close(replaced);
    return error ? error : now == number ? 0 : -ESTALE;
}

int store_lookup(struct store *store, const struct iod_string *name, uint64_t upload,
                 struct object **out)
{
    char text[IOD_NAME_MAX + 1];
    struct object *object;
    int error = name_text(name, text);

    if (!error)
        error = object_new(store, name, &object);
    if (error)
        return error;
    error = open_named(object);
    if (upload && (error == -ENOENT || (!error && object->meta.upload != upload))) {
        error = roll_forward(store, text, object->file, upload);
        if (object->fd >= 0)
            close(object->fd);
        object->fd = -1;
        if (!error)
            error = open_named(object);
        if (!error && object->meta.upload != upload)
            error = -ESTALE;
    }
    if (error) {
        store_release(object, false);
        return error;
    }
    object_ready(object);
    *out = object;
    return 0;
}

bool store_pending(struct store *store, const struct iod_string *name, uint64_t version,
                   uint64_t number, struct object_meta *meta)
{
    const struct upload *best = NULL;
    char text[IOD_NAME_MAX + 1];
    int fd = -1;
    bool good;

    if (name_text(name, text) < 0)
        return false;
    pthread_mutex_lock(&store->lock);
    best = upload_highest(store, text, version, number);
    if (best)
        fd = store_open_file(store, best->file);
    pthread_mutex_unlock(&store->lock);
    if (fd < 0)
        return false;
    good = store_read_head(fd, meta) == 0;
    close(fd);
    return good;
}

int store_forget(struct store *store, const struct iod_string *name, uint64_t number)
{
    char text[IOD_NAME_MAX + 1];
    struct upload *upload;
    int error = name_text(name, text);

    if (error)
        return error;
    pthread_mutex_lock(&store->lock);
    upload = upload_find(store, text, number);
    if (upload && (upload->owner || !upload->prepared))
        error = -EBUSY;
    else if (upload)
        upload_remove(store, upload);
    pthread_mutex_unlock(&store->lock);
    return error;
}

/* Under the lock.  *fd is what had the name, which takes its time to go when it is closed. */
static int remove_named(struct store *store, const char *file, uint64_t number, int *fd)
{
    struct object_meta meta;
    int error;

    *fd = store_open_file(store, file);
    if (*fd < 0)
        return *fd == -ENOENT ? -ESTALE : *fd;
    error = store_read_head(*fd, &meta);
    if (error)
        return error;
    if (meta.upload != number)
        return -ESTALE;
    if (unlinkat(store->folder, file, 0) < 0)
        return store_errno(store);
    return store->sync && fsync(store->folder) < 0 ? -errno : 0;
}

int store_remove(struct store *store, const struct iod_string *name, uint64_t number)
{
    char text[IOD_NAME_MAX + 1], file[NAME_FILE_MAX];
    struct upload *upload;
    uint64_t now;
    int error = name_text(name, text), replaced = -1, fd = -1;

    if (!error)
        error = name_encode(name, file, sizeof file);
    if (error)
        return error;
    pthread_mutex_lock(&store->lock);
    upload = upload_find(store, text, number);
    if (upload)
        error = upload->prepared ? upload_commit(store, upload, file, &replaced, &now) : -EBUSY;
    if (!error)
        error = remove_named(store, file, number, &fd);
    pthread_mutex_unlock(&store->lock);
    if (replaced >= 0)
        close(replaced);
    if (fd >= 0)
        close(fd);
    return error;
}

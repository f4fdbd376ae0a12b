/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/fileio.h"
#include "embedded/iod/layout.h"
#include "embedded/iod/object_head.h"
#include "embedded/iod/store_impl.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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

/* Syncs the folder after names have changed; returns -EIO for any failure. */
int store_sync(const struct store *store)
{
    return store->sync && file_sync_folder(store->folder) < 0 ? -EIO : 0;
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
    if (is_removed(store)) { /* a removed folder can be read, and is empty */
        closedir(dir);
        return -EIDRM;
    }
    *out = dir;
    return 0;
}

struct dirent *store_next(DIR *dir, int *error)
{
    struct dirent *entry;

    errno = 0;
    entry = readdir(dir);
    if (!entry)
        *error = -errno;
    return entry;
}

int store_open_file(const struct store *store, const char *file)
{
    int fd = openat(store->folder, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0)
        return errno == ELOOP || errno == ENXIO ? -EISDIR : store_errno(store);
    return fd;
}

/* Returns 0, -ENOTEMPTY or -errno.  Ignores the lost+found of a file system. */
static int check_empty(const struct store *store)
{
    struct dirent *entry;
    DIR *dir;
    int error = store_stream(store, &dir);

    if (error)
        return error;
    while (!error && (entry = store_next(dir, &error)))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0 &&
            strcmp(entry->d_name, "lost+found") != 0 &&
            strcmp(entry->d_name, STORE_LOCK_FILE) != 0) /* another server may be starting */
            error = -ENOTEMPTY;
    closedir(dir);
    return error;
}

/* Opens or makes the lock file, which also marks the folder as a store with files of its
 * own. */
static int open_lock(struct store *store)
{
    int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW, error;

    store->lock_fd = openat(store->folder, STORE_LOCK_FILE, flags);
    if (store->lock_fd < 0 && errno == ENOENT) {
        error = check_empty(store);
        if (error)
            return error;
        store->lock_fd = openat(store->folder, STORE_LOCK_FILE, flags | O_CREAT, 0600);
    }
    return store->lock_fd < 0 ? -errno : 0;
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
    error = open_lock(store);
    if (error)
        goto no_lock_file;
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

bool store_is(const char *folder)
{
    char lock[PATH_MAX];
    struct stat st;

    return snprintf(lock, sizeof lock, "%s/" STORE_LOCK_FILE, folder) < (int)sizeof lock &&
           lstat(lock, &st) == 0 && S_ISREG(st.st_mode);
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

const struct store_left *store_stuck(const struct store *store)
{
    return &store->stuck;
}

const struct store_left *store_unreadable(const struct store *store)
{
    return &store->unreadable;
}

/* ---- objects ---- */

/* Copies a name, terminated.  Returns 0, -EINVAL or -ENAMETOOLONG. */
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

/* Sets up the blocks of an object whose layout is known and whose file is open. */
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

bool store_no_object(int error)
{
    return error == -ENOENT || error == -EUCLEAN || error == -EIO || error == -EISDIR;
}

/* Checks that no other part of this copy is here: in progress, prepared, or with the name
 * (-EEXIST), and that a file of this name is an object (-EISDIR).  With the lock held. */
static int no_other_part(struct store *store, const char *file, const struct object_meta *meta)
{
    const struct upload *upload = upload_find(store, meta->name, meta->upload);
    struct object_meta named;
    int fd, error;

    if (upload)
        return upload->index != meta->layout.index ? -EEXIST : 0;
    fd = store_open_file(store, file);
    error = fd < 0 ? fd : store_read_head(fd, &named);
    if (fd >= 0)
        close(fd);
    if (error)
        return store_no_object(error) && error != -EISDIR ? 0 : error;
    return named.upload == meta->upload && named.layout.index != meta->layout.index ? -EEXIST
                                                                                    : 0;
}

/* Creates the upload's file.  If a file that could not be removed at open has its number, takes
 * the next one.  Returns a descriptor, or -errno. */
static int create_file(struct store *store, struct upload *upload)
{
    for (;;) {
        int fd =
            openat(store->folder, upload->file, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

        if (fd >= 0 || errno != EEXIST)
            return fd < 0 ? store_errno(store) : fd;
        pthread_mutex_lock(&store->lock);
        upload_take_file(store, upload);
        pthread_mutex_unlock(&store->lock);
    }
}

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
    error = no_other_part(store, object->file, &object->meta);
    if (!error && !(object->upload = upload_add(store, &object->meta, object)))
        error = -ENOMEM;
    pthread_mutex_unlock(&store->lock);
    if (error)
        goto failed;
    object->fd = create_file(store, object->upload);
    if (object->fd < 0) {
        error = object->fd;
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

int store_version(struct store *store, const struct iod_string *name, uint64_t *version)
{
    char text[IOD_NAME_MAX + 1];
    const struct upload *prepared;
    struct object *object;
    int error = name_text(name, text);

    *version = 0;
    if (error)
        return error;
    pthread_mutex_lock(&store->lock);
    prepared = upload_highest(store, text, 0, 0); /* first, because this one may get the name
                                                   * meanwhile */
    if (prepared)
        *version = prepared->version;
    pthread_mutex_unlock(&store->lock);
    error = store_lookup(store, name, 0, &object);
    if (error)
        return store_no_object(error) ? 0 : error;
    if (object->meta.version > *version)
        *version = object->meta.version;
    store_release(object, false);
    return 0;
}

int store_seal(struct object *object, uint64_t version)
{
    struct store *store = object->store;
    struct iod_string name = iod_string_of(object->meta.name);
    struct blocks_scan scan = {0};
    uint64_t last;
    int error = store_version(store, &name, &last);

    if (error)
        return error;
    pthread_mutex_lock(&store->lock);
    if (!object->upload)
        error = -ESTALE;
    else if (object->upload->removed_version > last)
        last = object->upload->removed_version;
    pthread_mutex_unlock(&store->lock);
    if (error)
        return error;
    if (version == 0 || version < object->meta.version || version > last + STORE_VERSION_STEP)
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
    if (object->upload)
        object->upload->version = version;
    else
        error = -ESTALE;
    if (!error && object->meta.layout.index > 0)
        error = upload_prepare(store, object->upload);
    pthread_mutex_unlock(&store->lock);
    return error;
}

int store_commit(struct object *object, uint64_t *upload, uint64_t *version)
{
    struct store *store = object->store;
    struct upload *own;
    int error = 0;

    pthread_mutex_lock(&store->lock);
    own = object->upload;
    *upload = object->meta.upload; /* another client may have committed it */
    *version = own ? own->removed_version : 0;
    if (own && own->index == 0 && upload_below_removed(own))
        *upload = 0;
    else if (own)
        error = upload_commit(store, own, object->file, &object->replaced, upload);
    uploads_unlock(store);
    return error;
}

/* ---- finished objects ---- */

int store_read_head(int fd, struct object_meta *meta)
{
    uint8_t head[STORE_HEAD];
    struct blocks blocks = {.base = STORE_HEAD};
    struct stat st;
    ssize_t n;
    int error;

    if (fstat(fd, &st) < 0)
        return -errno;
    if (!S_ISREG(st.st_mode))
        return -EISDIR;
    n = pread(fd, head, sizeof head, 0);
    if (n < 0)
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

/* Opens the object of the name. */
static int open_named(struct object *object)
{
    object->fd = store_open_file(object->store, object->file);
    if (object->fd < 0)
        return object->fd;
    return store_read_head(object->fd, &object->meta);
}

/* Commits a prepared upload for a client that knows its decision. */
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
    uploads_unlock(store);
    if (replaced >= 0)
        close(replaced);
    return error ? error : now == number ? 0 : -ESTALE;
}

/* Opens an upload that does not have the name.  A concurrent commit may have changed this, so
 * the name is read again, also if the upload is unknown. */
static int open_other(struct object *object, const char *name, uint64_t upload)
{
    int error = roll_forward(object->store, name, object->file, upload), named;

    if (object->fd >= 0)
        close(object->fd);
    object->fd = -1;
    if (error && error != -ESTALE)
        return error;
    named = open_named(object);
    if (named == -ENOENT || (!named && object->meta.upload != upload))
        return -ESTALE;
    return named;
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
    if (upload && (store_no_object(error) || (!error && object->meta.upload != upload)))
        error = open_other(object, text, upload);
    if (error) {
        store_release(object, false);
        return error;
    }
    object_ready(object);
    *out = object;
    return 0;
}

int store_pending(struct store *store, const struct iod_string *name, struct object_meta *meta)
{
    const struct upload *best;
    char text[IOD_NAME_MAX + 1];
    int fd, error = name_text(name, text);

    if (error)
        return error;
    pthread_mutex_lock(&store->lock);
    best = upload_highest(store, text, 0, 0);
    fd = best ? store_open_file(store, best->file) : -ENOENT;
    pthread_mutex_unlock(&store->lock);
    if (fd >= 0)
        error = store_read_head(fd, meta);
    if (fd >= 0)
        close(fd);
    error = fd < 0 ? fd : error;
    return store_no_object(error) ? -ENOENT : error;
}

bool store_above(const struct object_meta *a, const struct object_meta *b)
{
    return upload_above(a->version, a->upload, b->version, b->upload);
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

/* Removes the object of the name, with the lock held.  *fd: the removed file, whose close may
 * take long. */
static int remove_named(struct store *store, const char *file, uint64_t number, int *fd)
{
    struct object_meta meta;
    int error;

    *fd = store_open_file(store, file);
    if (*fd < 0)
        return *fd == -ENOENT ? -ESTALE : *fd;
    error = store_read_head(*fd, &meta);
    if (error && error != -EUCLEAN && error != -EIO) /* a file, but not a valid object */
        return error;
    if (!error && meta.upload != number)
        return -ESTALE;
    if (unlinkat(store->folder, file, 0) < 0)
        return store_errno(store);
    if (!error)
        upload_report_removed(store, meta.name, meta.version, meta.upload);
    return store_sync(store);
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
    uploads_unlock(store);
    if (replaced >= 0)
        close(replaced);
    if (fd >= 0)
        close(fd);
    return error;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/fileio.h"
#include "embedded/iod/layout.h"
#include "embedded/iod/object_head.h"
#include "embedded/iod/store_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define UPLOAD       ".upload-"
#define PART         ".part-"
#define NUMBER_SHIFT 40 /* numbers of uploads of one run */

static const struct iod_id no_id;

/* ---- files ---- */

bool store_is_gone(const struct store *store)
{
    struct stat st;

    return store->memory == NULL && fstat(store->folder, &st) == 0 && st.st_nlink == 0;
}

/* Returns -errno, or -EIDRM for ENOENT if the folder was removed. */
static int store_errno(const struct store *store)
{
    int error = -errno;

    return error == -ENOENT && store_is_gone(store) ? -EIDRM : error;
}

/* Syncs the folder after names have changed; returns -EIO for any failure. */
static int store_sync(const struct store *store)
{
    return store->sync && store->memory == NULL && file_sync_folder(store->folder) < 0 ? -EIO
                                                                                       : 0;
}

/* Writes the name of an object's file. */
static int file_of(const char *name, struct iod_id key, char *file)
{
    struct iod_string string = iod_string_of(name);

    if (!key.upload)
        return name_encode(&string, file, NAME_FILE_MAX);
    snprintf(file, NAME_FILE_MAX, PART "%016" PRIx64 "-%016" PRIx64, key.origin, key.upload);
    return 0;
}

static int open_file(const struct store *store, const char *file)
{
    int fd = openat(store->folder, file, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);

    if (fd < 0)
        return errno == ELOOP || errno == ENXIO ? -EISDIR : store_errno(store);
    return fd;
}

static int read_head(int fd, struct object_meta *meta, int64_t *mtime)
{
    uint8_t head[STORE_HEAD];
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
    error = n < STORE_HEAD ? -EUCLEAN : object_head_decode(head, meta);
    if (!error && (uint64_t)st.st_size != STORE_HEAD + layout_object_size(&meta->layout))
        error = -EUCLEAN;
    *mtime = st.st_mtime;
    return error;
}

/* Opens an object's file and reads its head; *fd is open even after a failure, or negative. */
static int open_object(const struct store *store, const char *name, struct iod_id key, int *fd,
                       struct object_meta *meta, int64_t *mtime)
{
    char file[NAME_FILE_MAX];
    int error = file_of(name, key, file);

    *fd = error ? error : open_file(store, file);
    if (*fd < 0)
        return *fd;
    return read_head(*fd, meta, mtime);
}

/* ---- opening and closing a store ---- */

bool store_is(const char *folder)
{
    char path[PATH_MAX];

    return snprintf(path, sizeof path, "%s/" STORE_LOCK_FILE, folder) < (int)sizeof path &&
           access(path, F_OK) == 0;
}

/* Calls `each` for all entries of the folder, except "." and "..", until one fails. */
static int for_all_files(struct store *store, int (*each)(struct store *, const char *))
{
    int fd = openat(store->folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC), error = 0;
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    struct dirent *entry;

    if (dir == NULL) {
        error = store_errno(store);
        if (fd >= 0)
            close(fd);
        return error;
    }
    while (!error && (errno = 0, entry = readdir(dir)) != NULL)
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            error = each(store, entry->d_name);
    if (!error)
        error = -errno;
    closedir(dir);
    return error;
}

/* Checks that a folder without a lock file is empty, except for a file system's folder, and the
 * lock of a server that is starting. */
static int check_empty(struct store *store, const char *file)
{
    (void)store;
    return strcmp(file, "lost+found") == 0 || strcmp(file, STORE_LOCK_FILE) == 0 ? 0
                                                                                 : -ENOTEMPTY;
}

static bool begins(const char *file, const char *prefix)
{
    return strncmp(file, prefix, strlen(prefix)) == 0;
}

static int load_file(struct store *store, const char *file)
{
    char name[IOD_NAME_MAX + 1];
    struct object_meta meta;
    int64_t mtime;
    int fd, error;

    if (begins(file, UPLOAD)) {
        (void)unlinkat(store->folder, file, 0); /* else it stays */
    } else if (begins(file, PART)) {
        fd = open_file(store, file);
        error = fd < 0 ? fd : read_head(fd, &meta, &mtime);
        if (fd >= 0)
            close(fd);
        if (!error && items_add(store, meta.name, meta.id, true) == NULL)
            return -ENOMEM;
    } else if (name_decode(file, name, sizeof name) > 0) {
        return items_add(store, name, no_id, true) != NULL ? 0 : -ENOMEM;
    }
    return 0;
}

/* Reads origin and number of runs from the lock file, and counts this run, so that numbers of
 * uploads ascend. */
static int begin_run(struct store *store)
{
    char text[64] = "";
    uint64_t runs = 0;
    int length;

    if (pread(store->lock_fd, text, sizeof text - 1, 0) < 0)
        return -errno;
    if (sscanf(text, "%" SCNx64 " %" SCNu64, &store->origin, &runs) != 2 || !store->origin)
        if (getrandom(&store->origin, sizeof store->origin, 0) != sizeof store->origin)
            return -errno;
    store->origin |= store->origin == 0;
    store->next = ++runs << NUMBER_SHIFT;
    length =
        snprintf(text, sizeof text, "%016" PRIx64 " %010" PRIu64 "\n", store->origin, runs);
    if (pwrite(store->lock_fd, text, (size_t)length, 0) != length || fsync(store->lock_fd) < 0)
        return errno ? -errno : -EIO;
    return 0;
}

/* Opens or makes the lock file, which also marks the folder as a store. */
static int open_lock(struct store *store)
{
    int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW, error;

    store->lock_fd = openat(store->folder, STORE_LOCK_FILE, flags);
    if (store->lock_fd < 0 && errno == ENOENT) {
        error = for_all_files(store, check_empty);
        if (error)
            return error;
        store->lock_fd = openat(store->folder, STORE_LOCK_FILE, flags | O_CREAT, 0600);
    }
    return store->lock_fd < 0 || flock(store->lock_fd, LOCK_EX | LOCK_NB) < 0 ? -errno : 0;
}

static int open_folder(struct store *store, const char *folder)
{
    int error;

    store->folder = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (store->folder < 0)
        return -errno;
    error = open_lock(store);
    if (!error)
        error = begin_run(store);
    if (!error)
        error = for_all_files(store, load_file);
    items_sort(store);
    return error;
}

static int open_memory(struct store *store, const char *size)
{
    char *end;
    unsigned long long limit = strtoull(size, &end, 10);

    if (*end || end == size)
        return -EINVAL;
    if (getrandom(&store->origin, sizeof store->origin, 0) != sizeof store->origin)
        return -errno;
    store->origin |= 1;
    store->next = 1;
    store->memory = memory_new(limit);
    return store->memory != NULL ? 0 : -ENOMEM;
}

int store_open(const char *place, bool sync, struct store **out)
{
    struct store *store = calloc(1, sizeof *store);
    int error;

    if (store == NULL)
        return -ENOMEM;
    store->sync = sync;
    store->folder = store->lock_fd = -1;
    pthread_mutex_init(&store->lock, NULL);
    error = begins(place, STORE_MEMORY) ? open_memory(store, place + strlen(STORE_MEMORY))
                                        : open_folder(store, place);
    if (error)
        store_close(store);
    else
        *out = store;
    return error;
}

void store_close(struct store *store)
{
    while (store->items)
        items_remove(store, store->item[store->items - 1]);
    free(store->item);
    if (store->memory != NULL)
        memory_free(store->memory);
    if (store->lock_fd >= 0)
        close(store->lock_fd);
    if (store->folder >= 0)
        close(store->folder);
    pthread_mutex_destroy(&store->lock);
    free(store);
}

/* ---- objects ---- */

/* Makes an object, and copies the name to `text`. */
static int object_new(struct store *store, const struct iod_string *name, char *text,
                      struct object **out)
{
    struct object *object;

    if (name->length == 0 || memchr(name->text, 0, name->length) != NULL)
        return -EINVAL;
    if (name->length > IOD_NAME_MAX)
        return -ENAMETOOLONG;
    object = calloc(1, sizeof *object);
    if (object == NULL)
        return -ENOMEM;
    object->store = store;
    object->fd = -1;
    memset(text, 0, IOD_NAME_MAX + 1);
    memcpy(text, name->text, name->length);
    *out = object;
    return 0;
}

static void object_free(struct object *object)
{
    if (object->fd >= 0)
        close(object->fd);
    memory_file_put(object->data);
    free(object);
}

const struct object_meta *object_meta(const struct object *object)
{
    return &object->meta;
}

int64_t object_mtime(const struct object *object)
{
    return object->mtime;
}

int object_move(void *object, uint64_t offset, char *bytes, uint64_t length, bool write)
{
    struct object *o = object;
    struct file_part part = {
        .fd = o->fd, .layout = {.strip = IOD_STRIP_MIN, .count = 1}, .base = STORE_HEAD};

    return o->data != NULL ? memory_move(o->data, offset, bytes, length, write)
                           : file_move(&part, offset, bytes, length, write);
}

/* ---- uploads; functions up to store_create() with the lock held ---- */

static bool same_id(struct iod_id a, struct iod_id b)
{
    return a.origin == b.origin && a.upload == b.upload;
}

/* Returns the key of an object: that of the name for part 0. */
static struct iod_id key_of(const struct object_meta *meta)
{
    return meta->layout.index ? meta->id : no_id;
}

static struct object *find_upload(struct store *store, const char *name, struct iod_id id)
{
    struct object *o = store->uploads;

    while (o != NULL && (!same_id(o->meta.id, id) || strcmp(o->meta.name, name) != 0))
        o = o->next;
    return o;
}

/* Removes an object.  Returns 0 or -errno. */
static int drop_item(struct store *store, struct item *item)
{
    char file[NAME_FILE_MAX];

    if (store->memory == NULL &&
        (file_of(item->name, item->key, file) < 0 || unlinkat(store->folder, file, 0) < 0)) {
        int error = store_errno(store);

        if (error != -ENOENT)
            return error;
    }
    items_remove(store, item);
    return 0;
}

/* Returns -EISDIR if the name belongs to something else than a file. */
static int check_name(const struct store *store, const char *file)
{
    struct stat st;

    return fstatat(store->folder, file, &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISREG(st.st_mode)
               ? -EISDIR
               : 0;
}

/* Gives an upload its file name, or its item the upload's data. */
static int take_name(struct object *o, struct item *item)
{
    struct store *store = o->store;
    char file[NAME_FILE_MAX];
    int error;

    if (store->memory != NULL) {
        if (item->meta == NULL && (item->meta = malloc(sizeof *item->meta)) == NULL)
            return -ENOMEM;
        memory_file_put(item->data);
        memory_file_get(o->data);
        item->data = o->data;
        *item->meta = o->meta;
        item->mtime = o->mtime;
        return 0;
    }
    error = file_of(o->meta.name, key_of(&o->meta), file);
    if (!error)
        error = check_name(store, file);
    if (error)
        return error;
    return renameat(store->folder, o->temp, store->folder, file) < 0 ? store_errno(store) : 0;
}

static int publish(struct object *o)
{
    struct store *store = o->store;
    struct item *item = items_find(store, o->meta.name, key_of(&o->meta)), *added = NULL;
    int error;

    if (item == NULL)
        item = added = items_add(store, o->meta.name, key_of(&o->meta), false);
    error = item != NULL ? take_name(o, item) : -ENOMEM;
    if (error && added != NULL)
        items_remove(store, added);
    if (error)
        return error;
    o->named = true;
    return store_sync(store);
}

/* Checks that no other part of the copy is here, and no folder has the name. */
static int may_begin(struct store *store, const struct object *o)
{
    const struct object *other = find_upload(store, o->meta.name, o->meta.id);
    char file[NAME_FILE_MAX];

    if ((other != NULL && other->meta.layout.index != o->meta.layout.index) ||
        (o->meta.layout.index && items_find(store, o->meta.name, o->meta.id) != NULL))
        return -EEXIST;
    return store->memory == NULL && file_of(o->meta.name, no_id, file) == 0
               ? check_name(store, file)
               : 0;
}

/* Creates the upload's file, under the next name that is free. */
static int create_file(struct object *o)
{
    struct store *store = o->store;

    do {
        snprintf(o->temp, sizeof o->temp, UPLOAD "%" PRIu64, store->files++);
        o->fd = openat(store->folder, o->temp, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    } while (o->fd < 0 && errno == EEXIST);
    if (o->fd >= 0)
        return 0;
    o->temp[0] = 0;
    return store_errno(store);
}

int store_create(struct store *store, const struct iod_string *name,
                 const struct object_meta *meta, struct object **out)
{
    uint64_t size = layout_object_size(&meta->layout);
    char text[IOD_NAME_MAX + 1];
    struct object *o;
    int error = object_new(store, name, text, &o);

    if (error)
        return error;
    o->meta = *meta;
    memcpy(o->meta.name, text, sizeof text);
    pthread_mutex_lock(&store->lock);
    if (!o->meta.id.upload)
        o->meta.id = (struct iod_id){store->origin, store->next++};
    error = may_begin(store, o);
    if (!error && store->memory == NULL)
        error = create_file(o);
    if (!error) {
        o->upload = true;
        o->next = store->uploads;
        store->uploads = o;
    }
    pthread_mutex_unlock(&store->lock);
    if (!error && store->memory != NULL)
        error = memory_file_new(store->memory, size, &o->data);
    else if (!error && ftruncate(o->fd, (off_t)(STORE_HEAD + size)) < 0)
        error = -errno;
    if (error)
        store_release(o, true);
    else
        *out = o;
    return error;
}

void store_release(struct object *o, bool give_up)
{
    struct store *store = o->store;
    struct object **at = &store->uploads;
    struct item *part = NULL;

    pthread_mutex_lock(&store->lock);
    if (o->upload) {
        while (*at != o)
            at = &(*at)->next;
        *at = o->next;
    }
    if (o->temp[0] && !o->named)
        unlinkat(store->folder, o->temp, 0);
    if (o->named && !o->committed && give_up)
        part = items_find(store, o->meta.name, o->meta.id);
    if (part != NULL)
        drop_item(store, part);
    pthread_mutex_unlock(&store->lock);
    object_free(o);
}

static int write_head(struct object *o)
{
    uint8_t head[STORE_HEAD];
    size_t at = 0;

    object_head_encode(&o->meta, head);
    while (at < sizeof head) {
        ssize_t n = pwrite(o->fd, head + at, sizeof head - at, (off_t)at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? -errno : -EIO;
        at += (size_t)n;
    }
    return o->store->sync && fsync(o->fd) < 0 ? -errno : 0;
}

int store_seal(struct object *o)
{
    struct store *store = o->store;
    int error = store->memory != NULL ? 0 : write_head(o);

    o->mtime = time(NULL);
    if (error || o->meta.layout.index == 0)
        return error;
    pthread_mutex_lock(&store->lock);
    error = items_find(store, o->meta.name, o->meta.id) != NULL ? -EEXIST : publish(o);
    pthread_mutex_unlock(&store->lock);
    return error;
}

/* Removes the parts that a decided copy has replaced. */
static void drop_lower(struct store *store, const struct object_meta *meta)
{
    struct iod_id first = {meta->id.origin, 1};
    size_t at = items_at(store, meta->name, first);

    while (at < store->items && strcmp(store->item[at]->name, meta->name) == 0 &&
           store->item[at]->key.origin == meta->id.origin &&
           store->item[at]->key.upload < meta->id.upload)
        if (drop_item(store, store->item[at]) < 0)
            at++; /* the next commit tries again */
}

int store_commit(struct object *o, bool *lost)
{
    struct store *store = o->store;
    int error = 0;

    pthread_mutex_lock(&store->lock);
    if (o->meta.layout.index) {
        drop_lower(store, &o->meta);
    } else if (!o->lost) {
        error = publish(o);
        for (struct object *u = store->uploads; u != NULL && o->named; u = u->next)
            if (!u->meta.layout.index && u->meta.id.upload < o->meta.id.upload &&
                strcmp(u->meta.name, o->meta.name) == 0)
                u->lost = true;
    }
    o->committed = o->named;
    *lost = o->lost;
    pthread_mutex_unlock(&store->lock);
    return error;
}

/* ---- complete objects ---- */

/* Opens the object of this key, with the lock held in memory. */
static int open_item(struct object *o, const char *name, struct iod_id key)
{
    struct item *item;

    if (o->store->memory == NULL)
        return open_object(o->store, name, key, &o->fd, &o->meta, &o->mtime);
    item = items_find(o->store, name, key);
    if (item == NULL)
        return -ENOENT;
    memory_file_get(item->data);
    o->data = item->data;
    o->meta = *item->meta;
    o->mtime = item->mtime;
    return 0;
}

static void forget_file(struct object *o)
{
    if (o->fd >= 0)
        close(o->fd);
    o->fd = -1;
    memory_file_put(o->data);
    o->data = NULL;
}

/* Opens the object of a copy; with the lock held. */
static int open_copy(struct object *o, const char *name, struct iod_id id)
{
    int error = id.origin == o->store->origin ? open_item(o, name, no_id) : -ENOENT;

    if (!error && same_id(o->meta.id, id))
        return 0;
    forget_file(o);
    error = open_item(o, name, id);
    if (error == -ENOENT || (!error && strcmp(o->meta.name, name) != 0))
        return find_upload(o->store, name, id) != NULL ? -EBUSY : -ESTALE;
    return error;
}

int store_lookup(struct store *store, const struct iod_string *name, struct iod_id id,
                 struct object **out)
{
    char text[IOD_NAME_MAX + 1];
    struct object *o;
    int error = object_new(store, name, text, &o);

    if (error)
        return error;
    pthread_mutex_lock(&store->lock);
    error = id.upload ? open_copy(o, text, id) : open_item(o, text, no_id);
    pthread_mutex_unlock(&store->lock);
    if (error)
        store_release(o, false);
    else
        *out = o;
    return error;
}

/* Removes the object of the name if it is of this copy, or damaged; with the lock held.
 * Returns -ESTALE for another one. */
static int remove_named(struct object *o, const char *name, struct iod_id id)
{
    struct item *item;
    int error = open_item(o, name, no_id);
    bool damaged = error == -EUCLEAN || error == -EIO;

    if (error == -ENOENT || (!error && !same_id(o->meta.id, id)) ||
        (damaged && id.upload != STORE_DAMAGED))
        return -ESTALE;
    if (error && !damaged)
        return error;
    item = items_find(o->store, name, no_id);
    if (item == NULL) /* a file that another program put there */
        item = items_add(o->store, name, no_id, false);
    return item != NULL ? drop_item(o->store, item) : -ENOMEM;
}

int store_remove(struct store *store, const struct iod_string *name, struct iod_id id)
{
    char text[IOD_NAME_MAX + 1];
    struct item *part;
    struct object *o, *upload;
    int error = object_new(store, name, text, &o);

    if (error)
        return error;
    pthread_mutex_lock(&store->lock);
    upload = find_upload(store, text, id);
    if (upload != NULL && !upload->committed) {
        error = -EBUSY;
    } else {
        error = remove_named(o, text, id);
        part = items_find(store, text, id);
        if (part != NULL && (!error || error == -ESTALE))
            error = drop_item(store, part);
    }
    pthread_mutex_unlock(&store->lock);
    if (!error)
        error = store_sync(store);
    store_release(o, false); /* closes the removed file, which may take long */
    return error;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/layout.h"
#include "embedded/iod/store_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

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
    int error = store_stream(store, &dir);

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

/* 0 or -errno; -ENOENT: it is gone by now. */
static int describe(struct store *store, const char *name, struct iod_entry *entry)
{
    struct object *object;
    struct stat st;
    int error;

    entry->name = iod_string_of(name);
    error = store_lookup(store, &entry->name, 0, &object);
    if (error)
        return error;
    if (fstat(object->fd, &st) < 0) {
        error = -errno;
    } else {
        entry->layout = object->meta.layout;
        entry->upload = object->meta.upload;
        entry->stored = layout_object_size(&object->meta.layout);
        entry->mtime = (uint64_t)st.st_mtime;
    }
    store_release(object, false);
    return error;
}

/* Says that an object cannot be read, unless that was said before.  Of many such objects some
 * are said again: one is remembered for each bucket. */
static void say_unread(struct store *store, const char *name, int error,
                       struct store_unread *unread)
{
    uint64_t hash = UINT64_C(14695981039346656037) ^ (uint64_t)-error;
    uint64_t *said;
    bool known;

    for (const char *c = name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
    said = &store->unread[hash % STORE_BUCKETS];
    pthread_mutex_lock(&store->lock);
    known = *said == hash;
    *said = hash;
    pthread_mutex_unlock(&store->lock);
    if (!known)
        unread->say(unread->arg, name, error);
}

int store_list(struct store *store, const struct iod_string *after, uint8_t *buf, size_t size,
               struct iod_entries *entries, bool *more, struct store_unread *unread)
{
    struct names names = {0};
    struct iod_entry entry;
    uint32_t since = 0; /* the last entry that fitted: what follows it is asked for again */
    int error = collect_names(store, after, &names);

    *more = false;
    unread->count = 0;
    *entries = (struct iod_entries){.wire = buf};
    for (size_t i = 0; i < names.count && !error && !*more; i++) {
        int bad = describe(store, names.item[i], &entry);

        if (bad == -EIDRM) {
            error = bad;
        } else if (bad && bad != -ENOENT && bad != -EISDIR) {
            say_unread(store, names.item[i], bad, unread);
            since++;
        } else if (!bad && iod_entry_append(&entry, buf, size, &entries->length)) {
            entries->count++;
            unread->count += since;
            since = 0;
        } else if (!bad) {
            *more = true;
        }
    }
    if (!*more)
        unread->count += since;
    names_free(&names);
    return error;
}

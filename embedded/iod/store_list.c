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

/* False when the object is not one, or gone by now. */
static bool describe(struct store *store, const char *name, struct iod_entry *entry)
{
    struct object *object;
    struct stat st;
    bool good;

    entry->name = iod_string_of(name);
    if (store_lookup(store, &entry->name, 0, &object) < 0)
        return false;
    good = fstat(object->fd, &st) == 0;
    if (good) {
        entry->layout = object->meta.layout;
        entry->upload = object->meta.upload;
        entry->stored = layout_object_size(&object->meta.layout);
        entry->mtime = (uint64_t)st.st_mtime;
    }
    store_release(object, false);
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

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/layout.h"
#include "embedded/iod/store_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* Names of a listing, about as many as fit in a reply: the first ones of a scan of the folder,
 * in byte order.  The folder is scanned again for the others. */
#define NAMES_MAX 1024u

struct names {
    char *item[2 * NAMES_MAX];
    size_t count;
    bool more; /* later names were omitted */
};

static void names_free(struct names *names, size_t from)
{
    for (size_t i = from; i < names->count; i++)
        free(names->item[i]);
    names->count = from;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void names_sort(struct names *names)
{
    if (names->count > 0)
        qsort(names->item, names->count, sizeof names->item[0], compare_names);
    if (names->count > NAMES_MAX) {
        names_free(names, NAMES_MAX);
        names->more = true;
    }
}

static int names_add(struct names *names, const char *name)
{
    char *copy;

    if (names->more && strcmp(name, names->item[NAMES_MAX - 1]) > 0)
        return 0;
    copy = strdup(name);
    if (!copy)
        return -ENOMEM;
    names->item[names->count++] = copy;
    if (names->count == 2 * NAMES_MAX)
        names_sort(names);
    return 0;
}

/* Collects the first decoded names behind `last`, in byte order. */
static int collect_names(struct store *store, const char *last, struct names *names)
{
    char name[IOD_NAME_MAX + 1];
    struct dirent *entry;
    DIR *dir;
    int error = store_stream(store, &dir);

    if (error)
        return error;
    while (!error && (entry = store_next(dir, &error)))
        if (name_decode(entry->d_name, name, sizeof name) > 0 && strcmp(name, last) > 0)
            error = names_add(names, name);
    closedir(dir);
    names_sort(names);
    return error;
}

/* Fills in an entry.  Returns 0 or -errno; -ENOENT: removed meanwhile. */
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

/* Reports an unreadable object, unless reported before.  With many such objects some are
 * reported repeatedly, because each bucket remembers one. */
static void report_unread(struct store *store, const char *name, int error,
                          struct store_unread *unread)
{
    uint64_t hash = UINT64_C(14695981039346656037) ^ (uint64_t)-error;
    uint64_t *reported;
    bool known;

    for (const char *c = name; *c; c++)
        hash = (hash ^ (unsigned char)*c) * UINT64_C(1099511628211);
    reported = &store->unread[hash % STORE_BUCKETS];
    pthread_mutex_lock(&store->lock);
    known = *reported == hash;
    *reported = hash;
    pthread_mutex_unlock(&store->lock);
    if (!known)
        unread->report(unread->arg, name, error);
}

/* Page of a listing under construction. */
struct page {
    struct store *store;
    uint8_t *buf;
    size_t size;
    struct iod_entries *entries;
    struct store_unread *unread;
    uint32_t since; /* unreadable ones behind the last entry that fitted, which are listed
                     * again */
    bool full;
};

static int page_add(struct page *page, const char *name)
{
    struct iod_entry entry;
    int bad = describe(page->store, name, &entry);

    if (bad == -EIDRM)
        return bad;
    if (bad && bad != -ENOENT && bad != -EISDIR) {
        report_unread(page->store, name, bad, page->unread);
        page->since++;
    } else if (!bad &&
               iod_entry_append(&entry, page->buf, page->size, &page->entries->length)) {
        page->entries->count++;
        page->unread->count += page->since;
        page->since = 0;
    } else if (!bad) {
        page->full = true;
    }
    return 0;
}

int store_list(struct store *store, const struct iod_string *after, uint8_t *buf, size_t size,
               struct iod_entries *entries, bool *more, struct store_unread *unread)
{
    struct page page = {store, buf, size, entries, unread, 0, false};
    struct names *names = calloc(1, sizeof *names);
    char last[IOD_NAME_MAX + 1];
    int error = names ? 0 : -ENOMEM;
    bool rest = true;

    unread->count = 0;
    *entries = (struct iod_entries){.wire = buf};
    snprintf(last, sizeof last, "%.*s", (int)after->length, after->text);
    while (rest && !page.full && !error) {
        names->more = false;
        error = collect_names(store, last, names);
        for (size_t i = 0; i < names->count && !error && !page.full; i++)
            error = page_add(&page, names->item[i]);
        rest = names->more;
        if (rest)
            snprintf(last, sizeof last, "%s", names->item[names->count - 1]);
        names_free(names, 0);
    }
    free(names);
    *more = page.full;
    if (!*more)
        unread->count += page.since;
    return error;
}

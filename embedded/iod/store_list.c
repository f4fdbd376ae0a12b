/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/layout.h"
#include "embedded/iod/store_impl.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BATCH 64 /* names copied at once under the lock */

/* ---- the sorted list ---- */

static int compare(const char *name, struct iod_id key, const struct item *item)
{
    int order = strcmp(name, item->name);

    return order ? order : iod_id_compare(key, item->key);
}

size_t items_at(const struct store *store, const char *name, struct iod_id key)
{
    size_t from = 0, to = store->items;

    while (from < to) {
        size_t middle = from + (to - from) / 2;

        if (compare(name, key, store->item[middle]) > 0)
            from = middle + 1;
        else
            to = middle;
    }
    return from;
}

struct item *items_find(const struct store *store, const char *name, struct iod_id key)
{
    size_t at = items_at(store, name, key);

    return at < store->items && compare(name, key, store->item[at]) == 0 ? store->item[at]
                                                                         : NULL;
}

struct item *items_add(struct store *store, const char *name, struct iod_id key, bool last)
{
    size_t at = last ? store->items : items_at(store, name, key);
    size_t length = strlen(name) + 1;
    struct item *item;

    if (store->items == store->room) {
        size_t room = store->room ? 2 * store->room : 64;
        struct item **grown = realloc(store->item, room * sizeof *grown);

        if (grown == NULL)
            return NULL;
        store->item = grown;
        store->room = room;
    }
    item = calloc(1, sizeof *item + length);
    if (item == NULL)
        return NULL;
    item->key = key;
    memcpy(item->name, name, length);
    memmove(store->item + at + 1, store->item + at, (store->items - at) * sizeof *store->item);
    store->item[at] = item;
    store->items++;
    return item;
}

static int compare_items(const void *a, const void *b)
{
    const struct item *const *x = a, *const *y = b;

    return compare((*x)->name, (*x)->key, *y);
}

void items_sort(struct store *store)
{
    if (store->items)
        qsort(store->item, store->items, sizeof *store->item, compare_items);
}

void items_remove(struct store *store, struct item *item)
{
    size_t at = items_at(store, item->name, item->key);

    store->items--;
    memmove(store->item + at, store->item + at + 1, (store->items - at) * sizeof *store->item);
    memory_file_put(item->data);
    free(item->meta);
    free(item);
}

/* ---- a page of a listing ---- */

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

static void page_add(struct page *page, const char *name, struct iod_id key)
{
    struct iod_entry entry = {.name = iod_string_of(name)};
    struct object *object;
    int error = store_lookup(page->store, &entry.name, key, &object);

    if (error == -ENOENT || error == -ESTALE || error == -EISDIR || error == -EBUSY)
        return; /* removed meanwhile, or no file */
    if (error) {
        page->unread->report(page->unread->arg, name, error);
        page->since++;
        return;
    }
    entry.layout = object_meta(object)->layout;
    entry.id = object_meta(object)->id;
    entry.stored = layout_object_size(&entry.layout);
    entry.mtime = (uint64_t)object_mtime(object);
    store_release(object, false);
    page->full = !iod_entry_append(&entry, page->buf, page->size, &page->entries->length);
    if (page->full)
        return;
    page->entries->count++;
    page->unread->count += page->since;
    page->since = 0;
}

struct key {
    char name[IOD_NAME_MAX + 1];
    struct iod_id id;
};

/* Copies the keys behind the last one of `key`.  Returns their number. */
static size_t next_keys(struct store *store, struct key *key, bool first)
{
    struct key last = key[0];
    size_t at, n = 0;

    pthread_mutex_lock(&store->lock);
    at = items_at(store, last.name, last.id);
    if (!first && at < store->items && compare(last.name, last.id, store->item[at]) == 0)
        at++;
    for (; at + n < store->items && n < BATCH; n++) {
        snprintf(key[n].name, sizeof key[n].name, "%s", store->item[at + n]->name);
        key[n].id = store->item[at + n]->key;
    }
    pthread_mutex_unlock(&store->lock);
    return n;
}

int store_list(struct store *store, const struct iod_entry *after, uint8_t *buf, size_t size,
               struct iod_entries *entries, bool *more, struct store_unread *unread)
{
    struct page page = {store, buf, size, entries, unread, 0, false};
    struct key *key = calloc(BATCH, sizeof *key);
    bool first = after->name.length == 0;
    size_t n;

    if (key == NULL)
        return -ENOMEM;
    if (store_is_gone(store)) {
        free(key);
        return -EIDRM;
    }
    unread->count = 0;
    *entries = (struct iod_entries){.wire = buf};
    memcpy(key[0].name, after->name.text, after->name.length);
    key[0].id = after->id;
    while (!page.full && (n = next_keys(store, key, first)) > 0) {
        for (size_t i = 0; i < n && !page.full; i++)
            page_add(&page, key[i].name, key[i].id);
        key[0] = key[n - 1];
        first = false;
    }
    free(key);
    *more = page.full;
    if (!*more)
        unread->count += page.since;
    return 0;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "tests/unit/iod/folder.h"
#include "embedded/iod/layout.h"

#include <dirent.h>
#include <unistd.h>

char folder[64];

int folder_set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/test_store.XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

int folder_tear_down(void **state)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;

    (void)state;
    while (dir && (entry = readdir(dir)))
        unlinkat(dirfd(dir), entry->d_name, 0);
    if (dir)
        closedir(dir);
    return rmdir(folder);
}

struct store *open_it(void)
{
    struct store *store;

    assert_int_equal(store_open(folder, false, &store), 0);
    return store;
}

int files(const char *prefix)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    int n = 0;

    assert_non_null(dir);
    while ((entry = readdir(dir)))
        n += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    closedir(dir);
    return n;
}

struct object *begin(struct store *store, const char *name, uint64_t size)
{
    struct object_meta meta = {.layout = {size, 65536, 0, 1}, .upload = 7, .mode = 0640};
    struct iod_string string = iod_string_of(name);
    struct object *object;

    snprintf(meta.servers, sizeof meta.servers, "ib://h:1");
    assert_int_equal(store_create(store, &string, &meta, &object), 0);
    return object;
}

static struct extent_cursor whole(struct iod_extent *extent, uint64_t size)
{
    *extent = (struct iod_extent){0, size};
    return (struct extent_cursor){.item = extent, .count = 1};
}

void write_text(struct object *object, const char *text)
{
    struct iod_extent extent;

    assert_int_equal(object_write(object, whole(&extent, strlen(text)), text, strlen(text)), 0);
}

/* Reads the object's text, with the size of its layout. */
int read_text(struct object *object, char *text)
{
    uint64_t size = layout_object_size(&object_meta(object)->layout);
    struct iod_extent extent;
    int error = object_read(object, whole(&extent, size), text, size);

    text[size] = 0;
    return error;
}

void seal_and_commit(struct object *object, uint64_t version)
{
    uint64_t upload, removed;

    assert_int_equal(store_seal(object, version), 0);
    assert_int_equal(store_commit(object, &upload, &removed), 0);
}

int commit(struct object *object, uint64_t *number)
{
    uint64_t removed;

    return store_commit(object, number, &removed);
}

int look_up(struct store *store, const char *name, struct object **object)
{
    struct iod_string string = iod_string_of(name);

    return store_lookup(store, &string, 0, object);
}

void put(struct store *store, const char *name, const char *text)
{
    struct object *object = begin(store, name, strlen(text));

    write_text(object, text);
    seal_and_commit(object, 1);
    store_release(object, false);
}

void assert_holds(struct store *store, const char *name, const char *text)
{
    struct object *object;
    char got[64] = "";

    assert_int_equal(look_up(store, name, &object), 0);
    assert_int_equal(read_text(object, got), 0);
    assert_string_equal(got, text);
    store_release(object, false);
}

struct object *begin_part(struct store *store, uint64_t upload, uint32_t index,
                          const char *text)
{
    struct object_meta meta = {.layout = {8, 64, index, 2}, .upload = upload};
    struct iod_string name = iod_string_of("s");
    struct object *object;

    meta.layout.size = index ? 64 + strlen(text) : strlen(text);
    snprintf(meta.servers, sizeof meta.servers, "ib://h:1,ib://h:2");
    assert_int_equal(store_create(store, &name, &meta, &object), 0);
    write_text(object, text);
    return object;
}

void prepare(struct store *store, uint64_t upload, uint64_t version, const char *text)
{
    struct object *object = begin_part(store, upload, 1, text);

    assert_int_equal(store_seal(object, version), 0);
    store_release(object, false);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The store in a folder and in memory. */
#include "config.h"
#include "tests/unit/common/unit.h"
#include "embedded/iod/layout.h"
#include "embedded/iod/memory.h"
#include "embedded/iod/object_head.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];
static const struct iod_id by_name;
static unsigned opened; /* calls of openat() and readdir() */

int __real_openat(int dir, const char *file, int flags, ...);
int __wrap_openat(int dir, const char *file, int flags, ...);
struct dirent *__real_readdir(DIR *dir);
struct dirent *__wrap_readdir(DIR *dir);

int __wrap_openat(int dir, const char *file, int flags, ...)
{
    opened++;
    return __real_openat(dir, file, flags, 0600);
}

struct dirent *__wrap_readdir(DIR *dir)
{
    opened++;
    return __real_readdir(dir);
}

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/test_store.XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int tear_down(void **state)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;

    (void)state;
    while (dir != NULL && (entry = readdir(dir)) != NULL)
        if (unlinkat(dirfd(dir), entry->d_name, 0) < 0)
            unlinkat(dirfd(dir), entry->d_name, AT_REMOVEDIR);
    if (dir != NULL)
        closedir(dir);
    return rmdir(folder);
}

static struct store *open_place(const char *place)
{
    struct store *store;

    assert_int_equal(store_open(place, false, &store), 0);
    return store;
}

static const char *path_of(const char *file)
{
    static char path[320];

    snprintf(path, sizeof path, "%s/%s", folder, file);
    return path;
}

static void make_file(const char *file)
{
    int fd = open(path_of(file), O_CREAT | O_WRONLY | O_EXCL, 0600);

    assert_true(fd >= 0);
    close(fd);
}

static int files(const char *prefix)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    int n = 0;

    assert_non_null(dir);
    while ((entry = readdir(dir)) != NULL)
        n += strncmp(entry->d_name, prefix, strlen(prefix)) == 0;
    closedir(dir);
    return n;
}

/* Begins part `index` of `count`, with the text as data. */
static int begin(struct store *store, const char *name, struct iod_id id, uint32_t index,
                 const char *text, struct object **object)
{
    uint64_t size = strlen(text);
    struct object_meta meta = {.layout = {size, 64, 0, 1}, .id = id, .mode = 0640};
    struct iod_string string = iod_string_of(name);
    int error;

    if (index)
        meta.layout = (struct iod_layout){64 * index + size, 64, index, index + 1};
    error = store_create(store, &string, &meta, object);
    if (!error)
        assert_int_equal(object_move(*object, 0, (char *)(uintptr_t)text, size, true), 0);
    return error;
}

/* Copies a whole file in, or another part of a copy; returns its id. */
static struct iod_id put(struct store *store, const char *name, struct iod_id id,
                         uint32_t index, const char *text)
{
    struct object *object;
    bool lost;

    assert_int_equal(begin(store, name, id, index, text, &object), 0);
    id = object_meta(object)->id;
    assert_int_equal(store_seal(object), 0);
    assert_int_equal(store_commit(object, &lost), 0);
    assert_false(lost);
    store_release(object, false);
    return id;
}

static int look_up(struct store *store, const char *name, struct iod_id id,
                   struct object **object)
{
    struct iod_string string = iod_string_of(name);

    return store_lookup(store, &string, id, object);
}

static void assert_object_holds(struct object *object, const char *text)
{
    char got[100] = "";
    size_t size = strlen(text);

    assert_int_equal(layout_object_size(&object_meta(object)->layout), size);
    assert_int_equal(object_move(object, 0, got, size, false), 0);
    assert_string_equal(got, text);
}

static void assert_holds(struct store *store, const char *name, struct iod_id id,
                         const char *text)
{
    struct object *object;

    assert_int_equal(look_up(store, name, id, &object), 0);
    assert_object_holds(object, text);
    store_release(object, false);
}

static int status(struct store *store, const char *name, struct iod_id id)
{
    struct object *object;
    int error = look_up(store, name, id, &object);

    if (!error)
        store_release(object, false);
    return error;
}

static int remove_it(struct store *store, const char *name, struct iod_id id)
{
    struct iod_string string = iod_string_of(name);

    return store_remove(store, &string, id);
}

/* ---- both stores ---- */

static void old_object_stays_until_commit(struct store *store)
{
    struct object *upload, *reader;
    bool lost;

    put(store, "a/b", by_name, 0, "old");
    assert_int_equal(look_up(store, "a/b", by_name, &reader), 0);
    assert_int_equal(begin(store, "a/b", by_name, 0, "newer", &upload), 0);
    assert_int_equal(status(store, "a/b", object_meta(upload)->id), -EBUSY);
    assert_int_equal(remove_it(store, "a/b", object_meta(upload)->id), -EBUSY);
    assert_int_equal(store_seal(upload), 0);
    assert_holds(store, "a/b", by_name, "old");
    assert_int_equal(store_commit(upload, &lost), 0);
    assert_holds(store, "a/b", object_meta(upload)->id, "newer");
    assert_int_equal(remove_it(store, "a/b", object_meta(reader)->id), -ESTALE);
    assert_int_equal(remove_it(store, "a/b", object_meta(upload)->id), 0);
    assert_int_equal(status(store, "a/b", by_name), -ENOENT);
    store_release(upload, false);
    assert_object_holds(reader, "old");
    store_release(reader, false);
}

/* A commit below a higher one has no effect, even if that was removed meanwhile. */
static void lower_upload_is_cancelled(struct store *store)
{
    struct object *low;
    bool lost;

    for (int removed = 0; removed < 2; removed++) {
        struct iod_id high;

        assert_int_equal(begin(store, "f", by_name, 0, "low", &low), 0);
        assert_int_equal(store_seal(low), 0);
        high = put(store, "f", by_name, 0, "high");
        if (removed)
            assert_int_equal(remove_it(store, "f", high), 0);
        assert_true(store_commit(low, &lost) == 0 && lost);
        store_release(low, false);
        assert_int_equal(status(store, "f", by_name), removed ? -ENOENT : 0);
        if (!removed)
            assert_holds(store, "f", by_name, "high");
    }
}

/* A sealed part stays without its client, until a later copy is decided. */
static void parts_stay_until_they_are_replaced(struct store *store)
{
    struct iod_id id = {77, 5}, later = {77, 6}, other = {78, 1};
    struct object *part, *second;

    assert_int_equal(begin(store, "f", id, 1, "left", &part), 0);
    assert_int_equal(begin(store, "f", id, 2, "two", &second), -EEXIST);
    store_release(part, false); /* not sealed: gone */
    assert_int_equal(status(store, "f", id), -ESTALE);
    assert_int_equal(begin(store, "f", id, 1, "left", &part), 0);
    assert_int_equal(store_seal(part), 0);
    store_release(part, false);
    assert_holds(store, "f", id, "left");
    assert_int_equal(status(store, "f", by_name), -ENOENT);
    assert_int_equal(begin(store, "f", id, 1, "again", &second), -EEXIST);
    put(store, "f", other, 1, "of another file");
    put(store, "f", later, 1, "replaces");
    assert_int_equal(status(store, "f", id), -ESTALE);
    assert_holds(store, "f", later, "replaces");
    assert_holds(store, "f", other, "of another file");
    assert_int_equal(begin(store, "f", (struct iod_id){77, 7}, 1, "up", &part), 0);
    assert_int_equal(store_seal(part), 0);
    store_release(part, true); /* given up */
    assert_int_equal(status(store, "f", (struct iod_id){77, 7}), -ESTALE);
    put(store, "f", by_name, 0, "whole"); /* that name here is another file */
    assert_holds(store, "f", by_name, "whole");
    assert_int_equal(remove_it(store, "f", later), 0);
    assert_int_equal(status(store, "f", later), -ESTALE);
}

static void both_stores(void **state)
{
    static void (*const test[])(struct store *) = {old_object_stays_until_commit,
                                                   lower_upload_is_cancelled,
                                                   parts_stay_until_they_are_replaced};

    (void)state;
    for (size_t i = 0; i < 2 * sizeof test / sizeof test[0]; i++) {
        struct store *store = open_place(i % 2 ? folder : STORE_MEMORY "1000000");

        test[i / 2](store);
        store_close(store);
        assert_int_equal(files(".upload-"), 0);
    }
}

/* ---- in a folder ---- */

static void restarted_store_has_its_objects(void **state)
{
    struct iod_id part = {77, 5}, first, next;
    struct store *store = open_place(folder), *second;
    struct object *object;

    (void)state;
    assert_int_equal(store_open(folder, false, &second), -EWOULDBLOCK);
    first = put(store, "x", by_name, 0, "hello");
    put(store, "y", part, 1, "part");
    store_close(store);
    make_file(".upload-5");
    make_file(".part-junk");
    assert_int_equal(mkdir(path_of(".upload-0"), 0700), 0); /* its number is taken */
    store = open_place(folder);
    assert_int_equal(files(".upload-"), 1);
    assert_holds(store, "x", by_name, "hello");
    assert_holds(store, "y", part, "part");
    next = put(store, "x", by_name, 0, "again");
    assert_true(next.origin == first.origin && next.upload > first.upload);
    assert_int_equal(look_up(store, "x", by_name, &object), 0);
    assert_int_equal(object_meta(object)->mode, 0640);
    store_release(object, false);
    store_close(store);
    assert_int_equal(store_open("/nonexistent/folder", false, &store), -ENOENT);
}

static void note(void *arg, const char *name, int error)
{
    (void)name;
    assert_int_equal(error, -EUCLEAN);
    ++*(int *)arg;
}

/* The work for a list of all pages grows with the number of objects. */
static void list_in_pages_costs_each_object_once(void **state)
{
    enum { COUNT = 2000 };
    struct store *store = open_place(folder);
    struct store_unread unread = {.report = note};
    char name[IOD_NAME_MAX + 1] = "";
    struct iod_entry entry = {.name = iod_string_of(name)};
    struct iod_id part = {7, 7};
    uint8_t packed[2000];
    int n = 0, pages = 0;
    bool more = true;

    (void)state;
    for (int i = 0; i < COUNT; i++) {
        snprintf(name, sizeof name, "n%04d/", i);
        put(store, name, by_name, 0, "12345");
    }
    put(store, "n0007/", part, 1, "12345");
    name[0] = 0;
    opened = 0;
    for (; more; pages++) {
        struct iod_entry after = {.name = iod_string_of(name), .id = iod_entry_place(&entry)};
        struct iod_entries entries;
        uint32_t at = 0;

        assert_int_equal(
            store_list(store, &after, packed, sizeof packed, &entries, &more, &unread), 0);
        while (iod_entry_next(&entries, &at, &entry)) {
            bool is_part = entry.layout.index > 0;

            snprintf(name, sizeof name, "n%04d/", is_part ? n - 1 : n);
            assert_int_equal(entry.name.length, 6);
            assert_memory_equal(entry.name.text, name, 6);
            n += !is_part;
        }
    }
    assert_int_equal(n, COUNT);
    assert_true(pages > COUNT / 50 && opened <= COUNT + 1 + (unsigned)pages);
    store_close(store);
}

/* ---- in memory ---- */

static void memory_is_bounded_and_used_again(void **state)
{
    static char bytes[2 * MEMORY_CHUNK + 5], got[sizeof bytes];
    struct memory *memory = memory_new(4 * MEMORY_CHUNK);
    struct memory_file *file, *more;

    (void)state;
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (char)(i * 7 + i / 256);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(memory_file_new(memory, UINT64_C(1) << 61, &more), -EXFULL);
        assert_int_equal(memory_file_new(memory, sizeof bytes, &file), 0);
        assert_int_equal(memory_file_new(memory, MEMORY_CHUNK, &more), -EXFULL);
        assert_int_equal(memory_move(file, 0, bytes, sizeof bytes, true), 0);
        assert_int_equal(memory_move(file, 6, bytes, sizeof bytes, true), -EINVAL);
        assert_int_equal(memory_move(file, MEMORY_CHUNK - 7, got, MEMORY_CHUNK + 9, false), 0);
        assert_memory_equal(got, bytes + MEMORY_CHUNK - 7, MEMORY_CHUNK + 9);
        memory_file_put(file);
    }
    memory_free(memory);
}

static void object_head_encoding(void **state)
{
    struct object_meta in = {.layout = {5, 64, 1, 2}, .id = {9, 3}, .mode = 0777, .name = "x"},
                       out;
    uint8_t head[STORE_HEAD];

    (void)state;
    object_head_encode(&in, head);
    assert_int_equal(object_head_decode(head, &out), 0);
    assert_memory_equal(&out.layout, &in.layout, sizeof in.layout);
    for (size_t i = 0; i < sizeof head; i++) {
        head[i] ^= 1;
        assert_int_equal(object_head_decode(head, &out), -EUCLEAN);
        head[i] ^= 1;
    }
    in.layout.index = 2; /* well-formed, but inconsistent */
    object_head_encode(&in, head);
    assert_int_equal(object_head_decode(head, &out), -EUCLEAN);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(both_stores),
        TEST(restarted_store_has_its_objects),
        TEST(list_in_pages_costs_each_object_once),
        cmocka_unit_test(memory_is_bounded_and_used_again),
        cmocka_unit_test(object_head_encoding),
    };

    return cmocka_run_group_tests_name("iod/store", tests, NULL, NULL);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The store on a real folder, and the file side of transfers. */
#include "config.h"
#include "tests/unit/common/unit.h"
#include "embedded/iod/fileio.h"
#include "embedded/iod/layout.h"
#include "embedded/iod/object_head.h"
#include "embedded/iod/store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[64];

static int set_up(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/test_store.XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int tear_down(void **state)
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

static struct store *open_it(void)
{
    struct store *store;

    assert_int_equal(store_open(folder, false, &store), 0);
    return store;
}

static int files(const char *prefix)
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

static struct object *begin(struct store *store, const char *name, uint64_t size)
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

static void write_text(struct object *object, const char *text)
{
    struct iod_extent extent;

    assert_int_equal(object_write(object, whole(&extent, strlen(text)), text, strlen(text)), 0);
}

/* The object's text; its size is that of the layout. */
static int read_text(struct object *object, char *text)
{
    uint64_t size = layout_object_size(&object_meta(object)->layout);
    struct iod_extent extent;
    int error = object_read(object, whole(&extent, size), text, size);

    text[size] = 0;
    return error;
}

static void seal_and_commit(struct object *object, uint64_t version)
{
    uint64_t upload;

    assert_int_equal(store_seal(object, version), 0);
    assert_int_equal(store_commit(object, &upload), 0);
}

static int look_up(struct store *store, const char *name, struct object **object)
{
    struct iod_string string = iod_string_of(name);

    return store_lookup(store, &string, 0, object);
}

static void put(struct store *store, const char *name, const char *text)
{
    struct object *object = begin(store, name, strlen(text));

    write_text(object, text);
    seal_and_commit(object, 1);
    store_release(object, false);
}

static void assert_holds(struct store *store, const char *name, const char *text)
{
    struct object *object;
    char got[64] = "";

    assert_int_equal(look_up(store, name, &object), 0);
    assert_int_equal(read_text(object, got), 0);
    assert_string_equal(got, text);
    store_release(object, false);
}

static void keeps_what_is_committed(void **state)
{
    struct store *store = open_it();
    struct object *object;

    (void)state;
    put(store, "a/b", "hello");
    store_close(store);
    store = open_it();
    assert_holds(store, "a/b", "hello");
    assert_int_equal(look_up(store, "a/b", &object), 0);
    assert_true(object_meta(object)->upload == 7 && object_meta(object)->mode == 0640);
    assert_string_equal(object_meta(object)->servers, "ib://h:1");
    store_release(object, false);
    assert_int_equal(look_up(store, "a", &object), -ENOENT);
    store_close(store);
}

static void the_old_one_stays_until_commit(void **state)
{
    struct store *store = open_it();
    struct object *upload, *reader;
    char got[8] = "";

    (void)state;
    put(store, "x", "old");
    assert_int_equal(look_up(store, "x", &reader), 0);
    upload = begin(store, "x", 3);
    write_text(upload, "new");
    assert_int_equal(store_seal(upload, 2), 0);
    assert_holds(store, "x", "old");
    seal_and_commit(upload, 2);
    store_release(upload, false);
    assert_holds(store, "x", "new");
    assert_int_equal(read_text(reader, got), 0);
    assert_string_equal(got, "old");
    store_release(reader, false);
    store_close(store);
}

static void given_up_leaves_nothing(void **state)
{
    struct store *store = open_it();
    struct object *upload = begin(store, "x", 3), *object;

    (void)state;
    assert_int_equal(files(".upload-"), 1);
    store_release(upload, false);
    assert_int_equal(files(".upload-"), 0);
    assert_int_equal(look_up(store, "x", &object), -ENOENT);
    store_close(store);
}

static void a_crash_leaves_nothing(void **state)
{
    struct store *store = open_it();
    char leftover[128];
    int fd;

    (void)state;
    store_close(store);
    snprintf(leftover, sizeof leftover, "%s/.upload-5", folder);
    fd = open(leftover, O_CREAT | O_WRONLY, 0600);
    assert_true(fd >= 0);
    close(fd);
    store = open_it();
    assert_int_equal(store_removed(store), 1);
    assert_int_equal(files(".upload-"), 0);
    store_close(store);
}

static void one_server_per_folder(void **state)
{
    struct store *store = open_it(), *second;

    (void)state;
    assert_int_equal(store_open(folder, false, &second), -EWOULDBLOCK);
    store_close(store);
    store = open_it();
    store_close(store);
    assert_int_equal(store_open("/nonexistent/folder", false, &second), -ENOENT);
}

/* ---- parts of a stripe ---- */

static struct object *begin_part(struct store *store, uint64_t upload, uint32_t index,
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

static void prepare(struct store *store, uint64_t upload, uint64_t version, const char *text)
{
    struct object *object = begin_part(store, upload, 1, text);

    assert_int_equal(store_seal(object, version), 0);
    store_release(object, false);
}

static int look_for(struct store *store, uint64_t upload, struct object **object)
{
    struct iod_string name = iod_string_of("s");

    return store_lookup(store, &name, upload, object);
}

static uint64_t pending(struct store *store, uint64_t version, uint64_t upload)
{
    struct iod_string name = iod_string_of("s");
    struct object_meta meta;

    return store_pending(store, &name, version, upload, &meta) ? meta.upload : 0;
}

static void part_0_goes_with_its_client(void **state)
{
    struct store *store = open_it();
    struct object *object = begin_part(store, 5, 0, "head"), *other;

    (void)state;
    assert_int_equal(store_seal(object, 1), 0);
    assert_int_equal(look_for(store, 5, &other), -EBUSY);
    store_release(object, false);
    assert_int_equal(look_for(store, 5, &other), -ESTALE);
    assert_int_equal(files("."), 3); /* the folder, its parent, the lock */
    store_close(store);
}

static void a_prepared_part_stays(void **state)
{
    struct store *store = open_it();
    struct object *object;
    char got[64];

    (void)state;
    prepare(store, 5, 1, "part");
    assert_int_equal(files(".prepared-"), 1);
    store_close(store);
    store = open_it();
    assert_true(store_prepared(store) == 1 && store_removed(store) == 0);
    assert_int_equal(look_for(store, 0, &object), -ENOENT);
    assert_int_equal(pending(store, 0, 0), 5);
    assert_int_equal(look_for(store, 6, &object), -ESTALE);
    /* who asks for it knows that it was decided */
    assert_int_equal(look_for(store, 5, &object), 0);
    assert_int_equal(read_text(object, got), 0);
    assert_string_equal(got, "part");
    store_release(object, false);
    assert_int_equal(pending(store, 0, 0), 0);
    assert_int_equal(files(".prepared-"), 0);
    assert_int_equal(look_for(store, 0, &object), 0);
    store_release(object, false);
    store_close(store);
}

static void a_prepared_part_is_given_up(void **state)
{
    struct store *store = open_it();
    struct iod_string name = iod_string_of("s");
    struct object *object = begin_part(store, 5, 1, "part");

    (void)state;
    assert_int_equal(store_forget(store, &name, 5), -EBUSY);
    assert_int_equal(store_seal(object, 1), 0);
    assert_int_equal(store_forget(store, &name, 5), -EBUSY); /* its client is here */
    store_release(object, false);
    assert_int_equal(store_forget(store, &name, 5), 0);
    assert_int_equal(store_forget(store, &name, 5), 0);
    assert_int_equal(files(".prepared-"), 0);
    object = begin_part(store, 6, 1, "part");
    assert_int_equal(store_seal(object, 1), 0);
    store_release(object, true); /* by its client */
    assert_int_equal(files(".prepared-"), 0);
    assert_int_equal(pending(store, 0, 0), 0);
    store_close(store);
}

/* By its upload and no other; who has it open keeps it; prepared it is committed first. */
static void removed(void **state)
{
    struct store *store = open_it();
    struct iod_string name = iod_string_of("s");
    struct object *object, *reader;
    uint64_t number;
    char got[64];

    (void)state;
    assert_int_equal(store_remove(store, &name, 5), -ESTALE);
    object = begin_part(store, 5, 0, "text");
    assert_int_equal(store_remove(store, &name, 5), -EBUSY);
    assert_int_equal(store_seal(object, 1), 0);
    assert_int_equal(store_remove(store, &name, 5), -EBUSY); /* not decided */
    assert_int_equal(store_commit(object, &number), 0);
    store_release(object, false);
    assert_int_equal(look_for(store, 0, &reader), 0);
    assert_int_equal(store_remove(store, &name, 4), -ESTALE);
    assert_int_equal(store_remove(store, &name, 5), 0);
    assert_int_equal(look_for(store, 0, &object), -ENOENT);
    assert_int_equal(read_text(reader, got), 0);
    assert_string_equal(got, "text");
    store_release(reader, false);
    /* a part, which has come above another one; its client is still here */
    prepare(store, 6, 1, "old");
    assert_int_equal(look_for(store, 6, &reader), 0);
    store_release(reader, false);
    object = begin_part(store, 7, 1, "new");
    assert_int_equal(store_seal(object, 2), 0);
    assert_int_equal(store_remove(store, &name, 7), 0);
    assert_int_equal(store_commit(object, &number), 0);
    store_release(object, false);
    assert_int_equal(look_for(store, 0, &object), -ENOENT);
    assert_int_equal(store_remove(store, &name, 7), -ESTALE);
    assert_int_equal(files("."), 3); /* the folder, its parent, the lock */
    store_close(store);
}

/* Somebody else commits it while its client is still here. */
static void rolled_forward_under_its_client(void **state)
{
    struct store *store = open_it();
    struct object *upload = begin_part(store, 5, 1, "part"), *reader;
    uint64_t number = 0;

    (void)state;
    assert_int_equal(store_seal(upload, 1), 0);
    assert_int_equal(look_for(store, 5, &reader), 0);
    store_release(reader, false);
    assert_int_equal(store_commit(upload, &number), 0);
    assert_true(number == 5);
    store_release(upload, false);
    assert_int_equal(look_for(store, 5, &reader), 0);
    store_release(reader, false);
    store_close(store);
}

static void the_highest_upload_wins(void **state)
{
    struct store *store = open_it();
    struct iod_string name = iod_string_of("s");
    struct object *a = begin_part(store, 9, 0, "a"), *b = begin_part(store, 8, 0, "b"), *object;
    uint64_t number = 0;

    (void)state;
    prepare(store, 3, 1, "low");
    assert_int_equal(store_seal(a, 2), 0);
    assert_int_equal(store_seal(b, 2), 0);
    assert_int_equal(store_commit(a, &number), 0);
    assert_true(number == 9);
    assert_int_equal(files(".prepared-"), 0); /* nobody needs it any more */
    assert_int_equal(store_commit(b, &number), 0);
    assert_true(number == 9);
    store_release(a, false);
    store_release(b, false);
    assert_int_equal(files(".upload-"), 0);
    assert_int_equal(look_for(store, 0, &object), 0);
    assert_true(object_meta(object)->upload == 9 && object_meta(object)->version == 2);
    store_release(object, false);
    prepare(store, 7, 2, "below");
    assert_int_equal(pending(store, 2, 9), 0);
    assert_int_equal(look_for(store, 7, &object), -ESTALE);
    prepare(store, 1, 3, "above");
    assert_int_equal(pending(store, 2, 9), 1);
    assert_true(store_version(store, &name) == 3);
    store_close(store);
}

static void versions_have_limits(void **state)
{
    struct store *store = open_it();
    struct object *object = begin(store, "x", 3);

    (void)state;
    assert_int_equal(store_seal(object, 0), -EINVAL);
    assert_int_equal(store_seal(object, STORE_VERSION_STEP + 1), -EINVAL);
    assert_int_equal(store_seal(object, STORE_VERSION_STEP), 0);
    store_release(object, false);
    store_close(store);
}

/* Cut, changed, or foreign files are damaged objects, and not listed. */
static void damage_is_seen(void **state)
{
    struct store *store = open_it();
    struct object *object;
    struct iod_entries entries;
    struct iod_string all = iod_string_of("");
    uint8_t packed[1024];
    char path[128];
    bool more = true;
    int fd;

    (void)state;
    put(store, "x", "hello");
    put(store, "y", "hello");
    snprintf(path, sizeof path, "%s/x", folder);
    assert_int_equal(truncate(path, STORE_HEAD + 4), 0);
    assert_int_equal(look_up(store, "x", &object), -EUCLEAN);
    assert_int_equal(truncate(path, 100), 0);
    assert_int_equal(look_up(store, "x", &object), -EUCLEAN);
    snprintf(path, sizeof path, "%s/y", folder);
    fd = open(path, O_WRONLY);
    assert_int_equal(pwrite(fd, "Z", 1, 60), 1);
    close(fd);
    assert_int_equal(look_up(store, "y", &object), -EUCLEAN);
    snprintf(path, sizeof path, "%s/dir", folder);
    assert_int_equal(mkdir(path, 0700), 0);
    assert_true(look_up(store, "dir", &object) < 0);
    assert_int_equal(store_list(store, &all, packed, sizeof packed, &entries, &more), 0);
    assert_int_equal(entries.count, 0);
    assert_false(more);
    assert_int_equal(rmdir(path), 0);
    store_close(store);
}

/* Lists in pieces: nothing lost, nothing twice, sorted. */
static void lists_in_pieces(void **state)
{
    struct store *store = open_it();
    char name[16], last[IOD_NAME_MAX + 1] = "";
    uint8_t packed[300]; /* room for a few */
    bool more = true;
    int n = 0;

    (void)state;
    for (int i = 0; i < 50; i++) {
        snprintf(name, sizeof name, "n%02d/", i);
        put(store, name, "12345");
    }
    while (more) {
        struct iod_string after = iod_string_of(last);
        struct iod_entries entries;
        struct iod_entry entry;
        uint32_t at = 0;
        char next[IOD_NAME_MAX + 1];

        assert_int_equal(store_list(store, &after, packed, sizeof packed, &entries, &more), 0);
        assert_true(entries.count > 0);
        while (iod_entry_next(&entries, &at, &entry)) {
            snprintf(name, sizeof name, "n%02d/", n++);
            assert_int_equal(entry.name.length, strlen(name));
            assert_memory_equal(entry.name.text, name, entry.name.length);
            assert_true(entry.stored == 5 && entry.layout.size == 5);
            snprintf(next, sizeof next, "%.*s", (int)entry.name.length, entry.name.text);
        }
        memcpy(last, next, sizeof last);
    }
    assert_int_equal(n, 50);
    store_close(store);
}

static void heads(void **state)
{
    struct object_meta in = {.layout = {5, 64, 1, 2}, .upload = 3, .mode = 0777}, out;
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
    in.layout.index = 2; /* well-formed, but impossible */
    object_head_encode(&in, head);
    assert_int_equal(object_head_decode(head, &out), -EUCLEAN);
}

/* Striped file to scattered memory and back, through all the cuts at once. */
static void file_in_pieces(void **state)
{
    static char file[3000], got[3000], memory[4000];
    struct file_map map = {.layout = {3000, 70, 1, 3}, .base = 5};
    struct iod_extent items[] = {{3, 100}, {200, 1}, {300, 400}};
    struct extent_cursor from = {.item = items, .count = 3};
    struct iovec pieces[100];
    char path[128];
    int fd, n = 0;
    size_t at = 0;

    (void)state;
    for (int i = 0; i < 3000; i++)
        file[i] = (char)(i * 7 + i / 256 + 1);
    snprintf(path, sizeof path, "%s/data", folder);
    fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_int_equal(pwrite(fd, file, sizeof file, 0), sizeof file);
    for (n = 0; n < 100; n++) {
        pieces[n].iov_base = memory + at;
        pieces[n].iov_len = (size_t)(n % 13);
        at += pieces[n].iov_len + 3;
    }
    assert_int_equal(file_read(fd, &map, from, pieces, n, 501), 0);
    for (int i = 0, p = 0, in = 0; i < 501; i++, in++) {
        uint64_t object = i < 100 ? 3 + i : i < 101 ? 200 : 300 + i - 101;
        uint64_t place = 5 + (object / 70 * 3 + 1) * 70 + object % 70;

        while ((size_t)in == pieces[p].iov_len) {
            p++;
            in = 0;
        }
        assert_int_equal(((char *)pieces[p].iov_base)[in], file[place]);
    }
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(file_write(fd, &map, from, pieces, n, 501, true), 0);
    assert_true(pread(fd, got, sizeof got, 0) > 0);
    for (int i = 0; i < 501; i++) {
        uint64_t object = i < 100 ? 3 + i : i < 101 ? 200 : 300 + i - 101;
        uint64_t place = 5 + (object / 70 * 3 + 1) * 70 + object % 70;
        assert_int_equal(got[place], file[place]);
    }
    assert_int_equal(
        file_read(fd, &map, (struct extent_cursor){.item = items, .count = 3}, pieces, 1, 501),
        -EINVAL); /* not enough memory named */
    close(fd);
}

static void zeros_become_holes(void **state)
{
    static char block[64 * 4096];
    struct file_map map = file_map_plain(0);
    struct iod_extent all = {0, sizeof block};
    struct extent_cursor from = {.item = &all, .count = 1};
    struct iovec piece = {block, sizeof block};
    struct extent_list found = {0};
    struct stat st;
    char path[128];
    uint64_t next;
    int fd;

    (void)state;
    memset(block, 0, sizeof block);
    block[20 * 4096 + 17] = 1;
    snprintf(path, sizeof path, "%s/data", folder);
    fd = open(path, O_RDWR | O_CREAT, 0600);
    assert_int_equal(file_write(fd, &map, from, &piece, 1, sizeof block, true), 0);
    assert_int_equal(fstat(fd, &st), 0);
    assert_int_equal(st.st_size,
                     21 * 4096); /* the block that is not zero was the last one written */
    assert_int_equal(ftruncate(fd, sizeof block), 0);
    assert_int_equal(extents_of_file(fd, 0, 0, sizeof block, 100, &found, &next), 0);
    assert_true(next == sizeof block);
    assert_true(found.count == 1 && found.item[0].offset <= 20 * 4096 + 17 &&
                found.item[0].offset + found.item[0].length > 20 * 4096 + 17);
    extent_list_free(&found);
    assert_int_equal(file_read(fd, &map, from, &piece, 1, sizeof block), 0);
    assert_int_equal(block[20 * 4096 + 17], 1);
    assert_int_equal(ftruncate(fd, 100), 0);
    assert_int_equal(file_read(fd, &map, from, &piece, 1, sizeof block), -ENODATA);
    close(fd);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
    const struct CMUnitTest tests[] = {
        TEST(keeps_what_is_committed),
        TEST(the_old_one_stays_until_commit),
        TEST(given_up_leaves_nothing),
        TEST(a_crash_leaves_nothing),
        TEST(one_server_per_folder),
        TEST(damage_is_seen),
        TEST(lists_in_pieces),
        cmocka_unit_test(heads),
        TEST(part_0_goes_with_its_client),
        TEST(a_prepared_part_stays),
        TEST(a_prepared_part_is_given_up),
        TEST(removed),
        TEST(rolled_forward_under_its_client),
        TEST(the_highest_upload_wins),
        TEST(versions_have_limits),
        TEST(file_in_pieces),
        TEST(zeros_become_holes),
    };

    return cmocka_run_group_tests_name("iod/store", tests, NULL, NULL);
}

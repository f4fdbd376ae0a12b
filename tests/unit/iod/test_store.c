/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The store on a real folder, and the file side of transfers. */
#include "config.h"
#include "tests/unit/common/unit.h"
#include "embedded/iod/fileio.h"
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

static int look_up(struct store *store, const char *name, struct object **object)
{
    struct iod_string string = iod_string_of(name);

    return store_lookup(store, &string, object);
}

static void put(struct store *store, const char *name, const char *text)
{
    struct object *object = begin(store, name, strlen(text));

    assert_int_equal(pwrite(object_fd(object), text, strlen(text), STORE_HEAD), strlen(text));
    assert_int_equal(store_seal(object), 0);
    assert_int_equal(store_commit(object), 0);
    store_release(object);
}

static void assert_holds(struct store *store, const char *name, const char *text)
{
    struct object *object;
    char got[64] = "";

    assert_int_equal(look_up(store, name, &object), 0);
    assert_int_equal(pread(object_fd(object), got, sizeof got, STORE_HEAD), strlen(text));
    assert_string_equal(got, text);
    store_release(object);
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
    store_release(object);
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
    assert_int_equal(pwrite(object_fd(upload), "new", 3, STORE_HEAD), 3);
    assert_int_equal(store_seal(upload), 0);
    assert_holds(store, "x", "old");
    assert_int_equal(store_commit(upload), 0);
    store_release(upload);
    assert_holds(store, "x", "new");
    assert_int_equal(pread(object_fd(reader), got, 8, STORE_HEAD), 3);
    assert_string_equal(got, "old");
    store_release(reader);
    store_close(store);
}

static void given_up_leaves_nothing(void **state)
{
    struct store *store = open_it();
    struct object *upload = begin(store, "x", 3), *object;

    (void)state;
    assert_int_equal(files(".upload-"), 1);
    store_release(upload);
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
        TEST(keeps_what_is_committed), TEST(the_old_one_stays_until_commit),
        TEST(given_up_leaves_nothing), TEST(a_crash_leaves_nothing),
        TEST(one_server_per_folder),   TEST(damage_is_seen),
        TEST(lists_in_pieces),         cmocka_unit_test(heads),
        TEST(file_in_pieces),          TEST(zeros_become_holes),
    };

    return cmocka_run_group_tests_name("iod/store", tests, NULL, NULL);
}

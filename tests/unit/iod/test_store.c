/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The store on a real folder, and the file side of transfers. */
#include "config.h"
#include "tests/unit/iod/folder.h"
#include "embedded/iod/fileio.h"
#include "embedded/iod/layout.h"
#include "embedded/iod/object_head.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

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

static void old_object_stays_until_commit(void **state)
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

static void crash_leaves_no_upload(void **state)
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

static void make_file(const char *name)
{
    char path[128];
    int fd;

    snprintf(path, sizeof path, "%s/%s", folder, name);
    fd = open(path, O_CREAT | O_WRONLY | O_EXCL, 0600);
    assert_true(fd >= 0);
    close(fd);
}

/* A folder with other files is not taken as a store, and stays unchanged. */
static void folder_in_use_is_refused(void **state)
{
    struct store *store;

    (void)state;
    make_file(".upload-token");
    make_file(".upload-3");
    assert_int_equal(store_open(folder, false, &store), -ENOTEMPTY);
    assert_int_equal(files("."), 4); /* with . and .. */
    make_file(STORE_LOCK_FILE);
    store = open_it(); /* marked as a store */
    assert_int_equal(store_removed(store), 1);
    assert_int_equal(files(".upload-token"), 1);
    store_close(store);
}

/* An upload does not replace a non-regular file that exists before or appears during it. */
static void link_under_a_name_is_kept(void **state)
{
    struct store *store = open_it();
    struct object_meta meta = {.layout = {3, 65536, 0, 1}, .upload = 8};
    struct iod_string name = iod_string_of("x");
    struct object *object = begin(store, "x", 3), *other;
    char link[128];
    uint64_t number;

    (void)state;
    write_text(object, "new");
    assert_int_equal(store_seal(object, 1), 0);
    snprintf(link, sizeof link, "%s/x", folder);
    assert_int_equal(symlink("nowhere", link), 0);
    assert_int_equal(commit(object, &number), -EISDIR);
    store_release(object, true);
    assert_int_equal(store_create(store, &name, &meta, &other), -EISDIR);
    assert_int_equal(files("x"), 1);
    assert_int_equal(files(".upload-"), 0);
    store_close(store);
}

struct said {
    int count, error[8];
    char name[8][16];
};

static void note(void *arg, const char *name, int error)
{
    struct said *said = arg;

    assert_true(said->count < 8);
    said->error[said->count] = error;
    snprintf(said->name[said->count++], sizeof said->name[0], "%s", name);
}

/* Truncated, changed, or foreign files are damaged objects: not listed but counted, and logged
 * once. */
static void damage_is_seen(void **state)
{
    struct store *store = open_it();
    struct object *object;
    struct iod_entries entries;
    struct iod_string all = iod_string_of(""), x = iod_string_of("x"), y = iod_string_of("y"),
                      dir = iod_string_of("dir");
    struct said said = {0};
    struct store_unread unread = {.report = note, .arg = &said};
    uint8_t packed[1024];
    char path[128], link[128];
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
    assert_int_equal(look_up(store, "dir", &object), -EISDIR);
    snprintf(link, sizeof link, "%s/link", folder);
    assert_int_equal(symlink("z", link), 0);
    assert_int_equal(look_up(store, "link", &object), -EISDIR);
    snprintf(link, sizeof link, "%s/fifo", folder);
    assert_int_equal(mkfifo(link, 0600), 0);
    assert_int_equal(look_up(store, "fifo", &object), -EISDIR);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(
            store_list(store, &all, packed, sizeof packed, &entries, &more, &unread), 0);
        assert_int_equal(entries.count, 0);
        assert_false(more);
        assert_int_equal(unread.count, 2);
        assert_int_equal(said.count, 2);
    }
    assert_true(strcmp(said.name[0], "x") == 0 && said.error[0] == -EUCLEAN);
    assert_true(strcmp(said.name[1], "y") == 0 && said.error[1] == -EUCLEAN);
    assert_int_equal(store_remove(store, &x, UINT64_MAX), 0);
    assert_int_equal(store_remove(store, &y, 7), 0);
    assert_int_equal(store_remove(store, &dir, 7), -EISDIR);
    assert_int_equal(look_up(store, "x", &object), -ENOENT);
    assert_int_equal(look_up(store, "y", &object), -ENOENT);
    put(store, "x", "hello");
    assert_int_equal(store_remove(store, &x, UINT64_MAX), -ESTALE);
    assert_holds(store, "x", "hello");
    assert_int_equal(rmdir(path), 0);
    store_close(store);
}

/* Files left by an earlier run that cannot be removed or read are counted and do not
 * disturb. */
static void stuck_files_are_counted(void **state)
{
    static const char *const stuck[] = {".upload-0", ".upload-1", ".prepared-1"};
    struct store *store = open_it();
    char path[128];

    (void)state;
    assert_int_equal(store_stuck(store)->count, 0);
    assert_int_equal(store_unreadable(store)->count, 0);
    store_close(store);
    for (int i = 0; i < 3; i++) { /* folders, because root may remove anything else */
        snprintf(path, sizeof path, "%s/%s", folder, stuck[i]);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    snprintf(path, sizeof path, "%s/.prepared-4", folder);
    close(open(path, O_CREAT, 0600));
    store = open_it();
    assert_int_equal(store_removed(store), 0);
    assert_int_equal(store_prepared(store), 0);
    assert_int_equal(store_stuck(store)->count, 2);
    assert_int_equal(strncmp(store_stuck(store)->file, ".upload-", 8), 0);
    assert_true(store_stuck(store)->error < 0);
    assert_int_equal(store_unreadable(store)->count, 2);
    assert_int_equal(strncmp(store_unreadable(store)->file, ".prepared-", 10), 0);
    put(store, "x", "hello");
    prepare(store, 6, 1, "part");
    prepare(store, 7, 1, "more");
    assert_holds(store, "x", "hello");
    assert_int_equal(access(path, F_OK), 0);
    store_close(store);
    store = open_it();
    assert_int_equal(store_prepared(store), 2);
    store_close(store);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, stuck[i]);
        assert_int_equal(rmdir(path), 0);
    }
}

/* File numbers that could not be removed at the start are not used. */
static void taken_file_number_is_skipped(void **state)
{
    struct store *store;
    char path[128];

    (void)state;
    make_file(STORE_LOCK_FILE);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/.upload-%d", folder, i);
        assert_int_equal(mkdir(path, 0700), 0);
    }
    store = open_it();
    put(store, "x", "hello");
    put(store, "y", "hello");
    assert_holds(store, "y", "hello");
    store_close(store);
    for (int i = 0; i < 3; i++) {
        snprintf(path, sizeof path, "%s/.upload-%d", folder, i);
        assert_int_equal(rmdir(path), 0);
    }
}

/* Lists in pieces: complete, without duplicates, sorted; unreadable files are counted once. */
static void lists_in_pieces(void **state)
{
    struct store *store = open_it();
    char name[16], last[IOD_NAME_MAX + 1] = "";
    uint8_t packed[300]; /* room for a few */
    struct said said = {0};
    struct store_unread unread = {.report = note, .arg = &said};
    uint32_t missing = 0;
    char path[128];
    bool more = true;
    int n = 0;

    (void)state;
    for (int i = 0; i < 50; i++) {
        snprintf(name, sizeof name, "n%02d/", i);
        put(store, name, "12345");
    }
    for (int i = 0; i < 7; i++) { /* between them, and behind the last one */
        snprintf(path, sizeof path, "%s/n%d7bad", folder, i);
        close(open(path, O_CREAT, 0600));
    }
    while (more) {
        struct iod_string after = iod_string_of(last);
        struct iod_entries entries;
        struct iod_entry entry;
        uint32_t at = 0;
        char next[IOD_NAME_MAX + 1];

        assert_int_equal(
            store_list(store, &after, packed, sizeof packed, &entries, &more, &unread), 0);
        assert_true(entries.count > 0);
        missing += unread.count;
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
    assert_int_equal(missing, 7);
    store_close(store);
}

static void say_nothing(void *arg, const char *name, int error)
{
    (void)arg;
    (void)name;
    assert_true(error < 0);
}

/* Unreadable files use no room of a page, for any number of them in front. */
static void lists_behind_thousands_that_cannot_be_read(void **state)
{
    enum { BAD = 3000 };
    struct store *store = open_it();
    uint8_t packed[300];
    struct store_unread unread = {.report = say_nothing};
    struct iod_string all = iod_string_of("");
    struct iod_entries entries;
    struct iod_entry entry;
    uint32_t at = 0;
    char path[128];
    bool more = true;

    (void)state;
    for (int i = 0; i < BAD; i++) {
        snprintf(path, sizeof path, "%s/a%d", folder, i);
        close(open(path, O_CREAT, 0600));
    }
    put(store, "last", "12345");
    put(store, "z", "12345");
    assert_int_equal(store_list(store, &all, packed, sizeof packed, &entries, &more, &unread),
                     0);
    assert_int_equal(entries.count, 2);
    assert_int_equal(unread.count, BAD);
    assert_false(more);
    assert_true(iod_entry_next(&entries, &at, &entry) && iod_entry_next(&entries, &at, &entry));
    assert_memory_equal(entry.name.text, "z", 1);
    store_close(store);
}

static void object_head_encoding(void **state)
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
    in.layout.index = 2; /* well-formed, but inconsistent */
    object_head_encode(&in, head);
    assert_int_equal(object_head_decode(head, &out), -EUCLEAN);
}

/* Copies a striped file to scattered memory and back, across all boundaries at once. */
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
        -EINVAL); /* not enough memory given */
    close(fd);
}

static void zeros_become_holes(void **state)
{
    static char block[64 * 4096];
    /* the file is the object itself */
    struct file_map map = {
        .layout = {.size = IOD_SIZE_MAX, .strip = IOD_STRIP_MAX, .index = 0, .count = 1}};
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
    assert_int_equal(st.st_size, 21 * 4096); /* the last block written is not zero */
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
#define TEST(name) cmocka_unit_test_setup_teardown(name, folder_set_up, folder_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(keeps_what_is_committed),
        TEST(old_object_stays_until_commit),
        TEST(given_up_leaves_nothing),
        TEST(crash_leaves_no_upload),
        TEST(one_server_per_folder),
        TEST(folder_in_use_is_refused),
        TEST(link_under_a_name_is_kept),
        TEST(damage_is_seen),
        TEST(stuck_files_are_counted),
        TEST(taken_file_number_is_skipped),
        TEST(lists_in_pieces),
        TEST(lists_behind_thousands_that_cannot_be_read),
        cmocka_unit_test(object_head_encoding),
        TEST(file_in_pieces),
        TEST(zeros_become_holes),
    };

    return cmocka_run_group_tests_name("iod/store", tests, NULL, NULL);
}

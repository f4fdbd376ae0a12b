/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Uploads of one name: prepared parts, conflicting commits, and removals. */
#include "config.h"
#include "embedded/iod/store_impl.h"
#include "tests/unit/iod/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The store's openat() of the object's name: makes it fail, or runs a function right after
 * it. */
static int open_error;
static void (*opened)(void);

int openat(int folder_fd, const char *name, int flags, ...)
{
    void (*call)(void) = opened;
    va_list args;
    mode_t mode;
    long fd;

    va_start(args, flags);
    mode = flags & O_CREAT ? va_arg(args, mode_t) : 0;
    va_end(args);
    if (strcmp(name, "s") == 0 && open_error) {
        errno = open_error;
        return -1;
    }
    fd = syscall(SYS_openat, folder_fd, name, flags, mode);
    if (strcmp(name, "s") == 0 && call) {
        int saved = errno;

        opened = NULL;
        call();
        errno = saved;
    }
    return (int)fd;
}

/* Counts the store's unlinkat() calls with its lock held, and without. */
static struct store *watched;
static int held, free_;

int unlinkat(int folder_fd, const char *name, int flags)
{
    if (watched && pthread_mutex_trylock(&watched->lock) == 0) {
        pthread_mutex_unlock(&watched->lock);
        free_++;
    } else if (watched) {
        held++;
    }
    return (int)syscall(SYS_unlinkat, folder_fd, name, flags);
}

static int look_for(struct store *store, uint64_t upload, struct object **object)
{
    struct iod_string name = iod_string_of("s");

    return store_lookup(store, &name, upload, object);
}

/* Returns the highest prepared version above the given one. */
static uint64_t pending(struct store *store, uint64_t version, uint64_t upload)
{
    struct iod_string name = iod_string_of("s");
    struct object_meta meta, other = {.version = version, .upload = upload};

    return store_pending(store, &name, &meta) == 0 && store_above(&meta, &other) ? meta.upload
                                                                                 : 0;
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

static void prepared_part_survives_restart(void **state)
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
    /* a reader of this upload knows that it was decided */
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

static void prepared_part_can_be_dropped(void **state)
{
    struct store *store = open_it();
    struct iod_string name = iod_string_of("s");
    struct object *object = begin_part(store, 5, 1, "part");

    (void)state;
    assert_int_equal(store_forget(store, &name, 5), -EBUSY);
    assert_int_equal(store_seal(object, 1), 0);
    assert_int_equal(store_forget(store, &name, 5), -EBUSY); /* its client is connected */
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

static int begin_other_part(struct store *store, uint64_t upload, uint32_t index,
                            struct object **object)
{
    struct object_meta meta = {.layout = {72, 64, index, 2}, .upload = upload};
    struct iod_string name = iod_string_of("s");

    return store_create(store, &name, &meta, object);
}

/* A server that is named twice gets both parts of a copy, only one of which could have the
 * name. The same part twice is a client's repeated request. */
static void two_parts_of_a_copy_are_refused(void **state)
{
    struct store *store = open_it();
    struct object *first = begin_part(store, 5, 0, "old"), *again, *other;
    char got[64] = "";

    (void)state;
    seal_and_commit(first, 1);
    store_release(first, false);
    assert_int_equal(begin_other_part(store, 5, 1, &other),
                     -EEXIST); /* the other one is committed */
    first = begin_part(store, 6, 0, "new");
    assert_int_equal(begin_other_part(store, 6, 1, &other), -EEXIST);
    assert_int_equal(begin_other_part(store, 6, 0, &again), 0);
    assert_int_equal(begin_other_part(store, 7, 1, &other), 0); /* of another copy */
    store_release(other, false);
    store_release(again, false);
    store_release(first, false);
    assert_int_equal(look_for(store, 0, &first), 0);
    assert_int_equal(read_text(first, got), 0);
    assert_string_equal(got, "old");
    store_release(first, false);
    prepare(store, 8, 2, "part");
    assert_int_equal(begin_other_part(store, 8, 0, &other), -EEXIST);
    store_close(store);
    store = open_it(); /* prepared parts are recognized by their heads */
    assert_int_equal(begin_other_part(store, 8, 0, &other), -EEXIST);
    store_close(store);
}

/* Parts that clients prepared and left are removed by the next commits, without the lock and a
 * limited number by each; those left over are below the object, so not pending. */
static void prepared_parts_removed_without_the_lock(void **state)
{
    enum { CROWD = 2 * STORE_DROP_MAX + 1 };
    struct store *store = open_it();
    uint64_t number = 0;
    int left = CROWD;

    (void)state;
    for (uint64_t i = 0; i < CROWD; i++)
        prepare(store, 5 + i, 1, "part");
    for (uint64_t version = 2; left > 0; version++) {
        int most = left < STORE_DROP_MAX ? left : STORE_DROP_MAX;
        struct object *head = begin_part(store, 5 + CROWD + version, 0, "head");

        assert_int_equal(files(".prepared-"), left);
        assert_int_equal(store_seal(head, version), 0);
        watched = store;
        held = free_ = 0;
        assert_int_equal(commit(head, &number), 0);
        watched = NULL;
        assert_int_equal(held, 0);
        assert_int_equal(free_, most);
        assert_int_equal(pending(store, version, number), 0);
        left -= most;
        store_release(head, false);
    }
    assert_int_equal(files(".prepared-"), 0);
    store_close(store);
}

/* A file is removed by its upload and no other. A reader keeps it open; a prepared one is
 * committed first. */
static void upload_removes_own_file_only(void **state)
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
    assert_int_equal(store_remove(store, &name, 5), -EBUSY); /* undecided */
    assert_int_equal(commit(object, &number), 0);
    store_release(object, false);
    assert_int_equal(look_for(store, 0, &reader), 0);
    assert_int_equal(store_remove(store, &name, 4), -ESTALE);
    assert_int_equal(store_remove(store, &name, 5), 0);
    assert_int_equal(look_for(store, 0, &object), -ENOENT);
    assert_int_equal(read_text(reader, got), 0);
    assert_string_equal(got, "text");
    store_release(reader, false);
    /* a part that replaces another one; its client is connected */
    prepare(store, 6, 1, "old");
    assert_int_equal(look_for(store, 6, &reader), 0);
    store_release(reader, false);
    object = begin_part(store, 7, 1, "new");
    assert_int_equal(store_seal(object, 2), 0);
    assert_int_equal(store_remove(store, &name, 7), 0);
    assert_int_equal(commit(object, &number), 0);
    store_release(object, false);
    assert_int_equal(look_for(store, 0, &object), -ENOENT);
    assert_int_equal(store_remove(store, &name, 7), -ESTALE);
    assert_int_equal(files("."), 3); /* the folder, its parent, the lock */
    store_close(store);
}

/*
 * The first server does not commit a version below one removed since the upload began, because
 * parts of that may remain at other servers. Sealed with a higher version, the upload gets the
 * name.
 */
static void below_what_was_removed(void **state)
{
    struct store *store = open_it();
    struct iod_string name = iod_string_of("s");
    struct object *a = begin_part(store, 9, 0, "a"), *b = begin_part(store, 8, 0, "b"), *object;
    uint64_t number = 0, removed = 0;

    (void)state;
    assert_int_equal(store_seal(a, 1), 0);
    assert_int_equal(store_seal(b, 2), 0);
    assert_int_equal(commit(b, &number), 0);
    store_release(b, false);
    assert_int_equal(store_remove(store, &name, 8), 0);
    assert_int_equal(store_commit(a, &number, &removed), 0);
    assert_true(number == 0 && removed == 2);
    assert_int_equal(look_for(store, 0, &object), -ENOENT);
    assert_int_equal(store_seal(a, 3 + STORE_VERSION_STEP), -EINVAL);
    assert_int_equal(store_seal(a, 3), 0);
    assert_int_equal(store_seal(a, 2), -EINVAL);
    assert_int_equal(store_commit(a, &number, &removed), 0);
    assert_true(number == 9);
    assert_int_equal(store_seal(a, 4), -ESTALE);
    store_release(a, false);
    assert_int_equal(look_for(store, 9, &object), 0);
    store_release(object, false);
    /* a higher version, and another name: committed at once */
    a = begin_part(store, 7, 0, "a");
    b = begin(store, "t", 0);
    assert_int_equal(store_seal(a, 4), 0);
    assert_int_equal(store_seal(b, 1), 0);
    assert_int_equal(store_remove(store, &name, 9), 0);
    assert_int_equal(commit(a, &number), 0);
    assert_true(number == 7);
    assert_int_equal(commit(b, &number), 0);
    assert_true(number == 7); /* begin()'s number, too */
    store_release(a, false);
    store_release(b, false);
    store_close(store);
}

/* A prepared part other than the first is sealed again, and found by its new version only. */
static void part_is_sealed_again(void **state)
{
    struct store *store = open_it();
    struct object *part = begin_part(store, 5, 1, "part"), *object;
    uint64_t number = 0;

    (void)state;
    assert_int_equal(store_seal(part, 1), 0);
    assert_int_equal(store_seal(part, 6), 0);
    assert_int_equal(files(".prepared-"), 1);
    assert_true(pending(store, 5, 9) == 5);
    assert_true(pending(store, 6, 9) == 0);
    store_release(part, false);
    store_close(store);
    store = open_it();
    assert_true(pending(store, 5, 9) == 5);
    assert_int_equal(look_for(store, 5, &object), 0);
    assert_true(object_meta(object)->version == 6);
    store_release(object, false);
    /* a committed part cannot be sealed again */
    part = begin_part(store, 6, 1, "next");
    assert_int_equal(store_seal(part, 7), 0);
    assert_int_equal(look_for(store, 6, &object), 0);
    assert_int_equal(store_seal(part, 8), -ESTALE);
    assert_true(object_meta(object)->version == 7);
    store_release(object, false);
    assert_int_equal(commit(part, &number), 0);
    assert_true(number == 6);
    store_release(part, false);
    store_close(store);
}

/* A part other than the first comes late, with a version below one that existed and was
 * removed: it is dropped. */
static void late_part_is_dropped(void **state)
{
    struct store *store = open_it();
    struct iod_string name = iod_string_of("s");
    struct object *late = begin_part(store, 5, 1, "late"), *object;
    uint64_t number = 0;

    (void)state;
    assert_int_equal(store_seal(late, 1), 0);
    prepare(store, 6, 2, "part");
    assert_int_equal(store_remove(store, &name, 6), 0);
    assert_int_equal(commit(late, &number), 0);
    assert_true(number == 6);
    store_release(late, false);
    assert_int_equal(look_for(store, 0, &object), -ENOENT);
    assert_int_equal(files("."), 3); /* the folder, its parent, the lock */
    store_close(store);
}

static struct store *hooked;
static struct object *to_commit;

static void commit_now(void)
{
    uint64_t number;

    assert_int_equal(commit(to_commit, &number), 0);
    assert_true(number == 5);
}

static void roll_forward_now(void)
{
    struct object *object;

    assert_int_equal(look_for(hooked, 5, &object), 0);
    store_release(object, false);
}

/* A commit happens between the lookup of the name and that of the uploads. */
static void looked_for_during_its_commit(void **state)
{
    struct store *store = open_it();
    struct object *object;

    (void)state;
    to_commit = begin_part(store, 5, 0, "head");
    assert_int_equal(store_seal(to_commit, 1), 0);
    opened = commit_now;
    assert_int_equal(look_for(store, 5, &object), 0);
    assert_true(object_meta(object)->upload == 5);
    store_release(object, false);
    store_release(to_commit, false);
    store_close(store);
}

/* A prepared part gets the name between both lookups. */
static void version_found_during_commit(void **state)
{
    struct iod_string name = iod_string_of("s");
    uint64_t version = 0;

    (void)state;
    hooked = open_it();
    prepare(hooked, 5, 3, "part");
    opened = roll_forward_now;
    assert_int_equal(store_version(hooked, &name, &version), 0);
    assert_null(opened);
    assert_true(version == 3);
    store_close(hooked);
}

/* A file that cannot be opened for lack of descriptors still exists. */
static void no_descriptor_is_not_nothing(void **state)
{
    struct store *store = open_it();
    struct iod_string name = iod_string_of("s");
    struct object_meta meta = {.layout = {4, 64, 0, 1}, .upload = 7};
    struct object *late = begin_part(store, 4, 0, "late"), *object;
    uint64_t number = 0, version = 0;

    (void)state;
    assert_int_equal(store_seal(late, 1), 0);
    object = begin_part(store, 5, 0, "head");
    seal_and_commit(object, 2);
    store_release(object, false);
    open_error = EMFILE;
    assert_int_equal(store_version(store, &name, &version), -EMFILE);
    assert_int_equal(store_create(store, &name, &meta, &object), -EMFILE);
    assert_int_equal(commit(late, &number), -EMFILE);
    assert_int_equal(store_remove(store, &name, 5), -EMFILE);
    open_error = 0;
    assert_int_equal(store_version(store, &name, &version), 0);
    assert_true(version == 2);
    assert_int_equal(commit(late, &number), 0);
    assert_true(number == 5);
    store_release(late, false);
    store_close(store);
}

/* Another client commits it while its own client is connected. */
static void rolled_forward_under_its_client(void **state)
{
    struct store *store = open_it();
    struct object *upload = begin_part(store, 5, 1, "part"), *reader;
    uint64_t number = 0;

    (void)state;
    assert_int_equal(store_seal(upload, 1), 0);
    assert_int_equal(look_for(store, 5, &reader), 0);
    store_release(reader, false);
    assert_int_equal(commit(upload, &number), 0);
    assert_true(number == 5);
    store_release(upload, false);
    assert_int_equal(look_for(store, 5, &reader), 0);
    store_release(reader, false);
    store_close(store);
}

static void highest_upload_wins(void **state)
{
    struct store *store = open_it();
    struct iod_string name = iod_string_of("s");
    struct object *a = begin_part(store, 9, 0, "a"), *b = begin_part(store, 8, 0, "b"), *object;
    uint64_t number = 0;

    (void)state;
    prepare(store, 3, 1, "low");
    assert_int_equal(store_seal(a, 2), 0);
    assert_int_equal(store_seal(b, 2), 0);
    assert_int_equal(commit(a, &number), 0);
    assert_true(number == 9);
    assert_int_equal(files(".prepared-"), 0); /* no longer needed */
    assert_int_equal(commit(b, &number), 0);
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
    assert_int_equal(store_version(store, &name, &number), 0);
    assert_true(number == 3);
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

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, folder_set_up, folder_tear_down)
    const struct CMUnitTest tests[] = {
        TEST(part_0_goes_with_its_client),
        TEST(prepared_part_survives_restart),
        TEST(prepared_part_can_be_dropped),
        TEST(two_parts_of_a_copy_are_refused),
        TEST(prepared_parts_removed_without_the_lock),
        TEST(upload_removes_own_file_only),
        TEST(below_what_was_removed),
        TEST(part_is_sealed_again),
        TEST(late_part_is_dropped),
        TEST(looked_for_during_its_commit),
        TEST(version_found_during_commit),
        TEST(no_descriptor_is_not_nothing),
        TEST(rolled_forward_under_its_client),
        TEST(highest_upload_wins),
        TEST(versions_have_limits),
    };

    return cmocka_run_group_tests_name("iod/uploads", tests, NULL, NULL);
}

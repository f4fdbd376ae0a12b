/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Watches of memory: seams, changes in progress, forked children, the end of watches. */
#include "config.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"
#include "caching.h"
#include "memory/monitor.h"
#include "tests/lib/asleep.h"

/* Waits for the monitor's thread: a change returns when its event is read, before the thread
 * has handled it. alarm() ends a hang. */
static void await_dereg(struct engine *e)
{
    while (!rme_mreg_wants_dereg(e->mreg))
        usleep(1000);
}

static void await_unwatched(void)
{
    while (watched_mappings() != 0)
        usleep(1000);
}

/* ---- cacheable memory ---- */

static int memory_file(void)
{
    int fd = memfd_create("rme-test", MFD_CLOEXEC);

    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, PAGES * PAGE), 0);
    return fd;
}

/* Memory in several mappings, as after madvise, is cached. */
static void seams_do_not_matter(void **state)
{
    struct engine *e = engine_new(64, 1);
    char *base = map_anonymous(PAGES);

    (void)state;
    assert_true(registers(e, base, PAGES * PAGE));
    for (size_t cut = 3; cut < PAGES; cut += 5) {
        assert_int_equal(madvise(base, cut * PAGE, cut % 2 ? MADV_DONTDUMP : MADV_DODUMP), 0);
        assert_false(registers(e, base, PAGES * PAGE));
        assert_false(registers(e, base + PAGE, PAGE));
    }
    munmap(base, PAGES * PAGE);
    await_dereg(e);
    rme_mreg_dereg_flush(e->mreg);
    base = map_anonymous(PAGES);
    assert_int_equal(madvise(base + 4 * PAGE, 4 * PAGE, MADV_DONTDUMP), 0);
    assert_true(registers(e, base, PAGES * PAGE));
    assert_false(registers(e, base, PAGES * PAGE));
    munmap(base, PAGES * PAGE);
    engine_free(e);
}

/* ---- during a change ---- */

struct unmapper {
    char *base;
    pthread_barrier_t *start;
    atomic_int tid;
    atomic_bool done;
};

static void *unmap(void *arg)
{
    struct unmapper *u = arg;

    asleep_announce(&u->tid);
    munmap(u->base, PAGES * PAGE);
    atomic_store(&u->done, true);
    return NULL;
}

/* Keeps the monitor's thread from reading events. */
static atomic_bool late;

int __real_poll(struct pollfd *fds, nfds_t count, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int ms);
int __wrap_poll(struct pollfd *fds, nfds_t count, int ms)
{
    int ret = __real_poll(fds, count, ms);

    while (atomic_load(&late))
        usleep(1000);
    return ret;
}

static bool is_mapped(const char *base)
{
    unsigned char page;

    return mincore((void *)(uintptr_t)base, PAGE, &page) == 0;
}

/* Waits until the memory is unmapped and its thread sleeps until the event is read, or is
 * done. */
static void await_pending(struct unmapper *u)
{
    while (!atomic_load(&u->done) && (is_mapped(u->base) || !asleep_now(&u->tid, 'D')))
        usleep(1000);
}

static void others_hit_while_an_unmap_is_pending(void **state)
{
    struct engine *e = engine_new(64, 1);
    struct unmapper u = {.base = map_anonymous(PAGES)};
    char *base = map_anonymous(PAGES), *afresh;
    pthread_t thread;

    (void)state;
    assert_true(registers(e, base, PAGES * PAGE));
    assert_true(registers(e, u.base, PAGES * PAGE));
    atomic_store(&late, true);
    assert_int_equal(pthread_create(&thread, NULL, unmap, &u), 0);
    await_pending(&u);
    for (int i = 0; i < 100; i++)
        assert_false(registers(e, base, PAGES * PAGE));
    afresh = mmap(u.base, PAGES * PAGE, PROT_READ | PROT_WRITE,
                  MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    assert_ptr_equal(afresh, u.base);
    assert_true(registers(e, afresh, PAGES * PAGE)); /* its event has not been read yet */
    assert_false(atomic_load(&u.done));
    atomic_store(&late, false);
    pthread_join(thread, NULL);
    munmap(afresh, PAGES * PAGE);
    munmap(base, PAGES * PAGE);
    engine_free(e);
}

/* Waits until the thread sleeps in the kernel, without looking at the memory: starting threads
 * may map theirs at the same place. */
static void await_asleep(struct unmapper *u)
{
    while (!atomic_load(&u->done) && !asleep_now(&u->tid, 'D'))
        usleep(1000);
}

/* Unmaps when all threads are ready. */
static void *unmap_with_the_others(void *arg)
{
    struct unmapper *u = arg;

    pthread_barrier_wait(u->start);
    return unmap(u);
}

/* More changes at once than the monitor reads under one lock. */
static void many_changes_are_all_seen(void **state)
{
    struct engine *e = engine_new(64, 1);
    struct rme_mseg seg = {.length = PAGE};
    struct rme_mreg_hold *hold;
    struct unmapper u[40];
    pthread_barrier_t start;
    pthread_t thread[40];

    (void)state;
    pthread_barrier_init(&start, NULL, 40);
    for (int i = 0; i < 40; i++) {
        u[i] = (struct unmapper){.base = map_anonymous(PAGES), .start = &start};
        assert_true(registers(e, u[i].base, PAGES * PAGE));
    }
    atomic_store(&late, true);
    for (int i = 0; i < 40; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, unmap_with_the_others, &u[i]), 0);
    for (int i = 0; i < 40; i++) /* no event is read meanwhile */
        await_asleep(&u[i]);
    atomic_store(&late, false);
    for (int i = 0; i < 40; i++)
        pthread_join(thread[i], NULL);
    pthread_barrier_destroy(&start);
    seg.base = u[0].base;
    /* the last events were read, and a lookup waits until they are reported */
    assert_int_equal(rme_mreg_try(e->mreg, &seg, 1, SOURCE, &hold), -EAGAIN);
    rme_mreg_dereg_flush(e->mreg);
    assert_int_equal(fake_live(&e->fake), 0);
    engine_free(e);
}

/* ---- the end of watching ---- */

/* Watches memory of all kinds: moved, grown, evicted, partly discarded. */
static void watch_a_lot(struct engine *e, char *base[4])
{
    char *moved;

    for (int i = 0; i < 4; i++) {
        base[i] = map_anonymous(PAGES);
        (void)registers(e, base[i], PAGES * PAGE);
    }
    moved = map_anonymous(4 * PAGES);
    munmap(moved, 4 * PAGES * PAGE);
    moved =
        mremap(base[0], PAGES * PAGE, 2 * PAGES * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, moved);
    assert_ptr_not_equal(moved, MAP_FAILED);
    base[0] = moved;
    munmap(base[1] + PAGE, PAGE);
    madvise(base[2], PAGE, MADV_DONTNEED);
}

static void unmap_all(char *base[4])
{
    munmap(base[0], 2 * PAGES * PAGE);
    for (int i = 1; i < 4; i++)
        munmap(base[i], PAGES * PAGE);
}

/* Runs `body` in its own process; a hang fails the test.  Status 77: it cannot be tested
 * here. */
static void in_a_process(void (*body)(void))
{
    pid_t pid = fork();
    int status;

    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(60);
        body();
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(status, 0);
}

static void must(bool what, int code)
{
    if (!what)
        _exit(code);
}

/* Returns when the child is out of fork(), which closes its descriptors of the monitor. */
static pid_t sleeping_child(void)
{
    struct pollfd out;
    int up[2];
    pid_t pid;

    must(pipe(up) == 0, 10);
    out = (struct pollfd){.fd = up[0], .events = POLLIN};
    pid = fork();
    if (pid == 0) {
        alarm(120);
        (void)!write(up[1], "x", 1);
        for (;;)
            pause();
    }
    must(pid > 0 && poll(&out, 1, -1) == 1, 10); /* not read(), see break_reading() */
    close(up[0]);
    close(up[1]);
    return pid;
}

static void end_child(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void finalize_with_a_child(void)
{
    struct engine *e = engine_new(64, 1);
    char *base[4];
    pid_t child;

    watch_a_lot(e, base);
    must(watched_mappings() > 0, 1);
    child = sleeping_child();
    engine_free(e);
    must(watched_mappings() == 0, 2);
    unmap_all(base); /* hangs if any memory is still watched */
    end_child(child);
}

static void ended_monitor_watches_nothing(void **state)
{
    (void)state;
    engine_free(engine_new(64, 1)); /* skips without a cache */
    in_a_process(finalize_with_a_child);
}

enum { OWN = 40 };

/* Opens files of the program at the numbers that the library had; each has content. */
static void open_own_files(ino_t *file)
{
    struct stat st;

    for (int fd = 3; fd < 3 + OWN; fd++) {
        must(memfd_create("the program's own", 0) == fd, 2);
        must(pwrite(fd, &st, sizeof(st), 0) == (ssize_t)sizeof(st), 2);
        must(fstat(fd, &st) == 0, 2);
        file[fd - 3] = st.st_ino;
    }
}

/* Nothing was read from them, and nothing has closed or replaced them. */
static void check_own_files(const ino_t *file)
{
    struct stat st;

    for (int fd = 3; fd < 3 + OWN; fd++) {
        must(fstat(fd, &st) == 0 && st.st_ino == file[fd - 3], 3);
        must(lseek(fd, 0, SEEK_CUR) == 0, 4);
    }
}

/* A program may close descriptors that it has not opened, as when it becomes a daemon. */
static void lose_descriptors(void)
{
    struct engine *e = engine_new(64, 1);
    char *base[4], *other = map_anonymous(PAGES), *held = map_anonymous(PAGES);
    struct rme_mseg seg = {.base = held, .length = PAGE};
    struct rme_mreg_hold *hold;
    ino_t file[OWN];

    watch_a_lot(e, base);
    must(rme_mreg_acquire(e->mreg, &seg, 1, SOURCE, &hold) == 0, 10);
    must(close_range(3, 1000, 0) == 0, 1);
    open_own_files(file);
    unmap_all(base); /* has events while the monitor's thread sleeps */
    check_own_files(file);
    for (int i = 0; i < 3; i++)
        must(registers(e, other, PAGE), 5);
    must(!rme_mreg_caches(e->mreg), 6);
    must(fake_live(&e->fake) == 1, 12);
    /* in use at the loss, not kept after that */
    must(rme_mreg_release(e->mreg, hold, NULL), 13);
    rme_mreg_dereg_flush(e->mreg);
    must(fake_live(&e->fake) == 0, 7);
    rme_log_drain(e->log);
    must(e->seen.lines == 1 && strstr(e->seen.last, "has closed descriptors") != NULL, 8);
    must(watched_mappings() == 0, 9);
    munmap(other, PAGES * PAGE);
    munmap(held, PAGES * PAGE);
    engine_free(e); /* hangs if it waits for the monitor's thread */
    check_own_files(file);
}

/* The memory stays mapped: no event tells the monitor's thread. */
static void lose_descriptors_quietly(void)
{
    struct engine *e = engine_new(64, 1);
    char *base = map_anonymous(PAGES);
    ino_t file[OWN];

    must(registers(e, base, PAGE), 1);
    must(close_range(3, 1000, 0) == 0, 1);
    open_own_files(file);
    for (int i = 0; i < 3; i++)
        must(registers(e, base, PAGE), 5);
    engine_free(e);
    check_own_files(file);
    munmap(base, PAGES * PAGE);
}

static void monitor_without_descriptors_ends(void **state)
{
    (void)state;
    engine_free(engine_new(64, 1)); /* skips without a cache */
    in_a_process(lose_descriptors);
    in_a_process(lose_descriptors_quietly);
}

/* Makes every later read of an event fail in this process. */
static void break_reading(int fd)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), /* the system call's number */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_read, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 16), /* its first argument */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)fd, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EIO),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};

    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, 11);
    must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) ==
             0,
         77);
}

/* Returns the lowest descriptor that is a userfaultfd: the monitor's first. */
static int find_userfaultfd(void)
{
    char name[64], what[64];

    for (int fd = 3; fd < 64; fd++) {
        ssize_t n;

        snprintf(name, sizeof(name), "/proc/self/fd/%d", fd);
        n = readlink(name, what, sizeof(what) - 1);
        if (n > 0) {
            what[n] = '\0';
            if (strcmp(what, "anon_inode:[userfaultfd]") == 0)
                return fd;
        }
    }
    return -1;
}

static void break_the_monitor(void)
{
    struct engine *e = engine_new(64, 1);
    struct unmapper u = {0};
    char *base[4];
    pthread_t thread;
    pid_t child;

    watch_a_lot(e, base);
    break_reading(find_userfaultfd());
    u.base = base[3];
    must(pthread_create(&thread, NULL, unmap, &u) == 0, 1); /* its event cannot be read */
    pthread_join(thread, NULL);
    child = sleeping_child();
    await_unwatched();
    must(registers(e, base[2], PAGE), 3);
    must(registers(e, base[2], PAGE), 4); /* nothing is cached */
    unmap_all(base);
    engine_free(e);
    end_child(child);
}

static void failed_monitor_watches_nothing(void **state)
{
    (void)state;
    engine_free(engine_new(64, 1));
    in_a_process(break_the_monitor);
}

static void refuse_statx(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0), /* the system call's number */
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_statx, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(code) / sizeof(code[0]), .filter = code};
    struct rme_mreg_config config = {.max_entries = 64, .max_bytes = 64 << 20, .batch = 1};
    struct engine *e;

    must(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0, 11);
    must(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0, 77);
    e = engine_open(config, 1 << 20, 1);
    must(find_userfaultfd() < 0, 2);
    rme_log_drain(e->log);
    must(strstr(e->seen.last, "(statx: Operation not permitted") != NULL, 3);
    engine_free(e);
}

/* Without identities of files (a filter of system calls that refuses statx) userfaultfd is not
 * used, no descriptor stays open, and a log line names statx. */
static void monitor_without_statx_stays_closed(void **state)
{
    (void)state;
    in_a_process(refuse_statx);
}

/* ---- fork ---- */

/* A child has no descriptor of its parent's monitor, but all others. */
static void children_close_it(void **state)
{
    struct engine *e = engine_new(64, 1);
    int status, own = memory_file();
    pid_t pid = fork();

    (void)state;
    if (pid == 0) {
        struct stat st;
        _exit(find_userfaultfd() >= 0 ? 1 : fstat(own, &st) != 0 ? 2 : 0);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_true(find_userfaultfd() >= 0);
    close(own);
    engine_free(e);
    assert_int_equal(find_userfaultfd(), -1);
}

static void use_engine(void)
{
    struct engine *e = engine_new(64, 1);
    char *base = map_anonymous(PAGES);

    must(registers(e, base, PAGES * PAGE), 1);
    must(!registers(e, base, PAGES * PAGE), 2);
    madvise(base, PAGE, MADV_DONTNEED);
    must(registers(e, base, PAGES * PAGE), 3);
    munmap(base, PAGES * PAGE);
    engine_free(e);
    must(watched_mappings() == 0, 4);
}

/* A child opens its own engine, with and without one in its parent. */
static void children_have_their_own(void **state)
{
    struct engine *e = engine_new(64, 1);
    char *base = map_anonymous(PAGES);

    (void)state;
    assert_true(registers(e, base, PAGES * PAGE));
/* ThreadSanitizer cannot follow threads created in a child of a multi-threaded process */
#ifndef __SANITIZE_THREAD__
    in_a_process(use_engine);
#endif
    /* the child's end did not affect the parent */
    assert_false(registers(e, base, PAGES * PAGE));
    madvise(base, PAGE, MADV_DONTNEED);
    assert_true(registers(e, base, PAGES * PAGE));
    engine_free(e);
    munmap(base, PAGES * PAGE);
    in_a_process(use_engine);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(seams_do_not_matter),
        cmocka_unit_test(others_hit_while_an_unmap_is_pending),
        cmocka_unit_test(many_changes_are_all_seen),
        cmocka_unit_test(ended_monitor_watches_nothing),
        cmocka_unit_test(monitor_without_descriptors_ends),
        cmocka_unit_test(failed_monitor_watches_nothing),
        cmocka_unit_test(monitor_without_statx_stays_closed),
        cmocka_unit_test(children_close_it),
        cmocka_unit_test(children_have_their_own),
    };

    alarm(300); /* a deadlock fails the test */
    return cmocka_run_group_tests_name("monitor", tests, NULL, NULL);
}

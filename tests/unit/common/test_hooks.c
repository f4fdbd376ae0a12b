/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Hooks in the C library as the monitor of a registration cache: which changes of memory end a
 * registration, in which processes, and when there is no cache. Run by hooks.sh with
 * userfaultfd forbidden.
 */
#include "config.h"
#include <dlfcn.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"
#include "caching.h"
#include "memory/monitor.h"

#define LENGTH (PAGES * PAGE)
#define RIGHTS (PROT_READ | PROT_WRITE)
#define OWN    (MAP_PRIVATE | MAP_ANONYMOUS)

/* ---- changes ---- */

static void map_over(char *base)
{
    assert_ptr_equal(mmap(base, LENGTH, RIGHTS, OWN | MAP_FIXED, -1, 0), base);
}

static void unmap_end(char *base)
{
    assert_int_equal(munmap(base + LENGTH - PAGE, 1), 0); /* the kernel rounds up */
    assert_ptr_equal(mmap(base + LENGTH - PAGE, PAGE, RIGHTS, OWN | MAP_FIXED_NOREPLACE, -1, 0),
                     base + LENGTH - PAGE);
}

static void move_away(char *base)
{
    char *moved = mremap(base, LENGTH, 2 * LENGTH, MREMAP_MAYMOVE), *over;

    assert_ptr_not_equal(moved, MAP_FAILED);
    over = mremap(moved, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, base);
    assert_ptr_equal(over, base);
    munmap(moved + LENGTH, LENGTH);
}

static void move_over(char *base)
{
    char *other = map_anonymous(PAGES);

    assert_ptr_equal(mremap(other, LENGTH, LENGTH, MREMAP_MAYMOVE | MREMAP_FIXED, base), base);
}

static void discard(char *base)
{
    assert_int_equal(madvise(base + PAGE, PAGE, MADV_DONTNEED), 0);
}

static void free_lazily(char *base)
{
    assert_int_equal(madvise(base, PAGE, MADV_FREE), 0);
}

static void discard_by_number(char *base)
{
    assert_int_equal(syscall(SYS_madvise, base, PAGE, MADV_DONTNEED), 0);
}

static void attach_over(char *base)
{
    int id = shmget(IPC_PRIVATE, LENGTH, IPC_CREAT | 0600);

    assert_ptr_equal(shmat(id, base, SHM_REMAP), base);
    shmctl(id, IPC_RMID, NULL);
    shmdt(base);
    map_over(base);
}

static void every_change_ends_a_registration(void **state)
{
    void (*const change[])(char *) = {map_over, unmap_end,   move_away,         move_over,
                                      discard,  free_lazily, discard_by_number, attach_over};
    struct engine *e = engine_new(64, 1);

    (void)state;
    for (size_t i = 0; i < sizeof(change) / sizeof(change[0]); i++) {
        char *base = map_anonymous(PAGES);

        assert_true(registers(e, base, LENGTH));
        assert_false(registers(e, base, LENGTH));
        change[i](base);
        assert_true(registers(e, base, LENGTH));
        munmap(base, LENGTH);
    }
    engine_free(e);
}

/* ---- calls inside the C library ---- */

struct seen {
    struct rme_watcher watcher;
    struct rme_monitor *monitor;
    uintptr_t at;
    volatile unsigned times; /* free() changes nothing, to the compiler */
};

static void note(void *arg, uintptr_t start, uintptr_t end)
{
    struct seen *seen = arg;

    seen->times += start <= seen->at && seen->at < end;
}

static void *nothing(void *arg)
{
    return arg;
}

/* Calls of free() on a mapping and at the end of the heap, of dlclose(), and at the end of a
 * thread with its own stack. */
static void calls_inside_the_library_are_seen(void **state)
{
    struct seen seen = {.watcher = {.on_unmap = note, .arg = &seen}};
    struct rme_monitor_lacks lacks;
    pthread_attr_t large;
    pthread_t thread;
    void *block, *library;

    (void)state;
    engine_free(engine_new(64, 1)); /* skips without a cache */
    assert_int_equal(rme_monitor_join(&seen.watcher, &seen.monitor, &lacks), 0);
    assert_non_null(lacks.what);
    assert_null(lacks.hooks);
    block = malloc(4 << 20);
    seen.at = (uintptr_t)block;
    free(block);
    assert_int_equal(seen.times, 1);
    (void)mallopt(M_TRIM_THRESHOLD, 1);
    (void)mallopt(M_MMAP_THRESHOLD, 32 << 20);
    block = malloc(4 << 20);
    seen.at = (uintptr_t)block + (2 << 20);
    seen.times = 0;
    free(block);
    assert_int_equal(seen.times, 1);
    library = dlopen("libthread_db.so.1", RTLD_NOW);
    if (library != NULL) {
        seen.at = (uintptr_t)dlsym(library, "td_init");
        seen.times = 0;
        assert_int_equal(dlclose(library), 0);
        assert_true(seen.times > 0);
    }
    pthread_attr_init(&large);
    pthread_attr_setstacksize(&large, 64 << 20); /* more than the C library keeps */
    assert_int_equal(pthread_create(&thread, &large, nothing, NULL), 0);
    seen.at = (uintptr_t)thread; /* in the stack */
    seen.times = 0;
    pthread_join(thread, NULL);
    assert_true(seen.times > 0);
    rme_monitor_leave(seen.monitor, &seen.watcher);
}

#ifdef __x86_64__
/* The compiler's code around a system call relies on its registers. */
static void hook_keeps_registers(void **state)
{
    struct engine *e = engine_new(64, 1);
    char *base = map_anonymous(PAGES);
    register uint64_t r8 __asm__("r8") = 8, r9 __asm__("r9") = 9, r10 __asm__("r10") = 10;
    uint64_t di = (uintptr_t)base, si = LENGTH, dx = 3, x = 0x1234567890abcdef, low, high;
    long result;

    (void)state;
    assert_true(registers(e, base, LENGTH));
    r8 = 8, r9 = 9, r10 = 10;
    __asm__ volatile("movq %[x], %%xmm0\n movq %[x], %%xmm15\n"
                     "movq $77, -16(%%rsp)\n"
                     "sub $136, %%rsp\n call *%[f]\n add $136, %%rsp\n"
                     "movq %%xmm0, %[low]\n movq %%xmm15, %[high]\n"
                     : "=a"(result), "+D"(di), "+S"(si), "+d"(dx), "+r"(r8), "+r"(r9),
                       "+r"(r10), [low] "=&r"(low), [high] "=&r"(high)
                     : [x] "r"(x), [f] "r"(munmap)
                     : "rcx", "r11", "memory", "cc", "xmm0", "xmm15");
    assert_int_equal(r8 + r9 + r10, 27);
    assert_int_equal(result, 0);
    assert_int_equal(di, (uintptr_t)base);
    assert_int_equal(si, LENGTH);
    assert_int_equal(dx, 3);
    assert_int_equal(low, x);
    assert_int_equal(high, x);
    engine_free(e);
}
#endif

/* ---- changes that hooks do not see ---- */

static long by_own_instruction(long number, void *base, long a, long b, long c)
{
    long result = -1;

#ifdef __x86_64__
    register long r10 __asm__("r10") = c, r8 __asm__("r8") = -1, r9 __asm__("r9") = 0;

    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(base), "S"(a), "d"(b), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
#else
    (void)number, (void)base, (void)a, (void)b, (void)c;
#endif
    return result;
}

/* The next mapping there by the C library ends the registration. */
static void unseen_unmap_is_found_when_mapped_again(void **state)
{
    struct engine *e = engine_new(64, 1);
    char *base = map_anonymous(PAGES);

    (void)state;
    assert_true(registers(e, base, LENGTH));
    assert_int_equal(by_own_instruction(SYS_munmap, base, LENGTH, 0, 0), 0);
    assert_ptr_equal(mmap(base, LENGTH, RIGHTS, OWN | MAP_FIXED_NOREPLACE, -1, 0), base);
    assert_true(registers(e, base, LENGTH));
    assert_int_equal(by_own_instruction(SYS_mmap, base, LENGTH, RIGHTS, OWN | MAP_FIXED),
                     (intptr_t)base);
    print_message("a mapping by an instruction of the program: %s\n",
                  registers(e, base, LENGTH) ? "seen" : "not seen, as the manual says");
    munmap(base, LENGTH);
    engine_free(e);
}

/* ---- signal handlers and other processes ---- */

/* As a signal handler does that interrupts a look-up. */
static void change_under_the_lock_ends_all(void **state)
{
    struct engine *e = engine_new(64, 1);
    char *base = map_anonymous(PAGES), *other = map_anonymous(PAGES);
    struct seen seen = {.watcher = {.on_unmap = note, .arg = &seen}};

    (void)state;
    assert_int_equal(
        rme_monitor_join(&seen.watcher, &seen.monitor, &(struct rme_monitor_lacks){NULL}), 0);
    assert_true(registers(e, base, LENGTH));
    assert_true(registers(e, other, LENGTH));
    pthread_mutex_lock(rme_monitor_lock(seen.monitor));
    discard(base);
    pthread_mutex_unlock(rme_monitor_lock(seen.monitor));
    assert_true(registers(e, base, LENGTH)); /* ends the rest, and is not cached itself */
    assert_true(registers(e, base, LENGTH));
    assert_true(registers(e, other, LENGTH));
    assert_false(registers(e, other, LENGTH));
    assert_false(registers(e, base, LENGTH));
    rme_monitor_leave(seen.monitor, &seen.watcher);
    munmap(base, LENGTH);
    munmap(other, LENGTH);
    engine_free(e);
}

/* The lock of the parent is held for ever in a child. */
static void children_change_memory_of_their_own(void **state)
{
    struct engine *e = engine_new(64, 1);
    char *base = map_anonymous(PAGES);
    struct seen seen = {.watcher = {.on_unmap = note, .arg = &seen}};

    (void)state;
    assert_int_equal(
        rme_monitor_join(&seen.watcher, &seen.monitor, &(struct rme_monitor_lacks){NULL}), 0);
    assert_true(registers(e, base, LENGTH));
    for (int forks = 0; forks < 2; forks++) {
        pid_t pid;
        int status;

        pthread_mutex_lock(rme_monitor_lock(seen.monitor));
        pid = forks ? fork() : (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
        if (pid == 0) {
            alarm(60);
            _exit(munmap(base, LENGTH) != 0);
        }
        pthread_mutex_unlock(rme_monitor_lock(seen.monitor));
        assert_int_equal(waitpid(pid, &status, 0), pid);
        assert_int_equal(status, 0);
    }
    assert_false(registers(e, base, LENGTH));
    rme_monitor_leave(seen.monitor, &seen.watcher);
    munmap(base, LENGTH);
    engine_free(e);
}

/* ---- no cache ---- */

static void replaced_hook_ends_the_cache(void **state)
{
    struct engine *e = engine_new(64, 1);
    char *base = map_anonymous(PAGES), *code = (char *)(uintptr_t)shmat;
    char *page = (char *)((uintptr_t)code & ~(PAGE - 1)), before = *code;

    (void)state;
    assert_true(registers(e, base, LENGTH));
    assert_false(registers(e, base, LENGTH));
    assert_int_equal(mprotect(page, 2 * PAGE, RIGHTS | PROT_EXEC), 0);
    *code = (char)0xcc; /* nothing calls it meanwhile */
    for (int i = 0; i < 3; i++)
        assert_true(registers(e, base, LENGTH));
    assert_false(rme_mreg_caches(e->mreg));
    rme_log_drain(e->log);
    assert_non_null(strstr(e->seen.last, "another library has replaced the hooks"));
    *code = before;
    assert_int_equal(mprotect(page, 2 * PAGE, PROT_READ | PROT_EXEC), 0);
    munmap(base, LENGTH);
    engine_free(e);
}

/* An allocator whose memory does not come by hooked calls: here by none, at a limit. */
static void unseen_allocator_has_no_cache(void **state)
{
    const struct rme_mreg_config config = {.max_entries = 64, .max_bytes = 64 << 20};
    struct rlimit before, none;
    struct engine *e;

    (void)state;
    engine_free(engine_new(64, 1)); /* skips without a cache */
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    none = (struct rlimit){.rlim_cur = 48 << 20, .rlim_max = before.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_AS, &none), 0);
    e = engine_open(config, 1 << 20, 1);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_false(rme_mreg_caches(e->mreg));
    rme_log_drain(e->log);
    assert_non_null(strstr(e->seen.last, "hooks need an allocator that uses the C library"));
    engine_free(e);
    engine_free(engine_new(64, 1)); /* the next engine has a cache again */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_change_ends_a_registration),
        cmocka_unit_test(calls_inside_the_library_are_seen),
#ifdef __x86_64__
        cmocka_unit_test(hook_keeps_registers),
#endif
        cmocka_unit_test(unseen_unmap_is_found_when_mapped_again),
        cmocka_unit_test(change_under_the_lock_ends_all),
        cmocka_unit_test(children_change_memory_of_their_own),
        cmocka_unit_test(replaced_hook_ends_the_cache),
        cmocka_unit_test(unseen_allocator_has_no_cache),
    };

    alarm(300); /* a deadlock fails the test */
    return cmocka_run_group_tests_name("hooks", tests, NULL, NULL);
}

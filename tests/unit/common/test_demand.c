/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* On-demand paging of user memory: cached without a watch, and checked at each use. */
#include "config.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "unit.h"
#include "fake_fabric.h"
#include "memory/mreg.h"

#define PAGE   ((size_t)4096)
#define PAGES  ((size_t)64)
#define SOURCE RME_ACCESS_REMOTE_READ
#define SINK   (RME_ACCESS_LOCAL_WRITE | RME_ACCESS_REMOTE_WRITE)
#define BOUND  (4 * PAGE)

struct fixture {
    struct fake fake;
    struct rme_log *log;
    struct fake_log seen;
    struct rme_pin pin;
    struct rme_mreg *mreg;
    char *memory;
};

static char *map(void *at)
{
    char *memory = mmap(at, PAGES * PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | (at != NULL ? MAP_FIXED : 0), -1, 0);

    assert_ptr_not_equal(memory, MAP_FAILED);
    return memory;
}

static void start_unasked(struct fixture *f, uint64_t entries, bool mws)
{
    struct rme_mreg_config config = {.pin = &f->pin,
                                     .max_entries = entries,
                                     .max_bytes = BOUND,
                                     .call_ns = 10000,
                                     .page_ns = 1000};

    *f = (struct fixture){.memory = map(NULL)};
    fake_init(&f->fake);
    f->fake.caps.on_demand = true;
    f->fake.caps.register_each = !mws;
    f->fake.caps.mws = mws ? 256 : 0;
    f->log = rme_log_new(fake_log_line, &f->seen);
    rme_pin_init(&f->pin, &fake_ops, fake_fabric(&f->fake), f->log);
    assert_int_equal(rme_mreg_new(&config, &f->mreg), 0);
    rme_log_drain(f->log);
}

static void stop(struct fixture *f)
{
    rme_mreg_free(f->mreg);
    assert_int_equal(fake_live(&f->fake), 0);
    assert_int_equal(f->fake.bad_deregs, 0);
    assert_int_equal(rme_pin_counted(&f->pin, RME_C_REGISTERED_BYTES), 0);
    assert_int_equal(rme_pin_counted(&f->pin, RME_C_DEMAND_BYTES), 0);
    rme_log_free(f->log);
    fake_destroy(&f->fake);
    munmap(f->memory, PAGES * PAGE);
}

static void start(struct fixture *f, uint64_t entries, bool mws)
{
    start_unasked(f, entries, mws);
    if (f->seen.lines == 0)
        return;
    assert_non_null(strstr(f->seen.last, "PROCMAP_QUERY"));
    stop(f);
    skip();
}

/* Uses memory once; returns 0 or the error. */
static int use(struct fixture *f, char *base, size_t length, unsigned access)
{
    struct rme_mseg seg = {.base = base, .length = length};
    struct rme_mreg_hold *hold;
    int ret = rme_mreg_acquire(f->mreg, &seg, 1, access, &hold);

    if (ret != 0)
        return ret;
    assert_true(fake_covers(&f->fake, seg.rkey, base, length, access | RME_ACCESS_DEMAND));
    if (rme_mreg_release(f->mreg, hold, NULL))
        rme_mreg_dereg_flush(f->mreg);
    return 0;
}

/* Without windows a registration for a peer is made for one operation, with only that
 * operation's access rights. */
static void without_windows(void **state)
{
    struct fixture f;

    (void)state;
    start(&f, 16, false);
    assert_int_equal(use(&f, f.memory + 100, 50, SINK), 0);
    assert_int_equal(fake_live(&f.fake), 0);
    assert_int_equal(mprotect(f.memory, PAGE, PROT_READ), 0);
    assert_int_equal(use(&f, f.memory, PAGE, SOURCE), 0);
    assert_int_equal(fake_live(&f.fake), 0);
    assert_int_equal(use(&f, f.memory, PAGE, RME_ACCESS_LOCAL), 0);
    assert_int_equal(use(&f, f.memory, PAGE, RME_ACCESS_LOCAL), 0);
    assert_int_equal(fake_live(&f.fake), 1);
    assert_int_equal(f.fake.regs, 3);
    stop(&f);
}

static void without_a_cache(void **state)
{
    struct fixture f;

    (void)state;
    start(&f, 0, true);
    assert_false(rme_mreg_caches(f.mreg));
    for (int i = 0; i < 2; i++)
        assert_int_equal(use(&f, f.memory, PAGE, SINK), 0);
    assert_int_equal(f.fake.regs, 2);
    assert_int_equal(fake_live(&f.fake), 0);
    assert_int_equal(munmap(f.memory, PAGE), 0);
    assert_int_equal(use(&f, f.memory, PAGE, SINK), -EFAULT);
    stop(&f);
}

/* Threads that use memory while another one changes it. */
struct crowd {
    struct fixture *f;
    atomic_bool stop;
};

static void *uses(void *arg)
{
    struct crowd *crowd = arg;

    while (!atomic_load(&crowd->stop)) {
        struct rme_mseg seg = {.base = crowd->f->memory, .length = 8 * PAGE};
        struct rme_mreg_hold *hold;

        if (rme_mreg_acquire(crowd->f->mreg, &seg, 1, SINK, &hold) == 0 &&
            rme_mreg_release(crowd->f->mreg, hold, NULL))
            rme_mreg_dereg_flush(crowd->f->mreg);
    }
    return NULL;
}

static void changes_meanwhile(void **state)
{
    struct fixture f;
    struct crowd crowd = {.f = &f};
    pthread_t thread[2];

    (void)state;
    start(&f, 2, true);
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, uses, &crowd), 0);
    for (int i = 0; i < 300; i++) {
        /* without rights, not unmapped: a thread that allocates could get that address */
        assert_int_equal(mprotect(f.memory + i % 8 * PAGE, PAGE, PROT_NONE), 0);
        (void)use(&f, f.memory + 16 * PAGE, PAGE, SINK);
        map(f.memory);
        (void)use(&f, f.memory + i % 8 * PAGE, PAGE, SOURCE);
    }
    atomic_store(&crowd.stop, true);
    for (int i = 0; i < 2; i++)
        pthread_join(thread[i], NULL);
    rme_mreg_dereg_flush(f.mreg);
    assert_true(fake_live(&f.fake) <= 2);
    assert_int_equal(use(&f, f.memory, 8 * PAGE, SINK), 0);
    stop(&f);
}

/* Forbids queries about mappings by a seccomp filter. */
static void forbid_queries(void)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 4),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_STMT(BPF_ALU | BPF_AND | BPF_K, 0xffff),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 'f' << 8 | 17, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOTTY),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        _exit(77);
}

static void use_pinned(void)
{
    struct rme_mseg seg;
    struct rme_mreg_hold *hold;
    struct fixture f;

    forbid_queries();
    start_unasked(&f, 16, true);
    seg = (struct rme_mseg){.base = f.memory, .length = PAGE};
    /* where pinned memory cannot be watched either, the last log line reports that it is not
     * cached */
    if (strstr(f.seen.last, "userfaultfd") != NULL)
        _exit(77);
    if (strstr(f.seen.last, "PROCMAP_QUERY") == NULL)
        _exit(1);
    if (rme_mreg_bound(f.mreg) != BOUND)
        _exit(2);
    if (rme_mreg_acquire(f.mreg, &seg, 1, SINK, &hold) != 0)
        _exit(3);
    if (fake_covers(&f.fake, seg.rkey, f.memory, PAGE, RME_ACCESS_DEMAND))
        _exit(4);
    _exit(0);
}

/* Runs `body` in its own process.  Status 77: it cannot be tested here. */
static void in_a_process(void (*body)(void))
{
    pid_t child;
    int status;

    fflush(NULL);
    child = fork();
    if (child == 0)
        body();
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == 77)
        skip();
    assert_int_equal(WEXITSTATUS(status), 0);
}

/* Where the kernel cannot tell what is mapped, memory is pinned, within the limit for pinned
 * memory. */
static void older_kernels_pin(void **state)
{
    (void)state;
    in_a_process(use_pinned);
}

/* Returns 0 if memory is used as before, and missing rights are found.  With `own`, the number
 * belongs to a file of the program: -ENOMEM when no other descriptor can be opened. */
static int use_without_the_descriptor(struct fixture *f, bool own)
{
    struct rlimit none = {0}, before;

    if (use(f, f->memory, PAGE, SINK) != 0 || use(f, f->memory + PAGE, PAGE, SOURCE) != 0)
        return 1;
    if (f->fake.regs != 2 || mprotect(f->memory, PAGE, PROT_READ) != 0)
        return 2;
    if (use(f, f->memory, PAGE, SINK) != -EFAULT || use(f, f->memory, PAGE, SOURCE) != -EACCES)
        return 3;
    if (getrlimit(RLIMIT_NOFILE, &before) != 0)
        return 4;
    none.rlim_max = before.rlim_max;
    if (setrlimit(RLIMIT_NOFILE, &none) != 0 ||
        use(f, f->memory + PAGE, PAGE, SOURCE) != (own ? -ENOMEM : 0) ||
        setrlimit(RLIMIT_NOFILE, &before) != 0)
        return 5;
    return 0;
}

/* Loses the descriptor: its number is free, or belongs to a file of the program. */
static void lose_the_descriptor(void)
{
    static struct fixture f;

    for (int own = 0; own < 2; own++) {
        int wrong;

        if (close_range(3, 1000, 0) != 0) /* the descriptor is 3 */
            _exit(9);
        start_unasked(&f, 16, true);
        if (f.seen.lines > 0)
            _exit(77);
        if (use(&f, f.memory, PAGE, SINK) != 0 || close_range(3, 1000, 0) != 0)
            _exit(10);
        if (own && memfd_create("the program's own", 0) != 3)
            _exit(11);
        wrong = use_without_the_descriptor(&f, own);
        if (wrong != 0)
            _exit(wrong);
        rme_mreg_free(f.mreg);
        rme_log_free(f.log);
        if (own && fcntl(3, F_GETFD) < 0)
            _exit(12);
    }
    _exit(0);
}

static void lost_descriptor_is_replaced(void **state)
{
    (void)state;
    in_a_process(lose_the_descriptor);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(without_windows),
        cmocka_unit_test(without_a_cache),
        cmocka_unit_test(changes_meanwhile),
        cmocka_unit_test(older_kernels_pin),
        cmocka_unit_test(lost_descriptor_is_replaced),
    };

    return cmocka_run_group_tests_name("demand", tests, NULL, NULL);
}

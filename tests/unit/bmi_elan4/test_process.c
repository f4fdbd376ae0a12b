/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Ranges and numbers of processes, and the log of contexts: many owners, dead
 * owners. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

#include "bmi_elan4/conn_info.h"
#include "bmi_elan4/context_log.h"
#include "bmi_elan4/nic.h"
#include "bmi_elan4/process.h"
#include "tests/elan4/scratch.h"

static const struct bmi_elan4_range range = {0, 7, 2, 17};
static struct scratch scratch;
static char folder[64], file[96];

static void vpid_ranges_are_checked(void **state)
{
    static const struct {
        struct bmi_elan4_range r;
        bool good;
    } table[] = {{{0, 0, 2, 2}, true},     {{0, 511, 2, 17}, true},
                 {{0, 512, 2, 17}, false}, {{5, 4, 2, 17}, false},
                 {{-1, 4, 2, 17}, false},  {{0, 4, 1, 17}, false},
                 {{0, 4, 2, 0x3ff}, true}, {{0, 4, 2, 0x400}, false},
                 {{0, 4, 9, 8}, false},    {{0, 2147483647, 2, 3}, false}};
    char why[200];
    (void)state;
    for (unsigned i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
        why[0] = 0;
        assert_int_equal(bmi_elan4_range_check(&table[i].r, why, sizeof(why)),
                         table[i].good ? 0 : -EINVAL);
        assert_int_equal(why[0] != 0, !table[i].good);
    }
}

static void vpid_of_node_and_context(void **state)
{
    ELAN_CAPABILITY cap;
    int node, context;
    (void)state;
    assert_int_equal(bmi_elan4_vp(&range, 0, 2), 0);
    assert_int_equal(bmi_elan4_vp(&range, 3, 4), 3 * 16 + 2);
    assert_int_equal(bmi_elan4_vp(&range, 8, 2), -1);
    assert_int_equal(bmi_elan4_vp(&range, 0, 1), -1);
    assert_int_equal(bmi_elan4_vp(&range, 0, 18), -1);
    assert_int_equal(bmi_elan4_place(&range, -1, &node, &context), -EINVAL);
    assert_int_equal(bmi_elan4_place(&range, 128, &node, &context), -EINVAL);
    bmi_elan4_capability(&range, (const unsigned[]){1, 2, 3, 4}, 5, &cap);
    assert_int_equal((cap.cap_highnode - cap.cap_lownode + 1) *
                         (cap.cap_highcontext - cap.cap_lowcontext + 1),
                     128);
    assert_int_equal(cap.cap_mycontext, 5);
    /* as libelan4 does for this type of capability */
    for (int vp = 0; vp < 128; vp++) {
        assert_int_equal(bmi_elan4_place(&range, vp, &node, &context), 0);
        assert_int_equal(bmi_elan4_vp(&range, node, context), vp);
        assert_int_equal(node, cap.cap_lownode + vp / 16);
        assert_int_equal(context, cap.cap_lowcontext + vp % 16);
    }
}

static int set_up(void **state)
{
    (void)state;
    if (scratch_open(&scratch, "/tmp/elan4-log") < 0 || chmod(scratch.dir, 0755) < 0)
        return -1;                                           /* readable by other users */
    snprintf(folder, sizeof(folder), "%s/log", scratch.dir); /* created by the log */
    snprintf(file, sizeof(file), "%s/node-3", folder);
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    scratch_close(&scratch);
    return 0;
}

static struct bmi_elan4_log *open_log(void)
{
    struct bmi_elan4_log *log = NULL;

    assert_int_equal(bmi_elan4_log_open(folder, 3, &log), 0);
    return log;
}

/* Returns the number of free contexts without the server's. */
static int free_contexts(struct bmi_elan4_log *log)
{
    uint64_t generation;
    int n = 0;

    for (int c = range.low_context + 1; c <= range.high_context; c++)
        n += bmi_elan4_log_owner(log, c, &generation) == 0;
    return n;
}

/* Takes the first free context except the server's. Returns its number or an error. */
static int take_any(struct bmi_elan4_log *log, uint64_t *generation)
{
    int rc = -EBUSY;

    for (int c = range.low_context + 1; c <= range.high_context && rc == -EBUSY; c++)
        if ((rc = bmi_elan4_log_take(log, c, generation)) == 0)
            return c;
    return rc;
}

static void one_owner(void **state)
{
    struct bmi_elan4_log *a = open_log(), *b = open_log();
    uint64_t first, second, owner;
    struct stat st;
    (void)state;
    assert_int_equal(bmi_elan4_log_take(a, 2, &first), 0); /* the server's */
    assert_int_equal(bmi_elan4_log_take(b, 2, &second), -EBUSY);
    assert_int_equal(bmi_elan4_log_take(a, 2, &second), -EBUSY);
    for (int c = 3; c <= 17; c++) /* others in order, never the server's */
        assert_int_equal(take_any(c % 2 ? a : b, &second), c);
    assert_int_equal(take_any(b, &second), -EBUSY);
    assert_int_equal(bmi_elan4_log_owner(b, 2, &owner), 1);
    assert_true(owner == first);
    bmi_elan4_log_give(a, 2);
    assert_int_equal(bmi_elan4_log_owner(b, 2, &owner), 0);
    assert_int_equal(bmi_elan4_log_take(b, 2, &second), 0);
    assert_true(second > first);
    bmi_elan4_log_close(b);
    assert_int_equal(bmi_elan4_log_owner(a, 2, &owner), 1);
    bmi_elan4_log_close(a);
    assert_int_equal(stat(folder, &st), 0);
    assert_int_equal(st.st_mode & 07777, 01777);
    assert_int_equal(stat(file, &st), 0);
    assert_int_equal(st.st_mode & 07777, 0666);
}

/* A log that is no plain file is refused. */
static void log_of_other_kind_refused(void **state)
{
    struct bmi_elan4_log *log = NULL;
    (void)state;
    bmi_elan4_log_close(open_log()); /* makes the folder */
    unlink(file);
    assert_int_equal(symlink("/dev/null", file), 0);
    assert_int_equal(bmi_elan4_log_open(folder, 3, &log), -ELOOP);
    unlink(file);
    assert_int_equal(mkfifo(file, 0666), 0);
    assert_int_equal(bmi_elan4_log_open(folder, 3, &log), -EINVAL);
    unlink(file);
}

/* Returns the descriptor by which this process has the file open; -1: none. */
static int descriptor_of(const char *path)
{
    struct stat st, other;

    assert_int_equal(stat(path, &st), 0);
    for (int fd = 3; fd < 100; fd++)
        if (fstat(fd, &other) == 0 && other.st_dev == st.st_dev && other.st_ino == st.st_ino)
            return fd;
    return -1;
}

/* A program closes all descriptors, and its own file gets the number of the log's. */
static void descriptor_of_the_program(void **state)
{
    char own[100];
    uint64_t generation;
    struct bmi_elan4_log *log = open_log();
    int fd = descriptor_of(file), mine;

    (void)state;
    assert_true(fd >= 0);
    close(fd);
    assert_ptr_equal(open_log(), log);
    assert_int_equal(bmi_elan4_log_take(log, 5, &generation), 0);
    bmi_elan4_log_give(log, 5);

    fd = descriptor_of(file);
    assert_true(fd >= 0);
    snprintf(own, sizeof(own), "%s/own", scratch.dir);
    mine = open(own, O_RDWR | O_CREAT, 0600);
    assert_true(mine >= 0);
    assert_int_equal(dup2(mine, fd), fd);
    assert_ptr_equal(open_log(), log);
    assert_int_equal(bmi_elan4_log_take(log, 5, &generation), 0);
    bmi_elan4_log_give(log, 5);
    assert_int_equal(lseek(mine, 0, SEEK_END), 0);
    for (int users = 3; users > 0; users--)
        bmi_elan4_log_close(log);
    assert_int_equal(descriptor_of(file), -1);
    assert_true(fcntl(fd, F_GETFD) >= 0); /* still the program's */
    close(fd);
    close(mine);
    unlink(own);
}

/* Another user takes and returns contexts in the same log. */
static void other_user(void **state)
{
    static struct bmi_elan4_log *log; /* the child has it, too */
    uint64_t generation;
    int st = 1;
    (void)state;
    log = open_log();
    if (geteuid() != 0) {
        bmi_elan4_log_close(log);
        skip();
    }
    assert_int_equal(take_any(log, &generation), 3);
    pid_t pid = fork();
    if (pid == 0) {
        struct bmi_elan4_log *mine;
        uint64_t owner = 0, own;
        if (setuid(65534) != 0 || bmi_elan4_log_open(folder, 3, &mine) != 0 ||
            take_any(mine, &own) != 4 || bmi_elan4_log_owner(mine, 3, &owner) != 1 ||
            owner != generation || unlink(file) == 0)
            _exit(1);
        bmi_elan4_log_close(mine);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_int_equal(st, 0);
    bmi_elan4_log_close(log);
}

/* Joins and leaves; the tracing parent kills it at one of its system calls. */
static void child_joins(void)
{
    struct bmi_elan4_log *log;
    uint64_t generation;

    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) != 0)
        _exit(77);
    raise(SIGSTOP);
    if (bmi_elan4_log_open(folder, 3, &log) != 0 || take_any(log, &generation) < 0 ||
        bmi_elan4_log_take(log, 2, &generation) < 0)
        _exit(1);
    bmi_elan4_log_close(log);
    _exit(0);
}

static void killed_at_each_step(void **state)
{
    uint64_t generation;
    int step;
    (void)state;
    for (step = 1;; step++) {
        int st = 0, k = 0;
        pid_t pid = fork();
        if (pid == 0)
            child_joins();
        assert_int_equal(waitpid(pid, &st, 0), pid);
        if (WIFEXITED(st) && WEXITSTATUS(st) == 77)
            skip();                          /* tracing is not allowed here */
        while (WIFSTOPPED(st) && k < step) { /* entry and exit of each call are steps */
            assert_int_equal(ptrace(PTRACE_SYSCALL, pid, NULL, NULL), 0);
            assert_int_equal(waitpid(pid, &st, 0), pid);
            k++;
        }
        bool ended = WIFEXITED(st);
        if (ended) {
            assert_int_equal(WEXITSTATUS(st), 0);
        } else {
            kill(pid, SIGKILL);
            assert_int_equal(waitpid(pid, &st, 0), pid);
        }
        struct bmi_elan4_log *log = open_log();
        assert_int_equal(free_contexts(log), 15);
        assert_int_equal(bmi_elan4_log_take(log, 2, &generation), 0);
        assert_int_equal(take_any(log, &generation), 3);
        bmi_elan4_log_close(log);
        if (step % 3 == 0)
            unlink(file); /* and without a file */
        if (ended)
            break;
    }
    assert_true(step > 15);
}

/* ---- Forks ---- */

enum { PATIENCE_S = 600 }; /* timeout of a fork that hangs */

static bool refuses;       /* no handler can be registered */
static bool forks_between; /* another thread forks while a handler is being registered */
static bool hung;
static pthread_t forker;

typedef void (*handler)(void);
int __real_pthread_atfork(handler prepare, handler parent, handler child);
int __wrap_pthread_atfork(handler prepare, handler parent, handler child);

static void *fork_once(void *arg)
{
    pid_t pid = fork();
    int st = 1;

    (void)arg;
    if (pid == 0)
        _exit(0);
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_int_equal(st, 0);
    return NULL;
}

/* Registers a handler as C libraries do that exclude a fork meanwhile: returns after the fork
 * that another thread has begun. */
int __wrap_pthread_atfork(handler prepare, handler parent, handler child)
{
    struct timespec until;

    if (refuses)
        return ENOMEM;
    if (forks_between) {
        forks_between = false;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += PATIENCE_S;
        assert_int_equal(pthread_create(&forker, NULL, fork_once, NULL), 0);
        hung = pthread_timedjoin_np(forker, NULL, &until) != 0;
    }
    return __real_pthread_atfork(prepare, parent, child);
}

static int open_bootstrap(struct bmi_elan4_bootstrap *bootstrap)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct bmi_elan4_conn_info mine;

    bmi_elan4_conn_info_fill(&mine, &range, (const unsigned[]){1, 2, 3, 4}, 0, 2, 4096, 1);
    return bmi_elan4_bootstrap_open((struct sockaddr *)&at, sizeof(at), &mine, bootstrap);
}

/* Runs before all other tests: a process registers its handlers once.  Descriptor 0 is the
 * program's. */
static void handlers_refused(void **state)
{
    struct bmi_elan4_nic_config config = {.range = range, .folder = folder, .context = 2};
    struct bmi_elan4_bootstrap bootstrap;
    struct bmi_elan4_log *log;
    struct bmi_elan4_nic *nic;
    char why[200];
    int st = 1;
    pid_t pid = fork();
    (void)state;
    if (pid == 0) {
        refuses = true;
        _exit(bmi_elan4_log_open(folder, 3, &log) != -ENOMEM ||
              open_bootstrap(&bootstrap) != -ENOMEM || dup2(1, 0) != 0 ||
              bmi_elan4_nic_open(&config, &nic, why, sizeof(why)) != -ENOMEM ||
              fcntl(0, F_GETFD) < 0);
    }
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_int_equal(st, 0);
}

/* A thread forks while another one opens the first log: no lock is held meanwhile. */
static void fork_at_first_lock(void **state)
{
    struct bmi_elan4_log *log;
    (void)state;
    forks_between = true;
    log = open_log();
    assert_false(hung);
    assert_false(forks_between);
    bmi_elan4_log_close(log);
}

static void listeners_of_a_process(void **state)
{
    enum { MOST = 65 };
    static struct bmi_elan4_bootstrap bootstrap[MOST];
    (void)state;
    for (int i = 0; i < MOST; i++)
        assert_int_equal(open_bootstrap(&bootstrap[i]), 0);
    bmi_elan4_bootstrap_close(&bootstrap[7]);
    assert_int_equal(open_bootstrap(&bootstrap[7]), 0);
    pid_t pid = fork();
    if (pid == 0) { /* closes them all */
        bool open = false;
        for (int i = 0; i < MOST; i++)
            open |= fcntl(bootstrap[i].listener, F_GETFD) >= 0;
        _exit(open);
    }
    int st = 1;
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_int_equal(st, 0);
    for (int i = 0; i < MOST; i++)
        bmi_elan4_bootstrap_close(&bootstrap[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(handlers_refused, set_up, tear_down),
        cmocka_unit_test_setup_teardown(fork_at_first_lock, set_up, tear_down),
        cmocka_unit_test(listeners_of_a_process),
        cmocka_unit_test(vpid_ranges_are_checked),
        cmocka_unit_test(vpid_of_node_and_context),
        cmocka_unit_test_setup_teardown(one_owner, set_up, tear_down),
        cmocka_unit_test_setup_teardown(descriptor_of_the_program, set_up, tear_down),
        cmocka_unit_test_setup_teardown(other_user, set_up, tear_down),
        cmocka_unit_test_setup_teardown(killed_at_each_step, set_up, tear_down),
        cmocka_unit_test_setup_teardown(log_of_other_kind_refused, set_up, tear_down),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

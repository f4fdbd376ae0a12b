/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Calls that the method's threads must avoid. A program may replace read, write, open and
 * close: with OrangeFS's liborangefs a thread that calls one of them waits until the file
 * system is connected, in BMI calls of another thread. A method thread calling them could
 * deadlock with that thread. This test replaces them as well and records their callers. Signals
 * that a program waits for must not be delivered to the method's threads.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>
#include <cmocka.h>

#include "contract.h"

enum { LARGE = 1 << 20, TAG = 3 };

#define EXPORTED __attribute__((visibility("default")))

static _Atomic(const char *) called; /* function that a thread of the method called */
static atomic_int calls;             /* calls by the method in the host's thread */

/* Records a call of the function `name` from `where`. */
static void note_call(const char *name, void *where)
{
    Dl_info info;
    bool method, hca;

    if (dladdr(where, &info) == 0)
        return;
    method =
        strstr(info.dli_fname, "libbmi_ib") != NULL || strstr(info.dli_fname, "librme") != NULL;
    /* the software HCA has a thread, too */
    hca = strstr(info.dli_fname, "libemuverbs") != NULL;
    if (syscall(SYS_gettid) != getpid() && (method || hca))
        atomic_store(&called, name);
    else if (method)
        atomic_fetch_add(&calls, 1);
}

#define NOTE_CALL() note_call(__func__, __builtin_return_address(0))

EXPORTED ssize_t read(int fd, void *data, size_t size)
{
    NOTE_CALL();
    return syscall(SYS_read, fd, data, size);
}

EXPORTED ssize_t readv(int fd, const struct iovec *part, int parts)
{
    NOTE_CALL();
    return syscall(SYS_readv, fd, part, parts);
}

EXPORTED ssize_t write(int fd, const void *data, size_t size)
{
    NOTE_CALL();
    return syscall(SYS_write, fd, data, size);
}

EXPORTED ssize_t writev(int fd, const struct iovec *part, int parts)
{
    NOTE_CALL();
    return syscall(SYS_writev, fd, part, parts);
}

EXPORTED int open(const char *path, int flags, ...)
{
    mode_t mode;
    va_list more;

    va_start(more, flags);
    mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(more, mode_t) : 0;
    va_end(more);
    NOTE_CALL();
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

EXPORTED int close(int fd)
{
    NOTE_CALL();
    return (int)syscall(SYS_close, fd);
}

/* Gives work to all threads of the method: resolves the server by name and frees registered
 * memory. */
static void use_all(struct client *c)
{
    char uri[64];
    void *memory;

    snprintf(uri, sizeof(uri), "ib://localhost%s", strrchr(test_uri(), ':'));
    CHECK_EQUAL(BMI_addr_lookup(&c->server, uri, NULL), 0);
    ask(c, (struct request){.ask = ASK_PING});
    for (int i = 0; i < 10; i++) {
        struct flight f;

        memory = mmap(NULL, LARGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        CHECK(memory != MAP_FAILED);
        ask_begin(c,
                  (struct request){
                      .ask = ASK_TAKE, .tag = TAG, .count = 1, .size = LARGE, .expect = LARGE});
        fill(memory, LARGE, TAG, 0);
        post_send(&f, c->server, memory, LARGE, TAG, c->context);
        wait_for(c->context, &f);
        ask_end(c);
        CHECK_EQUAL(munmap(memory, LARGE), 0);
    }
}

static void own_threads_call_nothing_of_the_program(struct client *c)
{
    use_all(c);
    client_stop(c);
    /* prove that the replacements work: the method has closed its descriptors */
    CHECK(atomic_load(&calls) > 0);
    if (atomic_load(&called) != NULL)
        check_failed(__FILE__, __LINE__, atomic_load(&called));
    client_start(c);
}

/* Returns whether the thread with this status file blocks all of `signals`. */
static bool blocks(const char *file, uint64_t signals)
{
    char line[256];
    unsigned long long mask = 0;
    FILE *f = fopen(file, "r");

    CHECK(f != NULL);
    while (fgets(line, sizeof(line), f) != NULL)
        if (sscanf(line, "SigBlk: %llx", &mask) == 1)
            break;
    fclose(f);
    return (mask & signals) == signals;
}

/* Checks that all threads except this one block the signals that a program may wait for. */
static void own_threads_leave_signals_to_the_program(struct client *c)
{
    const int some[] = {SIGTERM, SIGHUP, SIGINT, SIGCHLD, SIGALRM, SIGUSR1, SIGIO};
    uint64_t signals = 0;
    struct dirent *entry;
    char file[300];
    int threads = 0;
    DIR *tasks;

    use_all(c);
    for (size_t i = 0; i < sizeof(some) / sizeof(some[0]); i++)
        signals |= UINT64_C(1) << (some[i] - 1);
    tasks = opendir("/proc/self/task");
    CHECK(tasks != NULL);
    while ((entry = readdir(tasks)) != NULL) {
        if (entry->d_name[0] == '.' || atoi(entry->d_name) == getpid())
            continue;
        snprintf(file, sizeof(file), "/proc/self/task/%s/status", entry->d_name);
        CHECK(blocks(file, signals));
        threads++;
    }
    closedir(tasks);
    CHECK(threads > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ONE_CLIENT(own_threads_call_nothing_of_the_program),
        ONE_CLIENT(own_threads_leave_signals_to_the_program),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

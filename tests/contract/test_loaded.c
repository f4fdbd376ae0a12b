/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* libbmi as a plugin: loaded by dlopen, used, unloaded, and again. */
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

#include "bmi.h"
#include "tests/ports/ports.h"

#define LIBRARY ".libs/libbmi.so.0"

enum { PATIENCE_S = 600, ROUNDS = 12 };

#define CALLS(X)                                                                               \
    X(BMI_initialize)                                                                          \
    X(BMI_finalize)                                                                            \
    X(BMI_open_context)                                                                        \
    X(BMI_close_context)                                                                       \
    X(BMI_addr_lookup)                                                                         \
    X(BMI_post_sendunexpected)                                                                 \
    X(BMI_testcontext)                                                                         \
    X(BMI_testunexpected)                                                                      \
    X(BMI_unexpected_free)

static struct {
    void *handle;
#define X(name) __typeof__(&name) name;
    CALLS(X)
#undef X
} bmi;

#define CHECK(what)                                                                            \
    do {                                                                                       \
        if (!(what)) {                                                                         \
            fprintf(stderr, "# %s:%d: not true: %s\n", __FILE__, __LINE__, #what);             \
            _exit(1);                                                                          \
        }                                                                                      \
    } while (0)

static void load(void)
{
    bmi.handle = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (bmi.handle == NULL)
        fprintf(stderr, "# %s\n", dlerror());
    CHECK(bmi.handle);
#define X(name) CHECK((bmi.name = (__typeof__(&name))(uintptr_t)dlsym(bmi.handle, #name)));
    CALLS(X)
#undef X
}

/* Counts the entries of a folder of /proc/self. */
static int entries(const char *path)
{
    DIR *folder = opendir(path);
    int n = 0;

    CHECK(folder);
    while (readdir(folder) != NULL)
        n++;
    closedir(folder);
    return n;
}

static bool is_mapped(const char *name)
{
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    bool found = false;

    CHECK(maps);
    while (fgets(line, sizeof(line), maps) != NULL)
        found = found || strstr(line, name) != NULL;
    fclose(maps);
    return found;
}

/* Hooks, whose code stays mapped, take the place of userfaultfd where that is refused. */
static bool may_stay(void)
{
    int fd = (int)syscall(SYS_userfaultfd, O_CLOEXEC | 1 /* UFFD_USER_MODE_ONLY */);

    return fd < 0 || close(fd) != 0;
}

static char uri[64];
static const char *method;

/* Receives one message. */
static void server(int ready)
{
    struct BMI_unexpected_info info;
    bmi_context_id context;
    int n = 0;

    load();
    CHECK(bmi.BMI_initialize(method, uri, BMI_INIT_SERVER, NULL) == 0);
    CHECK(bmi.BMI_open_context(&context) == 0);
    CHECK(write(ready, "r", 1) == 1);
    for (int round = 0; round < ROUNDS;) {
        CHECK(bmi.BMI_testunexpected(1, &n, &info, 10) >= 0);
        if (n == 0)
            continue;
        CHECK(info.size == 1);
        CHECK(bmi.BMI_unexpected_free(info.addr, info.buffer) == 0);
        round++;
    }
    bmi.BMI_close_context(context);
    CHECK(bmi.BMI_finalize() == 0);
    CHECK(dlclose(bmi.handle) == 0);
}

static void send_one(void)
{
    bmi_context_id context;
    bmi_error_code_t error = 0;
    bmi_size_t actual;
    bmi_op_id_t id;
    BMI_addr_t to;
    int n = 0;

    CHECK(bmi.BMI_initialize(NULL, NULL, 0, NULL) == 0);
    CHECK(bmi.BMI_open_context(&context) == 0);
    CHECK(bmi.BMI_addr_lookup(&to, uri, NULL) == 0);
    int ret =
        bmi.BMI_post_sendunexpected(&id, to, "x", 1, BMI_EXT_ALLOC, 1, NULL, context, NULL);
    CHECK(ret >= 0);
    while (ret == 0 && n == 0)
        CHECK(bmi.BMI_testcontext(1, &id, &n, &error, &actual, NULL, 10, context) >= 0);
    CHECK(error == 0);
    bmi.BMI_close_context(context);
    CHECK(bmi.BMI_finalize() == 0);
}

/* Descriptors left by the first round are the device's, whose own thread opens and closes some;
 * a leak grows with the rounds. The kernel shows a joined thread for a moment more. */
static void client(void)
{
    int threads = 0, files = 0;

    for (int round = 0; round < ROUNDS; round++) {
        load();
        send_one();
        CHECK(dlclose(bmi.handle) == 0);
        CHECK(!is_mapped("/libbmi") || may_stay());
        if (round == 0) {
            threads = entries("/proc/self/task");
            files = entries("/proc/self/fd");
        }
        while (entries("/proc/self/task") > threads)
            sched_yield();
    }
    while (entries("/proc/self/fd") >= files + ROUNDS / 2)
        sched_yield();
}

static pid_t start(void (*body)(int), int ready)
{
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        alarm(3 * PATIENCE_S);
        body(ready);
        _exit(0);
    }
    return pid;
}

static void client_body(int ready)
{
    close(ready);
    client();
}

static void library_is_loaded_and_unloaded_repeatedly(void **state)
{
    int ready[2], status, port = ports_take();
    bool elan4 = getenv("CONTRACT_NETWORK") != NULL;
    char byte, where[32];

    (void)state;
    assert_true(port > 0);
    snprintf(where, sizeof(where), "127.0.0.1:%d", port);
    snprintf(uri, sizeof(uri), "ib://%s", where);
    if (elan4) {
        setenv("BMI_ELAN4_SERVER_ADDR", where, 1);
        strcpy(uri, "elan4://0:2");
    }
    method = elan4 ? "bmi_elan4" : "bmi_ib";
    assert_int_equal(pipe(ready), 0);
    pid_t of_server = start(server, ready[1]);
    pid_t of_client = -1;
    close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    of_client = start(client_body, ready[0]);
    close(ready[0]);
    assert_int_equal(waitpid(of_client, &status, 0), of_client);
    assert_int_equal(status, 0);
    assert_int_equal(waitpid(of_server, &status, 0), of_server);
    assert_int_equal(status, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(library_is_loaded_and_unloaded_repeatedly),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}

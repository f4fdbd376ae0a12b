/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Starting conditions of a process: without its streams, from a path, in another namespace,
 * without descriptors. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>

#include "tests/emul/cm_help.h"

/* The library's own descriptors do not take the numbers of the standard streams. */
TEST(no_stream_is_the_devices_own)
{
    static const char *const own[] = {"/memfd:emuverbs", "socket:", "anon_inode:[eventpoll]",
                                      "anon_inode:[timerfd]"};
    char path[64], link[3][128] = {""};
    struct side a = {0};
    int keep = fcntl(2, F_DUPFD, 100);

    CHECK(keep >= 100);
    for (int fd = 0; fd < 3; fd++)
        close(fd);
    side_open(&a);
    for (int fd = 0; fd < 3; fd++) {
        snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
        ssize_t n = readlink(path, link[fd], sizeof(link[fd]) - 1);
        link[fd][n > 0 ? n : 0] = 0;
    }
    side_close(&a);
    dup2(keep, 2);
    for (int fd = 0; fd < 3; fd++)
        for (unsigned i = 0; i < sizeof(own) / sizeof(own[0]); i++)
            CHECK(strncmp(link[fd], own[i], strlen(own[i])) != 0);
}

/* Runs emuverbs with a library in a folder whose name has a space. */
static void run_in_vain(void *status)
{
    const char *emuverbs = getenv("EMUVERBS");
    char folder[] = "/tmp/emuverbs with space XXXXXX", library[128];

    CHECK(mkdtemp(folder));
    snprintf(library, sizeof(library), "%s/libemuverbs.so", folder);
    close(open(library, O_CREAT | O_WRONLY | O_CLOEXEC, 0644));
    pid_t pid = fork();
    if (pid == 0) {
        setenv("EMUVERBS_LIBRARY", library, 1);
        execl(emuverbs != NULL ? emuverbs : "emul/verbs/emuverbs", "emuverbs", "true",
              (char *)NULL);
        _exit(99);
    }
    CHECK_EQ(waitpid(pid, status, 0), pid);
    unlink(library);
    rmdir(folder);
}

/* A path that LD_PRELOAD cannot contain is refused; else the program would run without the
 * library. */
TEST(library_path_with_space_refused)
{
    int status = 0;
    const char *text = printed(run_in_vain, &status);

    CHECK(WIFEXITED(status));
    CHECK_EQ(WEXITSTATUS(status), 2);
    CHECK(strstr(text, "cannot be preloaded"));
    CHECK(strstr(text, "EMUVERBS_LIBRARY"));
}

static void ask_in_vain(struct side *s)
{
    meet(s);
    struct rdma_cm_id *id = ask(PORT);
    CHECK(readable(chan->fd, 59000)); /* before the timeout */
    CHECK_EQ(eat(RDMA_CM_EVENT_UNREACHABLE), -EPERM);
    finished(id, NULL);
    meet(s);
}

static void listen_in_vain(struct side *s)
{
    struct rdma_cm_id *l = listen_at("127.0.0.1", PORT, 1);

    meet(s);
    meet(s);
    finished(l, NULL);
}

/* A process in another user namespace may list the other's descriptors, but not open them. */
PAIR(another_user_namespace_is_no_permission, run_two)
ACTIVE(another_user_namespace_is_no_permission)
{
    if (unshare(CLONE_NEWUSER) == 0) {
        ask_in_vain(s);
        return;
    }
    meet(s);
    meet(s);
}
PASSIVE(another_user_namespace_is_no_permission)
{
    listen_in_vain(s);
}

static void (*in_root)(struct side *s);
static void call(void *s)
{
    in_root(s);
}

/* Enters an empty root folder, where permitted. */
static void in_an_empty_root(void (*fn)(struct side *s), struct side *s)
{
    char folder[] = "/tmp/empty-root-XXXXXX";

    CHECK(mkdtemp(folder));
    struct rdma_cm_id *first = new_id(NULL); /* creates the device */
    int top = open("/", O_PATH | O_CLOEXEC), up = chdir(folder), entered = chroot(folder);
    CHECK(top >= 0 && up == 0);
    CHECK_EQ(unlinkat(top, folder + 1, AT_REMOVEDIR), 0);
    if (entered < 0) {
        meet(s);
        meet(s);
        drop(first);
        _exit(0);
    }
    drop(first);
    in_root = fn;
    const char *text = printed(call, s);
    CHECK(strstr(text, "no /proc here") && strstr(text, "; mount /proc there"));
    _exit(0); /* LeakSanitizer needs /proc */
}

static void listen_in_an_empty_root(struct side *s)
{
    in_an_empty_root(listen_in_vain, s);
}
static void ask_in_an_empty_root(struct side *s)
{
    in_an_empty_root(ask_in_vain, s);
}
CASE(changed_root_reported_by_both_sides)
{
    if (geteuid() != 0) /* only root may change the root */
        skip();
    assert_int_equal(run_two(ask_in_vain, listen_in_an_empty_root), 0);
    assert_int_equal(run_two(ask_in_an_empty_root, listen_in_vain), 0);
}

/* A container's seccomp profile may refuse pidfd_open. */
static void refuse_pidfds(void)
{
    struct sock_filter f[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pidfd_open, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog p = {sizeof(f) / sizeof(f[0]), f};

    CHECK_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
    CHECK_EQ(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &p), 0);
}
static void send_one_without_pidfds(struct side *s)
{
    refuse_pidfds();
    side_join(s);
    meet(s);
    post_done(s, SEND, 0, 64, 0);
    side_leave(s);
}
/* Wakes up by the channel. */
static void receive_one_without_pidfds(struct side *s)
{
    refuse_pidfds();
    s->use_chan = true;
    side_join(s);
    post_recv(s, 2, 0, 64);
    CHECK_EQ(ibv_req_notify_cq(s->rcq, 0), 0);
    meet(s);
    take_event(s->chan);
    expect_wc(s->rcq, 2, IBV_WC_SUCCESS);
    side_leave(s);
}
CASE(refused_pidfd_peers_still_connect)
{
    if (is_watched()) /* valgrind knows no seccomp */
        skip();
    assert_int_equal(run_two(send_one_without_pidfds, receive_one_without_pidfds), 0);
}

/*
 * Runs a child as the first process in a PID namespace of its own, where permitted. Both exit
 * by _exit: LeakSanitizer finds no threads in another namespace's /proc, and cannot start its
 * own process in a namespace whose first process has ended.
 */
static void in_a_namespace(void (*fn)(struct side *s), struct side *s)
{
    int st = -1;

    if (unshare(CLONE_NEWPID)) {
        meet(s);
        meet(s);
        return;
    }
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        fn(s);
        _exit(0);
    }
    CHECK_EQ(waitpid(pid, &st, 0), pid);
    CHECK_EQ(st, 0);
    _exit(0);
}

PAIR(requester_in_other_pid_namespace_notified, run_two)
ACTIVE(requester_in_other_pid_namespace_notified)
{
    in_a_namespace(ask_in_vain, s);
}
PASSIVE(requester_in_other_pid_namespace_notified)
{
    listen_in_vain(s);
}

static int open_ones(void)
{
    int n = 0;

    for (int fd = 0; fd < 256; fd++)
        n += fcntl(fd, F_GETFD) >= 0;
    return n;
}

static bool has_segment(void)
{
    char line[512];
    bool found = false;
    FILE *maps = fopen("/proc/self/maps", "re");

    CHECK(maps);
    while (fgets(line, sizeof(line), maps) != NULL)
        found |= strstr(line, "memfd:emuverbs-") != NULL;
    fclose(maps);
    return found;
}

/* With an increasing number of descriptors: opening fails repeatedly, until it succeeds. */
TEST(failed_device_open_leaves_nothing)
{
    struct rlimit limit, few;
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *ctx;
    int least = dup(0), before, failed = 0;

    CHECK(list && list[0] && least >= 0);
    close(least);
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    few = limit;
    before = open_ones();
    for (few.rlim_cur = (rlim_t)least; !has_segment(); few.rlim_cur++, failed++) {
        CHECK(failed < 32);
        CHECK_EQ(open_ones(), before);
        CHECK_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
        ctx = ibv_open_device(list[0]);
        CHECK(!ctx && errno == EMFILE); /* the context itself needs one, too */
        CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    }
    /* slot, memory, the service thread's descriptors, the context */
    CHECK(failed > 5);
    ctx = ibv_open_device(list[0]);
    CHECK(ctx);
    CHECK_EQ(ibv_close_device(ctx), 0);
    ibv_free_device_list(list);
}

static void open_in_vain(void *list)
{
    CHECK(!ibv_open_device(((struct ibv_device **)list)[0]));
    CHECK(errno == EFBIG || errno == ENOMEM);
}

/* Returns the bytes of address space in use, and 64 MiB. */
static rlim_t little_room(void)
{
    unsigned long pages = 0;
    FILE *f = fopen("/proc/self/statm", "re");

    CHECK(f && fscanf(f, "%lu", &pages) == 1);
    fclose(f);
    return pages * (rlim_t)sysconf(_SC_PAGESIZE) + (64 << 20);
}

/* Sets a limit, in vain opens the device, and finds the limit and the remedy in the message. */
static void refused_by(struct ibv_device **list, int resource, rlim_t value, const char *name,
                       const char *remedy)
{
    struct rlimit limit, little;
    char said[64];

    CHECK_EQ(getrlimit(resource, &limit), 0);
    little = limit;
    little.rlim_cur = value;
    CHECK_EQ(setrlimit(resource, &little), 0);
    const char *text = printed(open_in_vain, list);
    CHECK_EQ(setrlimit(resource, &limit), 0);
    snprintf(said, sizeof(said), "%s is %llu)", name, (unsigned long long)value);
    CHECK(strstr(text, said));
    CHECK(strstr(text, remedy));
    CHECK(strstr(text, "EMUVERBS_SEGMENT_MIB"));
}

/* A limit of file sizes or address space smaller than the segment: an error, no signal. */
TEST(file_size_limit_is_reported)
{
    struct ibv_device **list = ibv_get_device_list(NULL);

    CHECK(list && list[0]);
    refused_by(list, RLIMIT_FSIZE, 1234567, "RLIMIT_FSIZE", "ulimit -f");
    if (!is_watched())
        refused_by(list, RLIMIT_AS, little_room(), "RLIMIT_AS", "ulimit -v");
    struct ibv_context *ctx = ibv_open_device(list[0]);
    CHECK(ctx);
    CHECK_EQ(ibv_close_device(ctx), 0);
    ibv_free_device_list(list);
}

/* Opens the service thread's state in /proc, for service_rests(). */
static int service_state(void)
{
    char path[400], name[16] = "";
    DIR *tasks = opendir("/proc/self/task");
    int fd = -1;

    CHECK(tasks);
    for (struct dirent *e; strcmp(name, "emuverbs\n") != 0 && (e = readdir(tasks)) != NULL;) {
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", e->d_name);
        FILE *f = fopen(path, "re");
        if (f != NULL && fgets(name, sizeof(name), f) == NULL)
            name[0] = 0;
        if (f != NULL)
            fclose(f);
        snprintf(path, sizeof(path), "/proc/self/task/%s/stat", e->d_name);
    }
    closedir(tasks);
    CHECK(strcmp(name, "emuverbs\n") == 0);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    CHECK(fd >= 0);
    return fd;
}

/* Waits until the service thread sleeps and stays asleep: a busy loop never does. */
static void service_rests(int state)
{
    int64_t rounds = -1;
    char line[512];

    for (int same = 0; same < 100; same++) {
        ssize_t n = pread(state, line, sizeof(line) - 1, 0);
        CHECK(n > 0);
        line[n] = 0;
        if (strrchr(line, ')')[2] != 'S' || counter("service_rounds") != rounds)
            same = -1;
        rounds = counter("service_rounds");
        sched_yield();
    }
}

/* Waits until the service thread has closed the descriptors of connections to its slot. */
static void wait_for_quiet(void)
{
    int free_now = lowest_descriptor();

    for (int same = 0; same < 20; same++) {
        usleep(5000);
        int fd = lowest_descriptor();
        if (fd != free_now)
            same = 0;
        free_now = fd;
    }
}

/* A connection that cannot be accepted does not make the service thread loop. */
SIDE(without_descriptors_nothing_spins)
{
    struct rlimit limit = {256, 256};
    struct sockaddr_un name = {0};
    socklen_t len = 0;
    bool found = false;

    if (is_watched()) /* valgrind emulates the limit of descriptors */
        return;

    int state = service_state();
    for (int fd = 3; fd < 64 && !found; fd++) {
        len = sizeof(name);
        found = getsockname(fd, (struct sockaddr *)&name, &len) == 0 &&
                name.sun_family == AF_UNIX &&
                strncmp(name.sun_path + 1, "emuverbs/slot/", 14) == 0;
    }
    CHECK(found);
    int one = socket(AF_UNIX, SOCK_STREAM, 0), filled = 0;
    CHECK(one >= 0);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);
    wait_for_quiet();
    while (dup(one) >= 0)
        filled++;
    CHECK(filled > 0 && errno == EMFILE);
    int64_t rounds = counter("service_rounds");
    CHECK_EQ(connect(one, (struct sockaddr *)&name, len), 0);
    while (counter("service_rounds") == rounds)
        sched_yield();
    service_rests(state);
    CHECK(dup(one) < 0 && errno == EMFILE); /* and no connection is dropped while this lasts */
}

static int left;
static struct rlimit before;
static struct rlimit lowered;
static void connect_without(void *arg)
{
    wait_for_quiet();
    before = leave_descriptors(left);
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &lowered), 0);
    side_connect(arg);
    limit_descriptors(&before);
}
static void too_few_descriptors(struct side *s)
{
    char value[64];

    side_open(s);
    const char *text = printed(connect_without, s);
    snprintf(value, sizeof(value), "limit is %d (RLIMIT_NOFILE)", (int)lowered.rlim_cur);
    CHECK(strstr(text, value));
    CHECK(strstr(text, "; raise the limit (ulimit -n)"));
    side_leave(s);
}
static void connect_and_close(struct side *s)
{
    side_join(s);
    side_leave(s);
}

/* Each operation that lacks a descriptor to look up a peer reports an error. */
CASE(peer_without_free_descriptor_is_error)
{
    if (is_watched()) /* valgrind emulates the limit of descriptors */
        skip();
    for (left = 0; left < 3; left++)
        assert_int_equal(run_two(too_few_descriptors, connect_and_close), 0);
}

/* The constructors of a program's libraries run before those of a preloaded one. */
static void run_early(struct side *s)
{
    char preload[4096], port[16];

    (void)s;
    snprintf(preload, sizeof(preload), "%s:tests/emul/.libs/early.so", getenv("LD_PRELOAD"));
    snprintf(port, sizeof(port), "%d", PORT);
    CHECK_EQ(setenv("LD_PRELOAD", preload, 1), 0);
    CHECK_EQ(setenv("EARLY_PORT", port, 1), 0);
    meet(s); /* the other side listens */
    execl("/proc/self/exe", "test_process", "nothing", NULL);
    _exit(80);
}
__attribute__((constructor)) static void is_nothing(int argc, char **argv)
{
    if (argc > 1 && strcmp(argv[1], "nothing") == 0)
        exit(0);
}
static void be_connected_to(struct side *s)
{
    struct rdma_cm_id *listener = listen_at("127.0.0.1", PORT, 4);

    meet(s);
    struct rdma_cm_id *id = accept_one();
    CHECK_EQ(eat(RDMA_CM_EVENT_DISCONNECTED), 0);
    drop(id);
    drop(listener);
}
CASE(constructor_may_open_device_first)
{
    if (is_watched()) /* valgrind does not follow exec */
        skip();
    assert_int_equal(run_two(run_early, be_connected_to), 0);
}

/* A program that closes descriptors of the library gets a message, and no thread loops. */
TEST(closed_descriptors_do_not_spin)
{
    struct side a = {0};
    char text[1000];

    side_open(&a);
    int keep = fcntl(2, F_DUPFD, 201), to = memfd_create("stderr", MFD_CLOEXEC);
    CHECK(keep >= 0 && fcntl(to, F_DUPFD, 201) == keep + 1);
    CHECK_EQ(fcntl(service_state(), F_DUPFD, 201), keep + 2);
    dup2(to, 2);
    CHECK_EQ(close_range(3, 200, 0), 0);
    while (pread(keep + 1, text, 1, 0) != 1)
        usleep(1000); /* until the current wait has ended */
    service_rests(keep + 2);
    dup2(keep, 2); /* restores the output of checks */
    ssize_t n = pread(keep + 1, text, sizeof(text) - 1, 0);
    text[n > 0 ? n : 0] = 0;
    CHECK(strstr(text, "the program closed descriptors of the software HCA"));
    CHECK(strstr(text, "; close only"));
    _exit(0);
}

static void fail_without(void *arg)
{
    struct rlimit none = {1, before.rlim_max}; /* not affected by later closes */
    struct side *s = arg;

    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    post_to(s, 1, WRITE, 0, 8, s->raddr, s->rkey ^ 2);
    expect_wc(s->scq, 1, IBV_WC_REM_ACCESS_ERR);
    CHECK_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

/* A process that cannot be woken for lack of a descriptor polls, and a message reports that. */
PAIR(peer_that_cannot_wake_polls, run_two)
ACTIVE(peer_that_cannot_wake_polls)
{
    side_join(s);
    CHECK_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
    const char *text = printed(fail_without, s);
    CHECK(is_watched() || strstr(text, "may be woken late"));
    CHECK(is_watched() || strstr(text, "RLIMIT_NOFILE"));
    side_leave(s);
}
PASSIVE(peer_that_cannot_wake_polls)
{
    side_join(s);
    expect_async(s, IBV_EVENT_QP_ACCESS_ERR, s->qp);
    side_leave(s);
}

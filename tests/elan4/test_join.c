/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Joining and leaving the network, and both kinds of bootstrap, between processes: contexts are
 * freed however their owners end, messages reach their queue, sleepers wake. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "bmi_elan4/conn_info.h"
#include "bmi_elan4/inbox.h"
#include "bmi_elan4/kernel.h"
#include "bmi_elan4/servers.h"
#include "emul/elan4/emu.h"
#include "tests/elan4/bed.h"
#include "tests/elan4/cases.h"
#include "tests/elan4/gate.h"

#define CLIENTS 3

static const struct bmi_elan4_range range = {0, NODES - 1, LOW, LOW + CONTEXTS - 1};
static const unsigned key[4] = {5, 6, 7, 8};

struct member {
    struct bmi_elan4_nic *nic;
    struct bmi_elan4_inbox *inbox;
    struct bmi_elan4_conn_info conn_info;
};

/* The log may be in the emulation's own folder. */
static const char *folder(void)
{
    return getenv("EMUELAN4_DIR");
}

static int try_join(struct member *me, int context)
{
    char why[200] = "";
    struct bmi_elan4_nic_config config = {.range = range,
                                          .key = {5, 6, 7, 8},
                                          .folder = folder(),
                                          .context = context,
                                          .main_bytes = 16 << 20,
                                          .sdram_bytes = 1 << 16};
    int rc = bmi_elan4_nic_open(&config, &me->nic, why, sizeof(why));

    if (rc < 0) {
        CHECK(why[0]);
        return rc;
    }
    CHECK(bmi_elan4_inbox_open(me->nic, 4, &me->inbox) == 0);
    bmi_elan4_conn_info_fill(&me->conn_info, &range, key, me->nic->node, me->nic->context,
                             bmi_elan4_inbox_queue(me->inbox), me->nic->generation);
    CHECK(bmi_elan4_nic_listen(me->nic) == 0);
    return 0;
}

static void join(struct member *me, int context)
{
    CHECK(try_join(me, context) == 0);
}

static void leave(struct member *me)
{
    CHECK(atomic_load(&me->nic->traps) == 0);
    bmi_elan4_inbox_close(me->inbox);
    bmi_elan4_nic_close(me->nic);
}

/* Sends own connection information to a queue and waits for delivery. */
static void greet(struct member *me, unsigned vp, uint64_t queue)
{
    uint8_t *out = bmi_elan4_main(me->nic, 64, BMI_ELAN4_CONN_INFO_BYTES);
    volatile E4_uint64 *done = bmi_elan4_main(me->nic, 64, 64);
    E4_Event *ev = bmi_elan4_sdram(me->nic, 64, sizeof(E4_Event32));
    E4_DMA dma;

    CHECK(out && done && ev);
    memcpy(out, &me->conn_info, sizeof(me->conn_info));
    elan4_initevent_write(me->nic->ctx, ev, done);
    elan4_primeevent_write(me->nic->ctx, ev, 1);
    bmi_elan4_packet_dma(me->nic, vp, queue, out, BMI_ELAN4_CONN_INFO_BYTES, ev, &dma);
    MEMBAR_VISIBLE();
    elan4_run_dma_cmd(me->nic->tx, &dma);
    bmi_elan4_flush(me->nic);
    CHECK(elan4_pollevent_word(me->nic->ctx, done, 60000000));
    elan4_freeMain(me->nic->alloc, out);
    elan4_freeMain(me->nic->alloc, (void *)done);
    elan4_freeElan(me->nic->alloc, ev);
}

/* Waits for connection information, sleeping in half of the cases. */
static struct bmi_elan4_conn_info hear(struct member *me, bool asleep)
{
    struct bmi_elan4_conn_info c;
    const void *m;

    while (!(m = bmi_elan4_inbox_peek(me->inbox))) {
        if (!asleep)
            continue;
        struct pollfd p = {me->nic->signal.fd, POLLIN, 0};
        bmi_elan4_inbox_arm(me->inbox);
        CHECK(poll(&p, 1, 60000) == 1);
        bmi_elan4_signal_clear(&me->nic->signal);
        CHECK(poll(&p, 1, 0) == 0);
    }
    CHECK(bmi_elan4_conn_info_decode(m, &c) == 0);
    bmi_elan4_inbox_next(me->inbox);
    return c;
}

/* ---- directly to the queue, whose address the client knows ---- */

static void native_server(struct bed *b)
{
    struct member me;

    join(&me, LOW);
    snprintf(b->m->text, sizeof(b->m->text), "0:%d=0x%llx", LOW,
             (unsigned long long)me.conn_info.queue);
    tell(b, 0, 1);
    for (int i = 0; i < 20 * CLIENTS; i++) {
        struct bmi_elan4_conn_info c = hear(&me, i % 2);
        CHECK(bmi_elan4_conn_info_judge(&me.conn_info, &c) == BMI_ELAN4_WELCOME);
        greet(&me, c.vp, c.queue);
    }
    meet(b, 1, CLIENTS + 1);
    leave(&me);
}

static void native_client(struct bed *b)
{
    struct bmi_elan4_servers *servers;
    struct bmi_elan4_where where;
    struct member me;
    char why[200];

    told(b, 0);
    setenv(BMI_ELAN4_SERVER_ENV, b->m->text, 1);
    CHECK(bmi_elan4_servers_new(getenv(BMI_ELAN4_SERVER_ENV), &servers, why, sizeof(why)) == 0);
    for (int i = 0; i < 20; i++) { /* joins anew each time */
        join(&me, BMI_ELAN4_CLIENT);
        CHECK(bmi_elan4_servers_find(servers, &range, 0, LOW, &where) == 0);
        me.conn_info.wanted = 0;
        greet(&me, 0, where.queue);
        struct bmi_elan4_conn_info c = hear(&me, i % 3);
        CHECK(c.vp == 0 && c.queue == where.queue);
        leave(&me);
    }
    bmi_elan4_servers_free(servers);
    meet(b, 1, CLIENTS + 1);
}

/* ---- by a temporary TCP connection ---- */

static void tcp_server(struct bed *b)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct bmi_elan4_bootstrap bootstrap;
    socklen_t size = sizeof(at);
    struct member me;
    int given = 0;

    join(&me, LOW);
    CHECK(bmi_elan4_bootstrap_open((struct sockaddr *)&at, sizeof(at), &me.conn_info,
                                   &bootstrap) == 0);
    CHECK(getsockname(bootstrap.listener, (struct sockaddr *)&at, &size) == 0);
    tell(b, 0, ntohs(at.sin_port));
    while (given < CLIENTS) {
        struct pollfd p = {bootstrap.listener, POLLIN, 0};
        CHECK(poll(&p, 1, 60000) == 1);
        given += bmi_elan4_bootstrap_serve(&bootstrap);
    }
    bmi_elan4_bootstrap_close(&bootstrap);
    for (int i = 0; i < CLIENTS; i++) {
        struct bmi_elan4_conn_info c = hear(&me, i % 2);
        greet(&me, c.vp, c.queue);
    }
    meet(b, 1, CLIENTS + 1);
    leave(&me);
}

static void tcp_client(struct bed *b)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)told(b, 0)),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    struct bmi_elan4_query call;
    struct bmi_elan4_conn_info server, c;
    struct member me;
    int rc;

    join(&me, BMI_ELAN4_CLIENT);
    me.conn_info.wanted = 0;
    CHECK(bmi_elan4_query_begin((struct sockaddr *)&at, sizeof(at), &call) == 0);
    while ((rc = bmi_elan4_query_step(&call, &server)) == -EAGAIN) {
        struct pollfd p = {call.fd, POLLIN, 0};
        CHECK(poll(&p, 1, 60000) == 1);
    }
    CHECK(rc == 0 && bmi_elan4_conn_info_judge(&me.conn_info, &server) == BMI_ELAN4_WELCOME);
    bmi_elan4_query_end(&call);
    greet(&me, server.vp, server.queue);
    c = hear(&me, true);
    CHECK(c.queue == server.queue && c.generation == server.generation);
    meet(b, 1, CLIENTS + 1);
    leave(&me);
}

/* ---- contexts are freed ---- */

static void crowd(struct bed *b)
{
    struct member me, many[CONTEXTS];
    char why[200] = "";
    int n = 0;

    /* one process may have several contexts: all of the clients', and no more */
    while (n < 4 && try_join(&many[n], BMI_ELAN4_CLIENT) == 0) {
        CHECK(many[n].nic->context == LOW + 1 + n);
        n++;
    }
    CHECK(n == 4);
    CHECK(try_join(&me, LOW + 2) == -EBUSY);
    leave(&many[1]);
    CHECK(try_join(&me, BMI_ELAN4_CLIENT) == 0);
    CHECK(me.nic->context == LOW + 2); /* the freed one */
    leave(&me);
    leave(&many[0]);
    leave(&many[2]);
    leave(&many[3]);
    for (int i = 0; i < 300; i++) {
        join(&me, BMI_ELAN4_CLIENT);
        CHECK(me.nic->context == LOW + 1);
        if (i % 10 == 0) /* asleep while it leaves */
            bmi_elan4_inbox_arm(me.inbox);
        leave(&me);
    }
    /* memory is freed in any order */
    for (int i = 0; i < 300; i++) {
        join(&many[i % 3], BMI_ELAN4_CLIENT);
        if (i >= 2)
            leave(&many[(i + 1) % 3]);
    }
    leave(&many[(300 - 1) % 3]);
    leave(&many[(300 - 2) % 3]);
    /* a process that ignores the log has the first one */
    bed_open(b, LOW + 1);
    join(&me, BMI_ELAN4_CLIENT);
    CHECK(me.nic->context == LOW + 2);
    leave(&me);
    bed_close(b);
    /* a node outside of the range */
    struct bmi_elan4_nic_config config = {.range = {5, 6, LOW, LOW + 3},
                                          .folder = folder(),
                                          .context = BMI_ELAN4_CLIENT,
                                          .main_bytes = 1 << 20,
                                          .sdram_bytes = 1 << 16};
    CHECK(bmi_elan4_nic_open(&config, &me.nic, why, sizeof(why)) < 0 && why[0]);
}

static void victim(struct bed *b)
{
    struct member me;

    join(&me, BMI_ELAN4_CLIENT);
    tell(b, 0, (uint64_t)me.nic->context);
    bmi_elan4_inbox_arm(me.inbox);
    usleep(2000);
    kill(getpid(), SIGKILL);
}

static void heir(struct bed *b)
{
    struct member me;
    int context = (int)told(b, 0);
    uint64_t end = now_ms() + 60000;

    for (;;) { /* on the victim's node; the victim may still be alive */
        join(&me, BMI_ELAN4_CLIENT);
        if (me.nic->context == context)
            break;
        leave(&me);
        CHECK(now_ms() < end);
        usleep(1000);
    }
    leave(&me);
}

/* Is between the victim and the next process of its node. */
static void bystander(struct bed *b)
{
    (void)b;
}

/* ---- shared folders ---- */

static int in_folder(const char *name)
{
    char path[300];

    snprintf(path, sizeof(path), "%s/%s", folder(), name);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    CHECK(fd >= 0);
    return fd;
}

/* Checks that joining fails with one line that has both words, within a second. */
static void refused_with(const char *word, const char *other)
{
    char text[1000] = "";
    int pipes[2], saved = dup(2);

    gate_clock_stop();
    gate_sleep_is_time = true;
    uint64_t start = now_ms();
    CHECK(saved >= 0 && pipe(pipes) == 0 && dup2(pipes[1], 2) == 2);
    ELAN4_CTX *ctx = elan4_init(0);
    int err = errno;
    CHECK(dup2(saved, 2) == 2);
    CHECK(!ctx && err == EPROTO && now_ms() - start < 1000);
    gate_sleep_is_time = false;
    gate_clock_run();
    close(pipes[1]);
    CHECK(read(pipes[0], text, sizeof(text) - 1) > 0);
    fputs(text, stderr);
    CHECK(strstr(text, word) && strstr(text, other) && strstr(text, folder()) &&
          strstr(text, "; run "));
    CHECK(strchr(text, '\n') == text + strlen(text) - 1); /* one line */
    close(pipes[0]);
    close(saved);
}

/* Holds the folder like a process of version 6, until told to leave. */
static void of_another_version(struct bed *b)
{
    int fd = in_folder("version");

    CHECK(write(fd, "6\n", 2) == 2 && flock(fd, LOCK_SH) == 0);
    tell(b, 0, 1);
    told(b, 1);
    close(fd);
    tell(b, 2, 1);
}

static void of_this_version(struct bed *b)
{
    char text[16] = "", own[16];
    struct member me;

    told(b, 0);
    refused_with("version 6", "EMUELAN4_DIR");
    tell(b, 1, 1);
    told(b, 2);
    join(&me, BMI_ELAN4_CLIENT); /* remains there do not disturb */
    snprintf(own, sizeof(own), "%u\n", EMU4_VERSION);
    CHECK(pread(in_folder("version"), text, sizeof(text) - 1, 0) > 0);
    CHECK(strcmp(text, own) == 0);
    leave(&me);
}

/* Owns context 3 of node 2 like the first versions, until told to leave. */
static void of_the_first_version(struct bed *b)
{
    struct emu4_record r = {.magic = EMU4_MAGIC, .pid = getpid()};
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 192, .l_len = 1};
    int fd = in_folder("node-2");

    CHECK(pwrite(fd, &r, sizeof(r), l.l_start) == sizeof(r) && fcntl(fd, F_SETLK, &l) == 0);
    tell(b, 0, (uint64_t)getpid());
    told(b, 1);
    l.l_type = F_UNLCK; /* like a killed process: its record stays */
    CHECK(fcntl(fd, F_SETLK, &l) == 0);
    tell(b, 2, 1);
}

static void beside_the_first_version(struct bed *b)
{
    char who[32];
    struct member me;

    snprintf(who, sizeof(who), "process %d ", (int)told(b, 0));
    refused_with(who, "node-2");
    tell(b, 1, 1);
    told(b, 2);
    join(&me, BMI_ELAN4_CLIENT);
    leave(&me);
}

static int folder_of_other_version_refused(void)
{
    return run_beds(2, (bed_fn[]){of_another_version, of_this_version});
}

static int folder_of_first_version_refused(void)
{
    return run_beds(2, (bed_fn[]){of_the_first_version, beside_the_first_version});
}

/* Many processes start in a new folder at once: each joins. */
static void newcomer(struct bed *b)
{
    struct member me;

    meet(b, 0, 12);
    join(&me, BMI_ELAN4_CLIENT);
    leave(&me);
}

static int all_new_at_once(void)
{
    bed_fn fn[12];

    for (int i = 0; i < 12; i++)
        fn[i] = newcomer;
    return run_beds(12, fn);
}

static int greetings_to_the_queue(void)
{
    static const bed_fn fn[] = {native_server, native_client, native_client, native_client};
    return run_beds(CLIENTS + 1, fn);
}

static int exchanges_over_tcp(void)
{
    static const bed_fn fn[] = {tcp_server, tcp_client, tcp_client, tcp_client};
    return run_beds(CLIENTS + 1, fn);
}

static int contexts_come_back(void)
{
    static const bed_fn fn[] = {crowd};
    return run_beds(1, fn);
}

static int killed_client_context_is_reused(void)
{
    static const bed_fn fn[] = {victim, bystander, bystander, bystander, heir};
    return run_beds_kill(5, fn, 0);
}

int main(void)
{
    CASE(greetings_to_the_queue());
    CASE(exchanges_over_tcp());
    CASE(contexts_come_back());
    CASE(killed_client_context_is_reused());
    CASE(folder_of_other_version_refused());
    CASE(folder_of_first_version_refused());
    CASE(all_new_at_once());
    return cases_end();
}

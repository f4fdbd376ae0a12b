/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Each call of the library that can fail fails once, and each allocation of bmi_elan4 (memory,
 * a thread, a descriptor: CALL "allocation"): test_faults [CALL [K]]
 *
 * A process opens a server and a client, which connect, exchange messages, write, read,
 * and disconnect. For each call and each time K that it is made, a separate process makes that
 * one fail. The process must not crash or hang; a failed open gives the
 * reason in one line with the error; and the same process then does everything again with
 * success.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bmi_elan4/elan.h"
#include "emul/elan4/counters.h"
#include "tests/elan4/scratch.h"
#include "tests/elan4/sides.h"
#include "tests/fault/alloc_fault.h"
#include "tests/lib/cases.h"

#define PIECES  3
#define EACH    3000
#define PATIENT 60000 /* ms, for a step that may end without an event */
#define LIMIT_S 300
#define MANY    500 /* more calls of a name than there are */
#define AT_ONCE "elan_quarantine_ms=0"

static const char *const call_name[] = {
#define X(name) #name,
    EMU4_CALLS(X)
#undef X
        "allocation",
};
#define ALLOCATION EMU4_CALL_COUNT /* behind the library's calls */
#define CALLS      (ALLOCATION + 1)

/* Exit statuses of the process of one fault; others mean that it did not end by itself. */
enum { WELL = 40, FAILED_FIRST, NOT_REACHED, NO_REASON, NOT_AGAIN };

static char reason[400]; /* last error line */
static bool talkative;

static void listen_to(void *arg, enum rme_log_level level, const char *format, ...)
{
    char line[400], *at;
    va_list ap;
    (void)arg;

    va_start(ap, format);
    vsnprintf(line, sizeof(line), format, ap);
    va_end(ap);
    if ((at = strstr(line, "BMI_ELAN4_SERVER_ADDR=")) != NULL)
        setenv("BMI_ELAN4_SERVER_ADDR", at + strlen("BMI_ELAN4_SERVER_ADDR="), 1);
    if (level <= RME_LOG_WARN)
        strcpy(reason, line);
    if (talkative)
        printf("  %s\n", line);
}

/* Prepares the objects that the host allocates. */
static void prepare(struct side *s, const char *listen)
{
    const struct rme_option_row *tables[] = {rme_engine_options, ops->options};
    char text[300], why[200] = "";

    memset(s, 0, sizeof(*s));
    snprintf(text, sizeof(text), "%s/log", folder);
    setenv("BMI_ELAN4_LOG", text, 1);
    s->options = rme_options_new(tables, 2);
    if (s->options == NULL || rme_options_parse(s->options, AT_ONCE, why, sizeof(why)) < 0 ||
        (listen != NULL && rme_addr_parse("elan4", listen, &s->listen) < 0))
        _exit(100);
}

static bool begin(struct side *s)
{
    struct rme_fabric_config config = {.listen = s->listen,
                                       .rx_size = 4096,
                                       .options = s->options,
                                       .stats = &s->stats,
                                       .log = listen_to};
    int rc = ops->open(&config, &s->f);
    if (rc < 0)
        s->f = NULL;
    return rc == 0;
}

static void end(struct side *s)
{
    if (s->f != NULL)
        ops->close(s->f);
    if (s->listen != NULL)
        rme_addr_put(s->listen);
    if (s->options != NULL)
        rme_options_free(s->options);
}

static void serve(struct side *s)
{
    struct rme_event e[8];
    int n = ops->poll(s->f, e, 8);

    for (int i = 0; i < n; i++) {
        s->count[e[i].type]++;
        if (e[i].type == RME_EV_LINK_REQUEST &&
            ops->link_accept(e[i].link, "yes", 4, RX, s) < 0)
            ops->link_reject(e[i].link, "no", 3);
        else if (e[i].type == RME_EV_LINK_UP)
            s->link = e[i].link;
        else if (e[i].type == RME_EV_RECV)
            ops->rx_return(s->f, e[i].rx);
        if (e[i].type == RME_EV_LINK_DOWN) {
            if (s->link == e[i].link)
                s->link = NULL;
            ops->link_free(e[i].link);
        }
    }
    ops->flush(s->f);
}

/* Returns false if the link has ended, or no event comes. */
static bool comes(struct side *a, struct side *b, enum rme_event_type type, int count)
{
    uint64_t end = rme_now() + PATIENT;

    while (a->count[type] < count) {
        if (a->count[RME_EV_LINK_DOWN] + b->count[RME_EV_LINK_DOWN] || rme_now() >= end)
            return false;
        serve(a);
        serve(b);
    }
    return true;
}

/* Runs the whole exchange. */
static bool talk(struct side *server, struct side *client, const struct rme_addr *addr)
{
    static uint8_t here[PIECES * EACH], there[PIECES * EACH];
    struct rme_sge seg[PIECES];
    struct rme_rdma_seg piece[PIECES];
    struct rme_mr mr;

    int rc = ops->link_connect(client->f, addr, 0, "may I", 6, RX, client, &client->link);
    if (rc < 0 || !comes(client, server, RME_EV_LINK_UP, 1) ||
        !comes(server, client, RME_EV_LINK_UP, 1) ||
        ops->reg(server->f, there, sizeof(there), RME_ACCESS_REMOTE_WRITE, &mr) < 0)
        return false;
    for (int i = 0; i < PIECES; i++) {
        seg[i] = (struct rme_sge){here + (size_t)i * EACH, EACH, 0};
        piece[i] =
            (struct rme_rdma_seg){(uintptr_t)there + (size_t)i * EACH, mr.rkey, &seg[i], 1};
    }
    struct rme_rdma_op x = {.notify = RME_NOTIFY_IMM,
                            .imm = 3,
                            .piece = piece,
                            .npiece = PIECES,
                            .bytes = sizeof(here)};
    memset(here, 'h', sizeof(here));
    memset(there, 't', sizeof(there));
    ops->rdma_op(client->link, &x);
    ops->flush(client->f);
    if (!comes(server, client, RME_EV_IMM, 1) || !comes(client, server, RME_EV_RDMA_DONE, 1) ||
        memcmp(here, there, sizeof(here)) != 0)
        return false;
    memset(there, 'u', sizeof(there));
    struct rme_rdma_op y = x;
    y.read = true;
    y.notify = RME_NOTIFY_MSG;
    y.tx = ops->tx_get(client->link);
    if (y.tx == NULL)
        return false;
    memset(y.tx, 0, 3000); /* several packets */
    y.tx_length = 3000;
    ops->rdma_op(client->link, &y);
    ops->flush(client->f);
    return comes(server, client, RME_EV_RECV, 1) &&
           comes(client, server, RME_EV_RDMA_DONE, 2) && here[0] == 'u' &&
           memcmp(here, there, sizeof(here)) == 0;
}

/* Ends all links. */
static void part_all(struct side *server, struct side *client)
{
    struct side *both[] = {server, client};
    struct rme_link *l;

    for (;;) {
        bool any = false;
        for (int i = 0; i < 2; i++) {
            if (both[i]->f == NULL)
                continue;
            list_for_each(l, &both[i]->f->links, all)
                if (l->state == ELAN_UP_STATE || l->state == ELAN_HANDSHAKE_STATE)
                    ops->link_disconnect(l, -ESHUTDOWN);
            serve(both[i]);
            any |= !list_empty(&both[i]->f->links);
        }
        if (!any)
            return;
    }
}

/* Runs everything once, with the k-th allocation failing (0: none). `opened`: both sides
 * were. */
static bool once(bool *opened, unsigned long k)
{
    struct rme_addr *addr;
    struct side server, client;

    prepare(&server, "elan4://0:2");
    prepare(&client, NULL);
    if (rme_addr_parse("elan4", "elan4://0:2", &addr) < 0)
        _exit(100);
    if (k)
        alloc_fault_start(alloc_fault_count() + k);
    *opened = begin(&server) && begin(&client);
    bool well = *opened && talk(&server, &client, addr);
    part_all(&server, &client);
    end(&client);
    end(&server);
    rme_addr_put(addr);
    return well;
}

static bool reached(int call, int k)
{
    if (call == ALLOCATION)
        return alloc_fault_hit();
    int64_t calls = counter(call_name[call]);
    return calls < 0 || calls >= k; /* below 0: no network was opened */
}

static int with_fault(int call, int k)
{
    char fail[80];
    bool opened;

    alarm(LIMIT_S);
    if (call != ALLOCATION) {
        snprintf(fail, sizeof(fail), "%s:%d", call_name[call], k);
        setenv("EMUELAN4_FAIL", fail, 1);
    }
    bool first = once(&opened, call == ALLOCATION ? (unsigned long)k : 0);
    if (!reached(call, k))
        return first ? NOT_REACHED : NOT_AGAIN;
    if (!opened && !*reason)
        return NO_REASON;
    bool again = once(&opened, 0);
    return !again ? NOT_AGAIN : first ? WELL : FAILED_FIRST;
}

/* Runs a process with one fault; returns its exit status, below 0 if it was killed. */
static int run(int call, int k)
{
    int st;

    fflush(NULL);
    pid_t pid = fork();
    if (pid == 0)
        _exit(with_fault(call, k));
    if (pid < 0 || waitpid(pid, &st, 0) != pid)
        return -1;
    return WIFEXITED(st) ? WEXITSTATUS(st) : -WTERMSIG(st);
}

static int sweep(int call, int *points, int *failed)
{
    int first = 0, bad = 0;

    for (int k = 1; k < MANY; k++) {
        int how = run(call, k);
        if (how == NOT_REACHED)
            break;
        ++*points;
        first += how == FAILED_FIRST;
        if (how == WELL || how == FAILED_FIRST)
            continue;
        bad++;
        if (how == NO_REASON || how == NOT_AGAIN)
            printf("# %s:%d: %s\n", call_name[call], k,
                   how == NO_REASON ? "what did not open says nothing"
                                    : "it does not work afterwards");
        else
            printf("# %s:%d: %s %d\n", call_name[call], k,
                   how < 0 ? "it was killed by signal" : "it ended with status",
                   how < 0 ? -how : how);
    }
    *failed += bad;
    return first;
}

static void report(int number, int call, int bad)
{
    printf("%s %d - %s\n", bad ? "not ok" : "ok", number, call_name[call]);
    fflush(stdout);
}

int main(int argc, char **argv)
{
    int points = 0, failed = 0, ended = 0, number = 0;
    void *none = NULL;

    if (sides_set_up(&none) < 0)
        return 2;
    if (argc > 2) {
        talkative = true;
        for (int i = 0; i < CALLS; i++)
            if (strcmp(call_name[i], argv[1]) == 0)
                printf("%d\n", run(i, atoi(argv[2])));
        sides_tear_down(&none);
        return 0;
    }
    for (int i = 0; i < CALLS; i++) {
        int before = failed;
        if (!case_is_chosen(call_name[i]) || (argc == 2 && strcmp(call_name[i], argv[1]) != 0))
            continue;
        ended += sweep(i, &points, &failed);
        report(++number, i, failed - before);
    }
    printf("# %d faults, of which %d ended what was begun\n", points, ended);
    if (number == CALLS) {
        printf("%s %d - enough_faults\n", points < 20 ? "not ok" : "ok", ++number);
        failed += points < 20;
    }
    printf(number ? "1..%d\n" : "1..0 # SKIP no case is chosen\n", number);
    sides_tear_down(&none);
    return failed != 0;
}

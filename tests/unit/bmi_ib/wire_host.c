/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include "wire_host.h"
#include "tests/ports/ports.h"

const char *wire_options;
uint64_t wire_budget;
bool wire_keeps_lines;
char wire_lines[8192];

static void log_line(void *arg, enum rme_log_level level, const char *format, ...)
{
    size_t used = strlen(wire_lines);
    va_list list;
    va_start(list, format);
    if (wire_keeps_lines)
        vsnprintf(wire_lines + used, sizeof(wire_lines) - used, format, list);
    va_end(list);
    if (level == RME_LOG_DEBUG && getenv("TEST_VERBOSE") == NULL)
        return;
    va_start(list, format);
    fprintf(stderr, "# %s: ", (const char *)arg);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
}

int wire_try(struct wire *w, const struct rme_addr *listen, struct rme_fabric **out)
{
    struct rme_fabric_config config = {
        .listen = listen,
        .bind_specific = true,
        .rx_size = 4096,
        .budget = wire_budget,
        .options = w->options,
        .stats = &w->stats,
        .log = log_line,
        .log_arg = (void *)(listen != NULL ? "server" : "client"),
    };
    return w->ops->open(&config, out);
}

int wire_start_over(struct wire *w, const struct rme_fabric_ops *ops, const char *options,
                    const char *listen)
{
    const struct rme_option_row *tables[] = {rme_engine_options, ops->options};
    char why[256] = "";

    memset(w, 0, sizeof(*w));
    wire_lines[0] = '\0';
    w->ops = ops;
    w->options = rme_options_new(tables, ops->options != NULL ? 2 : 1);
    w->seen = calloc(WIRE_SEEN, sizeof(*w->seen));
    assert_true(w->options && w->seen);
    if (rme_options_parse(w->options, options, why, sizeof(why)))
        fail_msg("%s", why);
    if (listen != NULL)
        assert_int_equal(rme_addr_parse(ops->scheme, listen, &w->listen), 0);
    return wire_try(w, w->listen, &w->f);
}

/* Disables RNR retries: no test sends without a posted receive, unless its options say so. */
int wire_start(struct wire *w, const char *listen)
{
    char options[512];

    snprintf(options, sizeof(options), "rnr_retry=0,rkey_scope=region%s%s",
             wire_options != NULL && *wire_options ? "," : "",
             wire_options != NULL ? wire_options : "");
    return wire_start_over(w, bmi_ib_fabric(), options, listen);
}

void wire_stop(struct wire *w)
{
    if (w->f != NULL)
        w->ops->close(w->f);
    rme_options_free(w->options);
    if (w->listen != NULL)
        rme_addr_put(w->listen);
    free(w->seen);
}

void wire_open(struct wire *w, const char *listen)
{
    assert_int_equal(wire_start(w, listen), 0);
}

void wire_close(struct wire *w)
{
    assert_int_equal(w->stats.value[RME_C_RNR], 0);
    wire_stop(w);
}

static void note(struct wire *w, const struct rme_event *e)
{
    struct wire_seen *s = &w->seen[w->nseen++ % WIRE_SEEN];
    const void *data = e->type == RME_EV_RECV ? e->data : e->hello;
    size_t length = e->type == RME_EV_RECV ? e->length : e->hello_length;
    *s = (struct wire_seen){.type = e->type,
                            .link = e->link,
                            .owner = e->owner,
                            .error = e->error,
                            .imm = e->imm,
                            .rdma_op = e->rdma_op,
                            .closed = e->closed,
                            .rx = w->keep_rx && e->type == RME_EV_RECV ? e->rx : NULL,
                            .length = e->length};
    s->why = e->type == RME_EV_LINK_DOWN ? e->why : NULL;
    if (data != NULL)
        memcpy(s->text, data, length < sizeof(s->text) ? length : sizeof(s->text));
}

static bool says(const void *data, size_t length, const char *text)
{
    return length == strlen(text) + 1 && memcmp(data, text, length) == 0;
}

static void answer(struct wire *w, struct rme_link *link)
{
    struct wire_offer own = w->own;
    const void *hello = w->hello != NULL ? (const void *)w->hello : &own;
    size_t length = w->hello != NULL ? strlen(w->hello) + 1 : sizeof(own);

    own.rkey = own.size ? w->ops->link_key(link, own.rkey) : 0;
    if (w->reject || w->ops->link_accept(link, hello, length, WIRE_RX, w))
        w->ops->link_reject(link, w->hello != NULL ? hello : "no",
                            w->hello != NULL ? length : 3);
}

static void handle(struct wire *w, const struct rme_event *e)
{
    switch (e->type) {
    case RME_EV_LINK_REQUEST:
        answer(w, e->link);
        break;
    case RME_EV_LINK_UP:
        w->link = e->link;
        if (e->hello != NULL && e->hello_length >= sizeof(w->offer))
            memcpy(&w->offer, e->hello, sizeof(w->offer));
        break;
    case RME_EV_RECV:
        if (w->echo) {
            void *tx = w->ops->tx_get(e->link);
            if (tx != NULL) {
                memcpy(tx, e->data, e->length);
                if (says(tx, e->length, WIRE_LATER))
                    poll(NULL, 0, 2);
                w->ops->tx_send(e->link, tx, e->length);
            }
        }
        if (!w->keep_rx)
            w->ops->rx_return(w->f, e->rx);
        break;
    default:
        break;
    }
}

void wire_poll(struct wire *w)
{
    struct rme_event events[16] = {{0}}; /* fields that a type does not have stay */
    int n = w->ops->poll(w->f, events, 16);
    assert_in_range(n, 0, 16);
    for (int i = 0; i < n; i++) {
        note(w, &events[i]);
        handle(w, &events[i]);
    }
    w->ops->flush(w->f);
}

int wire_count(const struct wire *w, enum rme_event_type type)
{
    int count = 0;
    for (int i = 0; i < w->nseen && i < WIRE_SEEN; i++)
        count += w->seen[i].type == type;
    return count;
}

struct wire_seen *wire_event(struct wire *w, enum rme_event_type type, int n)
{
    for (int i = 0; i < w->nseen; i++)
        if (w->seen[i].type == type && n-- == 0)
            return &w->seen[i];
    fail_msg("no event %d of type %d", n, (int)type);
    return NULL;
}

time_t wire_now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec;
}

void wire_until(struct wire *w, enum rme_event_type type, int count)
{
    time_t end = wire_now() + PATIENCE_S;
    while (wire_count(w, type) < count) {
        if (wire_now() > end)
            fail_msg("%d events of type %d did not come within %d s, but %d", count, (int)type,
                     PATIENCE_S, wire_count(w, type));
        wire_poll(w);
    }
}

struct rme_link *wire_dial(struct wire *w, const char *uri)
{
    struct rme_addr *addr;
    struct rme_link *link;
    assert_int_equal(rme_addr_parse("ib", uri, &addr), 0);
    assert_int_equal(w->ops->link_connect(w->f, addr, 0, "hello", 6, WIRE_RX, w, &link), 0);
    rme_addr_put(addr);
    return link;
}

void wire_connect(struct wire *w, const char *uri)
{
    w->nseen = 0;
    wire_dial(w, uri);
    wire_until(w, RME_EV_LINK_UP, 1);
    w->nseen = 0;
}

void wire_disconnect(struct wire *w)
{
    w->nseen = 0;
    w->ops->link_disconnect(w->link, -ESHUTDOWN);
    wire_until(w, RME_EV_LINK_DOWN, 1);
    w->ops->link_free(w->link);
}

bool wire_send(struct wire *w, const char *text)
{
    char *tx = w->ops->tx_get(w->link);
    if (tx == NULL)
        return false;
    strcpy(tx, text);
    w->ops->tx_send(w->link, tx, strlen(text) + 1);
    return true;
}

void wire_fill(uint8_t *memory, size_t size, unsigned seed)
{
    for (size_t i = 0; i < size; i++)
        memory[i] = (uint8_t)(i * 2654435761u >> 11) ^ (uint8_t)(seed * 37);
}

/* ---- Processes ---- */

/* Starts this program with a role and waits until it is ready. A mere fork does not suffice: a
 * child cannot use the verbs descriptors that librdmacm opened in its parent. */
static pid_t start(const char *role, const char *uri, size_t size)
{
    int fd[2];
    char ready[16], bytes[24], byte;
    assert_int_equal(pipe(fd), 0);
    snprintf(ready, sizeof(ready), "%d", fd[1]);
    snprintf(bytes, sizeof(bytes), "%zu", size);
    pid_t parent = getpid(), pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        if (getppid() == parent)
            execl("/proc/self/exe", "child", wire_options != NULL ? wire_options : "", role,
                  uri, bytes, ready, NULL);
        _exit(1);
    }
    close(fd[1]);
    assert_int_equal(read(fd[0], &byte, 1), 1);
    close(fd[0]);
    return pid;
}

static void serve(struct wire *w)
{
    for (;;) {
        w->nseen = 0;
        w->ops->arm(w->f);
        wire_poll(w);
        if (!w->nseen)
            w->ops->wait(w->f, w->ops->deadline(w->f));
        for (int i = 0; i < w->nseen; i++)
            if (w->seen[i].type == RME_EV_LINK_DOWN)
                w->ops->link_free(w->seen[i].link);
    }
}

static void be_server(const char *uri, size_t size, int ready)
{
    struct wire w;
    struct rme_mr mr = {0};
    wire_open(&w, uri);
    if (size) {
        uint8_t *memory = malloc(size);
        wire_fill(memory, size, 5);
        if (w.ops->reg(w.f, memory, size, RME_ACCESS_REMOTE_READ | RME_ACCESS_REMOTE_WRITE,
                       &mr))
            _exit(1);
        w.own = (struct wire_offer){mr.base, mr.rkey, size};
    }
    w.echo = true;
    if (write(ready, "", 1) == 1)
        serve(&w);
}

static void be_client(const char *uri, int ready)
{
    struct wire w;
    wire_open(&w, NULL);
    if (write(ready, "", 1) != 1)
        return;
    wire_connect(&w, uri);
    wire_send(&w, "here I am");
    for (;;)
        wire_poll(&w);
}

void wire_main(int argc, char **argv)
{
    wire_options = argc > 1 ? argv[1] : NULL;
    if (argc != 6)
        return;
    if (strcmp(argv[2], "server") == 0)
        be_server(argv[3], (size_t)atol(argv[4]), atoi(argv[5]));
    else
        be_client(argv[3], atoi(argv[5]));
    _exit(1);
}

pid_t wire_server(const char *uri, size_t size)
{
    return start("server", uri, size);
}

pid_t wire_client(const char *uri)
{
    return start("client", uri, 0);
}

void wire_kill(pid_t pid)
{
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
}

static void cm_event(struct wire *w, struct rdma_event_channel *channel,
                     enum rdma_cm_event_type type)
{
    struct rdma_cm_event *e;
    time_t end = wire_now() + PATIENCE_S;
    while (rdma_get_cm_event(channel, &e)) {
        assert_true(wire_now() < end);
        wire_poll(w);
    }
    assert_int_equal(e->event, type);
    rdma_ack_cm_event(e);
}

struct rdma_cm_id *wire_mute(struct wire *w, struct rdma_event_channel *channel,
                             const char *uri)
{
    struct sockaddr_in to = {.sin_family = AF_INET};
    char host[64];
    struct ibv_qp_init_attr attr = {
        .qp_type = IBV_QPT_RC,
        .cap = {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1}};
    struct rdma_conn_param param = {
        .private_data = "hello", .private_data_len = 6, .retry_count = 7, .rnr_retry_count = 7};
    struct rdma_cm_id *id;
    assert_int_equal(sscanf(uri, "ib://%63[^:]:%hu", host, &to.sin_port), 2);
    to.sin_port = htons(to.sin_port);
    assert_int_equal(inet_pton(AF_INET, host, &to.sin_addr), 1);
    assert_int_equal(rdma_create_id(channel, &id, NULL, RDMA_PS_TCP), 0);
    assert_int_equal(rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, 2000), 0);
    cm_event(w, channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    assert_int_equal(rdma_resolve_route(id, 2000), 0);
    cm_event(w, channel, RDMA_CM_EVENT_ROUTE_RESOLVED);
    assert_int_equal(rdma_create_qp(id, NULL, &attr), 0);
    assert_int_equal(rdma_connect(id, &param), 0);
    w->nseen = 0;
    cm_event(w, channel, RDMA_CM_EVENT_ESTABLISHED);
    wire_until(w, RME_EV_LINK_UP, 1);
    return id;
}

void *wire_symbol(const char *name)
{
    return dlsym(RTLD_DEFAULT, name);
}

int64_t wire_counter(const char *name)
{
    int64_t (*ask)(const char *) =
        (int64_t(*)(const char *))(uintptr_t)wire_symbol("emuverbs_counter");
    return ask != NULL ? ask(name) : -1;
}

void wire_device(const char *name, const char *state)
{
    int (*change)(const char *, const char *) =
        (int (*)(const char *, const char *))(uintptr_t)wire_symbol("emuverbs_device");
    assert_non_null(change);
    assert_int_equal(change(name, state), 0);
}

const char *wire_uri(const char *host)
{
    static char uri[8][128];
    static unsigned n;
    static int first;
    const char *usual = getenv("TEST_HOST");
    char *text = uri[n % 8];
    if (first == 0)
        first = ports_take();
    assert_true(first > 0);
    if (usual != NULL && strcmp(host, "127.0.0.1") == 0)
        host = usual;
    snprintf(text, sizeof(uri[0]), "ib://%s:%u", host, (unsigned)first + n % PORTS_IN_BLOCK);
    n++;
    return text;
}

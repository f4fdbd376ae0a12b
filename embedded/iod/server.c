/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * server.c - start, end, periodic checks and reports of the server.
 *
 * One thread, the caller of server_run(), receives requests and runs BMI's completions.
 * Workers access the disk, and post messages themselves.  The thread sleeps in
 * BMI_testcontext, which returns early when a request arrives.
 *
 * peer.c handles lost connections.  Silent clients are detected twice a second, when all
 * transfers are checked.
 */
#include "config.h"
#include "embedded/iod/server_impl.h"
#include "embedded/heap/heap.h"
#include "embedded/iod/clock.h"
#include "patches/orangefs/shim/shim-engine.h"
#include "common/rme.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#define UNEXPECTED_BATCH 16
#define THREADS          4 /* for the disk */
#define TRANSFERS_MAX    16384
#define TICK_MS          500
#define TRIM_MS          5000  /* ms; unused memory is freed as often */
#define EXPORT_MS        15000 /* ms; the default scrape interval of Prometheus */

/* ---- periodic checks ---- */

static void check_transfer(struct transfer *t, int64_t now)
{
    int limit = t->server->config.client_timeout_ms;
    struct flow_status status = {.moved_at = now};

    if (t->flow != NULL)
        status = flow_status(t->flow);
    if (status.waits_for_peer && !status.stopped && now - status.moved_at > limit) {
        peer_log(t->peer, LOG_DECISIONS, "%s: no progress for %d s, aborted", t->name,
                 limit / 1000);
        flow_cancel(t->flow, -ETIMEDOUT);
    } else if (!transfer_is_busy(t) && !t->closing && now - t->used_at > limit) {
        peer_log(t->peer, LOG_DECISIONS, "%s: unused for %d s, closed", t->name, limit / 1000);
        transfer_close(t, NULL, ETIMEDOUT);
    }
}

static void tick(struct server *server)
{
    int64_t now = clock_ms();

    if (now - server->ticked_at < TICK_MS)
        return;
    pthread_mutex_lock(&server->lock);
    server->ticked_at = now;
    for (struct peer *peer = server->peers; peer; peer = peer->next)
        for (struct transfer *t = peer->transfers; t; t = t->next)
            check_transfer(t, now);
    for (struct request *r = server->requests, *next; r; r = next) {
        next = r->next;
        if (r->working && now - r->since >= SERVER_KEEPALIVE_MS) {
            r->since = now;
            request_keep_alive(r);
        } else if (r->replying && now - r->since > server->config.client_timeout_ms) {
            r->since = now;
            net_cancel(server->context, &r->reply_op);
        }
    }
    pthread_mutex_unlock(&server->lock);
    if (now - server->export.at >= EXPORT_MS || server->export.at == 0)
        server_export(server);
    if (now - server->trimmed_at >= TRIM_MS) {
        server->trimmed_at = now;
        pool_trim(server->pool);
        heap_trim();
    }
}

/* ---- service ---- */

int server_run(struct server *server, int idle_ms)
{
    struct BMI_unexpected_info info[UNEXPECTED_BATCH];
    int count = 0;
    int result = BMI_testunexpected(UNEXPECTED_BATCH, &count, info, 0);

    if (result < 0)
        return -bmi_error_to_errno(result);
    for (int i = 0; i < count; i++)
        if (info[i].error_code == 0)
            request_arrived(server, &info[i]);
    result = net_poll(server->context, count ? 0 : idle_ms < TICK_MS ? idle_ms : TICK_MS);
    tick(server);
    return result < 0 ? result : 0;
}

void server_drain(struct server *server)
{
    pthread_mutex_lock(&server->lock);
    server->draining = true;
    pthread_mutex_unlock(&server->lock);
}

void server_abort(struct server *server)
{
    pthread_mutex_lock(&server->lock);
    server->draining = true;
    for (struct peer *peer = server->peers; peer; peer = peer->next)
        for (struct transfer *t = peer->transfers; t; t = t->next)
            transfer_close(t, NULL, ESHUTDOWN);
    pthread_mutex_unlock(&server->lock);
}

bool server_is_idle(struct server *server)
{
    bool idle;

    pthread_mutex_lock(&server->lock);
    idle = server->requests == NULL;
    for (struct peer *peer = server->peers; peer; peer = peer->next)
        idle &= peer->transfers == NULL;
    pthread_mutex_unlock(&server->lock);
    return idle;
}

static void report_counters(const struct server_counters *c)
{
    char line[512];
    size_t at = 0;

#define SERVER_COUNTER(name, text)                                                             \
    at += (size_t)snprintf(line + at, sizeof line - at, "%s%s %llu", at ? ", " : "", text,     \
                           (unsigned long long)c->name);
    SERVER_COUNTERS(SERVER_COUNTER)
#undef SERVER_COUNTER
    log_line(LOG_ERRORS, "total: %s", line);
}

static void report_engine_line(void *arg, const char *line)
{
    (void)arg;
    log_line(LOG_ERRORS, "link %s", line);
}

/* Logs the state of the engine: links, and counters that are not zero. */
static void report_engine(struct server *server)
{
    struct rme *rme = NULL;
    struct rme_counter counter;

    if (BMI_get_info(server->self, SHIM_GET_ENGINE, &rme) < 0 || rme == NULL)
        return;
    rme_print_peers(rme, report_engine_line, NULL);
    for (int i = 0; rme_counter_get(rme, i, &counter) == 0; i++)
        if (counter.value)
            log_line(LOG_ERRORS, "counter %s %llu %s: %s", counter.name,
                     (unsigned long long)counter.value, counter.unit, counter.text);
}

struct server_counters server_counters(const struct server *server)
{
    struct server_counters c = server->counters;

    for (const struct peer *peer = server->peers; peer; peer = peer->next)
        for (const struct transfer *t = peer->transfers; t; t = t->next)
            if (t->flow != NULL)
                *(t->upload ? &c.bytes_in : &c.bytes_out) += flow_status(t->flow).bytes;
    return c;
}

void server_report(struct server *server)
{
    struct server_counters total;
    int peers = 0;

    report_engine(server);
    pthread_mutex_lock(&server->lock);
    total = server_counters(server);
    for (struct peer *peer = server->peers; peer; peer = peer->next, peers++)
        log_line(LOG_ERRORS, "peer %s: %u transfers open", peer->name, peer->transfer_count);
    log_line(LOG_ERRORS,
             "total: %d peers, %u of %u transfers open, %llu bytes of requests, %d buffers of "
             "%zu bytes in use",
             peers, server->transfers, server->transfers_max,
             (unsigned long long)server->request_bytes, pool_in_use(server->pool),
             pool_buffer_size(server->pool));
    report_counters(&total);
    pthread_mutex_unlock(&server->lock);
}

/* ---- start and end ---- */

static void log_bmi(const char *line)
{
    log_line(LOG_DECISIONS, "%s", line);
}

static int open_network(struct server *server, const struct server_config *c)
{
    char text[1024];
    int error;

    net_log_begin(&server->log, NULL); /* a failure to start is one line, below */
    error = net_open(c->listen, c->options, &server->context);
    if (!error) {
        error = -bmi_error_to_errno(BMI_addr_lookup(&server->self, c->listen, NULL));
        if (error)
            net_close(server->context);
    }
    if (!error) {
        net_log_follow(&server->log, log_bmi);
    } else {
        net_log_explain(&server->log, error, text, sizeof text);
        net_log_end(&server->log);
        log_line(LOG_ERRORS, "cannot listen on %s: %s", c->listen, text);
    }
    return error;
}

static const char *store_remedy(int error, const char *place)
{
    if (strncmp(place, STORE_MEMORY, strlen(STORE_MEMORY)) == 0)
        return "close other programs";
    return error == -EMFILE || error == -ENFILE
               ? "raise the limit of open files (ulimit -n)"
               : "--store needs a folder that this user may write";
}

static int open_store(struct server *server, const struct server_config *c)
{
    int error = store_open(c->folder, c->sync, &server->store);

    if (error == -EWOULDBLOCK)
        log_line(LOG_ERRORS, "cannot use %s: another bmi-iod uses it; give each its own folder",
                 c->folder);
    else if (error == -ENOTEMPTY)
        log_line(
            LOG_ERRORS,
            "cannot use %s: the folder has files but is not a store; give an empty folder, or, "
            "if it is a store, make " STORE_LOCK_FILE " in it",
            c->folder);
    else if (error)
        log_line(LOG_ERRORS, "cannot use %s: %s; %s", c->folder, strerror(-error),
                 store_remedy(error, c->folder));
    return error;
}

static int open_workers(struct server *server)
{
    int error = workers_start(THREADS, &server->workers);

    if (error)
        log_line(LOG_ERRORS, "cannot start threads: %s; allow more processes (ulimit -u)",
                 strerror(-error));
    return error;
}

static int open_pool(struct server *server, const struct server_config *c)
{
    uint64_t buffers = c->memory / c->buffer_size;
    int error = pool_new(server->workers, server->self, c->buffer_size,
                         buffers > 1 ? (int)buffers : 1, true, &server->pool);

    if (error)
        log_line(LOG_ERRORS, "no memory; close other programs");
    return error;
}

/* Sets the admitted hosts without --allow: the local host, if the server listens on loopback
 * only. */
static int choose_allowed(struct server *server, const struct server_config *c)
{
    bool inside = true;
    char host[256];

    server->allow = c->allow;
    if (c->allow != NULL)
        return 0;
    server->loopback = access_loopback();
    if (server->loopback == NULL) {
        log_line(LOG_ERRORS, "no memory; close other programs");
        return -ENOMEM;
    }
    for (const char *at = c->listen; at; at = strchr(at, ',')) {
        at += *at == ',';
        inside &= access_host_of(at, host, sizeof host) &&
                  (access_admits(server->loopback, host) || strcmp(host, "localhost") == 0);
    }
    if (inside)
        server->allow = server->loopback;
    return 0;
}

/* Returns the limit on open objects: a quarter of the process's descriptors; connections need
 * most of the others. */
static uint32_t max_transfers(void)
{
    struct rlimit files = {.rlim_cur = 1024};
    uint64_t most;

    getrlimit(RLIMIT_NOFILE, &files);
    most = files.rlim_cur / 4;
    return most > TRANSFERS_MAX ? TRANSFERS_MAX : most < 2 ? 2 : (uint32_t)most;
}

int server_port(const struct server *server)
{
    int port = 0;

    (void)BMI_get_info(server->self, BMI_TCP_GET_PORT, &port);
    return port;
}

/* Frees the server, or the parts of it that were opened. */
static void server_free(struct server *server)
{
    if (server->pool != NULL)
        pool_free(server->pool);
    if (server->self != 0) {
        net_close(server->context);
        net_log_end(&server->log);
    }
    while (server->peers != NULL) {
        struct peer *peer = server->peers;

        server->peers = peer->next;
        free(peer);
    }
    if (server->store != NULL)
        store_close(server->store);
    access_free(server->loopback);
    pthread_mutex_destroy(&server->lock);
    free(server);
}

int server_open(const struct server_config *config, struct server **out)
{
    struct server *server = calloc(1, sizeof *server);
    int error;

    if (server == NULL) {
        log_line(LOG_ERRORS, "no memory; close other programs");
        return -ENOMEM;
    }
    server->config = *config;
    server->transfers_max = max_transfers();
    pthread_mutex_init(&server->lock, NULL);
    error = choose_allowed(server, config);
    if (!error)
        error = open_store(server, config);
    if (!error && config->metrics != NULL)
        error = server_export_check(config->metrics);
    if (!error)
        error = open_workers(server);
    if (!error)
        error = open_network(server, config);
    if (!error)
        error = open_pool(server, config);
    if (error) {
        if (server->workers != NULL)
            workers_stop(server->workers);
        server_free(server);
        return error;
    }
    if (server->allow == NULL)
        log_line(LOG_ERRORS,
                 "warning: no --allow given: any host that can reach %s has full access to all "
                 "objects",
                 config->listen);
    *out = server;
    return 0;
}

void server_close(struct server *server)
{
    bool idle = server_is_idle(server);

    workers_stop(server->workers);
    if (idle) {
        server_free(server);
        return;
    }
    /* memory of operations that did not end stays until the process ends */
    net_close(server->context);
    net_log_end(&server->log);
}

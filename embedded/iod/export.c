/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The file of metrics: what node_exporter's textfile collector hands to Prometheus.
 *
 * The clock asks for it now and then; a worker writes it, as a disk may block.  It is written
 * beside its place and takes that when it is whole: nobody reads a half, and one that cannot be
 * written leaves the one before, whose age tells.  What is beside the place has a name that is
 * drawn each time, so two servers that were told the same file do not write into one another's:
 * the last one has it, whole.  What a server that was killed has left there is nobody's, and no
 * collector reads it.
 */
#include "config.h"
#include "embedded/iod/server_impl.h"
#include "embedded/iod/clock.h"
#include "embedded/metrics/metrics.h"
#include "patches/orangefs/shim/shim-engine.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <unistd.h>

static void gauge(FILE *out, const char *name, const char *help, uint64_t value)
{
    metrics_head(out, name, "gauge", help);
    fprintf(out, "%s %llu\n", name, (unsigned long long)value);
}

static void put_server(FILE *out, struct server *server)
{
    struct server_counters total;
    unsigned peers = 0, transfers;

    pthread_mutex_lock(&server->lock);
    total = server->counters;
    transfers = server->transfers;
    for (struct peer *peer = server->peers; peer; peer = peer->next, peers++)
        peer_count_under_way(peer, &total);
    pthread_mutex_unlock(&server->lock);
#define SERVER_COUNTER(name, text)                                                             \
    metrics_head(out, "iod_" #name "_total", "counter", text);                                 \
    fprintf(out, "iod_" #name "_total %llu\n", (unsigned long long)total.name);
    SERVER_COUNTERS(SERVER_COUNTER)
#undef SERVER_COUNTER
    gauge(out, "iod_peers", "clients that are connected", peers);
    gauge(out, "iod_transfers", "objects that clients have open", transfers);
    gauge(out, "iod_buffers", "data buffers in use", (uint64_t)pool_in_use(server->pool));
}

/* All that there is to say; the caller frees it.  NULL: no memory. */
static char *make_text(struct server *server, size_t *length)
{
    struct rme *rme = NULL;
    char network[32], *text = NULL;
    FILE *out = open_memstream(&text, length);

    if (!out)
        return NULL;
    snprintf(network, sizeof network, "%.*s", (int)strcspn(server->config.listen, ":"),
             server->config.listen);
    put_server(out, server);
    if (BMI_get_info(server->self, SHIM_GET_ENGINE, &rme) >= 0 && rme)
        metrics_engine(out, rme, network);
    bool bad = ferror(out);
    if (fclose(out) || bad) {
        free(text);
        return NULL;
    }
    return text;
}

/* 0 or -errno; what it has made is gone then. */
static int write_file(const char *name, const char *text, size_t length)
{
    FILE *out = fopen(name, "wxe");
    int error = 0;

    if (!out)
        return -errno;
    if (fwrite(text, 1, length, out) < length || fflush(out))
        error = -errno;
    if (fclose(out) && !error)
        error = -errno;
    if (error)
        unlink(name);
    return error;
}

/* 0 or -errno. */
static int export_to(struct server *server, const char *place)
{
    char beside[PATH_MAX], *text;
    size_t length = 0;
    uint64_t name;
    int error;

    if (getrandom(&name, sizeof name, 0) != (ssize_t)sizeof name)
        return -errno;
    if (snprintf(beside, sizeof beside, "%s.%016" PRIx64, place, name) >= (int)sizeof beside)
        return -ENAMETOOLONG;
    text = make_text(server, &length);
    error = text ? write_file(beside, text, length) : -ENOMEM;
    free(text);
    if (!error && rename(beside, place)) {
        error = -errno;
        unlink(beside);
    }
    return error;
}

static void work_export(struct job *job)
{
    struct exporter *export = (struct exporter *)job;
    struct server *server = export->server;
    int error = export_to(server, server->config.metrics);

    if (error != export->error)
        log_line(LOG_ERRORS, "%s: %s", server->config.metrics,
                 error ? strerror(-error) : "can be written again");
    export->error = error;
    atomic_store(&export->busy, false);
}

void server_export(struct server *server)
{
    struct exporter *export = &server->export;

    export->at = clock_ms();
    if (!server->config.metrics || atomic_exchange(&export->busy, true))
        return;
    export->server = server;
    export->job.run = work_export;
    workers_add(server->workers, &export->job);
}

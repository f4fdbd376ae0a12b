/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * export.c - the metrics file, which node_exporter's textfile collector passes to Prometheus.
 *
 * The server's tick requests the file periodically; a worker writes it, because a disk may
 * block.  The file is written under a temporary name and renamed, so readers never see a part,
 * and a failure leaves the previous file with its age.  Temporary names are random, so two
 * servers with the same file do not write into the same temporary file; the last rename wins.
 * Temporary files of a killed server remain and are ignored by collectors.
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
#include <sys/stat.h>
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
    total = server_counters(server);
    transfers = server->transfers;
    for (struct peer *peer = server->peers; peer; peer = peer->next)
        peers++;
    pthread_mutex_unlock(&server->lock);
#define SERVER_COUNTER(name, text)                                                             \
    metrics_head(out, "iod_" #name "_total", "counter", text);                                 \
    fprintf(out, "iod_" #name "_total %llu\n", (unsigned long long)total.name);
    SERVER_COUNTERS(SERVER_COUNTER)
#undef SERVER_COUNTER
    gauge(out, "iod_peers", "connected clients", peers);
    gauge(out, "iod_transfers", "objects opened by clients", transfers);
    gauge(out, "iod_buffers", "data buffers in use", (uint64_t)pool_in_use(server->pool));
}

/* Formats all metrics; the caller frees the text.  NULL: no memory. */
static char *make_text(struct server *server, size_t *length)
{
    struct rme *rme = NULL;
    char network[32], *text = NULL;
    FILE *out = open_memstream(&text, length);

    if (out == NULL)
        return NULL;
    snprintf(network, sizeof network, "%.*s", (int)strcspn(server->config.listen, ":"),
             server->config.listen);
    put_server(out, server);
    if (BMI_get_info(server->self, SHIM_GET_ENGINE, &rme) >= 0 && rme != NULL)
        metrics_engine(out, rme, network);
    bool bad = ferror(out);
    if (fclose(out) || bad) {
        free(text);
        return NULL;
    }
    return text;
}

/* Creates a file with the text.  Returns 0, or -errno with the file removed. */
static int write_file(const char *name, const char *text, size_t length)
{
    FILE *out = fopen(name, "wxe");
    int error = 0;

    if (out == NULL)
        return -errno;
    if (fwrite(text, 1, length, out) < length || fflush(out))
        error = -errno;
    if (fclose(out) && !error)
        error = -errno;
    if (error)
        unlink(name);
    return error;
}

/* Makes a random temporary name beside `place`.  Returns 0 or -errno. */
static int draw_name(const char *place, char *beside, size_t size)
{
    uint64_t name;

    if (getrandom(&name, sizeof name, 0) != (ssize_t)sizeof name)
        return -errno;
    if (snprintf(beside, size, "%s.%016" PRIx64, place, name) >= (int)size)
        return -ENAMETOOLONG;
    return 0;
}

/* Writes and renames the file.  Returns 0 or -errno. */
static int export_to(struct server *server, const char *place)
{
    char beside[PATH_MAX], *text;
    size_t length = 0;
    int error = draw_name(place, beside, sizeof beside);

    if (error)
        return error;
    text = make_text(server, &length);
    error = text != NULL ? write_file(beside, text, length) : -ENOMEM;
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

    if (error && error != export->error)
        log_line(LOG_ERRORS,
                 "%s: cannot be written: %s; make room there, or give the server's user write "
                 "permission",
                 server->config.metrics, strerror(-error));
    else if (error != export->error)
        log_line(LOG_ERRORS, "%s: can be written again", server->config.metrics);
    export->error = error;
    atomic_store(&export->busy, false);
}

/* Returns a description of the store that contains `place`; NULL: none, or unknown. */
static const char *whose(const char *place, const char *store)
{
    const char *slash = strrchr(place, '/');
    struct stat parent, st;
    char path[PATH_MAX];

    if (slash == NULL)
        snprintf(path, sizeof path, ".");
    else if (snprintf(path, sizeof path, "%.*s", (int)(slash - place) + 1, place) >=
             (int)sizeof path)
        return NULL;
    if (stat(path, &parent) == 0 && stat(store, &st) == 0 && parent.st_dev == st.st_dev &&
        parent.st_ino == st.st_ino)
        return "the store";
    return store_is(path) ? "the store of another bmi-iod" : NULL;
}

int server_export_check(const char *place, const char *store)
{
    const char *folder = whose(place, store);
    char beside[PATH_MAX];
    struct stat st;
    int error;

    if (!*place) {
        log_line(LOG_ERRORS, "--metrics: empty file name; give one like /tmp/iod.prom");
        return -EINVAL;
    }
    if (lstat(place, &st) == 0 && !S_ISREG(st.st_mode)) {
        log_line(LOG_ERRORS,
                 "--metrics: %s is not a regular file; give another "
                 "name",
                 place);
        return -EINVAL;
    }
    if (folder != NULL) {
        log_line(LOG_ERRORS,
                 "--metrics: %s is in %s, where an object may have that name; give a file in "
                 "another folder",
                 place, folder);
        return -EINVAL;
    }
    error = draw_name(place, beside, sizeof beside);
    if (!error)
        error = write_file(beside, "", 0);
    if (!error)
        unlink(beside);
    if (!error || error == -ENOSPC || error == -EDQUOT) /* there may be room later */
        return 0;
    log_line(LOG_ERRORS,
             "--metrics: cannot write %s: %s; give a file in a folder that this user may write",
             place, strerror(-error));
    return error;
}

void server_export(struct server *server)
{
    struct exporter *export = &server->export;

    export->at = clock_ms();
    if (server->config.metrics == NULL || atomic_exchange(&export->busy, true))
        return;
    export->server = server;
    export->job.run = work_export;
    workers_add(server->workers, &export->job);
}

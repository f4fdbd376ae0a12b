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
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

/* Creates a file beside `place` with a random name.  Returns the descriptor or -errno. */
static int create_beside(const char *place, char *beside, size_t size)
{
    int fd;

    if (snprintf(beside, size, "%s.XXXXXX", place) >= (int)size)
        return -ENAMETOOLONG;
    fd = mkostemp(beside, O_CLOEXEC);
    return fd >= 0 ? fd : -errno;
}

/* Writes and renames the file.  Returns 0 or -errno. */
static int export_to(struct server *server, const char *place)
{
    char beside[PATH_MAX], *text = NULL;
    int fd = create_beside(place, beside, sizeof beside), error = 0;
    size_t length = 0;

    if (fd < 0)
        return fd;
    text = make_text(server, &length);
    if (text == NULL)
        error = -ENOMEM;
    for (size_t at = 0; !error && at < length;) {
        ssize_t n = write(fd, text + at, length - at);

        error = n < 0 ? -errno : 0;
        at += error ? 0 : (size_t)n;
    }
    free(text);
    if (!error && fchmod(fd, 0644) < 0)
        error = -errno;
    if (close(fd) < 0 && !error)
        error = -errno;
    if (!error && rename(beside, place) < 0)
        error = -errno;
    if (error)
        unlink(beside);
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

/* Returns true if the file would be in the folder of a store, which an object may have. */
static bool is_in_store(const char *place)
{
    const char *slash = strrchr(place, '/');
    char folder[PATH_MAX];

    snprintf(folder, sizeof folder, "%.*s", slash != NULL ? (int)(slash - place) + 1 : 1,
             slash != NULL ? place : ".");
    return store_is(folder);
}

int server_export_check(const char *place)
{
    char beside[PATH_MAX];
    struct stat st;
    int fd;

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
    if (is_in_store(place)) {
        log_line(LOG_ERRORS,
                 "--metrics: %s is in a store, where an object may have that name; give a file "
                 "in another folder",
                 place);
        return -EINVAL;
    }
    fd = create_beside(place, beside, sizeof beside);
    if (fd >= 0) {
        close(fd);
        unlink(beside);
    }
    if (fd >= 0 || fd == -ENOSPC || fd == -EDQUOT) /* there may be room later */
        return 0;
    log_line(LOG_ERRORS,
             "--metrics: cannot write %s: %s; give a file in a folder that this user may write",
             place, strerror(-fd));
    return fd;
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

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Requests of 256 KiB to OrangeFS with the program's memory in PIECES, as far apart as they are
 * long: by default, and by each way that options can force, each time in another order.  Each
 * way has BUFFERS memories of its own, of which each request uses the next one.
 *
 *     orangefs_lists COUNT PIECES BUFFERS AUTO WRITE READ
 *
 * The last three name a file of a server each, with `rndv` as the name says.  Prints a line for
 * each direction and way: the direction, the way's name, the fifth percentile and the median of
 * COUNT requests in us, how much of the bytes this process copied, and which part of the
 * messages was read and not written.  bench/run-orangefs-lists compiles the program against
 * the engine's source, an installed OrangeFS, and with -Wl,--wrap=rme_open.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pvfs2.h"
#include "transport/core.h"

#define BYTES (256 << 10)
#define WARM  5 /* minimum of requests of each way that are not counted */

static const struct {
    const char *name;
    enum rme_lists lists;
    enum rme_prefer prefer;
} ways[] = {
    {"default", RME_LISTS_AUTO, RME_PREFER_AUTO},
    {"list_mode=pack", RME_LISTS_PACK, RME_PREFER_AUTO},
    {"list_mode=group", RME_LISTS_GROUP, RME_PREFER_AUTO},
    {"list_mode=pack,rndv=write", RME_LISTS_PACK, RME_PREFER_WRITE},
    {"list_mode=group,rndv=write", RME_LISTS_GROUP, RME_PREFER_WRITE},
    {"list_mode=pack,rndv=read", RME_LISTS_PACK, RME_PREFER_READ},
    {"list_mode=group,rndv=read", RME_LISTS_GROUP, RME_PREFER_READ},
};
enum { WAYS = sizeof(ways) / sizeof(ways[0]), FILES = RME_PREFER_READ + 1 };

static struct rme *engine;

int __real_rme_open(const struct rme_config *config, struct rme **out);
int __wrap_rme_open(const struct rme_config *config, struct rme **out)
{
    int ret = __real_rme_open(config, out);

    if (ret == 0)
        engine = *out;
    return ret;
}

static void failed(const char *what, int code)
{
    char text[256];

    PVFS_strerror_r(code, text, sizeof(text));
    fprintf(stderr, "orangefs_lists: %s: %s\n", what, text);
    exit(1);
}

static uint64_t now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;

    return (x > y) - (x < y);
}

/* Durations and counters of one way. */
struct result {
    double *us;
    uint64_t copied, read, written;
};

static void count(struct result *result, int sign)
{
    result->copied += (uint64_t)sign * rme_counter_value(engine, "bytes_copied");
    result->read += (uint64_t)sign * (rme_counter_value(engine, "sends_rndv_read") +
                                      rme_counter_value(engine, "recvs_rndv_read"));
    result->written += (uint64_t)sign * (rme_counter_value(engine, "sends_rndv_write") +
                                         rme_counter_value(engine, "recvs_rndv_write"));
}

/* Shuffles the ways, because the order affects the result: each order is equally likely. */
static void shuffle(int order[WAYS])
{
    for (int i = 0; i < WAYS; i++) {
        int j = (int)(random() % (i + 1));

        order[i] = order[j];
        order[j] = i;
    }
}

static void request(PVFS_object_ref file, char *memory, PVFS_Request pieces,
                    PVFS_credential *credential, enum PVFS_io_type type)
{
    PVFS_sysresp_io response;
    int ret =
        PVFS_sys_io(file, PVFS_BYTE, 0, memory, pieces, credential, &response, type, NULL);

    if (ret < 0 || response.total_completed != BYTES)
        failed("PVFS_sys_io", ret < 0 ? ret : -PVFS_EIO);
}

static void print(const char *direction, const char *way, struct result *result, int n)
{
    uint64_t messages = result->read + result->written;

    qsort(result->us, (size_t)n, sizeof(*result->us), compare);
    printf("%s %s %.1f %.1f %.2f %.2f\n", direction, way, result->us[n / 20], result->us[n / 2],
           (double)result->copied / BYTES / n,
           messages != 0 ? (double)result->read / (double)messages : 0);
}

static PVFS_object_ref open_file(const char *name, PVFS_credential *credential)
{
    char path[PVFS_NAME_MAX];
    PVFS_sysresp_lookup found;
    PVFS_fs_id fs;
    int ret = PVFS_util_resolve(name, &fs, path, sizeof(path));

    memset(&found, 0, sizeof(found));
    if (ret >= 0)
        ret = PVFS_sys_lookup(fs, path, credential, &found, PVFS2_LOOKUP_LINK_FOLLOW, NULL);
    if (ret < 0)
        failed(name, ret);
    return found.ref;
}

int main(int argc, char **argv)
{
    int n = argc == 7 ? atoi(argv[1]) : 0, npiece = n > 0 ? atoi(argv[2]) : 0;
    int buffers = n > 0 ? atoi(argv[3]) : 0, ret, warm = buffers > WARM ? buffers : WARM;
    PVFS_object_ref file[FILES];
    PVFS_credential credential;
    PVFS_Request pieces;
    char **memory;

    if (n < 1 || npiece < 1 || BYTES % npiece != 0 || buffers < 1) {
        fprintf(stderr, "usage: orangefs_lists COUNT PIECES BUFFERS AUTO WRITE READ\n");
        return 2;
    }
    if ((ret = PVFS_util_init_defaults()) < 0)
        failed("PVFS_util_init_defaults", ret);
    if ((ret = PVFS_util_gen_credential_defaults(&credential)) < 0)
        failed("PVFS_util_gen_credential_defaults", ret);
    for (int i = 0; i < FILES; i++)
        file[i] = open_file(argv[4 + i], &credential);
    ret = npiece == 1 ? PVFS_Request_contiguous(BYTES, PVFS_BYTE, &pieces)
                      : PVFS_Request_hvector(npiece, BYTES / npiece, 2 * (BYTES / npiece),
                                             PVFS_BYTE, &pieces);
    if (ret < 0)
        failed("PVFS_Request", ret);
    memory = calloc((size_t)buffers * WAYS, sizeof(*memory));
    for (int i = 0; memory != NULL && i < buffers * WAYS; i++)
        if ((memory[i] = aligned_alloc(4096, 2 * BYTES)) != NULL)
            memset(memory[i], i + 1, 2 * BYTES);
        else
            failed("memory", -PVFS_ENOMEM);
    for (int reads = 0; reads < 2; reads++) {
        struct result result[WAYS];
        int order[WAYS];

        for (int w = 0; w < WAYS; w++)
            result[w] = (struct result){.us = calloc((size_t)n, sizeof(double))};
        for (int i = -warm; i < n; i++) {
            shuffle(order);
            for (int k = 0; k < WAYS; k++) {
                int w = order[k];
                uint64_t begin;

                engine->tuning.lists = ways[w].lists;
                engine->tuning.prefer = ways[w].prefer;
                /* the first request after one to another server finds the server asleep */
                for (int counted = 0; counted < 2; counted++) {
                    count(&result[w], i >= 0 && counted ? -1 : 0);
                    begin = now();
                    request(file[ways[w].prefer],
                            memory[w * buffers + (2 * (i + warm) + counted) % buffers], pieces,
                            &credential, reads ? PVFS_IO_READ : PVFS_IO_WRITE);
                    if (i >= 0 && counted)
                        result[w].us[i] = (double)(now() - begin) / 1000;
                    count(&result[w], i >= 0 && counted ? 1 : 0);
                }
            }
        }
        for (int w = 0; w < WAYS; w++)
            print(reads ? "read" : "write", ways[w].name, &result[w], n);
    }
    PVFS_sys_finalize();
    return 0;
}

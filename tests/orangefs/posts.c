/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Records the posts for data of a program that is linked with libpvfs2, and the engine's
 * counters. Linked into the program, with -Wl,--wrap= of the four functions below; POSTS names
 * the file that gets two kinds of lines when the network is closed:
 *
 *     posts send|receive own|memory PIECES BYTES: N messages, BYTES bytes, LEAST to MOST a
 *     piece, N of N pieces posted before
 *
 *     counter NAME VALUE
 *
 * "own": OrangeFS's buffer (BMI_PRE_ALLOC); "memory": the program's memory. PIECES and BYTES
 * are the upper bounds of a class.
 */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bmi/bmi.h"
#include "rme.h"

#define SEEN (1u << 20) /* distinguishable pieces */

static const int pieces_to[] = {1, 2, 4, 8, 16, 32, 63, 64};
static const int64_t bytes_to[] = {16 << 10, 64 << 10, (256 << 10) - 1, 256 << 10};
enum { PIECES = 8, BYTES = 4 };

static struct class
{
    uint64_t messages, pieces, bytes, least, most, before;
} classes[2][2][PIECES][BYTES];

static struct {
    const void *at;
    bmi_size_t length;
} * seen;

static bool was_seen(const void *at, bmi_size_t length)
{
    uint64_t i = ((uintptr_t)at * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)length) >> 20;

    if (seen == NULL && (seen = calloc(SEEN, sizeof(*seen))) == NULL)
        return false;
    for (uint32_t n = 0; n < SEEN; n++, i++) {
        if (seen[i % SEEN].at == at && seen[i % SEEN].length == length)
            return true;
        if (seen[i % SEEN].at == NULL)
            break;
    }
    seen[i % SEEN].at = at;
    seen[i % SEEN].length = length;
    return false;
}

static void note(bool sends, enum bmi_buffer_type type, const void *const *at,
                 const bmi_size_t *length, int count, bmi_size_t bytes)
{
    struct class *c;
    int p = 0, b = 0;

    while (p < PIECES - 1 && pieces_to[p] < count)
        p++;
    while (b < BYTES - 1 && bytes_to[b] < bytes)
        b++;
    c = &classes[sends][type == BMI_EXT_ALLOC][p][b];
    c->messages++;
    c->pieces += (uint64_t)count;
    c->bytes += (uint64_t)bytes;
    for (int i = 0; i < count; i++) {
        uint64_t n = (uint64_t)length[i];
        if (c->most == 0 || n < c->least)
            c->least = n;
        if (n > c->most)
            c->most = n;
        c->before += was_seen(at[i], length[i]);
    }
}

int __real_BMI_post_send_list(bmi_op_id_t *id, BMI_addr_t dest, const void *const *at,
                              const bmi_size_t *length, int count, bmi_size_t bytes,
                              enum bmi_buffer_type type, bmi_msg_tag_t tag, void *user,
                              bmi_context_id context, bmi_hint hints);
int __wrap_BMI_post_send_list(bmi_op_id_t *id, BMI_addr_t dest, const void *const *at,
                              const bmi_size_t *length, int count, bmi_size_t bytes,
                              enum bmi_buffer_type type, bmi_msg_tag_t tag, void *user,
                              bmi_context_id context, bmi_hint hints)
{
    note(true, type, at, length, count, bytes);
    return __real_BMI_post_send_list(id, dest, at, length, count, bytes, type, tag, user,
                                     context, hints);
}

int __real_BMI_post_recv_list(bmi_op_id_t *id, BMI_addr_t src, void *const *at,
                              const bmi_size_t *length, int count, bmi_size_t bytes,
                              bmi_size_t *actual, enum bmi_buffer_type type, bmi_msg_tag_t tag,
                              void *user, bmi_context_id context, bmi_hint hints);
int __wrap_BMI_post_recv_list(bmi_op_id_t *id, BMI_addr_t src, void *const *at,
                              const bmi_size_t *length, int count, bmi_size_t bytes,
                              bmi_size_t *actual, enum bmi_buffer_type type, bmi_msg_tag_t tag,
                              void *user, bmi_context_id context, bmi_hint hints)
{
    note(false, type, (const void *const *)at, length, count, bytes);
    return __real_BMI_post_recv_list(id, src, at, length, count, bytes, actual, type, tag, user,
                                     context, hints);
}

/* ---- the engine's counters ---- */

static struct rme *engine;

int __real_rme_open(const struct rme_config *config, struct rme **out);
int __wrap_rme_open(const struct rme_config *config, struct rme **out)
{
    int ret = __real_rme_open(config, out);

    engine = ret == 0 ? *out : NULL;
    return ret;
}

static void print(FILE *out)
{
    struct rme_counter counter;

    for (int i = 0; i < 2 * 2 * PIECES * BYTES; i++) {
        const struct class *c = &(&classes[0][0][0][0])[i];
        if (c->messages != 0)
            fprintf(out,
                    "posts %s %s %d %lld: %llu messages, %llu bytes, %llu to %llu a piece, "
                    "%llu of %llu pieces posted before\n",
                    i / (2 * PIECES * BYTES) ? "send" : "receive",
                    i / (PIECES * BYTES) % 2 ? "memory" : "own", pieces_to[i / BYTES % PIECES],
                    (long long)bytes_to[i % BYTES], (unsigned long long)c->messages,
                    (unsigned long long)c->bytes, (unsigned long long)c->least,
                    (unsigned long long)c->most, (unsigned long long)c->before,
                    (unsigned long long)c->pieces);
    }
    for (int i = 0; engine != NULL && rme_counter_get(engine, i, &counter) == 0; i++)
        if (counter.value != 0)
            fprintf(out, "counter %s %llu\n", counter.name, (unsigned long long)counter.value);
}

int __real_BMI_finalize(void);
int __wrap_BMI_finalize(void)
{
    const char *name = getenv("POSTS");
    FILE *out = name != NULL ? fopen(name, "w") : NULL;

    if (out != NULL) {
        print(out);
        fclose(out);
    }
    return __real_BMI_finalize();
}

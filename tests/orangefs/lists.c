/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Writes and reads a file of OrangeFS in pieces, by requests of five kinds on both sides, and
 * checks each byte of the pieces and around them.
 *
 *     lists FILE all|some SERVERS
 *
 * FILE exists, SERVERS is the number of its servers. The cases are fixed; "some" skips most of
 * them. Each runs alone, in blocking calls, and then together with its neighbours, AT_ONCE at a
 * time. Every result is a TAP line without a number.
 *
 * OrangeFS itself has two bugs over any network, which the cases avoid: more than 64 pieces of
 * memory sent with the request (the rest is not transferred), and memory in pieces for a
 * stretch of the file that touches two strips of one server (the second one gets bytes from a
 * wrong place, PINT_distribute).
 *
 * A case:
 *
 *  - the part of the file is filled, in one piece;
 *  - pieces of memory are written to pieces of the file; the memory is unchanged;
 *  - the part of the file is read in one piece: written data is in place, and bytes in between
 *    are unchanged;
 *  - the pieces of the file are read into the pieces of other memory: they are right, and bytes
 *    in between are unchanged.
 */
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pvfs2.h"

#define AT_ONCE     8
#define EDGE        200       /* least bytes before the first piece and behind the last */
#define LIST_MOST   90        /* limit of lengths and offsets in a request to a server: 100 */
#define STRIP       (1 << 16) /* OrangeFS's default */
#define PART        ((PVFS_offset)48 << 20) /* of the file, for each concurrent case */
#define SOME        31 /* one of this many cases: each pair of kinds, and nearly each size */
#define ROWS_UNUSED 2  /* of an array, before and behind the used part */

enum kind { CONTIGUOUS, VECTOR, INDEXED, HINDEXED, SUBARRAY, KINDS };
static const char *const kind_names[KINDS] = {"contiguous", "vector", "indexed", "hindexed",
                                              "subarray"};

/* `count` pieces of `size` bytes, or of that on average over two. */
struct shape {
    enum kind kind;
    int count;
    int size;
};

struct test {
    struct shape memory, file;
};

struct piece {
    PVFS_size at, length;
};

/* A shape laid out from byte 0 on: the pieces, and their extent with an edge. */
struct layout {
    struct piece *pieces;
    int count;
    PVFS_size reach;
};

static PVFS_credential credential;
static PVFS_object_ref file;
static int stretch; /* consecutive bytes of the file that touch no second strip of one server */

static void failed(const char *what, int code)
{
    fprintf(stderr, "lists: %s: %d\n", what, code);
    exit(1);
}

static void must(const char *what, int code)
{
    if (code < 0)
        failed(what, code);
}

static void *memory_of(size_t size)
{
    void *memory = malloc(size);

    if (memory == NULL)
        failed("malloc", 0);
    return memory;
}

/* Returns the byte at an offset; each case has its own contents. */
static unsigned char byte(PVFS_size at, int contents)
{
    uint64_t p = (uint64_t)at;

    return (unsigned char)(p ^ (p >> 8) * 31 ^ (p >> 16) * 131 ^ (unsigned)contents * 89);
}

static void fill(unsigned char *memory, PVFS_size size, int contents)
{
    for (PVFS_size at = 0; at < size; at++)
        memory[at] = byte(at, contents);
}

/* ---- shapes: the pieces, and the requests for them ---- */

static PVFS_size total(const struct shape *s)
{
    return (PVFS_size)s->count * s->size;
}

/* Returns the element size: eight bytes where possible. */
static int element(const struct shape *s)
{
    return s->size % 8 == 0 ? 8 : 1;
}

static PVFS_size gap(const struct shape *s)
{
    return s->size < 64 ? s->size : s->size % 8 == 0 ? 136 : 37;
}

/* Returns the difference of piece i: even ones are shorter and odd ones longer, in pairs. */
static PVFS_size longer(const struct shape *s, int i)
{
    PVFS_size by = s->size / element(s) / 4 * element(s);

    if (i == s->count - 1 && s->count % 2 == 1)
        return 0;
    return i % 2 == 0 ? -by : by;
}

/* Returns the number of planes of the array that subarrays are cut from. */
static int planes(const struct shape *s)
{
    return s->count % 4 == 0 ? 4 : 1;
}

static PVFS_size row(const struct shape *s)
{
    return s->size + gap(s);
}

static PVFS_size plane(const struct shape *s)
{
    return row(s) * (s->count / planes(s) + 2 * ROWS_UNUSED);
}

static PVFS_size subarray_start(const struct shape *s)
{
    return ROWS_UNUSED * row(s) + 16;
}

static struct piece piece_of(const struct shape *s, int i, PVFS_size end)
{
    switch (s->kind) {
    case VECTOR:
        return (struct piece){EDGE + i * (s->size + gap(s)), s->size};
    case INDEXED: /* some pieces are adjacent */
        return (struct piece){end + (i % 3 == 1 ? 0 : gap(s)) + (i == 0 ? EDGE : 0),
                              s->size + longer(s, i)};
    case HINDEXED: /* nothing is aligned */
        return (struct piece){end + gap(s) + 1 + i % 5 + (i == 0 ? EDGE : 0),
                              s->size + longer(s, i)};
    case SUBARRAY: {
        int rows = s->count / planes(s);
        return (struct piece){
            EDGE + subarray_start(s) + i / rows * plane(s) + i % rows * row(s), s->size};
    }
    default:
        return (struct piece){EDGE, total(s)};
    }
}

static struct layout lay_out(const struct shape *s)
{
    struct layout l = {.count = s->count};
    PVFS_size end = 0;

    l.pieces = memory_of(sizeof(*l.pieces) * (size_t)l.count);
    for (int i = 0; i < l.count; i++) {
        l.pieces[i] = piece_of(s, i, end);
        end = l.pieces[i].at + l.pieces[i].length;
    }
    l.reach = end + EDGE;
    return l;
}

/* Moves `inner` to byte `at` and frees the inner request. */
static PVFS_Request moved(PVFS_Request inner, PVFS_size at)
{
    PVFS_Request outer;
    int32_t one = 1;

    must("PVFS_Request_hindexed", PVFS_Request_hindexed(1, &one, &at, inner, &outer));
    must("PVFS_Request_free", PVFS_Request_free(&inner));
    return outer;
}

static PVFS_Request vector_request(const struct shape *s)
{
    PVFS_Request r;
    int of = element(s);

    must("PVFS_Request_vector",
         PVFS_Request_vector(s->count, s->size / of, (s->size + gap(s)) / of,
                             of == 8 ? PVFS_DOUBLE : PVFS_BYTE, &r));
    return moved(r, EDGE);
}

static PVFS_Request list_request(const struct shape *s, const struct layout *l)
{
    PVFS_Request r;
    int of = s->kind == INDEXED ? element(s) : 1;
    int32_t *lengths = memory_of(sizeof(*lengths) * (size_t)l->count);
    PVFS_size *places = memory_of(sizeof(*places) * (size_t)l->count);

    for (int i = 0; i < l->count; i++) {
        lengths[i] = (int32_t)(l->pieces[i].length / of);
        places[i] = l->pieces[i].at / of;
    }
    if (s->kind == INDEXED)
        must("PVFS_Request_indexed",
             PVFS_Request_indexed(l->count, lengths, places, of == 8 ? PVFS_DOUBLE : PVFS_BYTE,
                                  &r));
    else
        must("PVFS_Request_hindexed",
             PVFS_Request_hindexed(l->count, lengths, places, PVFS_BYTE, &r));
    free(lengths);
    free(places);
    return r;
}

static PVFS_Request subarray_request(const struct shape *s)
{
    PVFS_Request rows, all, whole;
    int n = planes(s);

    must("PVFS_Request_hvector",
         PVFS_Request_hvector(s->count / n, s->size, row(s), PVFS_BYTE, &rows));
    must("PVFS_Request_hvector", PVFS_Request_hvector(n, 1, plane(s), rows, &all));
    must("PVFS_Request_free", PVFS_Request_free(&rows));
    all = moved(all, subarray_start(s));
    must("PVFS_Request_resized", PVFS_Request_resized(all, 0, n * plane(s), &whole));
    must("PVFS_Request_free", PVFS_Request_free(&all));
    return moved(whole, EDGE);
}

static PVFS_Request contiguous_request(PVFS_size size)
{
    PVFS_Request r;

    must("PVFS_Request_contiguous", PVFS_Request_contiguous((int32_t)size, PVFS_BYTE, &r));
    return r;
}

static PVFS_Request request(const struct shape *s, const struct layout *l)
{
    if (s->count == 1)
        return contiguous_request(s->size);
    switch (s->kind) {
    case VECTOR:
        return vector_request(s);
    case INDEXED:
    case HINDEXED:
        return list_request(s, l);
    case SUBARRAY:
        return subarray_request(s);
    default:
        return contiguous_request(total(s));
    }
}

/* ---- a case ---- */

struct run {
    const struct test *test;
    int number;
    PVFS_offset base; /* of its part of the file */
    struct layout in_memory, in_file;
    unsigned char *memory;
    unsigned char *part; /* expected contents of the part, and buffer to read it */
    PVFS_Request memory_request, file_request;
    void *from; /* start of the request in memory */
    PVFS_sysresp_io response;
    PVFS_sys_op_id id;
    char why[200];
};

enum { OF_FILE, WRITTEN, READ_OVER, CONTENTS };

static int contents(const struct run *r, int which)
{
    return r->number * CONTENTS + which + 1;
}

static void wrong(struct run *r, const char *what, PVFS_size at, int is, int expected)
{
    if (r->why[0] == '\0')
        snprintf(r->why, sizeof(r->why), "%s: byte %lld is %d, expected %d", what,
                 (long long)at, is, expected);
}

static void ended(struct run *r, const char *what, int code, PVFS_size size)
{
    if (r->why[0] != '\0')
        return;
    if (code < 0)
        snprintf(r->why, sizeof(r->why), "%s: error %d", what, code);
    else if (r->response.total_completed != size)
        snprintf(r->why, sizeof(r->why), "%s: %lld bytes of %lld", what,
                 (long long)r->response.total_completed, (long long)size);
}

/* Transfers the part of the file in one piece. */
static void whole_part(struct run *r, const char *what, enum PVFS_io_type type)
{
    PVFS_size size = r->in_file.reach;
    PVFS_Request all = contiguous_request(size);

    ended(r, what,
          PVFS_sys_io(file, PVFS_BYTE, r->base, r->part, all, &credential, &r->response, type,
                      NULL),
          size);
    PVFS_Request_free(&all);
}

static void begin(struct run *r, const struct test *test, int number, PVFS_offset base)
{
    memset(r, 0, sizeof(*r));
    r->test = test;
    r->number = number;
    r->base = base;
    r->in_memory = lay_out(&test->memory);
    r->in_file = lay_out(&test->file);
    r->memory_request = request(&test->memory, &r->in_memory);
    r->file_request = moved(request(&test->file, &r->in_file),
                            base + (test->file.count > 1 ? 0 : r->in_file.pieces[0].at));
    r->memory = memory_of((size_t)r->in_memory.reach);
    r->from = r->memory + (test->memory.count > 1 ? 0 : r->in_memory.pieces[0].at);
    r->part = memory_of((size_t)r->in_file.reach);
    fill(r->part, r->in_file.reach, contents(r, OF_FILE));
    whole_part(r, "filling the file", PVFS_IO_WRITE);
}

static void end(struct run *r)
{
    free(r->in_memory.pieces);
    free(r->in_file.pieces);
    PVFS_Request_free(&r->memory_request);
    PVFS_Request_free(&r->file_request);
    free(r->memory);
    free(r->part);
}

/* Transfers n cases together or, for one, by a blocking call. */
static void transfer(struct run *runs, int n, const char *what, enum PVFS_io_type type)
{
    for (int i = 0; i < n; i++) {
        struct run *r = &runs[i];
        if (n == 1)
            ended(r, what,
                  PVFS_sys_io(file, r->file_request, 0, r->from, r->memory_request, &credential,
                              &r->response, type, NULL),
                  total(&r->test->memory));
        else
            must("PVFS_isys_io",
                 PVFS_isys_io(file, r->file_request, 0, r->from, r->memory_request, &credential,
                              &r->response, type, &r->id, NULL, NULL));
    }
    for (int i = 0; n > 1 && i < n; i++) {
        int error = 0, code = PVFS_sys_wait(runs[i].id, "io", &error);
        ended(&runs[i], what, code < 0 ? code : error, total(&runs[i].test->memory));
    }
}

static void check_memory(struct run *r, const char *what, int which)
{
    for (PVFS_size at = 0; at < r->in_memory.reach; at++)
        if (r->memory[at] != byte(at, contents(r, which)))
            wrong(r, what, at, r->memory[at], byte(at, contents(r, which)));
}

/* Checks that consecutive bytes of the memory's pieces are in the pieces of the file. */
static void check_part(struct run *r)
{
    struct layout *m = &r->in_memory, *f = &r->in_file;
    PVFS_size at = 0, of_piece = 0;
    int piece = 0;

    for (int i = 0; i < f->count; i++) {
        for (; at < f->pieces[i].at; at++)
            if (r->part[at] != byte(at, contents(r, OF_FILE)))
                wrong(r, "the file outside the pieces", at, r->part[at],
                      byte(at, contents(r, OF_FILE)));
        for (PVFS_size k = 0; k < f->pieces[i].length; k++, at++) {
            unsigned char expected = byte(m->pieces[piece].at + of_piece, contents(r, WRITTEN));
            if (r->part[at] != expected)
                wrong(r, "a piece of the file", at, r->part[at], expected);
            if (++of_piece == m->pieces[piece].length) {
                piece++;
                of_piece = 0;
            }
        }
    }
    for (; at < f->reach; at++)
        if (r->part[at] != byte(at, contents(r, OF_FILE)))
            wrong(r, "the file behind the pieces", at, r->part[at],
                  byte(at, contents(r, OF_FILE)));
}

/* Checks that memory has the data written from the same places, and is unchanged in between. */
static void check_pieces(struct run *r)
{
    PVFS_size at = 0;

    for (int i = 0; i < r->in_memory.count; i++) {
        const struct piece *p = &r->in_memory.pieces[i];
        for (; at < p->at + p->length; at++) {
            int which = at < p->at ? READ_OVER : WRITTEN;
            if (r->memory[at] != byte(at, contents(r, which)))
                wrong(r, at < p->at ? "memory outside the pieces" : "a piece of memory", at,
                      r->memory[at], byte(at, contents(r, which)));
        }
    }
    for (; at < r->in_memory.reach; at++)
        if (r->memory[at] != byte(at, contents(r, READ_OVER)))
            wrong(r, "memory behind the pieces", at, r->memory[at],
                  byte(at, contents(r, READ_OVER)));
}

static void report(const struct run *r, bool alone)
{
    const struct shape *m = &r->test->memory, *f = &r->test->file;

    printf("%s%d of %d in %s memory, %d of %d in %s file, %s\n",
           r->why[0] ? "not ok - " : "ok - ", m->count, m->size, kind_names[m->kind], f->count,
           f->size, kind_names[f->kind], alone ? "blocking" : "several at once");
    if (r->why[0])
        printf("# %s\n", r->why);
}

static void run_cases(const struct test *tests, int n, int number)
{
    static struct run runs[AT_ONCE];

    for (int i = 0; i < n; i++) {
        /* neither at the beginning of a strip nor aligned */
        begin(&runs[i], &tests[i], number + i, i * PART + 4321);
        fill(runs[i].memory, runs[i].in_memory.reach, contents(&runs[i], WRITTEN));
    }
    transfer(runs, n, "writing", PVFS_IO_WRITE);
    for (int i = 0; i < n; i++) {
        check_memory(&runs[i], "memory after a write", WRITTEN);
        memset(runs[i].part, 0, (size_t)runs[i].in_file.reach);
        whole_part(&runs[i], "reading the file", PVFS_IO_READ);
        check_part(&runs[i]);
        fill(runs[i].memory, runs[i].in_memory.reach, contents(&runs[i], READ_OVER));
    }
    transfer(runs, n, "reading", PVFS_IO_READ);
    for (int i = 0; i < n; i++) {
        check_pieces(&runs[i]);
        report(&runs[i], n == 1);
        end(&runs[i]);
    }
    fflush(stdout);
}

/* ---- the cases ---- */

static const struct {
    int count, size;
} sizes[] = {
    /* sent with the request, or in one message */
    {1, 8},
    {2, 8},
    {16, 8},
    {31, 8},
    {30, 64},
    {1, 4096},
    {16, 256},
    {30, 77},
    {4096, 8},
    {4096, 16},
    {512, 64},
    {300, 100},
    {4096, 64},
    {1000, 1000},
    /* around the size of a buffer of OrangeFS's flow: 256 KiB in 64 pieces */
    {1, 65536},
    {2, 65536},
    {4, 65536},
    {5, 65536},
    {3, 50001},
    {16, 16384},
    {31, 8192},
    {63, 4096},
    {64, 4096},
    {65, 4096},
    {64, 4095},
    {63, 4161},
    {256, 4096},
    {512, 2048},
    {4096, 512},
    {60, 16384},
    {16, 65536},
    {84, 12345},
    {100, 20000},
};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

/* Lists of lengths are limited in requests to a server: makes fewer pieces, which are
 * larger. */
static void join(struct shape *s)
{
    int by = (s->count + LIST_MOST - 1) / LIST_MOST;

    while (s->count % by != 0)
        by++;
    s->count /= by;
    s->size *= by;
}

static void join_all(struct shape *s)
{
    s->size *= s->count;
    s->count = 1;
}

static struct test test_of(int size, int kinds)
{
    struct shape s = {.count = sizes[size].count, .size = sizes[size].size};
    struct test t = {s, s};

    t.memory.kind = (enum kind)(kinds / KINDS);
    t.file.kind = (enum kind)(kinds % KINDS);
    if (t.file.kind == INDEXED || t.file.kind == HINDEXED)
        join(&t.file);
    if (t.memory.kind == CONTIGUOUS)
        join_all(&t.memory);
    if (t.file.kind == CONTIGUOUS && t.memory.count > 1 && total(&t.memory) > stretch)
        t.file.count = t.memory.count = stretch / t.memory.size;
    if (t.file.kind == CONTIGUOUS)
        join_all(&t.file);
    return t;
}

int main(int argc, char **argv)
{
    static struct test tests[SIZES * KINDS * KINDS];
    char path[PVFS_NAME_MAX] = "";
    PVFS_fs_id fs;
    PVFS_sysresp_lookup found;
    int n = 0, step;

    if (argc != 4 || (strcmp(argv[2], "all") != 0 && strcmp(argv[2], "some") != 0))
        failed("usage: lists FILE all|some SERVERS", 0);
    stretch = atoi(argv[3]) > 1 ? (atoi(argv[3]) - 1) * STRIP : INT_MAX;
    must("PVFS_util_init_defaults", PVFS_util_init_defaults());
    must("PVFS_util_resolve", PVFS_util_resolve(argv[1], &fs, path, sizeof(path)));
    must("PVFS_util_gen_credential_defaults", PVFS_util_gen_credential_defaults(&credential));
    must("PVFS_sys_lookup",
         PVFS_sys_lookup(fs, path, &credential, &found, PVFS2_LOOKUP_LINK_FOLLOW, NULL));
    file = found.ref;

    step = argv[2][0] == 'a' ? 1 : SOME;
    for (int i = 0; i < SIZES * KINDS * KINDS; i += step)
        tests[n++] = test_of(i % SIZES, i % (KINDS * KINDS));
    for (int i = 0; i < n; i++)
        run_cases(&tests[i], 1, i);
    for (int i = 0; i + 1 < n; i += AT_ONCE)
        run_cases(&tests[i], n - i < AT_ONCE ? n - i : AT_ONCE, i);
    PVFS_sys_finalize();
    return 0;
}

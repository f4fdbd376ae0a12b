/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Transfers of a file of OrangeFS, which exists, and checks of each byte.
 *
 *     io FILE lists all|some SERVERS     pieces of memory to and from pieces of the file
 *     io FILE writes SIZE COUNT AT_ONCE  writes, a number of them under way
 *     io FILE blocks COPY                a read for each line of standard input
 *
 * lists: SERVERS is the number of the file's servers; "some" skips most cases. Each case runs
 * alone, in blocking calls, and together with its neighbours. A result is a TAP line without a
 * number. A part of the file is filled in one piece, pieces of memory are written over pieces
 * of the file, the part is read in one piece, and the pieces are read into other memory.
 * OrangeFS itself has two bugs over any network, which the cases avoid: more than 64 pieces of
 * memory sent with the request (the rest is not transferred), and memory in pieces for a
 * stretch of the file that touches two strips of one server (the second one gets bytes from a
 * wrong place, PINT_distribute).
 *
 * blocks: for the line "tiles" the first half of each of 64 strips, of which each of four
 * servers sends two full buffers of a flow; for other lines the next block.
 */
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pvfs2.h"

#define AT_ONCE   8
#define MOST      64        /* writes under way */
#define EDGE      200       /* least bytes before the first piece and behind the last */
#define LIST_MOST 90        /* limit of lengths and offsets in a request to a server: 100 */
#define STRIP     (1 << 16) /* OrangeFS's default */
#define PART      ((PVFS_offset)48 << 20) /* of the file, for each concurrent case */
#define SOME      10                      /* one of this many cases, with nearly each size */
#define BLOCK     262144

static PVFS_credential credential;
static PVFS_object_ref file;

static void failed(const char *what, int code)
{
    fprintf(stderr, "io: %s: %d\n", what, code);
    exit(1);
}

static void must(const char *what, int code)
{
    if (code < 0)
        failed(what, code);
}

static void *memory_of(PVFS_size size)
{
    void *memory = malloc((size_t)size);

    if (memory == NULL)
        failed("malloc", 0);
    return memory;
}

/* Fills memory with contents of their own for each number. */
static void fill(unsigned char *memory, PVFS_size size, int number)
{
    uint64_t word = (uint64_t)number * UINT64_C(0x9e3779b97f4a7c15) + 1;

    for (PVFS_size at = 0; at < size; at++) {
        if (at % 8 == 0)
            word = word * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        memory[at] = (unsigned char)(word >> (at % 8 * 8));
    }
}

static PVFS_Request contiguous(PVFS_size size)
{
    PVFS_Request r;

    must("PVFS_Request_contiguous", PVFS_Request_contiguous((int32_t)size, PVFS_BYTE, &r));
    return r;
}

static PVFS_Request vector(int count, int size, PVFS_size stride)
{
    PVFS_Request r;

    must("PVFS_Request_vector", PVFS_Request_vector(count, size, stride, PVFS_BYTE, &r));
    return r;
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

/* A transfer.  The system interface keeps pointers to its fields. */
struct transfer {
    void *memory;
    PVFS_Request memory_request, file_request;
    PVFS_size size;
    PVFS_sysresp_io response;
    PVFS_sys_op_id id;
};

static void start(struct transfer *t, enum PVFS_io_type type)
{
    must("PVFS_isys_io", PVFS_isys_io(file, t->file_request, 0, t->memory, t->memory_request,
                                      &credential, &t->response, type, &t->id, NULL, NULL));
}

/* Returns 0, an error, or 1 after a short transfer. */
static int finish(struct transfer *t)
{
    int error = 0, code = PVFS_sys_wait(t->id, "io", &error);

    if (code < 0 || error < 0)
        return code < 0 ? code : error;
    return t->response.total_completed != t->size;
}

static int in_one_call(struct transfer *t, enum PVFS_io_type type)
{
    int code = PVFS_sys_io(file, t->file_request, 0, t->memory, t->memory_request, &credential,
                           &t->response, type, NULL);

    return code != 0 ? code : t->response.total_completed != t->size;
}

static void free_requests(struct transfer *t)
{
    PVFS_Request_free(&t->memory_request);
    PVFS_Request_free(&t->file_request);
}

static struct transfer one_piece(void *memory, PVFS_size at, PVFS_size size)
{
    return (struct transfer){.memory = memory,
                             .memory_request = contiguous(size),
                             .file_request = moved(contiguous(size), at),
                             .size = size};
}

/* ---- lists ---- */

enum kind { CONTIGUOUS, VECTOR, HINDEXED, KINDS };
static const char *const kind_names[KINDS] = {"contiguous", "vector", "hindexed"};

/* `count` pieces of `size` bytes, or of that on average over two. */
struct shape {
    enum kind kind;
    int count, size;
};

struct test {
    struct shape memory, file;
};

/* A shape laid out from byte 0 on: the pieces, and their extent with an edge. */
struct layout {
    PVFS_size *at;
    int32_t *length;
    int count;
    PVFS_size reach;
};

static PVFS_size total(const struct shape *s)
{
    return (PVFS_size)s->count * s->size;
}

static int gap(const struct shape *s)
{
    return s->size < 64 ? s->size : s->size % 8 == 0 ? 136 : 37;
}

/* Lays out pieces; those of a list differ in length, in pairs, and some are adjacent. */
static struct layout lay_out(const struct shape *s)
{
    struct layout l = {.at = memory_of(s->count * (PVFS_size)sizeof(*l.at)),
                       .length = memory_of(s->count * (PVFS_size)sizeof(*l.length)),
                       .count = s->count,
                       .reach = EDGE};

    for (int i = 0; i < l.count; i++) {
        bool pair = s->kind == HINDEXED && (i % 2 == 1 || i + 1 < s->count);
        l.at[i] = l.reach;
        l.length[i] = s->size + (pair ? i % 2 == 0 ? -s->size / 4 : s->size / 4 : 0);
        l.reach += l.length[i];
        if (s->kind != HINDEXED || i % 3 != 0)
            l.reach += gap(s) + (s->kind == HINDEXED ? 1 + i % 5 : 0);
    }
    l.reach += EDGE;
    return l;
}

/* Returns the request for the pieces from the first one's place on. */
static PVFS_Request request(const struct shape *s, const struct layout *l)
{
    PVFS_size *from_first = memory_of(l->count * (PVFS_size)sizeof(*from_first));
    PVFS_Request r;

    if (l->count == 1) {
        r = contiguous(s->size);
    } else if (s->kind == VECTOR) {
        r = vector(s->count, s->size, s->size + gap(s));
    } else {
        for (int i = 0; i < l->count; i++)
            from_first[i] = l->at[i] - l->at[0];
        must("PVFS_Request_hindexed",
             PVFS_Request_hindexed(l->count, l->length, from_first, PVFS_BYTE, &r));
    }
    free(from_first);
    return r;
}

struct run {
    struct transfer t;
    const struct test *test;
    PVFS_offset base; /* of its part of the file */
    struct layout in_memory, in_file;
    unsigned char *memory, *part; /* expected contents */
    unsigned char *real_memory, *real_part;
    char why[200];
};

static void ended(struct run *r, const char *what, int code)
{
    if (r->why[0] == '\0' && code != 0)
        snprintf(r->why, sizeof(r->why), "%s: error %d, %lld bytes", what, code,
                 (long long)r->t.response.total_completed);
}

static void compare(struct run *r, const char *what, const unsigned char *real,
                    const unsigned char *expected, PVFS_size size)
{
    PVFS_size at = 0;

    while (at < size && real[at] == expected[at])
        at++;
    if (r->why[0] == '\0' && at < size)
        snprintf(r->why, sizeof(r->why), "%s: byte %lld is %d, expected %d", what,
                 (long long)at, real[at], expected[at]);
}

/* Copies the bytes of some pieces, in order, to others. */
static void move_pieces(unsigned char *to, const struct layout *there,
                        const unsigned char *from, const struct layout *here)
{
    int32_t got = 0;
    int piece = 0;

    for (int i = 0; i < there->count; i++)
        for (int32_t k = 0; k < there->length[i]; k++) {
            to[there->at[i] + k] = from[here->at[piece] + got];
            if (++got == here->length[piece]) {
                piece++;
                got = 0;
            }
        }
}

/* Transfers the part of the file in one piece. */
static void whole_part(struct run *r, const char *what, unsigned char *part,
                       enum PVFS_io_type type)
{
    struct transfer t = one_piece(part, r->base, r->in_file.reach);

    ended(r, what, in_one_call(&t, type));
    free_requests(&t);
}

static void begin(struct run *r, const struct test *test, int number, PVFS_offset base)
{
    *r = (struct run){.test = test, .base = base, .t.size = total(&test->memory)};
    r->in_memory = lay_out(&test->memory);
    r->in_file = lay_out(&test->file);
    r->memory = memory_of(r->in_memory.reach);
    r->real_memory = memory_of(r->in_memory.reach);
    r->part = memory_of(r->in_file.reach);
    r->real_part = memory_of(r->in_file.reach);
    r->t.memory = r->real_memory + r->in_memory.at[0];
    r->t.memory_request = request(&test->memory, &r->in_memory);
    r->t.file_request = moved(request(&test->file, &r->in_file), base + r->in_file.at[0]);
    fill(r->part, r->in_file.reach, number * 3);
    whole_part(r, "filling the file", r->part, PVFS_IO_WRITE);
    fill(r->memory, r->in_memory.reach, number * 3 + 1);
    memcpy(r->real_memory, r->memory, (size_t)r->in_memory.reach);
}

static void end(struct run *r)
{
    const struct shape *m = &r->test->memory, *f = &r->test->file;
    void *made[] = {r->in_memory.at, r->in_memory.length, r->in_file.at, r->in_file.length,
                    r->memory,       r->real_memory,      r->part,       r->real_part};

    printf("%d of %d in %s memory, %d of %d in %s file", m->count, m->size, kind_names[m->kind],
           f->count, f->size, kind_names[f->kind]);
    for (size_t i = 0; i < sizeof(made) / sizeof(made[0]); i++)
        free(made[i]);
    free_requests(&r->t);
}

/* Transfers n cases together or, for one, by a blocking call. */
static void transfer(struct run *runs, int n, const char *what, enum PVFS_io_type type)
{
    for (int i = 0; i < n; i++)
        if (n == 1)
            ended(runs, what, in_one_call(&runs->t, type));
        else
            start(&runs[i].t, type);
    for (int i = 0; n > 1 && i < n; i++)
        ended(&runs[i], what, finish(&runs[i].t));
}

static void check_written(struct run *r, int number)
{
    compare(r, "memory after a write", r->real_memory, r->memory, r->in_memory.reach);
    move_pieces(r->part, &r->in_file, r->memory, &r->in_memory);
    whole_part(r, "reading the file", r->real_part, PVFS_IO_READ);
    compare(r, "the file", r->real_part, r->part, r->in_file.reach);
    fill(r->memory, r->in_memory.reach, number * 3 + 2);
    memcpy(r->real_memory, r->memory, (size_t)r->in_memory.reach);
    move_pieces(r->memory, &r->in_memory, r->part, &r->in_file);
}

static void run_cases(const struct test *tests, int n, int number)
{
    static struct run runs[AT_ONCE];

    for (int i = 0; i < n; i++) /* neither at the beginning of a strip nor aligned */
        begin(&runs[i], &tests[i], number + i, i * PART + 4321);
    transfer(runs, n, "writing", PVFS_IO_WRITE);
    for (int i = 0; i < n; i++)
        check_written(&runs[i], number + i);
    transfer(runs, n, "reading", PVFS_IO_READ);
    for (int i = 0; i < n; i++) {
        struct run *r = &runs[i];
        compare(r, "memory after a read", r->real_memory, r->memory, r->in_memory.reach);
        fputs(r->why[0] ? "not ok - " : "ok - ", stdout);
        end(r);
        puts(n == 1 ? ", blocking" : ", several at once");
        if (r->why[0])
            printf("# %s\n", r->why);
    }
    fflush(stdout);
}

/* Sizes sent with the request or in one message, then around a buffer of OrangeFS's flow:
 * 256 KiB in 64 pieces. */
static const struct {
    int count, size;
} sizes[] = {{1, 8},      {2, 8},       {16, 8},     {31, 8},     {30, 64},    {1, 4096},
             {16, 256},   {30, 77},     {4096, 8},   {4096, 16},  {512, 64},   {300, 100},
             {4096, 64},  {1000, 1000}, {1, 65536},  {2, 65536},  {4, 65536},  {5, 65536},
             {3, 50001},  {16, 16384},  {31, 8192},  {63, 4096},  {64, 4096},  {65, 4096},
             {64, 4095},  {63, 4161},   {256, 4096}, {512, 2048}, {4096, 512}, {60, 16384},
             {16, 65536}, {84, 12345},  {100, 20000}};
enum { SIZES = sizeof(sizes) / sizeof(sizes[0]) };

/* Makes pieces `by` times as large, or more, so that their number is whole. */
static void join(struct shape *s, int by)
{
    while (s->count % by != 0)
        by++;
    s->count /= by;
    s->size *= by;
}

/* `stretch`: consecutive bytes of the file that touch no second strip of one server. */
static struct test test_of(int size, int kinds, int stretch)
{
    struct shape s = {.count = sizes[size].count, .size = sizes[size].size};
    struct test t = {s, s};

    t.memory.kind = (enum kind)(kinds / KINDS);
    t.file.kind = (enum kind)(kinds % KINDS);
    if (t.file.kind == HINDEXED) /* lists of lengths are limited in requests to a server */
        join(&t.file, (s.count + LIST_MOST - 1) / LIST_MOST);
    if (t.memory.kind == CONTIGUOUS)
        join(&t.memory, t.memory.count);
    if (t.file.kind == CONTIGUOUS && t.memory.count > 1 && total(&t.memory) > stretch)
        t.file.count = t.memory.count = stretch / t.memory.size;
    if (t.file.kind == CONTIGUOUS)
        join(&t.file, t.file.count);
    return t;
}

static void lists(bool all, int servers)
{
    static struct test tests[SIZES * KINDS * KINDS];
    int n = 0;

    for (int i = all ? 0 : 1; i < SIZES * KINDS * KINDS; i += all ? 1 : SOME)
        tests[n++] =
            test_of(i % SIZES, i / SIZES, servers > 1 ? (servers - 1) * STRIP : INT_MAX);
    for (int i = 0; i < n; i++)
        run_cases(&tests[i], 1, i);
    for (int i = 0; i + 1 < n; i += AT_ONCE)
        run_cases(&tests[i], n - i < AT_ONCE ? n - i : AT_ONCE, i);
}

/* ---- writes ---- */

/* Write i is in slot i modulo AT_ONCE * 2 of the file: concurrent writes share none. */
static void writes(int size, int count, int at_once)
{
    struct transfer under_way[MOST];
    unsigned char *memory = memory_of((PVFS_size)size * (at_once + 1));
    unsigned char *expected = memory + (PVFS_size)size * at_once;
    int slots = at_once * 2;

    for (int i = 0; i < count + at_once; i++) {
        struct transfer *t = &under_way[i % at_once];
        unsigned char *own = memory + (PVFS_size)size * (i % at_once);
        if (i >= at_once && i - at_once < count) {
            if (finish(t) != 0)
                failed("an error or a short transfer of write", i - at_once);
            free_requests(t);
        }
        if (i < count) {
            fill(own, size, i);
            *t = one_piece(own, (PVFS_offset)(i % slots) * size, size);
            start(t, PVFS_IO_WRITE);
        }
    }
    for (int i = count > slots ? count - slots : 0; i < count; i++) {
        struct transfer t = one_piece(memory, (PVFS_offset)(i % slots) * size, size);
        fill(expected, size, i);
        if (in_one_call(&t, PVFS_IO_READ) != 0 || memcmp(memory, expected, (size_t)size) != 0)
            failed("wrong contents of write", i);
        free_requests(&t);
    }
    free(memory);
}

/* ---- blocks ---- */

/* Reads pieces, and gaps of their size between them, and compares them with the copy. */
static void read_pieces(const char *copy, PVFS_size size, int count, int piece, PVFS_size at)
{
    static char buffer[64 * 32768];
    PVFS_size most = (PVFS_size)count * piece;
    struct transfer t = {.memory = buffer,
                         .memory_request = contiguous(most),
                         .file_request = moved(vector(count, piece, 2 * (PVFS_size)piece), at),
                         .size = size - at < most ? size - at : most};
    int code, right = 0;

    memset(buffer, 0x5a, sizeof(buffer));
    code = in_one_call(&t, PVFS_IO_READ);
    for (int i = 0; i < count; i++) {
        PVFS_size from = at + 2 * (PVFS_size)piece * i;
        PVFS_size wanted = size - from < piece ? size - from : piece;
        right += memcmp(buffer + i * piece, copy + from, (size_t)wanted) == 0;
    }
    printf("%s: at %lld status %d, %d of %d pieces\n",
           code == 0 && right == count ? "equal" : "WRONG", (long long)at, code, right, count);
    fflush(stdout);
    free_requests(&t);
}

static void blocks(const char *name)
{
    static char copy[16 * BLOCK];
    FILE *local = fopen(name, "r");
    PVFS_size at = 0, size = local != NULL ? (PVFS_size)fread(copy, 1, sizeof(copy), local) : 0;
    char line[16];

    if (size <= BLOCK)
        failed("less than two blocks in the copy", (int)size);
    fclose(local);
    while (fgets(line, sizeof(line), stdin) != NULL)
        if (strcmp(line, "tiles\n") == 0) {
            read_pieces(copy, size, 64, STRIP / 2, 0);
        } else {
            read_pieces(copy, size, 1, BLOCK, at);
            at = at + BLOCK < size ? at + BLOCK : 0;
        }
}

static void open_file(const char *name)
{
    char path[PVFS_NAME_MAX] = "";
    PVFS_fs_id fs;
    PVFS_sysresp_lookup found;

    must("PVFS_util_init_defaults", PVFS_util_init_defaults());
    must("PVFS_util_resolve", PVFS_util_resolve(name, &fs, path, sizeof(path)));
    must("PVFS_util_gen_credential_defaults", PVFS_util_gen_credential_defaults(&credential));
    must("PVFS_sys_lookup",
         PVFS_sys_lookup(fs, path, &credential, &found, PVFS2_LOOKUP_LINK_FOLLOW, NULL));
    file = found.ref;
}

int main(int argc, char **argv)
{
    const char *mode = argc > 3 ? argv[2] : "";
    int at_once = argc == 6 ? atoi(argv[5]) : 0;

    if (mode[0] != '\0')
        open_file(argv[1]);
    if (strcmp(mode, "lists") == 0 && argc == 5)
        lists(strcmp(argv[3], "all") == 0, atoi(argv[4]));
    else if (strcmp(mode, "writes") == 0 && at_once > 0 && at_once <= MOST)
        writes(atoi(argv[3]), atoi(argv[4]), at_once);
    else if (strcmp(mode, "blocks") == 0 && argc == 4)
        blocks(argv[3]);
    else
        failed("usage: io FILE lists|writes|blocks ARGUMENT...", argc);
    return PVFS_sys_finalize() < 0;
}

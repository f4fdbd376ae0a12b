/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Inputs of fuzz_iod_client.c: the task, then incorrect behaviour of servers. */
#include <stdint.h>

#include "seeds.h"

enum { IN, OUT, LIST };
enum { GOES_ON = 1, ALLOW = 2, SYNC = 4, PIECES = 8 };

/* Task, servers given, flags, buffers, their size, strip, source or stored object. */
#define TASK(task, servers, flags, buffers, size, strip, which)                                \
    task, servers, flags, buffers, size, strip, which, 0
#define STORED(size, parts) ((size) + 8 * ((parts)-1))

/* Steps. `op`: index among the waiting operations, in posting order. */
#define WELL(op)            1, op
#define ALL_WELL            0
#define DISK                6
#define BREAK(op, error)    8, op, error
#define SHORT(op, of_255)   9, op, of_255
#define SIGN(op)            10, op
#define RAW(op, a, b, c)    11, op, 3, a, b, c
#define POKE(op, at, value) 12, op, at, value
#define CUT(op, of_256)     12, op, 100, of_256
#define LONGER(op, by)      12, op, 200, by
#define CHANGE(op)          13, op, 0
#define PASS(ms)            14, (ms) / 10
#define TROUBLE             15

/* Arguments of CHANGE. */
#define SAYS_OP(value)       0, value
#define REFUSES(status)      1, status, 10, 'x'
#define FLAGS(value)         2, value
#define UPLOAD(small)        4, 128 + (small)
#define VERSION(small)       5, 128 + (small)
#define PENDING(small, list) 6, 128 + (small), list
#define SIZE(small)          8, 128 + (small)
#define STRIP(small)         9, 128 + (small)
#define INDEX(small)         10, 128 + (small)
#define COUNT(small)         11, 128 + (small)
#define BUFFERS(small)       14, 128 + (small)
#define EXTENTS(n, by, of)   15, n, by, of
#define RECORDED(list)       16, list
#define ENTRIES(n, from)     17, n, from
#define AT_A_BOUND           18
#define NOTHING              19
#define STALE                18

#define PUT(name, ...)                                                                         \
    do {                                                                                       \
        static const uint8_t seed[] = {__VA_ARGS__};                                           \
        put("iod_client", name, seed, sizeof(seed));                                           \
    } while (0)

static void good_ones(void)
{
    PUT("in", TASK(IN, 0, GOES_ON, 1, 0, 6, 1));
    PUT("in-empty", TASK(IN, 1, GOES_ON, 1, 0, 6, 0));
    PUT("in-striped", TASK(IN, 3, GOES_ON | PIECES, 3, 1, 2, 2));
    PUT("in-slowly", TASK(IN, 2, GOES_ON, 3, 0, 10, 1), WELL(0), WELL(1), WELL(0), WELL(0),
        DISK, WELL(1), DISK, WELL(0), PASS(500), DISK, WELL(2), DISK, DISK, WELL(1), WELL(0));
    PUT("out", TASK(OUT, 0, GOES_ON | SYNC, 2, 0, 6, STORED(5, 1)));
    PUT("out-recorded", TASK(OUT, 0, GOES_ON | ALLOW | PIECES, 3, 2, 0, STORED(4, 3)));
    PUT("out-given", TASK(OUT, 4, GOES_ON, 3, 1, 4, STORED(7, 4)));
    PUT("out-not-allowed", TASK(OUT, 0, GOES_ON, 1, 0, 6, STORED(5, 2)));
    PUT("list", TASK(LIST, 3, GOES_ON, 1, 0, 6, STORED(5, 2)));
}

static void late_ones(void)
{
    PUT("silent", TASK(IN, 2, 0, 1, 0, 6, 1));
    PUT("silent-later", TASK(IN, 0, 0, 1, 0, 6, 1), ALL_WELL, ALL_WELL);
    PUT("late", TASK(OUT, 0, GOES_ON, 2, 0, 6, STORED(5, 1)), PASS(900), ALL_WELL, PASS(900));
    PUT("signs", TASK(IN, 0, GOES_ON, 1, 0, 6, 1), TROUBLE, 5, 255, SIGN(0));
    PUT("one-bound", TASK(OUT, 0, GOES_ON, 2, 0, 6, STORED(5, 1)), CHANGE(0), AT_A_BOUND);
    PUT("bound-for-ever", TASK(IN, 2, GOES_ON, 2, 0, 6, 1), CHANGE(0), AT_A_BOUND, ALL_WELL,
        PASS(500), ALL_WELL, CHANGE(0), AT_A_BOUND, ALL_WELL, PASS(500), WELL(1), CHANGE(0),
        AT_A_BOUND, PASS(500), WELL(1), CHANGE(0), AT_A_BOUND);
    PUT("at-once", TASK(OUT, 2, GOES_ON, 2, 0, 6, STORED(5, 2)), TROUBLE, 2, 255);
}

static void wrong_ones(void)
{
    PUT("short", TASK(IN, 0, GOES_ON, 1, 0, 6, 1), SHORT(0, 100));
    PUT("cut-off", TASK(OUT, 0, GOES_ON, 1, 0, 6, STORED(5, 1)), CUT(0, 200));
    PUT("longer", TASK(OUT, 0, GOES_ON, 1, 0, 6, STORED(5, 1)), LONGER(0, 50));
    PUT("too-large", TASK(IN, 0, GOES_ON, 1, 0, 6, 1), BREAK(0, 2));
    PUT("version", TASK(LIST, 1, GOES_ON, 1, 0, 6, STORED(5, 1)), POKE(0, 4, 9));
    PUT("raw", TASK(LIST, 1, GOES_ON, 1, 0, 6, STORED(5, 1)), RAW(0, 'I', 'O', 'D'));
    PUT("other-op", TASK(IN, 0, GOES_ON, 1, 0, 6, 1), CHANGE(0), SAYS_OP(9));
    PUT("refused", TASK(IN, 2, GOES_ON, 1, 0, 6, 1), CHANGE(0), REFUSES(2));
    PUT("refused-commit", TASK(IN, 2, GOES_ON, 1, 0, 6, 0), ALL_WELL, ALL_WELL, CHANGE(0),
        REFUSES(2));
    PUT("grants-too-much", TASK(IN, 0, GOES_ON, 1, 0, 6, 1), CHANGE(0), BUFFERS(20));
    PUT("data-short", TASK(OUT, 0, GOES_ON, 2, 0, 6, STORED(5, 1)), ALL_WELL, ALL_WELL,
        SHORT(0, 100), DISK, WELL(1));
    PUT("refused-again", TASK(IN, 0, GOES_ON, 1, 0, 6, 1), BREAK(1, 1), BREAK(0, 1));
}

static void other_copies(void)
{
    PUT("no-object", TASK(OUT, 0, GOES_ON, 1, 0, 6, STORED(5, 1)), CHANGE(0), NOTHING);
    PUT("other-size", TASK(OUT, 2, GOES_ON, 1, 0, 6, STORED(5, 2)), CHANGE(0), SIZE(77));
    PUT("other-strip", TASK(OUT, 2, GOES_ON, 1, 0, 6, STORED(5, 2)), CHANGE(0), STRIP(100));
    PUT("same-part", TASK(OUT, 2, GOES_ON, 1, 0, 6, STORED(5, 2)), CHANGE(0), INDEX(1));
    PUT("more-parts", TASK(OUT, 2, GOES_ON, 1, 0, 6, STORED(5, 2)), CHANGE(0), COUNT(3));
    PUT("higher-upload", TASK(OUT, 2, GOES_ON, 1, 0, 6, STORED(5, 2)), CHANGE(0), UPLOAD(99));
    PUT("higher-version", TASK(OUT, 0, GOES_ON | ALLOW, 1, 0, 6, STORED(4, 2)), ALL_WELL,
        CHANGE(0), VERSION(50));
    PUT("pending", TASK(OUT, 0, GOES_ON | ALLOW, 1, 0, 6, STORED(5, 2)), CHANGE(0),
        PENDING(20, 1));
    PUT("pending-never", TASK(OUT, 0, GOES_ON | ALLOW, 1, 0, 6, STORED(5, 2)), CHANGE(0),
        PENDING(20, 1), WELL(0), CHANGE(0), REFUSES(STALE));
    PUT("recorded-elsewhere", TASK(OUT, 0, GOES_ON | ALLOW, 1, 0, 6, STORED(5, 2)), CHANGE(0),
        RECORDED(5));
    PUT("recorded-by-name", TASK(OUT, 0, GOES_ON | ALLOW, 1, 0, 6, STORED(5, 2)), CHANGE(0),
        RECORDED(6));
    PUT("stale-part", TASK(OUT, 0, GOES_ON | ALLOW, 1, 0, 6, STORED(5, 2)), ALL_WELL, CHANGE(0),
        REFUSES(STALE));
    PUT("many-extents", TASK(OUT, 0, GOES_ON, 2, 0, 6, STORED(5, 1)), ALL_WELL, CHANGE(0),
        EXTENTS(60, 200, 50));
    PUT("extents-outside", TASK(OUT, 0, GOES_ON, 2, 0, 6, STORED(5, 1)), ALL_WELL, CHANGE(0),
        EXTENTS(60, 200, 254));
    PUT("no-more-extents", TASK(OUT, 0, GOES_ON, 2, 0, 6, STORED(5, 1)), ALL_WELL, 13, 0, 1,
        EXTENTS(0, 0, 0), FLAGS(2));
    PUT("long-list", TASK(LIST, 2, GOES_ON, 2, 0, 6, STORED(5, 1)), 13, 0, 1, ENTRIES(39, 0),
        FLAGS(2), ALL_WELL, 13, 0, 1, ENTRIES(39, 39), FLAGS(2), ALL_WELL, CHANGE(0),
        ENTRIES(5, 78));
    PUT("same-list", TASK(LIST, 1, GOES_ON, 2, 0, 6, STORED(5, 1)), 13, 0, 1, ENTRIES(39, 0),
        FLAGS(2), ALL_WELL, CHANGE(0), ENTRIES(39, 0));
    PUT("empty-list", TASK(LIST, 1, GOES_ON, 2, 0, 6, STORED(5, 1)), 13, 0, 1, ENTRIES(0, 0),
        FLAGS(2));
}

/* Premature answers, and requests to servers that still owe an answer. */
static void at_odd_times(void)
{
    PUT("refused-before-sent", TASK(OUT, 0, ALLOW, 1, 0, 6, STORED(5, 2)), ALL_WELL, CHANGE(0),
        REFUSES(STALE));
    PUT("written-before-sent", TASK(IN, 0, 0, 1, 0, 6, 1), ALL_WELL, CHANGE(0), NOTHING,
        WELL(0));
    PUT("lost-and-asked-again", TASK(OUT, 0, GOES_ON | ALLOW, 1, 0, 6, STORED(5, 2)), CHANGE(0),
        PENDING(20, 1), WELL(0), CHANGE(0), REFUSES(STALE), BREAK(0, 0), WELL(0x30), PASS(2550),
        WELL(13), ALL_WELL);
}

static void losses(void)
{
    PUT("lost", TASK(IN, 2, GOES_ON, 2, 0, 6, 1), ALL_WELL, ALL_WELL, TROUBLE, 0, 0);
    PUT("all-lost", TASK(OUT, 2, GOES_ON, 2, 0, 6, STORED(5, 2)), ALL_WELL, ALL_WELL, TROUBLE,
        7);
    PUT("interrupted", TASK(IN, 2, GOES_ON, 2, 0, 6, 1), ALL_WELL, TROUBLE, 1);
    PUT("interrupted-later", TASK(OUT, 1, GOES_ON, 2, 0, 6, STORED(5, 1)), ALL_WELL, ALL_WELL,
        ALL_WELL, TROUBLE, 1);
    PUT("commit-lost", TASK(IN, 2, GOES_ON, 1, 0, 6, 0), ALL_WELL, ALL_WELL, BREAK(0, 0));
    PUT("commit-of-others-lost", TASK(IN, 2, GOES_ON, 1, 0, 6, 0), ALL_WELL, ALL_WELL, ALL_WELL,
        BREAK(0, 0));
    PUT("post-fails", TASK(IN, 2, GOES_ON, 1, 0, 6, 1), ALL_WELL, TROUBLE, 3, 2);
    PUT("no-memory", TASK(IN, 2, GOES_ON, 1, 0, 6, 1), ALL_WELL, TROUBLE, 4, 1);
}

void iod_clients(void)
{
    good_ones();
    late_ones();
    wrong_ones();
    other_copies();
    at_odd_times();
    losses();
}

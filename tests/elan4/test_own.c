/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The emulation's segments and descriptors, as a program meets them: not in core dumps; closed
 * by the program, with files of its own at the numbers; a root without /proc. */
#include <errno.h>
#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/stat.h>

#include "tests/elan4/bed.h"
#include "tests/elan4/cases.h"
#include "tests/emul/files.h"
#include "tests/lib/asleep.h"

#define FILES 48
enum { LENT = 1, ENDED, LEFT };

/* Lends a word, and serves requests until the other process has ended its part. */
static void lends(struct bed *b)
{
    unsigned all, dumped;
    volatile E4_uint64 *never = main_mem(b, 64);

    tell(b, LENT, elan(b, number_mem(b, 5)));
    while (!atomic_load(&b->m->word[ENDED]))
        word_set(b, never, 1);
    segments_mapped("memfd:emuelan4-", &all, &dumped);
    CHECK(all >= 1 && dumped == 0);
}

static struct _E4_DMA64 read_of(struct bed *b, uint64_t *to)
{
    return dma(8, 0, vp_of(1, LOW), told(b, LENT), elan(b, to), 0, 0);
}

static void lender(struct bed *b)
{
    bed_open(b, LOW);
    lends(b);
    tell(b, LEFT, 1);
    bed_close(b);
}

static void is_dumped_without(struct bed *b)
{
    unsigned all, dumped;

    bed_open(b, LOW);
    uint64_t *got = number_mem(b, 0);
    ask_dma(b, 0, read_of(b, got));
    CHECK(word_set(b, got, 60000));
    segments_mapped("memfd:emuelan4-", &all, &dumped);
    CHECK(all == 2 && dumped == 0);
    tell(b, ENDED, 1);
    bed_close(b);
}

static int segments_mapped_left_out_of_dumps(void)
{
    return run_beds(2, (bed_fn[]){lender, is_dumped_without});
}

static unsigned first; /* kind of the file with the lowest number */

/* Closes the library's descriptors, and goes on with a peer, in memory, and by timers. */
static void closes_all(struct bed *b)
{
    int file[FILES], own = eventfd(1, 0), readable = fcntl(own, F_DUPFD, 201);

    bed_open(b, LOW);
    uint64_t *got = number_mem(b, 0);
    void *area = elan4_allocMain(b->alloc, 4096, 1 << 20);
    ask_dma(b, 0, read_of(b, got));
    CHECK(area != NULL && word_set(b, got, 60000));
    CHECK(readable > 200 && close_range(3, 200, 0) == 0);
    for (unsigned i = 0; i < FILES; i++)
        CHECK((file[i] = program_file((first + i) % FILE_KINDS, readable)) >= 0);
    for (unsigned i = 0; i < 4; i++) {
        asleep_await_others(); /* then a request wakes the engine's thread */
        ask_dma(b, 0, read_of(b, got));
    }
    elan4_freeMain(b->alloc, area);
    tell(b, ENDED, 1);
    (void)told(b, LEFT);
    bed_close(b);
    for (unsigned i = 0; i < FILES; i++)
        if (!file_is_untouched((first + i) % FILE_KINDS, file[i])) {
            fprintf(stderr, "kind %u: descriptor %d\n", (first + i) % FILE_KINDS, file[i]);
            _exit(1);
        }
}

static int files_of_the_program_are_left_alone(void)
{
    int rc = 0;

    for (first = 0; first < FILE_KINDS && !rc; first++)
        rc = run_beds(2, (bed_fn[]){lender, closes_all});
    return rc;
}

int main(void)
{
    CASE(segments_mapped_left_out_of_dumps());
    CASE(files_of_the_program_are_left_alone());
    return cases_end();
}

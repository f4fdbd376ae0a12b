/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bmi-perf's whole server against clients that send any request at any time. BMI is simulated:
 * the input decides which messages arrive, which operations end and how, which posts fail or
 * complete at once, and which clients die.
 *
 * Checked: each operation in progress belongs to a live session (a sanitizer checks when it
 * ends), memory used for all clients is within the limit, and finally nothing is left.
 */
#include <errno.h>
#include <signal.h>
#include <sys/prctl.h>

#include "fake_bmi.h"
#include "fuzz.h"
#include "bench/bmi_server.h"
#include "bench/doctor/raw.h"
#include "bench/inspect.h"
#include "bench/lastline.h"
#include "bench/session.h"
#include "bench/transport.h"
#include "embedded/bmi/bmi.h"

#define ADDRESSES 4
#define MEMORY    ((uint64_t)1 << 18)

static struct {
    const uint8_t *at;
    size_t left;
    volatile sig_atomic_t stop;
    int references[ADDRESSES + 1];
    unsigned fail, at_once; /* numbers of next posts */
} play;

static unsigned take(void)
{
    if (play.left == 0)
        return 0;
    play.left--;
    return *play.at++;
}

/* ---- Raw connections ---- */

int raw_serve(void)
{
    return take() % 2 ? -EBUSY : 1 + (int)take();
}

void raw_stop(void)
{
}

/* ---- The script ---- */

static bool refuses(bool memory)
{
    FUZZ_CHECK(fake_lent() <= MEMORY);
    return memory && play.fail > 0 && play.fail-- > 0;
}

/* Accesses all of the memory. */
static int posted(struct fake_op *op)
{
    FUZZ_CHECK(op->addr >= 1 && op->addr <= ADDRESSES && play.references[op->addr] > 0 &&
               op->tag >= 0);
    for (int i = 0; i < op->pieces; i++) {
        volatile uint8_t *at = op->piece[i].base;

        for (bmi_size_t k = 0; k < op->piece[i].length; k += 4096)
            if (op->send)
                (void)at[k];
            else
                at[k] = 1;
    }
    if (refuses(true))
        return -BMI_ENOMEM;
    op->actual = op->size;
    return play.at_once > 0 && play.at_once-- > 0;
}

static void set_info(BMI_addr_t addr, int option)
{
    FUZZ_CHECK(option == BMI_DEC_ADDR_REF && --play.references[addr] >= 0);
}

static void unexpected(bmi_msg_tag_t tag, const void *data, size_t size)
{
    BMI_addr_t addr = 1 + (BMI_addr_t)(take() % ADDRESSES);

    play.references[addr]++;
    fake_unexpected(addr, data, (bmi_size_t)size, tag);
}

/* Makes a job that is valid, or nearly. */
static void ask(void)
{
    static const uint32_t sizes[] = {0, 1, 64, 4096, 8192, 32768};
    struct job job = {.test = take() % JOB_TESTS,
                      .direction = take() % JOB_DIRECTIONS,
                      .memory = take() % JOB_MEMORIES,
                      .verify = take() % 2,
                      .size = sizes[take() % 6],
                      .reply = sizes[take() % 6],
                      .warm = take() % 3,
                      .count = 1 + take() % 4,
                      .window = 1 + take() % 16,
                      .both = take() % 2,
                      .buffers = take() % 3,
                      .tag = 2 + 2 * (take() % 4)};
    unsigned char wire[JOB_WIRE_SIZE];

    if (take() % 2) {
        job.extent = sizes[take() % 6];
        job.stride = job.extent + take() % 64;
        job.split = 1 + take() % 64;
    }
    job_encode(&job, wire);
    unexpected(SESSION_OPEN_TAG, wire, sizeof wire);
}

static void event(void)
{
    size_t size;

    switch (take() % 8) {
    case 0:
        size = take() < 128 ? JOB_WIRE_SIZE : take();
        unexpected((bmi_msg_tag_t)take() % 4, play.at, size < play.left ? size : play.left);
        break;
    case 1:
    case 2:
        ask();
        break;
    case 3: /* a request of a session */
        unexpected(3 + 2 * (bmi_msg_tag_t)(take() % 4), play.at,
                   take() % 65 < play.left ? 0 : play.left);
        break;
    case 4:
        play.fail = take() % 4;
        break;
    case 5:
        play.at_once = take() % 16;
        break;
    case 6: /* a client dies */
        size = 1 + take() % ADDRESSES;
        for (int i = fake_waiting(); i-- > 0;)
            if (fake_waiting_at(i)->addr == (BMI_addr_t)size)
                fake_finish(fake_waiting_at(i), -BMI_ECANCEL, 0);
        break;
    default:
        break;
    }
}

/* An event, then ends of operations. */
static void poll_script(int idle_ms)
{
    unsigned start, how;

    FUZZ_CHECK(idle_ms >= 0);
    play.stop = play.left == 0;
    if (!play.stop)
        event();
    start = take();
    how = take();
    for (unsigned n = 0; fake_waiting() > 0 && n < how % 16; n++) {
        struct fake_op *op = fake_waiting_at((int)(start % (unsigned)fake_waiting()));

        fake_finish(op, how > 250 ? -BMI_ECONNRESET : 0,
                    how > 240 && how <= 250 ? op->size / 2 : op->size);
    }
}

/* ---- Other functions that the server uses ---- */

size_t inspect_counters(BMI_addr_t addr, char *text, size_t size)
{
    FUZZ_CHECK(addr >= 1 && size > 8);
    memcpy(text, "none 0 -", 9);
    return 8;
}

int inspect_metrics(BMI_addr_t addr, const char *network, char *text, size_t size,
                    size_t *length)
{
    FUZZ_CHECK(addr >= 1 && network[0] && size > 65536);
    if (addr % 4 == 0)
        return -BMI_ENOMEM;
    memcpy(text, "none 0\n", 8);
    *length = 7;
    return 0;
}

void lastline_begin(struct lastline *last, bool all)
{
    (void)all;
    last->text[0] = '\0';
}

void lastline_end(struct lastline *last)
{
    (void)last;
}

void lastline_get(struct lastline *last, char *text)
{
    FUZZ_CHECK(last->text[0] == '\0');
    text[0] = '\0';
}

uint64_t fuzz_trace(void)
{
    return fake_trace();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct fake_script script = {
        .poll = poll_script, .posted = posted, .refuses = refuses, .set_info = set_info};
    static bool quiet;
    char why[WHY_SIZE];

    if (!quiet) {
        quiet =
            /* for the server's message on each start */
            freopen("/dev/null", "w", stdout) != NULL;
        /* clearing a huge page takes long, and the kernel may have none */
        prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0);
    }
    memset(&play, 0, sizeof(play));
    play.at = data;
    play.left = size;
    fake_begin();
    for (unsigned i = 0; i < ADDRESSES; i++)
        fake_connect((int)i);
    fake_follow(&script);
    FUZZ_CHECK(bmi_serve("ib://self:1", NULL, MEMORY, &play.stop, why) == 0);
    for (unsigned i = 1; i <= ADDRESSES; i++)
        FUZZ_CHECK(play.references[i] == 0);
    FUZZ_CHECK(fake_lent() == 0);
    return 0;
}

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

#include "fuzz.h"
#include "bench/bmi_server.h"
#include "bench/doctor/raw.h"
#include "bench/inspect.h"
#include "bench/lastline.h"
#include "bench/session.h"
#include "bench/transport.h"
#include "embedded/bmi/bmi.h"

#define ADDRESSES 4
#define OPS       512
#define WORD      64 /* bits in a word of the bitmap of used operations */
#define MEMORY    ((uint64_t)1 << 18)

static struct {
    const uint8_t *at;
    size_t left;
    volatile sig_atomic_t stop;
    struct {
        bool dead;
        bmi_op_id_t id;
        BMI_addr_t peer;
        bmi_size_t size;
        void *user;
    } op[OPS];
    uint64_t used[OPS / WORD];
    unsigned ops;
    bmi_op_id_t posts;
    int references[ADDRESSES + 1];
    uint64_t lent;          /* bytes of BMI_memalloc */
    unsigned fail, at_once; /* numbers of next posts */
    bool running;
    uint64_t trace;
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

/* ---- BMI for the server ---- */

int BMI_initialize(const char *methods, const char *listen_addr, int flags, char *options)
{
    FUZZ_CHECK(methods != NULL && listen_addr != NULL && flags != 0 && options == NULL);
    play.running = true;
    return 0;
}

int BMI_finalize(void)
{
    play.running = false;
    return 0;
}

int BMI_open_context(bmi_context_id *context)
{
    *context = 1;
    return 0;
}

void BMI_close_context(bmi_context_id context)
{
    FUZZ_CHECK(context == 1);
}

static bool is_used(unsigned i)
{
    return play.used[i / WORD] >> i % WORD & 1;
}

/* Returns the first used, or unused, operation from `from` on; OPS: none. */
static unsigned next_op(unsigned from, bool used)
{
    for (unsigned w = from / WORD; w < OPS / WORD; w++) {
        uint64_t set = used ? play.used[w] : ~play.used[w];

        if (w == from / WORD)
            set &= UINT64_MAX << from % WORD;
        if (set != 0)
            return w * WORD + (unsigned)__builtin_ctzll(set);
    }
    return OPS;
}

static int post(bmi_op_id_t *id, BMI_addr_t peer, bmi_size_t size, bmi_size_t *actual,
                void *user)
{
    unsigned i;

    FUZZ_CHECK(play.running && peer >= 1 && peer <= ADDRESSES && play.references[peer] > 0 &&
               size >= 0);
    fuzz_note(&play.trace, (uint64_t)peer);
    fuzz_note(&play.trace, (uint64_t)size);
    *id = 0;
    if (play.fail > 0) {
        play.fail--;
        return -BMI_ENOMEM;
    }
    if (play.at_once > 0) {
        play.at_once--;
        if (actual != NULL)
            *actual = size;
        return 1;
    }
    i = next_op(0, false);
    if (i == OPS)
        return -BMI_ENOMEM;
    play.used[i / WORD] |= UINT64_C(1) << i % WORD;
    play.op[i].dead = false;
    play.op[i].peer = peer;
    play.op[i].size = size;
    play.op[i].user = user;
    play.ops++;
    *id = play.op[i].id = ++play.posts * OPS + i;
    return 0;
}

/* Accesses all of the memory. */
static void touch(const void *memory, bmi_size_t size, bool write)
{
    volatile uint8_t *at = (volatile uint8_t *)(uintptr_t)memory;

    for (bmi_size_t i = 0; i < size; i += 4096)
        if (write)
            at[i] = 1;
        else
            (void)at[i];
}

int BMI_post_send(bmi_op_id_t *id, BMI_addr_t dest, const void *buffer, bmi_size_t size,
                  enum bmi_buffer_type type, bmi_msg_tag_t tag, void *user,
                  bmi_context_id context, bmi_hint hints)
{
    FUZZ_CHECK(type != 0 && tag >= 0 && context == 1 && hints == NULL);
    touch(buffer, size, false);
    return post(id, dest, size, NULL, user);
}

int BMI_post_sendunexpected(bmi_op_id_t *id, BMI_addr_t dest, const void *buffer,
                            bmi_size_t size, enum bmi_buffer_type type, bmi_msg_tag_t tag,
                            void *user, bmi_context_id context, bmi_hint hints)
{
    return BMI_post_send(id, dest, buffer, size, type, tag, user, context, hints);
}

int BMI_post_recv(bmi_op_id_t *id, BMI_addr_t src, void *buffer, bmi_size_t size,
                  bmi_size_t *actual, enum bmi_buffer_type type, bmi_msg_tag_t tag, void *user,
                  bmi_context_id context, bmi_hint hints)
{
    FUZZ_CHECK(type != 0 && tag >= 0 && context == 1 && hints == NULL);
    touch(buffer, size, true);
    return post(id, src, size, actual, user);
}

int BMI_post_send_list(bmi_op_id_t *id, BMI_addr_t dest, const void *const *buffer,
                       const bmi_size_t *size, int count, bmi_size_t total,
                       enum bmi_buffer_type type, bmi_msg_tag_t tag, void *user,
                       bmi_context_id context, bmi_hint hints)
{
    FUZZ_CHECK(count >= 1 && count <= 64 && type != 0 && tag >= 0 && context == 1 &&
               hints == NULL);
    for (int i = 0; i < count; i++)
        touch(buffer[i], size[i], false);
    return post(id, dest, total, NULL, user);
}

int BMI_post_recv_list(bmi_op_id_t *id, BMI_addr_t src, void *const *buffer,
                       const bmi_size_t *size, int count, bmi_size_t total, bmi_size_t *actual,
                       enum bmi_buffer_type type, bmi_msg_tag_t tag, void *user,
                       bmi_context_id context, bmi_hint hints)
{
    FUZZ_CHECK(count >= 1 && count <= 64 && type != 0 && tag >= 0 && context == 1 &&
               hints == NULL);
    for (int i = 0; i < count; i++)
        touch(buffer[i], size[i], true);
    return post(id, src, total, actual, user);
}

/* A cancelled operation is still reported; one that is being reported may be cancelled. */
int BMI_cancel(bmi_op_id_t id, bmi_context_id context)
{
    unsigned i = (unsigned)(id % OPS);

    FUZZ_CHECK(context == 1 && id / OPS >= 1 && id / OPS <= play.posts);
    fuzz_note(&play.trace, (uint64_t)id);
    play.op[i].dead |= is_used(i) && play.op[i].id == id;
    return 0;
}

void *BMI_memalloc(BMI_addr_t addr, bmi_size_t size, enum bmi_op_type way)
{
    FUZZ_CHECK(addr >= 1 && way != 0 && size > 0);
    if (play.fail > 0) {
        play.fail--;
        return NULL;
    }
    play.lent += (uint64_t)size;
    FUZZ_CHECK(play.lent <= MEMORY);
    return calloc(1, (size_t)size);
}

int BMI_memfree(BMI_addr_t addr, void *buffer, bmi_size_t size, enum bmi_op_type way)
{
    FUZZ_CHECK(addr >= 1 && way != 0);
    play.lent -= (uint64_t)size;
    free(buffer);
    return 0;
}

int BMI_get_info(BMI_addr_t addr, int option, void *parameter)
{
    (void)addr, (void)option, (void)parameter;
    return -BMI_ENOSYS;
}

int BMI_set_info(BMI_addr_t addr, int option, void *parameter)
{
    FUZZ_CHECK(option == BMI_DEC_ADDR_REF && parameter == NULL && --play.references[addr] >= 0);
    return 0;
}

int BMI_unexpected_free(BMI_addr_t addr, void *buffer)
{
    FUZZ_CHECK(addr >= 1);
    free(buffer);
    return 0;
}

/* ---- Events from the input ---- */

static void unexpected(struct BMI_unexpected_info *info, bmi_msg_tag_t tag, const void *data,
                       size_t size)
{
    info->addr = 1 + (BMI_addr_t)(take() % ADDRESSES);
    play.references[info->addr]++;
    info->error_code = 0;
    info->tag = tag;
    info->size = (bmi_size_t)size;
    info->buffer = fuzz_copy(data, size, 0);
}

/* Makes a job that is valid, or nearly. */
static void ask(struct BMI_unexpected_info *info)
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
    unexpected(info, SESSION_OPEN_TAG, wire, sizeof wire);
}

int BMI_testunexpected(int room, int *count, struct BMI_unexpected_info *info, int idle_ms)
{
    unsigned size;

    FUZZ_CHECK(room >= 1 && idle_ms >= 0);
    *count = 0;
    if (play.left == 0) {
        play.stop = 1;
        return 0;
    }
    switch (take() % 8) {
    case 0:
        size = take() < 128 ? JOB_WIRE_SIZE : take();
        if (size > play.left)
            size = (unsigned)play.left;
        unexpected(info, (bmi_msg_tag_t)take() % 4, play.at,
                   size < play.left ? size : play.left);
        *count = 1;
        break;
    case 1:
    case 2:
        ask(info);
        *count = 1;
        break;
    case 3: /* a request of a session */
        unexpected(info, 3 + 2 * (bmi_msg_tag_t)(take() % 4), play.at,
                   take() % 65 < play.left ? 0 : play.left);
        *count = 1;
        break;
    case 4:
        play.fail = take() % 4;
        break;
    case 5:
        play.at_once = take() % 16;
        break;
    case 6: /* a client dies */
        size = 1 + take() % ADDRESSES;
        for (unsigned i = 0; i < OPS; i++)
            play.op[i].dead |= play.op[i].peer == size;
        break;
    default:
        break;
    }
    return *count > 0;
}

int BMI_testcontext(int room, bmi_op_id_t *id, int *count, bmi_error_code_t *error,
                    bmi_size_t *actual, void **user, int idle_ms, bmi_context_id context)
{
    unsigned start = take() * 16 + take() % 16, how = take();

    FUZZ_CHECK(idle_ms >= 0 && context == 1);
    *count = 0;
    for (unsigned i = start % OPS; play.ops > 0 && *count < room && *count < (int)(how % 16);
         i = (i + 1) % OPS) {
        i = next_op(i, true);
        if (i == OPS)
            i = next_op(0, true);
        play.used[i / WORD] &= ~(UINT64_C(1) << i % WORD);
        play.ops--;
        id[*count] = play.op[i].id;
        error[*count] = play.op[i].dead ? -BMI_ECANCEL : how > 250 ? -BMI_ECONNRESET : 0;
        actual[*count] = how > 240 && how <= 250 ? play.op[i].size / 2 : play.op[i].size;
        user[*count] = play.op[i].user;
        fuzz_note(&play.trace, (uint64_t)id[*count]);
        fuzz_note(&play.trace, (uint64_t)actual[*count]);
        ++*count;
    }
    return *count > 0;
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
    return play.trace;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
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
    FUZZ_CHECK(bmi_serve("ib://self:1", NULL, MEMORY, &play.stop, why) == 0);
    for (unsigned i = 1; i <= ADDRESSES; i++)
        FUZZ_CHECK(play.references[i] == 0);
    FUZZ_CHECK(play.lent == 0);
    return 0;
}

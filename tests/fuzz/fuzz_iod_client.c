/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bmi-cp and bmi-ls without their command lines: a copy in, a copy out or a list, with servers
 * whose answers the input chooses: correct, with other values, late, in pieces, too many,
 * keep-alive messages, refusals, random bytes, or none. The input also drives messages, the
 * disk and the client's clock; no real time passes.
 *
 * In all cases the client ends, frees everything, and logs one line about a failure; a copy out
 * leaves a file of the right size or none. If every server behaved correctly, the copy
 * succeeds.
 *
 * The first HEAD bytes choose the task, the others are steps. After the last step servers
 * continue correctly, or send nothing more.
 */
#include "fake_bmi.h"
#include "fuzz.h"
#include "embedded/iod/copy.h"
#include "embedded/iod/layout.h"
#include "embedded/iod/listing.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEAD    8
#define SERVERS 64 /* whose last request is kept */
#define PATIENCE                                                                               \
    3 /* polls after which cancelled operations have ended, and the disk work is done */
#define LAST  6000 /* polls after the input's end within which the client must end */
#define SWIFT 50   /* steps of 10 ms: with more of them servers may be silent for too long */
#define FILL  0x5a

enum { COPY_IN, COPY_OUT, LIST, TASKS };

/* The last request to a server. */
struct server {
    int number; /* of its address */
    bool asked;
    struct iod_message q; /* its pointers are invalid */
    bmi_msg_tag_t tag;
    uint64_t size;         /* of its part */
    uint64_t total, moved; /* bytes of data */
};

static struct {
    const uint8_t *at, *end;
    bool active; /* the script controls the clock */
    int64_t now; /* ns */
    int task;
    bool goes_on; /* after the input servers behave correctly */
    bool strayed; /* some answer was incorrect */
    bool committed;
    unsigned patience, last, steps;
    unsigned signs;           /* keep-alive messages that have arrived already */
    unsigned at_once;         /* number of next posts that complete at once */
    unsigned broken;          /* number of next posts that fail */
    unsigned refuses;         /* number of next requests of the client that fail */
    struct iod_layout layout; /* of the object for copies out */
    struct server server[SERVERS];
    volatile sig_atomic_t interrupted;
} run;

static char folder[64], source[3][96], target[96];

static unsigned byte(void)
{
    return run.at < run.end ? *run.at++ : 0;
}

/* ---- time and names ---- */

int __real_clock_gettime(clockid_t id, struct timespec *t);
int __wrap_clock_gettime(clockid_t id, struct timespec *t);
int __real_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_nanosleep(const struct timespec *time, struct timespec *left);
int __wrap_clock_gettime(clockid_t id, struct timespec *t)
{
    if (!run.active || id != CLOCK_MONOTONIC)
        return __real_clock_gettime(id, t);
    t->tv_sec = run.now / 1000000000;
    t->tv_nsec = run.now % 1000000000;
    return 0;
}

int __wrap_nanosleep(const struct timespec *time, struct timespec *left)
{
    if (!run.active)
        return __real_nanosleep(time, left);
    run.now += time->tv_sec * 1000000000 + time->tv_nsec;
    return 0;
}

/* ---- files ---- */

static void clean_up(void)
{
    for (int i = 0; i < 3; i++)
        unlink(source[i]);
    rmdir(folder);
}

static void make_source(int which, size_t size, off_t hole)
{
    static char bytes[20000];
    int fd;

    snprintf(source[which], sizeof(source[which]), "%s/source%d", folder, which);
    memset(bytes, FILL, sizeof(bytes));
    fd = open(source[which], O_WRONLY | O_CREAT | O_EXCL, 0600);
    FUZZ_CHECK(fd >= 0);
    FUZZ_CHECK(pwrite(fd, bytes, size, hole) == (ssize_t)size);
    FUZZ_CHECK(ftruncate(fd, (off_t)size + 2 * hole) == 0);
    close(fd);
}

static void make_files(void)
{
    if (folder[0])
        return;
    snprintf(folder, sizeof(folder), "%s/fuzz_iod_client.XXXXXX",
             access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    FUZZ_CHECK(mkdtemp(folder));
    atexit(clean_up);
    make_source(0, 0, 0);
    make_source(1, 20000, 0);
    make_source(2, 9000, 1 << 16);
    snprintf(target, sizeof(target), "%s/target", folder);
}

/* Checks that the folder has only the sources, and the target if expected. */
static void check_folder(bool with_target)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    int files = 0;

    FUZZ_CHECK(dir);
    while ((entry = readdir(dir)) != NULL)
        files += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
    closedir(dir);
    FUZZ_CHECK(files == 3 + with_target);
}

/* ---- correct answers ---- */

static void list_some(struct iod_entries *entries, unsigned count, unsigned first)
{
    static uint8_t wire[4096];
    char name[32];
    struct iod_entry entry = {
        .layout = run.layout, .id = {1, 9}, .stored = 100, .mtime = 1000000000};

    *entries = (struct iod_entries){.wire = wire};
    for (unsigned i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "file-%03u", (first + i) % 1000);
        entry.name = iod_string_of(name);
        entries->count += iod_entry_append(&entry, wire, sizeof(wire), &entries->length);
    }
}

static struct iod_message should_say(const struct server *s)
{
    struct iod_message a = {.op = s->q.op,
                            .handle = 3,
                            .id = {1, 9},
                            .layout = run.layout,
                            .mode = 0640,
                            .buffer_size = s->q.buffer_size,
                            .buffers = s->q.buffers};

    a.layout.index = (uint32_t)s->number % run.layout.count;
    if (a.op == IOD_OP_LIST)
        list_some(&a.entries, 3, 0);
    return a;
}

/* ---- sending them ---- */

static struct server *server_of(const struct fake_op *op)
{
    return &run.server[op->addr % SERVERS];
}

static bool is_reply(const struct fake_op *op)
{
    return !op->send && op->size == IOD_REPLY_MAX && op->tag == server_of(op)->tag;
}

/* Sends any bytes. */
static void send_bytes(struct fake_op *op, const void *bytes, int64_t length)
{
    run.committed |= is_reply(op) && server_of(op)->q.op == IOD_OP_COMMIT;
    fake_deliver(op, bytes, length);
}

static void send_reply(struct fake_op *op, const struct iod_message *reply)
{
    static uint8_t bytes[IOD_REPLY_MAX];
    struct server *s = server_of(op);
    int64_t length = iod_reply_encode(reply, bytes, sizeof(bytes));

    if (length < 0) { /* not encodable: the head of a valid reply, followed by other bytes */
        struct iod_message sign = {.op = reply->op, .flags = IOD_FLAG_WORKING};

        length = iod_reply_encode(&sign, bytes, sizeof(bytes));
        run.strayed = true;
        bytes[16] = 0;
    }
    s->asked &= (reply->flags & IOD_FLAG_WORKING) != 0;
    send_bytes(op, bytes, length);
}

static uint64_t data_left(const struct server *s)
{
    return s->total - s->moved;
}

/* Ends an operation correctly; does nothing if it is not its turn. */
static void do_well(struct fake_op *op)
{
    static char full[IOD_REPLY_MAX];
    struct server *s = server_of(op);

    if (op->unexpected) {
        fake_finish(op, 0, op->size);
    } else if (op->send) {
        s->moved += (uint64_t)op->size;
        fake_finish(op, 0, op->size);
    } else if (is_reply(op)) {
        struct iod_message reply = should_say(s);

        if (s->asked && data_left(s) == 0)
            send_reply(op, &reply);
    } else if (s->asked && s->q.op == IOD_OP_READ && op->tag == s->q.data_tag) {
        memset(full, FILL, (size_t)op->size);
        s->moved += (uint64_t)op->size;
        fake_deliver(op, full, op->size);
    }
}

static void all_do_well(void)
{
    for (int i = fake_waiting(); i-- > 0;)
        do_well(fake_waiting_at(i));
    while (fake_run_job())
        ;
}

/* ---- incorrect answers ---- */

static uint64_t value(void)
{
    static const uint64_t values[] = {
        0, 1, 2, 3, 4095, 4096, 5000, 65536, 1 << 20, UINT32_MAX, (1ull << 62), UINT64_MAX};
    unsigned n = byte();

    return n < 128 ? values[n % (sizeof(values) / sizeof(values[0]))] : n - 128;
}

static void change(struct iod_message *a)
{
    static char text[600];
    uint64_t *const wide[] = {&a->handle, &a->id.upload, &a->id.origin, &a->layout.size,
                              &a->layout.strip};
    uint32_t *const narrow[] = {&a->layout.index, &a->layout.count, &a->mode, &a->buffer_size,
                                &a->buffers};
    unsigned what = byte() % 14, n;

    if (what < 5) {
        *wide[what] = value();
        return;
    }
    if (what < 10) {
        *narrow[what - 5] = (uint32_t)value();
        return;
    }
    switch (what) {
    case 10:
        a->op = (enum iod_op)(byte() % 12);
        break;
    case 11:
        a->status = (enum iod_status)(byte() % 20);
        n = byte() * 3u % sizeof(text);
        memset(text, byte(), n);
        a->text = (struct iod_string){text, n};
        break;
    case 12:
        a->flags = byte() % 8;
        break;
    case 13:
        n = byte() % 40;
        list_some(&a->entries, n, byte());
        break;
    }
}

/* Sends a valid answer with changed bytes, truncated, or with bytes appended. */
static void send_spoilt(struct fake_op *op)
{
    static uint8_t bytes[IOD_REPLY_MAX];
    struct iod_message reply = should_say(server_of(op));
    int64_t length = iod_reply_encode(&reply, bytes, sizeof(bytes));
    unsigned how = byte();

    if (length < 0)
        return;
    if (how < 100) {
        bytes[(how < 24 ? how : byte() * 3u) % (unsigned)length] = (uint8_t)byte();
    } else if (how < 180) {
        length = length * byte() / 256;
    } else {
        memset(bytes + length, (int)how, 100);
        length += byte() % 100;
    }
    server_of(op)->asked = false;
    send_bytes(op, bytes, length);
}

static void send_raw(struct fake_op *op)
{
    uint8_t bytes[300];
    size_t length = byte();

    for (size_t i = 0; i < length; i++)
        bytes[i] = (uint8_t)byte();
    send_bytes(op, bytes, (int64_t)length);
}

/* ---- steps ---- */

static struct fake_op *some_op(void)
{
    int waiting = fake_waiting();

    return waiting ? fake_waiting_at((int)byte() % waiting) : NULL;
}

static void break_op(struct fake_op *op)
{
    static const int errors[] = {-BMI_ECONNRESET, -BMI_ECONNREFUSED, -BMI_EMSGSIZE,
                                 -BMI_ENOMEM};

    fake_finish(op, errors[byte() % 4], 0);
}

static bool something_cancelled(void)
{
    for (int i = fake_waiting(); i-- > 0;)
        if (fake_waiting_at(i)->canceled)
            return true;
    return false;
}

/* Lets time pass, except while the client waits for ends of operations, whose delay is not its
 * fault. */
static void let_pass(unsigned ms)
{
    if (!fake_has_job() && !something_cancelled())
        run.now += ms * INT64_C(1000000);
}

static void trouble(void)
{
    struct fake_op *op;

    switch (byte() % 8) {
    case 0:
        op = some_op();
        if (op != NULL)
            fake_lose(op->addr);
        break;
    case 1:
        run.interrupted = 1;
        break;
    case 2:
        run.at_once = byte();
        break;
    case 3:
        run.broken = 1 + byte() % 3;
        break;
    case 4:
        run.refuses = 1 + byte() % 2;
        break;
    case 5:
        run.signs = byte() * 16u;
        break;
    default:
        fake_lose(0);
    }
}

static void stray(unsigned what, struct fake_op *op)
{
    run.strayed = true;
    if (what == 15) {
        trouble();
    } else if (what == 14) {
        let_pass(byte() * 10);
    } else if (op == NULL) {
        return;
    } else if (what == 8) {
        break_op(op);
    } else if (op->send) {
        do_well(op);
    } else if (what == 9 || !is_reply(op)) {
        fake_finish(op, 0, op->size * byte() / 255);
    } else if (what == 10) {
        struct iod_message sign = {.op = server_of(op)->q.op, .flags = IOD_FLAG_WORKING};

        send_reply(op, &sign);
    } else if (what == 11) {
        send_raw(op);
    } else if (what == 12) {
        send_spoilt(op);
    } else {
        struct iod_message reply = should_say(server_of(op));

        for (unsigned n = 1 + byte() % 4; n > 0; n--)
            change(&reply);
        send_reply(op, &reply);
    }
}

/* Finally ends cancelled operations and lets the disk work. */
static void be_patient(void)
{
    if (!fake_has_job() && !something_cancelled()) {
        run.patience = 0;
    } else if (++run.patience > PATIENCE) {
        for (int i = fake_waiting(); i-- > 0;)
            if (fake_waiting_at(i)->canceled)
                fake_finish(fake_waiting_at(i), 0, 0);
        while (fake_run_job())
            ;
        run.patience = 0;
    }
}

static void poll_(int idle_ms)
{
    unsigned what;

    run.now += idle_ms > 10 && run.at < run.end ? 10000000 : idle_ms * INT64_C(1000000);
    be_patient();
    if (run.at == run.end) {
        FUZZ_CHECK(++run.last < LAST);
        if (run.goes_on)
            all_do_well();
        return;
    }
    run.strayed |= ++run.steps > SWIFT;
    what = byte() % 16;
    if (what == 0) {
        all_do_well();
    } else if (what < 6) {
        struct fake_op *op = some_op();

        if (op != NULL)
            do_well(op);
    } else if (what < 8) {
        fake_run_job();
    } else {
        stray(what, what < 14 ? some_op() : NULL);
    }
}

/* Checks that the client's request is valid for a server. */
static void read_request(const struct fake_op *op)
{
    struct server *s = server_of(op);
    struct iod_layout layout;
    struct iod_message q;

    FUZZ_CHECK(iod_request_decode(op->memory, (size_t)op->size, &q) == 0);
    s->q = q;
    layout = q.op == IOD_OP_PUT_OPEN ? q.layout : should_say(s).layout;
    if (q.op == IOD_OP_PUT_OPEN || q.op == IOD_OP_GET_OPEN)
        s->size = layout_object_size(&layout);
    s->total = q.op == IOD_OP_READ || q.op == IOD_OP_WRITE ? s->size : 0;
    s->moved = 0;
    s->asked = true;
    s->tag = op->tag;
}

static int posted(struct fake_op *op)
{
    if (run.broken > 0) {
        run.broken--;
        return -BMI_ECONNRESET;
    }
    if (op->unexpected)
        read_request(op);
    if (is_reply(op) && server_of(op)->asked && run.signs > 0) {
        struct iod_message sign = {.op = server_of(op)->q.op, .flags = IOD_FLAG_WORKING};

        run.signs--;
        send_reply(op, &sign);
        return 1;
    }
    if (run.at_once > 0) {
        run.at_once--;
        do_well(op);
    }
    return op->ended;
}

static int lookup(BMI_addr_t addr, const char *text)
{
    const char *last = strstr(text, "10.0.0.");

    if (run.refuses > 0) {
        run.refuses--;
        return -BMI_EADDRNOTAVAIL;
    }
    run.server[addr % SERVERS] =
        (struct server){.number = last != NULL ? atoi(last + 7) - 1 : 0, .tag = -1};
    return 0;
}

/* Returns whether to refuse; not while the client waits for ends, as above. */
static bool refuses(bool memory)
{
    (void)memory;
    if (run.refuses == 0 || fake_has_job() || something_cancelled())
        return false;
    run.refuses--;
    return true;
}

/* ---- a run ---- */

static void check_failure(const struct client *client)
{
    FUZZ_CHECK(client->failed && client->why[0]);
    for (const char *c = client->why; *c; c++)
        FUZZ_CHECK((unsigned char)*c >= ' ' && *c != 127);
}

static void check_target(const struct copy *copy, bool good)
{
    struct stat st;

    check_folder(good);
    if (!good)
        return;
    FUZZ_CHECK(stat(target, &st) == 0 && (uint64_t)st.st_size == copy->size);
    if (!run.strayed) {
        int fd = open(target, O_RDONLY);
        uint8_t bytes[4096];
        ssize_t n;

        FUZZ_CHECK(fd >= 0 && copy->size == run.layout.size);
        while ((n = read(fd, bytes, sizeof(bytes))) > 0)
            for (ssize_t i = 0; i < n; i++)
                FUZZ_CHECK(bytes[i] == FILL);
        close(fd);
    }
    unlink(target);
}

static bool do_task(const struct copy_options *options, unsigned which)
{
    static struct copy copy;
    static struct listing listing;
    bool good;

    if (run.task == LIST) {
        good = listing_take(&listing, &options->client, options->servers);
        listing_end(&listing);
        if (!good)
            check_failure(&listing.client);
        return good;
    }
    good = run.task == COPY_IN
               ? copy_in(&copy, options, source[which % 3], "ib://10.0.0.1:1", "name")
               : copy_out(&copy, options, "ib://10.0.0.1:1", "name", target);
    if (!good)
        check_failure(&copy.client);
    if (run.task == COPY_OUT)
        check_target(&copy, good);
    else if (good)
        FUZZ_CHECK(run.committed);
    return good;
}

uint64_t fuzz_trace(void)
{
    return fake_trace();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const struct fake_script script = {
        .poll = poll_, .posted = posted, .lookup = lookup, .refuses = refuses};
    static char *names[] = {"ib://10.0.0.1:1", "ib://10.0.0.2:1", "ib://10.0.0.3:1",
                            "ib://10.0.0.4:1"};
    static const uint64_t sizes[] = {0, 1, 4095, 4096, 10000, 20000, 32768, 40000};
    struct args_list servers = {.item = names};
    struct copy_options options = {.client = {.timeout_ms = 1000, .threads = 1},
                                   .servers = &servers};
    unsigned flags, which;
    bool good;

    fake_begin();
    if (size < HEAD)
        return 0;
    make_files();
    memset(&run, 0, sizeof(run));
    run.at = data;
    run.end = data + size;
    run.task = (int)byte() % TASKS;
    servers.count = (int)byte() % 5;
    flags = byte();
    run.goes_on = flags & 1;
    options.client.interrupted = &run.interrupted;
    options.buffers = 1 + byte() % 4;
    options.buffer_size = 4096u << byte() % 3;
    options.strip = run.layout.strip = 64u << byte() % 11;
    which = byte();
    run.layout.size = sizes[which % 8];
    run.layout.count = servers.count ? (uint32_t)servers.count : 1 + which / 8 % 4;
    (void)byte();
    if (run.task == LIST && servers.count == 0)
        servers.count = 1;
    fake_follow(&script);
    run.now = INT64_C(1000000000000);
    run.active = true;
    good = do_task(&options, which);
    run.active = false;
    FUZZ_CHECK(fake_end());
    if (!run.strayed && run.goes_on && (run.layout.count == 1 || servers.count))
        FUZZ_CHECK(good);
    return 0;
}

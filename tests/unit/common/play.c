/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <strings.h>
#include <sys/mman.h>

#include "engine/engine.h"
#include "play.h"
#include "proto/proto.h"
#include "scripted.h"
#include "tests/lib/clock.h"

#define OPTIONS                                                                                \
    "regcache_entries=0,poll_us=0,keepalive_ms=0,credits=8,fragment_bytes=64K,pool_bytes=64M," \
    "connect_timeout_ms=600000"
#define BYTES   (1 << 20)
#define PIECE   1000
#define PIECES  250
#define ZPIECE  10000
#define HANDLES 26
#define ZONES   8
#define PEERS   4

static char plain[2 * BYTES];
static struct posted op[26];
static int posts[26], reports[26];
static uint32_t handle[HANDLES], last; /* of the engine, in order of their names; its newest */
static unsigned handles, zones, peers;
static void *zone[ZONES];
static struct rme_addr *addr[PEERS];
static char said[4096];
static void (*write_down)(const struct rme_wire_message *message);

static struct {
    unsigned moves, open, links, advertised, errors;
} shown; /* numbers of the last answer */

/* ---- memory that runs out ---- */

static const struct kind {
    const char *name;
    size_t malloc, calloc;
} kinds[] = {
    {"any", SIZE_MAX, 0},
    {"fragment", 0,
     sizeof(struct rme_frag) + sizeof(struct rme_mseg) + sizeof(struct rme_range)},
    {"message", sizeof(struct rme_message), sizeof(struct rme_message)},
    {"offer", sizeof(struct rme_remote_window) + sizeof(struct rme_wire_segment), 0},
    {"rendezvous", sizeof(struct rme_rndv), 0},
    /* of a list of 20 pieces: one cut, four segments in each piece, see rme_split */
    {"transfer", (1 + 21 / 4 + 1) * sizeof(struct rme_rdma_seg) + 21 * sizeof(struct rme_sge),
     0},
    {"nothing", 0, 0},
};
static struct kind missing;

void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__wrap_calloc(size_t count, size_t size);

void *__wrap_malloc(size_t size)
{
    if (missing.malloc != 0 && (missing.malloc == SIZE_MAX || size == missing.malloc))
        return NULL;
    return __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return missing.calloc != 0 && count * size == missing.calloc ? NULL
                                                                 : __real_calloc(count, size);
}

static void run_out(const char *name)
{
    for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
        if (strcmp(name, kinds[i].name) == 0)
            missing = kinds[i];
}

/* ---- what the engine says ---- */

/* Adds a word to the answer; the same word again is counted. */
__attribute__((format(printf, 1, 2))) static void say(const char *format, ...)
{
    static char before[60];
    static unsigned times;
    size_t at = strlen(said);
    char word[60];
    va_list list;

    va_start(list, format);
    vsnprintf(word, sizeof(word), format, list);
    va_end(list);
    times = at > 0 && strcmp(word, before) == 0 ? times + 1 : 1;
    if (times == 2)
        snprintf(said + at, sizeof(said) - at, "*2");
    else if (times > 2)
        snprintf(strrchr(said, '*'), sizeof(said) - at, "*%u", times);
    else
        snprintf(said + at, sizeof(said) - at, "%s%s", at > 0 ? " " : "", word);
    strcpy(before, word);
}

static char name_of(uint32_t number)
{
    last = number;
    for (unsigned i = 0; i < handles; i++)
        if (handle[i] == number)
            return (char)('A' + i);
    if (handles == HANDLES)
        return '?';
    handle[handles++] = number;
    return (char)('A' + handles - 1);
}

static const char *status_of(uint32_t status)
{
    static const char *const name[] = {"read", "refused", "canceled", "no-memory", "broken"};

    return name[status];
}

static void heard(const struct rme_wire_message *m)
{
    const char *stalled = m->flags & RME_WIRE_F_STALLED ? "!" : "";

    write_down(m);
    switch (m->type) {
    case RME_WIRE_EAGER:
        say("%s:%d%s", m->flags & RME_WIRE_F_UNEXPECTED ? "ask" : "eager", m->tag, stalled);
        break;
    case RME_WIRE_RTS:
        say("rts:%d=%c", m->tag, name_of(m->from));
        if (m->nsegment > 0)
            say("offer:%llu", (unsigned long long)m->rndv_window);
        break;
    case RME_WIRE_CTS:
        if (m->flags & RME_WIRE_F_UNSOLICITED)
            say("invite:%d=%c", m->tag, name_of(m->from));
        else
            say("cts:%u=%c+%llu", m->to, name_of(m->from), (unsigned long long)m->rndv_window);
        break;
    case RME_WIRE_FIN:
        if (m->flags & RME_WIRE_F_EAGER)
            say("fin-eager:%llu", (unsigned long long)m->total);
        else
            say("fin:%u=%s", m->to, status_of(m->status));
        last = m->from != 0 ? m->from : last;
        break;
    case RME_WIRE_CANCEL:
        say("cancel:%c", name_of(m->from));
        break;
    case RME_WIRE_CREDIT:
        say("%s:%d+%u",
            m->flags & RME_WIRE_F_GRANT      ? "grant"
            : m->flags & RME_WIRE_F_WITHDRAW ? "withdraw"
            : m->flags & RME_WIRE_F_RELEASE  ? "release"
                                             : "credit",
            m->tag, m->credits);
        break;
    default:
        say("%s:%d%s",
            m->type == RME_WIRE_PING   ? "ping"
            : m->type == RME_WIRE_PONG ? "pong"
                                       : "bye",
            m->tag, stalled);
    }
}

static void reported(struct posted *p, int result, int64_t actual)
{
    static const struct {
        int number;
        const char *name;
    } error[] = {{-ECANCELED, "canceled"}, {-EMSGSIZE, "too-large"}, {-ENOMEM, "no-memory"},
                 {-ECONNRESET, "reset"},   {-EPROTO, "protocol"},    {-EFAULT, "fault"}};
    char name = (char)('a' + (p - op));

    reports[p - op]++;
    p->reports++;
    p->error = result;
    p->actual = actual;
    for (size_t i = 0; i < sizeof(error) / sizeof(error[0]); i++)
        if (result == error[i].number) {
            say("%c=%s", name, error[i].name);
            return;
        }
    say("%c=%lld", name, (long long)(result != 0 ? result : actual));
}

/* Polls until the engine is idle; reports are part of the answer. */
static void run(void)
{
    struct rme_done done;
    bool quiet;
    int count;

    do {
        quiet = script_is_quiet();
        count = rme_test_context(scripted.rme, 0, &done, 1, 0);
        assert_in_range(count, 0, 1);
        if (count == 1)
            reported(done.user, done.error, done.actual);
    } while (!quiet || count > 0);
}

static void show(const char *name, unsigned *before, unsigned now)
{
    if (*before != now)
        say("%s=%u", name, now);
    *before = now;
}

static void show_numbers(void)
{
    show("moves", &shown.moves, script.rdma_ops);
    show("open", &shown.open, script.open);
    show("links", &shown.links, script.links);
    show("advertised", &shown.advertised, script.advertised);
    show("errors", &shown.errors, (unsigned)scripted_counter("protocol_errors"));
}

/* ---- the peer ---- */

/* Returns the number, or that of a handle's name. */
static uint64_t number(const char *text)
{
    if (*text == '@')
        return last;
    if (*text >= 'A' && *text <= 'Z') {
        assert_true((unsigned)(*text - 'A') < handles);
        return handle[*text - 'A'];
    }
    return (uint64_t)strtoll(text, NULL, 0);
}

static const struct {
    const char *name;
    uint8_t flag;
} flags[] = {{"UNEXPECTED", RME_WIRE_F_UNEXPECTED},   {"FROM_SENDER", RME_WIRE_F_FROM_SENDER},
             {"UNSOLICITED", RME_WIRE_F_UNSOLICITED}, {"GRANT", RME_WIRE_F_GRANT},
             {"WITHDRAW", RME_WIRE_F_WITHDRAW},       {"RELEASE", RME_WIRE_F_RELEASE},
             {"STALLED", RME_WIRE_F_STALLED}};

struct letter {
    struct rme_wire_message message;
    uint64_t window, payload;
    bool has_credits;
};

static void set_field(struct letter *letter, const char *text)
{
    struct rme_wire_message *m = &letter->message;
    const char *value = strchr(text, '=');
    size_t length = value != NULL ? (size_t)(value - text) : strlen(text);
    uint64_t n = value != NULL ? number(value + 1) : 0;

    for (size_t i = 0; value == NULL && i < sizeof(flags) / sizeof(flags[0]); i++)
        if (strcmp(text, flags[i].name) == 0) {
            m->flags |= flags[i].flag;
            return;
        }
#define FIELD(name, ...)                                                                       \
    if (strlen(#name) == length && strncmp(text, #name, length) == 0) {                        \
        __VA_ARGS__;                                                                           \
        return;                                                                                \
    }
    FIELD(tag, m->tag = (int32_t)n)
    FIELD(to, m->to = (uint32_t)n)
    FIELD(from, m->from = (uint32_t)n)
    FIELD(offset, m->offset = n)
    FIELD(total, m->total = n; m->shape = 1)
    FIELD(status, m->status = (uint32_t)n)
    FIELD(window, letter->window = n; m->nsegment = 1)
    FIELD(bytes, letter->payload = n)
    FIELD(credits, m->credits = (uint16_t)n; letter->has_credits = true)
    FIELD(consumed, scripted.eager_consumed += (uint32_t)n)
#undef FIELD
    fail_msg("unknown field: %s", text);
}

/* `type` in small letters: before the link is up. */
static bool peer_says(unsigned link, const char *type, char *fields)
{
    static char area[BYTES];
    struct letter letter = {.window = 0};
    struct rme_wire_segment segment = {.address = (uintptr_t)area, .key = 7};
    uint8_t buffer[4096] = {0};
    size_t length;

    for (uint8_t i = RME_WIRE_EAGER; i <= RME_WIRE_PONG; i++)
        if (strcasecmp(type, rme_wire_type_name(i)) == 0)
            letter.message.type = i;
    if (letter.message.type == 0)
        return false;
    for (char *text = strtok_r(NULL, " ", &fields); text != NULL;
         text = strtok_r(NULL, " ", &fields))
        set_field(&letter, text);
    if (!letter.has_credits && !scripted.keeps) {
        letter.message.credits = (uint16_t)script.owed[link];
        script.owed[link] = 0;
    }
    segment.length = letter.window;
    letter.message.eager_consumed = link == 0 ? scripted.eager_consumed : 0;
    rme_wire_encode(&letter.message, buffer);
    if (letter.message.nsegment > 0)
        rme_wire_put_segment(buffer, letter.message.type, 0, &segment);
    length = rme_wire_length(letter.message.type, letter.message.nsegment) + letter.payload;
    (*type >= 'a' ? script_early_message : script_message)(link, buffer, length);
    return true;
}

static void peer_rings(const char *arguments)
{
    static uint8_t data[RME_WIRE_RING_SIZE + (64 << 10)];
    struct rme_wire_message message = {.type = RME_WIRE_EAGER, .tag = 3};
    unsigned at = 0, bytes = 0, length;

    if (sscanf(arguments, "%u %u %u", &at, &bytes, &length) < 3)
        length = bytes;
    rme_wire_encode_ring(&message, length, data);
    for (unsigned i = 0; i < bytes; i++)
        data[RME_WIRE_RING_SIZE + i] = (uint8_t)(i * 7);
    script_lent(0, at / RME_WIRE_RING_ALIGN, data, RME_WIRE_RING_SIZE + bytes);
}

static struct rme_hello hello;

/* Connects a peer, which introduces itself. */
static void meet(void)
{
    static const struct rme_wire_message message = {.type = RME_WIRE_EAGER,
                                                    .flags = RME_WIRE_F_UNEXPECTED};
    const struct rme_hello usual = scripted_hello();
    uint8_t buffer[RME_WIRE_HEADER_SIZE] = {0};

    scripted_arrive(peers, &usual);
    rme_wire_encode(&message, buffer);
    script_message(peers, buffer, sizeof(buffer));
    scripted_run();
    script.owed[peers] = 0;
    addr[peers++] = scripted.peer;
    scripted.peer = addr[0];
}

/* ---- the host ---- */

/* Returns memory of which only 64 KiB are mapped. */
static void *torn(void)
{
    static char *base;

    if (base == NULL) {
        base = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_true(base != MAP_FAILED);
        assert_int_equal(munmap(base + 65536, BYTES - 65536), 0);
    }
    return base;
}

static void *memory_of(const char *where, int64_t bytes)
{
    if (strcmp(where, "torn") == 0)
        return torn();
    if (*where != 'z')
        return plain;
    assert_true(zones < ZONES);
    zone[zones] = rme_memory_alloc(scripted.rme, (size_t)bytes + PIECES * 8);
    assert_non_null(zone[zones]);
    return zone[zones++];
}

static void post(unsigned link, const char *what, const char *arguments)
{
    void *base[PIECES + 1];
    int64_t length[PIECES], bytes = 0;
    struct rme_list list = {base, length, 1};
    char letter = 0, where[8] = "";
    struct posted *p;
    int32_t tag = 0;

    assert_in_range(sscanf(arguments, " %c %ld %d %7s", &letter, &bytes, &tag, where), 3, 4);
    p = &op[letter - 'a'];
    posts[letter - 'a']++;
    p->reports = 0;
    base[0] = memory_of(where, bytes);
    length[0] = bytes;
    if (strstr(where, "list") != NULL) {
        int piece = *where == 'z' ? ZPIECE : PIECE;

        list.count = (int)(bytes / piece);
        for (int i = 1; i <= list.count; i++) {
            length[i - 1] = piece;
            base[i] = (char *)base[i - 1] + piece + (*where == 'z' ? 8 : piece);
        }
    }
    p->rc =
        (*what == 'r') ? rme_post_recv(scripted.rme, addr[link], &list, tag, 0, p, NULL, &p->id)
        : *what == 'a' ? rme_post_unexpected(scripted.rme, addr[link], &list, tag, 0, p, &p->id)
                       : rme_post_send(scripted.rme, addr[link], &list, tag, 0, p, &p->id);
    assert_in_range(p->rc, 0, 1);
    if (p->rc == 1)
        reported(p, 0, bytes);
}

static bool fetch_one(void)
{
    struct rme_unexpected got;

    if (rme_test_unexpected(scripted.rme, &got, 1, 0) != 1)
        return false;
    say("got:%d", got.tag);
    return rme_unexpected_free(scripted.rme, got.buffer) == 0;
}

static void pass_time(void)
{
    say("sleeps");
    clock_step_ms(100);
}

/* Fetches one message, and sleeps once. */
static void fetch_and_sleep(void)
{
    struct rme_done done;

    fetch_one();
    script.sleeping = pass_time;
    assert_int_equal(rme_test_context(scripted.rme, 0, &done, 1, 10), 0);
    script.sleeping = NULL;
}

/* ---- lines ---- */

/* The number of transfers of each peer. */
static void see_shares(void)
{
    for (unsigned i = 0; i < peers; i++)
        say("%u:%u", i, addr[i]->peer->rdma_ops);
}

/* The number of credits returned since the last time. */
static void see_returned(void)
{
    unsigned sum = 0;

    for (unsigned i = 0; i < scripted.words; i++)
        sum += scripted.word[i].message.credits;
    scripted_hush();
    say("returned=%u", sum);
}

static void let_pass(unsigned ms)
{
    const unsigned each = ms < 100 ? 1 : ms / 100;

    for (unsigned passed = 0; passed < ms; passed += each) {
        clock_step_ms(ms - passed < each ? ms - passed : each);
        for (int i = 0; i < 10; i++)
            run();
    }
}

static void holds_what_the_peer_wrote(unsigned bytes)
{
    for (unsigned i = 0; i < bytes; i++)
        assert_int_equal(plain[i], (char)(i * 7));
    memset(plain, 0, bytes);
}

/* Loses the peer; it requests a link again, which is not up yet. */
static void request_again(void)
{
    uint8_t out[RME_HELLO_MAX] = {0};

    rme_addr_free(addr[0]);
    script_down(0, -ECONNRESET);
    scripted_run();
    rme_hello_encode(&hello, out);
    script_request(out, sizeof(out));
    scripted_run();
    said[0] = '\0';
}

static void skip_without_cache(void)
{
    if (rme_mreg_caches(scripted.rme->mreg))
        return;
    play_end();
    skip();
}

#define STEP(name, ...)                                                                        \
    if (strcmp(what, #name) == 0) {                                                            \
        __VA_ARGS__;                                                                           \
        return true;                                                                           \
    }

/* The host, the device, and resources that run out. */
static bool host_does(unsigned link, const char *what, const char *more)
{
    unsigned n = (unsigned)strtoul(more, NULL, 0);

    STEP(send, post(link, what, more))
    STEP(recv, post(link, what, more))
    STEP(ask, post(link, what, more))
    STEP(cancel, rme_cancel(scripted.rme, op[*more - 'a'].id))
    STEP(fetch, while (fetch_one()) continue)
    STEP(answer, fetch_one(); post(link, "send", more))
    STEP(doze, fetch_and_sleep())
    STEP(imm, script_imm(link, (uint32_t)number(more)))
    STEP(ring, peer_rings(more))
    STEP(keep, scripted.keeps = true)
    STEP(return, scripted.keeps = false)
    STEP(done, script_finish(n))
    STEP(oldest, script_finish(script.rdma_ops - 1))
    STEP(finish, for (; script.rdma_ops > 0; run()) script_finish(0))
    STEP(notx, script.no_tx = true)
    STEP(room, script_tx_room())
    STEP(noregs, script.no_regs = true)
    STEP(regs, script.no_regs = false)
    STEP(lack, run_out(more))
    STEP(slots, scripted.rme->tuning.rdma_ops = scripted.rme->tuning.rdma_ops_peer = n)
    return false;
}

/* Links, time, and additions to the answer. */
static bool link_does(unsigned link, const char *what, const char *more)
{
    unsigned n = (unsigned)strtoul(more, NULL, 0);

    STEP(cut, script_cut())
    STEP(down, script_down(link, -ECONNRESET))
    STEP(meet, meet())
    STEP(arrive, hello.credits = (uint16_t)n; scripted_arrive(1, &hello))
    STEP(most_rx, script.most_rx = n)
    STEP(returned, see_returned())
    STEP(have, say("have=%u", addr[0]->peer->credit.have))
    STEP(again, request_again())
    STEP(known, scripted_run(); addr[0] = scripted.peer)
    STEP(up, script_up(link, NULL, 0))
    STEP(unanswered, script_unanswered(-ECONNRESET))
    STEP(shares, see_shares())
    STEP(cached, skip_without_cache())
    STEP(wait, let_pass(n))
    STEP(quieted, say("quieted=%u", script.quieted))
    STEP(holds, holds_what_the_peer_wrote(n))
    STEP(see, say("%s=%llu", more, (unsigned long long)scripted_counter(more)))
    return false;
}

#undef STEP

static void step(char *text)
{
    unsigned link = 0;
    char *what, *more;

    while (*text == ' ')
        text++;
    if (*text >= '1' && *text < '0' + PEERS && text[1] == ':') {
        link = (unsigned)(*text - '0');
        text += 2;
    }
    what = strtok_r(text, " ", &more);
    if (!host_does(link, what, more) && !link_does(link, what, more) &&
        !peer_says(link, what, more))
        fail_msg("unknown step: %s %s", what, more);
    run();
}

void play_steps(const char *steps)
{
    char copy[400], *at;

    snprintf(copy, sizeof(copy), "%s", steps);
    for (char *text = strtok_r(copy, ";", &at); text != NULL; text = strtok_r(NULL, ";", &at))
        step(text);
}

uint32_t play_handle(void)
{
    return last;
}

const struct posted *play_operation(char name)
{
    return &op[name - 'a'];
}

/* Plays `line`, and compares the answer.  Returns whether the answer is right. */
static bool play_line(const char *line, size_t length)
{
    const char *answer = strstr(line, " >") + 2;
    size_t from = strspn(line, "0123456789");
    unsigned times = line[from] == '*' ? (unsigned)atoi(line) : 0;

    from = times > 0 ? from + 1 : 0;
    do {
        char steps[400];

        snprintf(steps, sizeof(steps), "%.*s", (int)(answer - 2 - line - from), line + from);
        said[0] = '\0';
        play_steps(steps);
    } while (times-- > 1);
    show_numbers();
    answer += *answer == ' ';
    if (strlen(said) == (size_t)(line + length - answer) &&
        strncmp(said, answer, strlen(said)) == 0)
        return true;
    print_error("%.*s%s%s\n", (int)(strstr(line, " >") + 2 - line), line, *said ? " " : "",
                said);
    return false;
}

static void (*how)(const char *options, const struct rme_hello *hello);

static void set_unusual(const char *field)
{
    const char *value = strchr(field, '=');
    unsigned n = value != NULL ? (unsigned)atoi(value + 1) : 0;

#define UNUSUAL(text, ...)                                                                     \
    if (strncmp(field, text, strlen(text)) == 0)                                               \
        __VA_ARGS__;
    UNUSUAL("credits", hello.credits = (uint16_t)n)
    UNUSUAL("rts_max", hello.rts_max = n)
    UNUSUAL("unexpected", hello.unexpected_window = n)
    UNUSUAL("ring", hello.flags |= RME_HELLO_F_RING)
    UNUSUAL("windows", script.mws = n)
    UNUSUAL("unsignalled", script.unsignalled = true)
    UNUSUAL("own_rx", script.own_rx = true) /* for more than one early message */
    UNUSUAL("keeps_rx", script.keeps_rx = true)
    UNUSUAL("connect", how = scripted_connect)
    UNUSUAL("modest", how = scripted_open_modest)
#undef UNUSUAL
}

void play_begin(const char *options, const char *unusual)
{
    char all[500], text[100], *at;

    hello = scripted_hello();
    how = scripted_open;
    script.mws = 1024;
    script.most_rx = 0;
    script.quieted = 0;
    snprintf(text, sizeof(text), "%s", unusual);
    for (char *field = strtok_r(text, " ", &at); field != NULL;
         field = strtok_r(NULL, " ", &at))
        set_unusual(field);
    snprintf(all, sizeof(all), "%s%s%s", OPTIONS, *options ? "," : "", options);
    memset(op, 0, sizeof(op));
    memset(posts, 0, sizeof(posts));
    memset(reports, 0, sizeof(reports));
    handles = zones = last = 0;
    how(all, &hello);
    addr[0] = scripted.peer;
    peers = 1;
    script.owed[0] = 0;
    write_down = script.heard;
    script.heard = heard;
    memset(&shown, 0, sizeof(shown));
    said[0] = '\0';
    show_numbers();
}

void play_end(void)
{
    run_out("nothing");
    script.no_tx = script.no_regs = false;
    script_cut();
    run();
    assert_memory_equal(posts, reports, sizeof(posts));
    assert_int_equal(scripted.rme->operations->table.live, 0);
    assert_int_equal(scripted.rme->rdma_ops + script.rdma_ops + script.open, 0);
    for (unsigned i = 0; i < zones; i++)
        assert_int_equal(rme_memory_free(scripted.rme, zone[i]), 0);
    while (peers > 1)
        rme_addr_free(addr[--peers]);
    scripted_close();
}

static void play_one(void **state)
{
    const struct play *play = *state;
    const char *line = play->lines;
    bool good = true;

    play_begin(play->options, play->hello);
    while (*line != '\0') {
        size_t length = strcspn(line, "\n");

        good &= play_line(line, length);
        line += length + (line[length] == '\n');
    }
    play_end();
    assert_true(good);
}

int play_all(const char *group, const struct play *plays, unsigned count)
{
    struct CMUnitTest *tests = calloc(count, sizeof(*tests));
    int failed;

    for (unsigned i = 0; i < count; i++)
        tests[i] = (struct CMUnitTest){
            .name = plays[i].name, .test_func = play_one, .initial_state = (void *)&plays[i]};
    failed = _cmocka_run_group_tests(group, tests, count, clock_setup, NULL);
    free(tests);
    return failed;
}

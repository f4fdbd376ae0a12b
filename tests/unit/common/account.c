/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The reference: checks messages and reports of the engine against it. */
#include "account.h"

struct side side[LINKS];
struct item item[OPS];
struct letter letter[LETTERS];
unsigned seed, first_seed, step, age;
uint32_t name;
uint64_t kept, pulling, offer;
struct rme *rme;
bool reads;
unsigned finished;
unsigned pick(unsigned limit)
{
    return (unsigned)rand_r(&seed) % limit;
}

struct side *side_of(unsigned slot)
{
    for (int i = 0; i < LINKS; i++)
        if ((side[i].up || side[i].asked) && side[i].slot == slot)
            return &side[i];
    return NULL;
}

/* Returns the oldest operation of this kind and state; `tag` -1: any. */
struct item *oldest(const struct side *s, enum kind kind, enum state state, int tag)
{
    struct item *best = NULL;

    for (struct item *i = item; i < item + OPS; i++)
        if (i->state == state && i->kind == kind && i->side == s &&
            (tag < 0 || i->tag == tag) && (best == NULL || i->age < best->age))
            best = i;
    return best;
}

unsigned count_of(const struct side *s, enum kind kind, enum state state)
{
    unsigned n = 0;

    for (const struct item *i = item; i < item + OPS; i++)
        n += i->state == state && i->kind == kind && i->side == s;
    return n;
}

static struct item *item_named(uint32_t ours, const struct side *s)
{
    for (struct item *i = item; i < item + OPS; i++)
        if (i->state != FREE && i->ours == ours && i->side == s && ours != 0)
            return i;
    return NULL;
}

static struct item *item_for(uint32_t theirs, const struct side *s)
{
    for (struct item *i = item; i < item + OPS; i++)
        if (i->state != FREE && i->theirs == theirs && i->side == s && theirs != 0)
            return i;
    return NULL;
}

static struct letter *letter_for(uint32_t theirs, const struct side *s)
{
    for (struct letter *l = letter; l < letter + LETTERS; l++)
        if (l->side == s && l->rts && l->theirs == theirs)
            return l;
    return NULL;
}

void over(struct item *i, int result, int64_t actual)
{
    i->state = OVER;
    i->result = result;
    i->actual = result == 0 ? actual : 0;
    i->open = false;
}

/* ---- what the engine says ---- */

static void heard_send(struct side *s, const struct rme_wire_message *m)
{
    bool rts = m->type == RME_WIRE_RTS;
    int stream = m->flags & RME_WIRE_F_UNEXPECTED ? UNEXPECTED : EXPECTED;
    struct item *i = oldest(s, stream == UNEXPECTED ? ASK : SEND, QUEUED,
                            stream == UNEXPECTED ? -1 : m->tag);

    MUST(i != NULL);
    MUST(i->tag == m->tag);
    MUST(i->size == (int64_t)(rts ? m->total : m->payload_length));
    if (!rts) {
        s->in[stream] += (uint32_t)i->size + COST;
        MUST(s->in[stream] - s->taken[stream] <= s->limit[stream]);
        over(i, 0, i->size);
        return;
    }
    MUST(count_of(s, i->kind, OFFERED) < s->rts_max);
    i->state = OFFERED;
    i->ours = m->from;
    i->open = m->nsegment > 0;
}

void letter_drop(struct letter *l)
{
    memset(l, 0, sizeof(*l));
}

/* Returns a receive for which an eager message of this size was too large. */
static struct item *refuses(const struct side *s, int64_t size)
{
    for (struct item *i = item; i < item + OPS; i++)
        if (i->side == s && i->state == MATCHED && i->refused && i->theirs == 0 &&
            i->actual == size)
            return i;
    return NULL;
}

static void heard_end(struct side *s, const struct rme_wire_message *m)
{
    struct letter *l = letter_for(m->to, s);
    struct item *i;

    if (m->flags & RME_WIRE_F_EAGER)
        i = refuses(s, (int64_t)m->total);
    else
        i = item_for(m->to, s);
    if (l != NULL && l->left) {
        MUST(m->status == RME_WIRE_CANCELED);
        letter_drop(l);
        return;
    }
    MUST(i != NULL && i->state != OVER);
    if (m->status == RME_WIRE_OK) {
        MUST(i->kind == RECV && i->state == MOVING && i->reads && finished > 0);
        finished--;
        over(i, 0, i->actual);
    } else if (m->status == RME_WIRE_TOO_LARGE) {
        MUST(i->kind == RECV && i->state == MATCHED && i->refused);
        over(i, -EMSGSIZE, 0);
    } else {
        MUST(m->status == RME_WIRE_CANCELED && i->stopped);
        over(i, -ECANCELED, 0);
    }
}

/* Checks the credits and windows of a header. */
static void heard_head(struct side *s, const struct rme_wire_message *m)
{
    uint32_t had = s->granted + s->returned - (script.owed[s->slot] - 1);
    unsigned need = m->type == RME_WIRE_EAGER || m->type == RME_WIRE_RTS ? DATA
                    : m->type == RME_WIRE_CREDIT                         ? RETURN
                                                                         : CONTROL;

    MUST(had >= (s->granted >= RESERVE ? need : 1) && had <= s->granted);
    s->have += m->credits;
    s->got_back += m->credits;
    MUST((int32_t)(s->used - s->got_back) >= 0);
    s->freed[EXPECTED] = m->eager_consumed;
    s->freed[UNEXPECTED] = m->unexpected_consumed;
    for (int k = 0; k < STREAMS; k++) {
        MUST((int32_t)(s->freed[k] - s->low[k]) >= 0);
        MUST((int32_t)(s->high[k] - s->freed[k]) >= 0);
    }
}

void heard(const struct rme_wire_message *m)
{
    struct side *s = side_of(script.speaker);
    struct letter *l;
    struct item *i;

    if (s == NULL)
        return; /* a link that is going down */
    heard_head(s, m);
    switch (m->type) {
    case RME_WIRE_EAGER:
    case RME_WIRE_RTS:
        heard_send(s, m);
        break;
    case RME_WIRE_CTS:
        i = item_for(m->to, s);
        l = letter_for(m->to, s);
        if (i != NULL) {
            MUST(i->kind == RECV && i->state == MATCHED && !i->refused);
            MUST((int64_t)m->rndv_window == i->actual);
            i->state = MOVING;
            i->open = true;
            i->ours = m->from;
        } else {
            MUST(l != NULL && l->unexpected && l->ours == 0);
            l->ours = m->from;
            l->pulled = true;
        }
        break;
    case RME_WIRE_FIN:
        heard_end(s, m);
        break;
    case RME_WIRE_CREDIT:
        s->have += (uint32_t)m->tag;
        s->promised += (uint32_t)m->tag;
        break;
    case RME_WIRE_PONG:
        s->granted -= (uint32_t)m->tag;
        break;
    case RME_WIRE_CANCEL:
        i = item_named(m->from, s);
        MUST(i != NULL && i->stopped && i->state != OVER);
        i->told = true;
        break;
    default:
        MUST(!"a message that nothing asks for");
    }
}

/* ---- the engine at rest ---- */

void reported(const struct rme_done *done)
{
    struct item *i = done->user;

    if (i->state == MOVING && i->kind != RECV && finished > 0) {
        finished--;
        over(i, 0, i->size);
    }
    MUST(i->state == OVER && i->id == done->id);
    if (i->confirmed && done->error == 0)
        over(i, 0, i->size);
    MUST(done->error == i->result ||
         (i->stopped && done->error == -ECANCELED && i->result != 0));
    MUST(done->actual == i->actual);
    free(i->memory);
    memset(i, 0, sizeof(*i));
}

void run(void)
{
    struct rme_done done;
    bool quiet;
    int count;

    do {
        quiet = script_is_quiet();
        count = rme_test_context(rme, 0, &done, 1, 0);
        MUST(count >= 0);
        if (count == 1)
            reported(&done);
    } while (!quiet || count > 0);
}

static uint64_t attribute(const struct side *s, const char *which)
{
    struct rme_counter counter;

    for (int i = 0; rme_session_get(rme, s->addr, i, &counter) == 0; i++)
        if (strcmp(counter.name, which) == 0)
            return counter.value;
    MUST(!"an attribute of the link");
    return 0;
}

/* Credits of the engine that are not in use. */
uint32_t free_of(const struct side *s)
{
    return s->granted + s->returned - script.owed[s->slot];
}

static void check_link(struct side *s)
{
    uint32_t unreturned = s->used - s->got_back;
    bool can = free_of(s) >= DATA && !script.no_tx;

    MUST(s->addr == NULL || attribute(s, "credits_granted") == s->granted);
    MUST(s->addr == NULL || attribute(s, "credits_free") == free_of(s));
    MUST(s->addr == NULL || attribute(s, "credits_promised") == s->promised);
    MUST(s->have + unreturned == s->promised);
    if (!can)
        return;
    MUST(unreturned == 0 || unreturned < s->promised / 2 || s->promised < RESERVE);
    MUST(count_of(s, RECV, MATCHED) == 0);
    for (enum kind k = SEND; k <= ASK; k++)
        MUST(oldest(s, k, QUEUED, -1) == NULL ||
             count_of(s, k, OFFERED) + count_of(s, k, MOVING) >= s->rts_max);
}

/* A failed receive is reported behind the unexpected sends of its tag. */
static bool asks(const struct side *s, int32_t tag)
{
    return oldest(s, ASK, QUEUED, tag) != NULL || oldest(s, ASK, OFFERED, tag) != NULL;
}

/* Sums that the engine must hold now. */
struct sums {
    uint64_t bytes, live, open, open_most;
    unsigned moving, links, stuck, pulls, offers;
    uint32_t lent;
};

static void sum_items(struct sums *sum)
{
    for (const struct item *i = item; i < item + OPS; i++) {
        sum->live += i->state != FREE;
        sum->open_most += i->open;
        sum->open += i->open && !i->stopped;
        sum->moving += i->state == MOVING && (i->kind != RECV || i->reads);
    }
    for (const struct letter *l = letter; l < letter + LETTERS; l++) {
        bool pull = l->rts && l->unexpected && !l->complete;

        if (l->side == NULL)
            continue;
        sum->bytes += kept + (!l->rts || l->unexpected ? (uint64_t)l->size : 0) +
                      (pull ? pulling : 0) + (l->rts && !l->unexpected && reads ? offer : 0);
        sum->offers += l->rts && !l->unexpected && reads;
        sum->live += pull;
        sum->pulls += pull;
        sum->open_most += l->pulled && !l->complete;
        sum->open += l->pulled && !l->complete;
    }
}

static void sum_links(struct sums *sum)
{
    sum->lent = script.advertised;
    for (struct side *s = side; s < side + LINKS; s++) {
        uint32_t refused = 0;

        if (!s->up)
            continue;
        check_link(s);
        sum->links++;
        sum->lent -= s->active ? s->first : 1;
        sum->stuck += free_of(s) < DATA;
        for (const struct item *i = item; i < item + OPS; i++)
            if (i->side == s && i->state == MATCHED && i->refused && i->theirs == 0)
                refused += (uint32_t)i->actual + COST;
        s->low[EXPECTED] = s->high[EXPECTED] - refused;
        s->low[UNEXPECTED] = s->high[UNEXPECTED];
    }
}

/* The sizes beside the payload are taken from the first message of each kind. */
static void check_bytes(const struct sums *sum)
{
    uint64_t have = rme_counter_value(rme, "rx_buffered_bytes"), more = have - sum->bytes;

    if (kept == 0 && sum->bytes > 0)
        kept = more;
    else if (pulling == 0 && sum->pulls == 1)
        pulling = more;
    else if (offer == 0 && sum->offers == 1)
        offer = more;
    else
        MUST(have == sum->bytes);
}

void check(void)
{
    struct sums sum = {0};

    run();
    sum_items(&sum);
    sum_links(&sum);
    check_bytes(&sum);
    for (const struct item *i = item; i < item + OPS; i++)
        MUST(i->state != OVER ||
             (i->kind == RECV && (sum.moving > 0 || asks(i->side, i->tag))));
    MUST(rme_counter_value(rme, "peers") == sum.links);
    MUST(rme_counter_value(rme, "ops_live") == sum.live);
    MUST(rme_counter_value(rme, "protocol_errors") == 0);
    MUST(side[LINKS - 1].asked || rme_counter_value(rme, "credits_lent") == sum.lent);
    MUST(script.open >= sum.open && script.open <= sum.open_most);
    MUST(script.rdma_ops + finished == sum.moving ||
         ((sum.stuck > 0 || script.no_tx) && script.rdma_ops + finished < sum.moving));
    MUST(sum.live > 0 || rme_counter_value(rme, "pack_bytes") == 0);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Addresses and unexpected messages.
 *
 * An address of a lookup stays until the host drops it: its peer is connected when needed, any
 * number of times, and all strings with the same hosts and ports share it.  An address of a
 * peer that connected to this side is made when its first message is reported, and has no use
 * after the end of that connection.
 *
 * The end of a peer.  Each testunexpected checks one peer of the ring, and those behind it as
 * long as they are dead, up to a limit: the cost does not grow with the number of peers, and
 * many that die at once are released soon.  The engine decides when a peer is over, because it
 * may still have messages of the peer.  The host is asked to forget a peer that is over, and
 * sends DROP_ADDR_QUERY as soon as it has no reference.  The answer is "drop" only if no
 * message of the peer is in the engine, at the host, or between the two:
 *
 *   - `drained`: the engine has reported all messages of the peer (rme_addr_is_over);
 *   - `held` counts messages from the time their sender is known until they are freed;
 *   - no thread is in testunexpected that was there when `drained` became true: such a thread
 *     may have a message that is not counted yet, or the address itself.  Threads that came
 *     later have neither, so threads in turn do not keep a dead peer;
 *   - `unsettled` is not 0 while a message is parked for lack of memory.
 *
 * Epochs.  A thread in testunexpected counts in `scans` under the epoch in which its call
 * began.  On a query, a new epoch begins as soon as no thread of the epoch before the current
 * one is left.  So two counters suffice, and two epochs later all threads of that time have
 * left.
 *
 * After the answer "not now" the host is asked again later.  After "drop" no thread looks at
 * the peer any more, because the address may be freed at any time; a host that got a new
 * reference meanwhile queries again when it drops that one.
 */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"
#include "bmi-method-callback.h"
#include "gossip.h"

static struct shim_addr *shim_addr_of(bmi_method_addr_p host)
{
    return host && host->method_type == self.method_id ? host->method_data : NULL;
}

static void link_into(struct shim_addr *ring, struct shim_addr *a)
{
    a->next = ring;
    a->prev = ring->prev;
    ring->prev->next = a;
    ring->prev = a;
}

static void unlink_from(struct shim_addr *a)
{
    if (self.cursor == a)
        self.cursor = a->next;
    a->prev->next = a->next;
    a->next->prev = a->prev;
}

static struct shim_addr *new_addr(struct rme_addr *peer)
{
    bmi_method_addr_p host = bmi_alloc_method_addr(self.method_id, sizeof(struct shim_addr));
    if (!host)
        return NULL;
    struct shim_addr *a = host->method_data;
    memset(a->guard, 0xff, sizeof(a->guard));
    a->host = host;
    a->peer = peer;
    a->refs = 1;
    a->prev = a->next = a; /* in no ring yet */
    return a;
}

/*
 * Returns the hosts and ports of the parts with our scheme, "h1:p1,h2:p2".  The text behind '/'
 * names a file system, not a peer.
 */
static char *make_key(const char *text)
{
    static const char scheme[] = SHIM_SCHEME "://";
    size_t length = 0;
    char *key = malloc(strlen(text) + 1);

    if (!key)
        return NULL;
    while (*(text += strspn(text, ", \t\n"))) {
        if (strncmp(text, scheme, sizeof(scheme) - 1) == 0) {
            const char *place = text + sizeof(scheme) - 1;
            size_t n = strcspn(place, "/, \t\n");
            if (length > 0)
                key[length++] = ',';
            memcpy(key + length, place, n);
            length += n;
        }
        text += strcspn(text, ", \t\n");
    }
    key[length] = '\0';
    return key;
}

/*
 * Walks the list, which has the addresses that this process looked up and did not drop: the
 * servers of its file systems, no clients.  A host caches addresses by their text, so it looks
 * up each text once.
 */
static struct shim_addr *find_lookup(const char *key)
{
    for (struct shim_addr *a = self.lookups.next; a != &self.lookups; a = a->next)
        if (strcmp(a->key, key) == 0)
            return a;
    return NULL;
}

/*
 * Can this client's first server be reached?  OrangeFS waits 10 s and more for a server that
 * refuses a connection, as for one whose connection was lost, but after a failed lookup it
 * takes the next address of its tab file, "ib://…,tcp://…".  So the lookups of a client fail
 * where a connection is refused or no route exists, until one lookup has succeeded.  A slow
 * answer does not fail the lookup.  The engine has logged the reason.
 */
static bool is_there(struct rme_addr *peer)
{
    if (!self.rme || atomic_load(&self.reached))
        return true;
    shim_start();
    int error = rme_addr_reach(self.rme, peer, SHIM_FIRST_LOOKUP_MS);
    shim_started(error == 0);
    if (error == 0)
        atomic_store(&self.reached, true);
    return error == 0 || error == -EINPROGRESS;
}

/* Called before initialize on a server, and with the host's locks held, so it only parses the
 * text. */
static bmi_method_addr_p shim_lookup(const char *text)
{
    struct rme_addr *peer = NULL;
    struct shim_addr *a = NULL;

    int ret = rme_addr_parse(SHIM_SCHEME, text, &peer);
    if (ret < 0) {
        if (ret == -EDESTADDRREQ)
            gossip_err("bmi_%s: bad address \"%s\": expected %s://%s\n", SHIM_SCHEME, text,
                       SHIM_SCHEME, SHIM_FORM);
        return NULL;
    }
    char *key = make_key(text);
    if (!key)
        goto no_key;
    pthread_mutex_lock(&self.lock);
    a = find_lookup(key);
    if (a) {
        a->refs++;
    } else if (self.rme && rme_addr_any_port(peer)) { /* no listening address any more */
        gossip_err(
            "bmi_%s: bad address \"%s\": 0 is any free port to listen on; give the number "
            "that the server got\n",
            SHIM_SCHEME, text);
    } else if ((a = new_addr(peer)) != NULL) {
        a->key = key;
        key = NULL;
        rme_addr_set_host(peer, a);
        peer = NULL;
        link_into(&self.lookups, a);
    }
    pthread_mutex_unlock(&self.lock);
    free(key);
no_key:
    if (peer)
        rme_addr_free(peer);
    if (a && !is_there(a->peer)) {
        shim_drop_addr(a->host);
        a = NULL;
    }
    return a ? a->host : NULL;
}

static void shim_adopt_lookups(void)
{
    pthread_mutex_lock(&self.lock);
    for (struct shim_addr *a = self.lookups.next; a != &self.lookups; a = a->next)
        a->host->method_type = self.method_id;
    pthread_mutex_unlock(&self.lock);
}

/* Called after finalize, too, when addresses exist without an engine. */
static void shim_drop_addr(bmi_method_addr_p host)
{
    struct shim_addr *a = host ? host->method_data : NULL;

    if (!a)
        return;
    pthread_mutex_lock(&self.lock);
    bool last = --a->refs == 0;
    if (last)
        unlink_from(a);
    pthread_mutex_unlock(&self.lock);
    if (!last)
        return;
    rme_addr_free(a->peer);
    free(a->key);
    bmi_dealloc_method_addr(host);
}

/* Returns true if all threads have left that were in testunexpected in this epoch or an earlier
 * one.  Called with the lock held. */
static bool scans_are_over(uint32_t since)
{
    while (self.epoch - since < 2 && atomic_load(&self.scans[(self.epoch + 1) & 1]) == 0)
        self.epoch++;
    return self.epoch - since >= 2;
}

static void shim_drop_query(struct method_drop_addr_query *query)
{
    struct shim_addr *a = shim_addr_of(query->addr);

    query->response = 0;
    if (!a)
        return;
    pthread_mutex_lock(&self.lock);
    if (a->drained && a->held == 0) {
        /* In this order: a message moves from a scan to the parked ones, and from either to
         * `held`, for which its thread needs the lock. */
        query->response = scans_are_over(a->drained_at) && atomic_load(&self.unsettled) == 0;
        a->forgotten = query->response == 1;
    }
    pthread_mutex_unlock(&self.lock);
}

static const char *shim_rev_lookup(bmi_method_addr_p host)
{
    const struct shim_addr *a = shim_addr_of(host);
    return a ? rme_addr_name(a->peer) : "UNKNOWN";
}

/* A rule of our scheme may be applied to an address of another method, which does not match. */
static int shim_query_range(bmi_method_addr_p host, const char *pattern, int netmask)
{
    const struct shim_addr *a = shim_addr_of(host);
    return a && rme_addr_match(a->peer, pattern, netmask) > 0;
}

/* ---- Unexpected messages ---- */

/* Peers that a thread has taken from the ring for one testunexpected. */
struct look {
    unsigned scan;                        /* index of its counter in `scans` */
    struct shim_addr *dead[SHIM_AT_ONCE]; /* some not drained; valid until the scan ends */
    int dead_count;
    BMI_addr_t drained[SHIM_AT_ONCE]; /* addresses of peers that may be freed at any time */
    int drained_count;
};

static void note_dead(struct look *look, struct shim_addr *a)
{
    if (a->forgotten)
        return;
    if (!a->drained) {
        look->dead[look->dead_count++] = a;
        return;
    }
    a->forgotten = true;
    look->drained[look->drained_count++] = a->known_as;
}

/* Begins a scan.  Checks one peer, and the next ones while they are dead; asks the host again
 * to forget those that it was asked about too early. */
static void begin_scan(struct look *look)
{
    struct shim_addr *first = NULL;

    look->dead_count = look->drained_count = 0;
    pthread_mutex_lock(&self.lock);
    look->scan = self.epoch & 1;
    atomic_fetch_add(&self.scans[look->scan], 1);
    for (int i = 0; i < SHIM_AT_ONCE; i++) {
        struct shim_addr *a = self.cursor;
        if (!a || a == &self.peers)
            a = self.peers.next;
        if (a == &self.peers || a == first)
            break;
        first = first ? first : a;
        self.cursor = a->next;
        if (!rme_addr_is_dead(a->peer))
            break;
        note_dead(look, a);
    }
    pthread_mutex_unlock(&self.lock);
    for (int i = 0; i < look->drained_count; i++)
        bmi_method_addr_forget_callback(look->drained[i]);
}

static void end_scan(const struct look *look)
{
    atomic_fetch_sub(&self.scans[look->scan], 1);
}

/* Asks the host to forget a dead peer, of which the engine has no messages. */
static void tell_host(struct shim_addr *dead)
{
    BMI_addr_t gone = 0;

    pthread_mutex_lock(&self.lock);
    if (!dead->drained)
        dead->drained_at = self.epoch;
    dead->drained = true;
    if (!dead->forgotten) {
        dead->forgotten = true;
        gone = dead->known_as;
    }
    pthread_mutex_unlock(&self.lock);
    if (gone)
        bmi_method_addr_forget_callback(gone);
}

/* Returns the address of a message's sender, if known, and counts the message in `held`. */
static struct shim_addr *hold_known(const struct rme_unexpected *m)
{
    pthread_mutex_lock(&self.lock);
    struct shim_addr *a = rme_addr_host(m->addr);
    if (a)
        a->held++;
    pthread_mutex_unlock(&self.lock);
    return a;
}

/* Registers a sender at the host; other threads see its address afterwards. */
static bool introduce(struct rme_addr *peer)
{
    struct shim_addr *a = new_addr(peer);
    if (!a)
        return false;
    a->known_as = bmi_method_addr_reg_callback(a->host);
    if (!a->known_as) {
        bmi_dealloc_method_addr(a->host);
        return false;
    }
    pthread_mutex_lock(&self.lock);
    rme_addr_set_host(peer, a);
    link_into(&self.peers, a);
    pthread_mutex_unlock(&self.lock);
    return true;
}

static struct shim_addr *sender_of(const struct rme_unexpected *m)
{
    struct shim_addr *a = hold_known(m);
    if (a)
        return a;
    pthread_mutex_lock(&self.newcomer);
    a = hold_known(m);
    if (!a && introduce(m->addr))
        a = hold_known(m);
    pthread_mutex_unlock(&self.newcomer);
    return a;
}

/*
 * Takes parked messages.  A message whose sender cannot be registered for lack of memory is
 * parked for the next call: its loss would leave the sender waiting for an answer.  Parked
 * messages precede those of the engine, which keeps each sender's order.  Another thread may
 * register the sender meanwhile, and the sender may die: its address stays while `unsettled` is
 * not 0.  The caller subtracts each message that it has handled from `unsettled`.
 */
static int take_parked(struct rme_unexpected *message, int max)
{
    if (atomic_load_explicit(&self.unsettled, memory_order_relaxed) == 0)
        return 0;
    pthread_mutex_lock(&self.newcomer);
    int count = self.parked_count, n = count < max ? count : max;
    memcpy(message, self.parked, (size_t)n * sizeof(*message));
    memmove(self.parked, self.parked + n, (size_t)(count - n) * sizeof(*message));
    self.parked_count = count - n;
    pthread_mutex_unlock(&self.newcomer);
    return n;
}

/* Parks messages, before the others if they came from there. */
static void park(const struct rme_unexpected *message, int n, bool first)
{
    pthread_mutex_lock(&self.newcomer);
    int count = self.parked_count, fit = n <= SHIM_PARKED - count ? n : SHIM_PARKED - count;
    struct rme_unexpected *at = self.parked + (first ? 0 : count);
    if (first)
        memmove(at + fit, at, (size_t)count * sizeof(*at));
    memcpy(at, message, (size_t)fit * sizeof(*at));
    self.parked_count = count + fit;
    atomic_fetch_add(&self.unsettled, fit);
    pthread_mutex_unlock(&self.newcomer);
    for (int i = fit; i < n; i++) {
        gossip_err("bmi_%s: message of %s lost: out of memory\n", SHIM_SCHEME,
                   rme_addr_name(message[i].addr));
        rme_unexpected_free(self.rme, message[i].buffer);
    }
}

static bool is_among(const struct rme_unexpected *message, int n, const struct rme_addr *addr)
{
    while (n-- > 0)
        if (message[n].addr == addr)
            return true;
    return false;
}

static void shim_free_messages(void)
{
    /* frees senders that were never registered; the others belong to the host */
    for (int i = 0; i < self.parked_count; i++) {
        struct rme_addr *addr = self.parked[i].addr;
        if (!is_among(self.parked, i, addr) && !rme_addr_host(addr)) /* else it may be freed */
            rme_addr_free(addr);
    }
    self.parked_count = 0;
    atomic_store(&self.unsettled, 0);
}

static int shim_test_unexpected(int incount, int *outcount,
                                struct bmi_method_unexpected_info *info, int idle_ms)
{
    struct rme_unexpected message[SHIM_AT_ONCE];
    int count = 0, again = 0;

    *outcount = 0;
    if (!self.rme || incount <= 0)
        return 0;
    int max = incount < SHIM_AT_ONCE ? incount : SHIM_AT_ONCE;
    struct look look;
    begin_scan(&look);
    int n = take_parked(message, max);
    bool parked = n > 0;
    if (!parked)
        n = rme_test_unexpected(self.rme, message, max, idle_ms);
    for (int i = 0; i < n; i++) {
        const struct rme_unexpected m = message[i];
        struct shim_addr *a = is_among(message, again, m.addr) ? NULL : sender_of(&m);
        if (!a) {
            message[again++] = m;
            continue;
        }
        info[count++] = (struct bmi_method_unexpected_info){
            .addr = a->host, .buffer = m.buffer, .size = m.size, .tag = m.tag};
    }
    if (again > 0)
        park(message, again, parked);
    if (parked)
        atomic_fetch_sub(&self.unsettled, n);
    for (int i = 0; i < look.dead_count && !parked; i++)
        if (rme_addr_is_over(look.dead[i]->peer))
            tell_host(look.dead[i]);
    end_scan(&look);
    *outcount = count;
    return 0;
}

/* The sender exists, because the message counts in `held` until it is freed. */
static int shim_unexpected_free(void *buffer)
{
    struct rme_addr *sender;

    if (!self.rme) /* rme_close has freed the memory */
        return 0;
    int ret = rme_unexpected_return(self.rme, buffer, &sender);
    if (ret == 0) {
        pthread_mutex_lock(&self.lock);
        struct shim_addr *a = rme_addr_host(sender);
        if (--a->held == 0)
            a->forgotten = false;
        pthread_mutex_unlock(&self.lock);
    }
    return shim_error(ret);
}

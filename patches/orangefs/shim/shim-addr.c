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
 * many that die together are released soon.  A peer is over (rme_addr_is_over) when the engine,
 * this method and the host have no message of the peer; a peer that is over stays so.  The host
 * is asked to forget a peer that is over, and sends DROP_ADDR_QUERY as soon as it has no
 * reference.  A thread that looks at a peer holds `lock`, without which no address is freed;
 * any other thread with an address of the ring has a message of that peer.
 */
#include <errno.h>
#include <string.h>

#include "shim.h"
#include "bmi-method-callback.h"
#include "gossip.h"

static struct shim_addr *shim_addr_of(bmi_method_addr_p host)
{
    return host != NULL && host->method_type == self.method_id ? host->method_data : NULL;
}

static struct shim_addr *new_addr(struct rme_addr *peer)
{
    bmi_method_addr_p host = bmi_alloc_method_addr(self.method_id, sizeof(struct shim_addr));
    struct shim_addr *a;
    if (host == NULL)
        return NULL;
    a = host->method_data;
    memset(a->guard, 0xff, sizeof(a->guard));
    a->host = host;
    a->peer = peer;
    a->refs = 1;
    a->prev = a->next = a; /* not among the peers */
    a->chain = NULL;
    return a;
}

/* Returns the head of the chain of lookups with a name (FNV-1a). */
static struct shim_addr **chain_of(const char *name)
{
    uint32_t hash = 2166136261u;
    for (; *name; name++)
        hash = (hash ^ (unsigned char)*name) * 16777619u;
    return &self.named[hash % SHIM_CHAINS];
}

/* Unlinks an address from the peers, or from its chain if it was looked up. */
static void unlink_addr(struct shim_addr *a)
{
    struct shim_addr **at = chain_of(rme_addr_name(a->peer));
    while (*at != NULL && *at != a)
        at = &(*at)->chain;
    if (*at != NULL)
        *at = a->chain;
    if (self.cursor == a)
        self.cursor = a->next;
    a->prev->next = a->next;
    a->next->prev = a->prev;
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
    int error;
    if (self.rme == NULL || atomic_load(&self.reached))
        return true;
    shim_start();
    error = rme_addr_reach(self.rme, peer, SHIM_FIRST_LOOKUP_MS);
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

    int ret = rme_addr_parse(SHIM_SCHEME, text, &peer);
    struct shim_addr *a, **chain;
    if (ret < 0) {
        if (ret == -EDESTADDRREQ)
            gossip_err("bmi_%s: bad address \"%s\": expected %s://%s\n", SHIM_SCHEME, text,
                       SHIM_SCHEME, SHIM_FORM);
        return NULL;
    }
    chain = chain_of(rme_addr_name(peer));
    pthread_mutex_lock(&self.lock);
    for (a = *chain; a != NULL && strcmp(rme_addr_name(a->peer), rme_addr_name(peer)) != 0;)
        a = a->chain;
    if (a != NULL) {
        a->refs++;
    } else if (self.rme != NULL && rme_addr_any_port(peer)) {
        /* the listening address is looked up before initialize */
        gossip_err(
            "bmi_%s: bad address \"%s\": 0 is any free port to listen on; give the number "
            "that the server got\n",
            SHIM_SCHEME, text);
    } else if ((a = new_addr(peer)) != NULL) {
        rme_addr_set_host(peer, a);
        peer = NULL;
        a->chain = *chain;
        *chain = a;
    }
    pthread_mutex_unlock(&self.lock);
    if (peer != NULL)
        rme_addr_free(peer);
    if (a != NULL && !is_there(a->peer)) {
        shim_drop_addr(a->host);
        a = NULL;
    }
    return a != NULL ? a->host : NULL;
}

static void shim_adopt_lookups(void)
{
    pthread_mutex_lock(&self.lock);
    for (int i = 0; i < SHIM_CHAINS; i++)
        for (struct shim_addr *a = self.named[i]; a != NULL; a = a->chain)
            a->host->method_type = self.method_id;
    pthread_mutex_unlock(&self.lock);
}

/* Also called after finalize, when addresses exist without an engine. */
static void shim_drop_addr(bmi_method_addr_p host)
{
    struct shim_addr *a = host != NULL ? host->method_data : NULL;
    bool last;

    if (a == NULL)
        return;
    pthread_mutex_lock(&self.lock);
    last = --a->refs == 0;
    if (last)
        unlink_addr(a);
    pthread_mutex_unlock(&self.lock);
    if (!last)
        return;
    rme_addr_free(a->peer);
    bmi_dealloc_method_addr(host);
}

static void shim_drop_query(struct method_drop_addr_query *query)
{
    struct shim_addr *a = shim_addr_of(query->addr);

    query->response = 0;
    if (a == NULL)
        return;
    pthread_mutex_lock(&self.lock);
    query->response = rme_addr_is_over(a->peer);
    a->forgotten |= query->response == 1; /* the host need not be asked */
    pthread_mutex_unlock(&self.lock);
}

static const char *shim_rev_lookup(bmi_method_addr_p host)
{
    const struct shim_addr *a = shim_addr_of(host);
    return a != NULL ? rme_addr_name(a->peer) : "UNKNOWN";
}

/* A rule of our scheme may be applied to an address of another method, which does not match.
 * OrangeFS passes 32 for a rule without bits, which is the whole address, also of IPv6. */
static int shim_query_range(bmi_method_addr_p host, const char *pattern, int netmask)
{
    static atomic_flag warned = ATOMIC_FLAG_INIT;
    const struct shim_addr *a = shim_addr_of(host);
    int match = a != NULL ? rme_addr_match(a->peer, pattern, netmask == 32 ? -1 : netmask) : 0;

    if (match < 0 && !atomic_flag_test_and_set(&warned))
        gossip_err("bmi_%s: rule \"%s\": selects no client: host names are not resolved; use "
                   "addresses\n",
                   SHIM_SCHEME, pattern);
    return match > 0;
}

/* ---- Unexpected messages ---- */

/* Checks one peer, and the next ones while they are dead; asks the host to forget those that
 * are over. */
static void find_dead_peers(void)
{
    BMI_addr_t over[SHIM_AT_ONCE];
    struct shim_addr *first = NULL;
    int n = 0;

    pthread_mutex_lock(&self.lock);
    for (int i = 0; i < SHIM_AT_ONCE; i++) {
        struct shim_addr *a = self.cursor;
        if (a == NULL || a == &self.peers)
            a = self.peers.next;
        if (a == &self.peers || a == first)
            break;
        first = first != NULL ? first : a;
        self.cursor = a->next;
        if (!rme_addr_is_dead(a->peer))
            break;
        if (!a->forgotten && rme_addr_is_over(a->peer)) {
            a->forgotten = true;
            over[n++] = a->known_as;
        }
    }
    pthread_mutex_unlock(&self.lock);
    for (int i = 0; i < n; i++)
        bmi_method_addr_forget_callback(over[i]);
}

/* Registers a sender at the host; other threads see its address afterwards. */
static struct shim_addr *introduce(struct rme_addr *peer)
{
    struct shim_addr *a = new_addr(peer);
    if (a == NULL)
        return NULL;
    a->known_as = bmi_method_addr_reg_callback(a->host);
    if (!a->known_as) {
        bmi_dealloc_method_addr(a->host);
        return NULL;
    }
    pthread_mutex_lock(&self.lock);
    rme_addr_set_host(peer, a);
    a->next = &self.peers;
    a->prev = self.peers.prev;
    a->prev->next = a;
    self.peers.prev = a;
    pthread_mutex_unlock(&self.lock);
    return a;
}

static struct shim_addr *sender_of(struct rme_addr *peer)
{
    struct shim_addr *a = rme_addr_host(peer);
    if (a != NULL)
        return a;
    pthread_mutex_lock(&self.newcomer);
    a = rme_addr_host(peer);
    if (a == NULL)
        a = introduce(peer);
    pthread_mutex_unlock(&self.newcomer);
    return a;
}

/*
 * Takes parked messages.  A message whose sender cannot be registered for lack of memory is
 * parked for the next call: its loss would leave the sender waiting for an answer.  Parked
 * messages precede those of the engine, which keeps each sender's order.
 */
static int take_parked(struct rme_unexpected *message, int max)
{
    int count, n;
    if (atomic_load_explicit(&self.parked_count, memory_order_relaxed) == 0)
        return 0;
    pthread_mutex_lock(&self.newcomer);
    count = self.parked_count;
    n = count < max ? count : max;
    memcpy(message, self.parked, (size_t)n * sizeof(*message));
    memmove(self.parked, self.parked + n, (size_t)(count - n) * sizeof(*message));
    self.parked_count = count - n;
    pthread_mutex_unlock(&self.newcomer);
    return n;
}

/* Parks messages, before the others if they are from there. */
static void park(const struct rme_unexpected *message, int n, bool first)
{
    int count, fit;
    struct rme_unexpected *at;
    pthread_mutex_lock(&self.newcomer);
    count = self.parked_count;
    fit = n <= SHIM_PARKED - count ? n : SHIM_PARKED - count;
    at = self.parked + (first ? 0 : count);
    if (first)
        memmove(at + fit, at, (size_t)count * sizeof(*at));
    memcpy(at, message, (size_t)fit * sizeof(*at));
    self.parked_count = count + fit;
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
        if (!is_among(self.parked, i, addr) &&
            rme_addr_host(addr) == NULL) /* else it may be freed */
            rme_addr_free(addr);
    }
    self.parked_count = 0;
}

static int shim_test_unexpected(int incount, int *outcount,
                                struct bmi_method_unexpected_info *info, int idle_ms)
{
    struct rme_unexpected message[SHIM_AT_ONCE];
    int count = 0, again = 0;
    int max, n;
    bool parked;

    *outcount = 0;
    if (self.rme == NULL || incount <= 0)
        return 0;
    max = incount < SHIM_AT_ONCE ? incount : SHIM_AT_ONCE;
    find_dead_peers();
    n = take_parked(message, max);
    parked = n > 0;
    if (!parked)
        n = rme_test_unexpected(self.rme, message, max, idle_ms);
    for (int i = 0; i < n; i++) {
        const struct rme_unexpected m = message[i];
        struct shim_addr *a = is_among(message, again, m.addr) ? NULL : sender_of(m.addr);
        if (a == NULL) {
            message[again++] = m;
            continue;
        }
        info[count++] = (struct bmi_method_unexpected_info){
            .addr = a->host, .buffer = m.buffer, .size = m.size, .tag = m.tag};
    }
    if (again > 0)
        park(message, again, parked);
    *outcount = count;
    return 0;
}

static int shim_unexpected_free(void *buffer)
{
    if (self.rme == NULL) /* rme_close has freed the memory */
        return 0;
    return shim_error(rme_unexpected_free(self.rme, buffer));
}

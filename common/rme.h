/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * rme.h - the RDMA message engine, as its host sees it.
 *
 * The engine moves tagged messages between peers over a fabric, which is a network.  It is
 * neutral: it knows no header of a network or of PVFS2.  A shim turns this API into a BMI
 * method; the same shim serves OrangeFS and the embedded BMI core.
 *
 * Rules that hold for every function unless its comment says otherwise:
 *  - any function may be called from any thread at any time between rme_open and rme_close of
 *    its engine;
 *  - results are 0 or a negative errno; sizes are bytes; times are milliseconds;
 *  - no function waits for a peer.  Only functions with a `wait_ms` argument sleep, and no
 *    longer than that;
 *  - host callbacks are called without the engine's lock held, but for `dropped` (below);
 *  - an engine belongs to the process that opened it.  In a child by fork() its calls do
 *    nothing and fail, with -ENODEV where they return an error, and rme_close gives nothing up;
 *    the parent goes on undisturbed.  A child may open an engine of its own.
 *
 * An operation that was accepted ends exactly once: it is reported by one of the rme_test
 * functions with success or an error, whatever happens to the peer, the device or the engine's
 * other users.  If its context has been closed `dropped` is called instead, and if its engine
 * is, nothing.
 */
#ifndef RME_H
#define RME_H

#include <stddef.h>
#include <stdint.h>
#include <stdbool.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#define RME_API __attribute__((visibility("default")))

#define RME_UNEXPECTED_MAX 16384 /* the largest unexpected message in bytes; BMI fixes it */
#define RME_MAX_CONTEXTS   16    /* contexts are numbered 0 … 15 by the host */
#define RME_MAX_URI        2048  /* the longest address string, with its final zero */

struct rme;            /* one engine: one fabric, its peers and its operations */
struct rme_addr;       /* the host's name for a peer; independent of any engine's life */
struct rme_fabric_ops; /* a fabric; its library has a function that gives it */

typedef uint64_t rme_id; /* an operation; never 0, never used again while its engine lives */

/* NOTICE: why something fails whose error the host is given, and may report itself. */
enum rme_log_level { RME_LOG_ERROR, RME_LOG_WARN, RME_LOG_NOTICE, RME_LOG_INFO, RME_LOG_DEBUG };

/* Takes one finished line without a newline. */
typedef void (*rme_log_fn)(void *arg, enum rme_log_level level, const char *line);

/* What rme_open needs.  All strings are copied. */
struct rme_config {
    const struct rme_fabric_ops *fabric;
    const struct rme_addr *listen; /* NULL for a client */
    /* listen only on the address named, not on all of the host's */
    bool bind_specific;
    /* "key=value,key=value"; NULL for none; unknown keys may be others' */
    const char *options;
    bool options_are_mine; /* they are for nobody else: an unknown key is warned of */
    rme_log_fn log;        /* NULL: nothing is logged */
    void *log_arg;
    /* NULL, or called once for each operation that is over and will not be reported, as its
     * context has been closed; `user` is the operation's, and the host's again.  The engine's
     * lock is held: it calls no function of the engine and waits for nobody who does. */
    void (*dropped)(void *arg, void *user);
    void *dropped_arg;
};

/*
 * Opens an engine.  On failure *out is untouched, nothing stays behind, and one error line has
 * gone to the log.  Errors: -EINVAL a wrong option value, -ENODEV no usable device,
 * -EADDRINUSE, -EADDRNOTAVAIL, -ENOMEM, -EMFILE, -ENFILE.
 */
RME_API int rme_open(const struct rme_config *config, struct rme **out);

/*
 * Closes an engine: disconnects all peers, frees all operations without reporting them, and all
 * memory it handed out.  The caller ensures that no other call is running.  Addresses outlive
 * it: they are detached, may be freed later with rme_addr_free, or used with an engine opened
 * later.
 */
RME_API void rme_close(struct rme *rme);

/* The port that the first part of the listening address got: another than it names only where
 * it names 0.  -ENOTCONN: the engine listens nowhere, or its network has no ports. */
RME_API int rme_listen_port(const struct rme *rme);

/* ---- Addresses ---- */

/*
 * Makes an address from text like "ib://host:port[/anything][,ib://host2:port2…]"; parts with
 * another scheme are skipped.  IPv6 hosts stand in brackets.  Needs no engine, resolves
 * nothing, never blocks.  A port of 0 is any free one, to listen on; nobody can connect to it.
 * Returns -EINVAL when no part has `scheme`, -EDESTADDRREQ when a part has it and is malformed.
 */
RME_API int rme_addr_parse(const char *scheme, const char *text, struct rme_addr **out);

/* Is the port of one of its parts 0? */
RME_API bool rme_addr_any_port(const struct rme_addr *addr);

/*
 * Frees an address.  Its peer, if an engine has one, is disconnected and its operations end
 * with -ECONNRESET.  Allowed at any time, also after rme_close.  The caller ensures that nobody
 * uses the address any more.
 */
RME_API void rme_addr_free(struct rme_addr *addr);

/* The text for log lines: what was parsed, or host:port of the peer that connected to us.
 * Lives as long as addr. */
RME_API const char *rme_addr_name(const struct rme_addr *addr);

/* True once the peer is gone and the address cannot be connected again (it belonged to a peer
 * that came to us). */
RME_API bool rme_addr_is_dead(const struct rme_addr *addr);

/* True once it is dead and rme_test_unexpected has reported all messages of it, also those that
 * were complete but not to be reported yet.  To free it before loses them. */
RME_API bool rme_addr_is_over(const struct rme_addr *addr);

/*
 * Does the peer match "host", "a.b.c.d" or a network with `netmask` leading bits?  `pattern`
 * may carry a scheme.  1 yes, 0 no (also when not parsable, or when we never connected it).  A
 * peer that came to us is known by where it came from, also when it is gone: it does not escape
 * the host's rules by leaving.
 */
RME_API int rme_addr_match(const struct rme_addr *addr, const char *pattern, int netmask);

/*
 * Connects an address that was looked up, if it is not connected, and waits for the outcome,
 * wait_ms at most.  0: it is connected.  -EINPROGRESS: that is not known yet; connecting goes
 * on.  -EINVAL: the address is another engine's.  Else why it cannot be connected now, one of
 * the errors at completion below.
 */
RME_API int rme_addr_reach(struct rme *rme, struct rme_addr *addr, int wait_ms);

/* A word for the host (the shim keeps its method address here). */
RME_API void rme_addr_set_host(struct rme_addr *addr, void *host);
RME_API void *rme_addr_host(const struct rme_addr *addr);

/* ---- Contexts ---- */

/* Opens context `ctx` (0 … RME_MAX_CONTEXTS-1).  -EINVAL out of range, -EEXIST open already. */
RME_API int rme_context_open(struct rme *rme, int ctx);

/* Closes it.  Operations of it go on, and are dropped when they end; those that have ended and
 * were not fetched, before this returns. */
RME_API void rme_context_close(struct rme *rme, int ctx);

/* ---- Operations ---- */

/* The memory of one operation: `count` pieces.  The arrays are copied, the memory they name is
 * not. */
struct rme_list {
    void *const *base;     /* start of each piece; may be NULL where its length is 0 */
    const int64_t *length; /* bytes of each piece, 0 allowed */
    int count;             /* 0 allowed: a message without bytes */
};

/*
 * Post a send, an unexpected send (at most RME_UNEXPECTED_MAX bytes), a receive.
 *
 * Returns 0 with *id set when the operation is under way, 1 when it is complete already (*id is
 * 0; for a receive *actual is set), or a negative errno when nothing was started.  A receive
 * never returns 1.  `actual` may be NULL.  `user` comes back with the completion.  The list's
 * memory belongs to the engine until the completion is reported.
 *
 * A receive at an address that was looked up gets what its process sends back over the same
 * link, and nothing that the process sends over a link of its own.
 *
 * What a peer says on a connection after it had got the data of a send, or had given that of a
 * receive, is seen after the end of that send or receive: no answer, expected or unexpected, is
 * reported before the transfer that it answers.  Nothing else waits for a transfer (defer.c).
 *
 * A peer that is not connected is connected in the background.  Messages with the same (peer,
 * tag) match receives in the order of posting, whatever their sizes.  A message that waits for
 * its memory to be made ready, or because the peer's host has taken too few messages, holds
 * back those of its tag and no others that could go.  Unexpected messages of a peer are
 * reported in the order of posting, whatever their tags.
 *
 * A receive larger than the message is right; a smaller one ends with -EMSGSIZE, and so does a
 * large send; a small (eager) one is complete when its bytes are copied out, perhaps long
 * before it meets a receive, and stays so.  What is refused then is logged in one line and
 * counted (eager_refused).  With the option eager_max=0 no send with a payload is complete
 * before it has met its receive: both sides always get the error.
 *
 * Errors: -EINVAL bad list or context, -EMSGSIZE unexpected message too large, -ENOMEM,
 * -ECONNRESET the address is dead.  Errors at completion: -ECONNREFUSED, -EHOSTUNREACH,
 * -ETIMEDOUT, -ECONNRESET (the peer), -EMSGSIZE, -EPROTO, -ENOMEM, -ECANCELED, -EFAULT (memory
 * that a device was to use is not there, or a receive's cannot be written).
 *
 * Memory that is not there is noticed as -EFAULT where the device moves the data, or was to and
 * could not be given the memory: in messages that are larger than eager_max and not copied,
 * which the options pack_threshold and lists and the costs say (rme_explain).  All others are
 * copied by the processor, which touches the list's memory as memcpy does: a send that names
 * memory that cannot be read, or a receive with memory that cannot be written, gets SIGSEGV, in
 * the thread that copies, which may be any that calls the engine.  To look first would cost a
 * small message more than all the rest of it.  Memory that is there, but protected, is at the
 * kernel's discretion: Linux 6.1 opens it to a real device all the same.
 *
 * Memory that is protected (mprotect) after an operation used it: the cache of registrations,
 * which keeps what the host's own memory was registered for, hears nothing of that.  A later
 * receive into memory that has become read-only is written there by a real device, and ends the
 * connection over the software HCA; a send of memory that may not be read any more goes or
 * ends the connection likewise.  A host that protects buffers and then uses them again unmaps
 * or discards them first (munmap, MADV_DONTNEED), takes memory of rme_memory_alloc for what it
 * does not protect, or does without the cache: option regcache_entries=0.
 */
RME_API int rme_post_send(struct rme *rme, struct rme_addr *addr, const struct rme_list *list,
                          int32_t tag, int ctx, void *user, rme_id *id);
RME_API int rme_post_unexpected(struct rme *rme, struct rme_addr *addr,
                                const struct rme_list *list, int32_t tag, int ctx, void *user,
                                rme_id *id);
RME_API int rme_post_recv(struct rme *rme, struct rme_addr *addr, const struct rme_list *list,
                          int32_t tag, int ctx, void *user, int64_t *actual, rme_id *id);

/* A completion. */
struct rme_done {
    rme_id id;
    void *user;
    int error;      /* 0 or a negative errno */
    int64_t actual; /* bytes sent or received; 0 on error */
};

/*
 * Report completions and make progress.  Each returns the number of entries written (0 … max)
 * or a negative errno that concerns the call itself (-EINVAL).  They sleep up to wait_ms when
 * nothing is ready and return early as soon as something is; rme_test_context also returns at
 * once when an unexpected message is waiting, so that its thread can fetch that next.  If none
 * is fetched and none comes before the next call for the context, that one waits.
 *
 * rme_test: one operation; 1 when it was complete and *done is filled.  An id that is unknown
 * or was reported before gives 0.  rme_test_some: those of ids[0 … count-1] that are complete,
 * index[] says which; ids of 0 are skipped.
 */
RME_API int rme_test(struct rme *rme, rme_id id, struct rme_done *done, int wait_ms);
RME_API int rme_test_some(struct rme *rme, const rme_id *ids, int count, int *index,
                          struct rme_done *done, int wait_ms);
RME_API int rme_test_context(struct rme *rme, int ctx, struct rme_done *done, int max,
                             int wait_ms);

/* An unexpected message. */
struct rme_unexpected {
    struct rme_addr *addr; /* who sent it; valid until the host frees it with rme_addr_free */
    bool first;            /* the host sees this address for the first time */
    int32_t tag;
    void *buffer; /* 8-byte aligned; the host's until rme_unexpected_free */
    int64_t size;
};

RME_API int rme_test_unexpected(struct rme *rme, struct rme_unexpected *out, int max,
                                int wait_ms);

/* Gives an unexpected message's buffer back; also when its peer is gone.  -EINVAL not such a
 * buffer. */
RME_API int rme_unexpected_free(struct rme *rme, void *buffer);

/*
 * Asks for an operation to end.  Always 0 for any id.  The operation is reported as usual: with
 * success if it was complete, else with -ECANCELED, and only when the peer can no longer touch
 * its memory.
 */
RME_API int rme_cancel(struct rme *rme, rme_id id);

/* From now on a cancel that would have to wait for a peer breaks the connection instead. */
RME_API void rme_set_forceful_cancel(struct rme *rme);

/* ---- Memory ---- */

/*
 * Memory that is registered already, 64-byte aligned, zeroed; NULL when there is none.
 * Freed by address; the size is not needed.  -EINVAL: not from here.  rme_memory_owns tells
 * whether a range lies in such memory.
 */
RME_API void *rme_memory_alloc(struct rme *rme, size_t size);
RME_API int rme_memory_free(struct rme *rme, void *memory);
RME_API bool rme_memory_owns(struct rme *rme, const void *memory, size_t size);

enum rme_direction { RME_TO_SEND, RME_TO_RECEIVE };

/*
 * A hint that a range will soon be sent, or received into.  Never fails, takes no ownership,
 * registers nothing at once: that happens in a later rme_test that finds nothing else to do,
 * for a few hints and as much of them as the cache has room for.
 */
RME_API void rme_memory_hint(struct rme *rme, const void *memory, size_t size,
                             enum rme_direction direction);

/* ---- Seeing inside ---- */

/* One counter: table of names, units and sentences in stats.c.  `index` runs from 0; -ENOENT at
 * the end. */
struct rme_counter {
    const char *name;
    const char *unit;
    const char *text;
    uint64_t value;
    bool gauge; /* what is there now; else it only grows */
};

RME_API int rme_counter_get(struct rme *rme, int index, struct rme_counter *out);

/* The value of the counter with this name, 0 if there is none. */
RME_API uint64_t rme_counter_value(struct rme *rme, const char *name);

/*
 * One attribute of the session with a peer, by which a host can size its buffers: sizes,
 * credits and bounds as they hold now, then what was sent and received by each protocol.
 * `index` runs from 0; -ENOENT at the end.  -ENOTCONN: there is no connection.
 */
RME_API int rme_session_get(struct rme *rme, struct rme_addr *addr, int index,
                            struct rme_counter *out);

/*
 * How long operations stayed in a stage of their life: in a state, or "registering", which is
 * the time that threads took to register its memory, within those states.  One operation in
 * sample_ops (an option) is watched, and counted when its outcome is reported; sends that are
 * complete when they are posted are no operations.  One that stays in a stage for more than a
 * second may be given up for another, and is not counted then (times.c).  count[i] have taken
 * less than 2^(i+1) nanoseconds, and not less than 2^i but for i = 0; the last class has no
 * end.  `index` runs from 0 over what is not empty; -ENOENT at the end.  An index may mean
 * another row when something new has happened.
 */
#define RME_TIME_CLASSES 36

struct rme_stage {
    const char *kind; /* of operation: send, receive, ... */
    /* by which its message went: eager, fast (written into memory that was lent),
     * rendezvous_write, rendezvous_read; none: it failed or was cancelled */
    const char *protocol;
    const char *stage;
    uint64_t count[RME_TIME_CLASSES];
    uint64_t spent_ns; /* in that stage by all of them */
};

RME_API int rme_stage_get(struct rme *rme, int index, struct rme_stage *out);

/* One line for each peer: name, state, credits, outstanding work, bytes.  `write` is called
 * without the engine's lock. */
RME_API void rme_print_peers(struct rme *rme, void (*write)(void *arg, const char *line),
                             void *arg);

/* The options of `fabric`, or with NULL those of the engine: name, default, range, unit,
 * prose.  Needs no engine. */
RME_API void rme_print_options(FILE *out, const struct rme_fabric_ops *fabric);

/* Has an engine over this fabric such an option?  Needs no engine. */
RME_API bool rme_option_known(const struct rme_fabric_ops *fabric, const char *name);

/* Value of an option as this engine uses it; -ENOENT unknown. */
RME_API int rme_option_get(struct rme *rme, const char *name, int64_t *value);

/* The first key of its options that the engine warned of when it started, as nobody takes it;
 * NULL: there was none.  The text is the engine's. */
RME_API const char *rme_option_ignored(const struct rme *rme);

/* What a key that this engine gives to a peer opens, in words.  The fabric's options and its
 * device decide. */
RME_API const char *rme_key_opens(const struct rme *rme);

/*
 * How a message of `bytes` travels from `segments` pieces of the host's own memory (not of
 * rme_memory_alloc) to one such piece of a peer that is like this engine, but for its role, and
 * has nothing to do.  Prints the cost table, the predicted time of each protocol, and the row
 * that is chosen: by the very calls with which the engine decides when such a message is
 * posted.  Waits for nothing.
 */
RME_API void rme_explain(struct rme *rme, uint64_t bytes, uint64_t segments, FILE *out);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * rme.h - the API of the RDMA message engine.
 *
 * The engine moves tagged messages between peers over a fabric (a network).  No header of a
 * network or of PVFS2 is needed here: a shim (shim.c) turns this API into a BMI method, for
 * OrangeFS and for the embedded BMI core alike.  "Host" is the code that calls this API.
 *
 * Rules for every function, unless its comment says otherwise:
 *  - any thread may call any function, at any time between rme_open and rme_close of the
 *    engine;
 *  - results are 0 or a negative errno; sizes are bytes; times are milliseconds;
 *  - no function waits for a peer.  Only functions with a `wait_ms` argument sleep, at most
 *    that long;
 *  - callbacks of the host run without the engine's lock;
 *  - an engine belongs to the process that opened it.  In a child made by fork() every call
 *    fails without effect, with -ENODEV where an error is returned, and rme_close releases
 *    nothing; the parent is not affected.  A child may open an engine of its own if the
 *    fabric permits.
 *
 * An accepted operation ends exactly once, even if the peer or the device fails: one of the
 * rme_test functions reports success or an error.  Operations of a closed context end without
 * a report, and so do all operations in rme_close.
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
struct rme_addr;       /* the host's name of a peer; outlives engines */
struct rme_fabric_ops; /* a fabric; a function of its library returns the table */

/* An operation: never 0.  Unless 2^21 operations are live, or memory is short, 32 others are
 * posted before an id returns for a later operation. */
typedef uint64_t rme_id;

/* NOTICE: the cause of a failure that the host gets as an error and may report itself. */
enum rme_log_level { RME_LOG_ERROR, RME_LOG_WARN, RME_LOG_NOTICE, RME_LOG_INFO, RME_LOG_DEBUG };

/* Logs one complete line, without its newline.  Called with no lock held.  The function must
 * return: after an exception or longjmp() out of it the engine cannot be used any more. */
typedef void (*rme_log_fn)(void *arg, enum rme_log_level level, const char *line);

/* Arguments of rme_open, which copies all strings. */
struct rme_config {
    const struct rme_fabric_ops *fabric;
    const struct rme_addr *listen; /* NULL for a client */
    bool bind_specific; /* listen on the named address only, not on all of this machine */
    /* "key=value,key=value"; NULL for none; other engines may read the same text, so unknown
     * keys are ignored: rme_option_known() */
    const char *options;
    rme_log_fn log; /* NULL: no log */
    void *log_arg;
    /* NULL, or an object of `op_size` bytes, a multiple of 8: the id of an operation is the
     * address of a copy of it, whose first 8 bytes are the id while the operation is posted,
     * else 0.  The object stays until rme_close, and so do the copies. */
    const void *op_template;
    size_t op_size;
};

/*
 * Opens an engine.  On failure *out is unchanged, all resources are released, and one error
 * line was logged.  Errors: -EINVAL a wrong option value, -ENODEV no usable device,
 * -EADDRINUSE, -EADDRNOTAVAIL, -ENOMEM, -EMFILE, -ENFILE.
 */
RME_API int rme_open(const struct rme_config *config, struct rme **out);

/*
 * Closes an engine: disconnects all peers, frees all operations without a report, and frees all
 * memory that the engine allocated for the host.  No other call may be running.  Addresses
 * remain valid: free them later with rme_addr_free, or use them with another engine.
 */
RME_API void rme_close(struct rme *rme);

/* Returns the port of the first part of the listening address, also where that part names
 * port 0.  -ENOTCONN: the engine does not listen, or its network has no ports. */
RME_API int rme_listen_port(const struct rme *rme);

/* ---- Addresses ---- */

/*
 * Parses text like "ib://host:port[/anything][,ib://host2:port2…]".  Parts with another scheme
 * are skipped; IPv6 hosts are written in brackets.  Needs no engine, resolves no name, does not
 * block.  Port 0 listens on any free port and cannot be connected to.  Errors: -EINVAL no part
 * has `scheme`, -EDESTADDRREQ a part with `scheme` is malformed.
 */
RME_API int rme_addr_parse(const char *scheme, const char *text, struct rme_addr **out);

/* Returns true if a part of the address has port 0. */
RME_API bool rme_addr_any_port(const struct rme_addr *addr);

/*
 * Frees an address, at any time, also after rme_close.  The peer, if connected, is disconnected
 * and its operations end with -ECONNRESET.  No other thread may use the address any more.
 */
RME_API void rme_addr_free(struct rme_addr *addr);

/* Returns the name: "scheme://host:port" of each part with the scheme, separated by commas and
 * without what follows the port; or host:port of a peer that connected to us.  Valid as long as
 * addr. */
RME_API const char *rme_addr_name(const struct rme_addr *addr);

/* Returns true if the address cannot be connected again: its peer had connected to us, and has
 * disconnected. */
RME_API bool rme_addr_is_dead(const struct rme_addr *addr);

/* Returns true if the address is dead, rme_test_unexpected has reported all its complete
 * messages, and the host has freed them.  Freeing the address earlier loses those that are not
 * reported. */
RME_API bool rme_addr_is_over(const struct rme_addr *addr);

/*
 * Compares a peer that connected to us with `pattern`: "a.b.c.d", "[v6]", "v6", "a.b.*" or a
 * host name, optionally with a scheme:// in front and :port or /anything behind.  `netmask`
 * leading bits are compared, all if negative or larger than the address.  A host name is
 * compared with the peer's name, ignoring case; no name is resolved.  Returns 1 if they match,
 * -EINVAL for a host name that does not, else 0, also for a pattern that cannot be parsed and a
 * parsed address.  The host * matches every peer.  The source address is kept after a
 * disconnect: access rules still apply.
 */
RME_API int rme_addr_match(const struct rme_addr *addr, const char *pattern, int netmask);

/*
 * Connects a parsed address, unless connected, and waits up to wait_ms for the outcome.
 * Returns 0 if connected, -EINPROGRESS if connecting continues in the background, -EINVAL if
 * the address belongs to another engine, else the cause of the failure: one of the errors at
 * completion below.
 */
RME_API int rme_addr_reach(struct rme *rme, struct rme_addr *addr, int wait_ms);

/* Set and return a pointer that belongs to the host (the shim's method address). */
RME_API void rme_addr_set_host(struct rme_addr *addr, void *host);
RME_API void *rme_addr_host(const struct rme_addr *addr);

/* ---- Contexts ---- */

/* Opens context `ctx` (0 … RME_MAX_CONTEXTS-1).  -EINVAL out of range, -EEXIST already open. */
RME_API int rme_context_open(struct rme *rme, int ctx);

/* Closes a context.  Completed operations that were not fetched are dropped before the return,
 * pending ones when they end. */
RME_API void rme_context_close(struct rme *rme, int ctx);

/* ---- Operations ---- */

/* The memory of one operation: `count` pieces.  The arrays are copied, the pieces are not. */
struct rme_list {
    void *const *base;     /* start of each piece; may be NULL where the length is 0 */
    const int64_t *length; /* bytes of each piece; may be 0 */
    int count;             /* may be 0: an empty message */
};

/*
 * Post a send, an unexpected send (at most RME_UNEXPECTED_MAX bytes), a receive.
 *
 * Returns 0 with *id set if the operation is in progress, 1 if it is complete already (*id is
 * 0), or a negative errno if nothing was started.  A receive never returns 1.  `actual` may be
 * NULL.  `user` is returned with the completion.  The memory of the list belongs to the engine
 * until the completion is reported.
 *
 * Connections: a peer that is not connected is connected in the background.  A receive at a
 * parsed address matches messages that the peer process sends back over the same connection,
 * and none over connections which that process opened itself.
 *
 * Order: messages with the same (peer, tag) match receives in the order of posting, regardless
 * of their sizes.  A message that waits for registration or for flow control delays only
 * messages with its own tag.  Unexpected messages of a peer are reported in the order of
 * posting, regardless of their tags.  An answer never overtakes the transfer that it answers: a
 * message that the peer sent after a send's data had arrived, or after a receive's data had
 * been read, is reported after the completion of that send or receive (op/end.c).
 *
 * Sizes: a receive may be larger than its message.  A smaller receive ends with -EMSGSIZE, and
 * so does a rendezvous send; an eager send is complete once its bytes are copied, before any
 * receive is matched, and stays successful.  Such a refused eager message is logged in one line
 * and counted (eager_refused).  With the option eager_max=0 every send with a payload completes
 * after its match, so both sides get the error.
 *
 * Errors: -EINVAL bad list or context, -EMSGSIZE unexpected message too large, -ENOMEM,
 * -ECONNRESET the address is dead.  Errors at completion: -ECONNREFUSED, -EHOSTUNREACH,
 * -ENONET (unknown host name), -ETIMEDOUT, -ECONNRESET (of the peer), -EMSGSIZE, -EPROTO,
 * -ENOMEM, -ECANCELED, -EFAULT (the device found the memory unmapped, or a receive's memory
 * read-only).
 *
 * Unmapped memory: -EFAULT is reported only for messages that the device moves without a copy:
 * those above eager_max that pack_threshold, lists and the planner's limits leave unpacked
 * (rme_explain).  For all others memcpy raises SIGSEGV in the thread whose call moves the
 * message, because a check would cost a small message more than the rest of its path.
 *
 * Protected memory: mprotect() does not invalidate cached registrations.  A later receive into
 * memory that became read-only is still written by a real device, and ends the connection over
 * the software HCA; a send of memory that became unreadable succeeds or ends the connection
 * likewise.  (Linux 6.1 lets a real device into protected memory even without a cache.)  A host
 * that protects buffers and uses them again must unmap or discard them first (munmap,
 * MADV_DONTNEED), or use rme_memory_alloc for buffers that stay unprotected, or switch the
 * cache off: option regcache_entries=0.
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
 * Report completions and make progress.  Each returns the number of entries written (0 … max),
 * or -EINVAL for wrong arguments.  With nothing complete they sleep up to wait_ms, and return
 * as soon as something is. rme_test_context also returns early, with 0, when an unexpected
 * message waits, so that its thread can fetch the message next; if no message is fetched and
 * none arrives before the next call for the context, that call sleeps.
 *
 * rme_test_some tests ids[0 … count-1], and skips ids of 0 and unknown or reported ones;
 * index[], which may be NULL, holds the positions of the complete ones.
 */
RME_API int rme_test_some(struct rme *rme, const rme_id *ids, int count, int *index,
                          struct rme_done *done, int wait_ms);
RME_API int rme_test_context(struct rme *rme, int ctx, struct rme_done *done, int max,
                             int wait_ms);

/* An unexpected message. */
struct rme_unexpected {
    struct rme_addr *addr; /* the sender; valid until the host calls rme_addr_free */
    bool first;            /* true for the first message reported of this address */
    int32_t tag;
    void *buffer; /* 8-byte aligned; owned by the host until rme_unexpected_free */
    int64_t size;
};

RME_API int rme_test_unexpected(struct rme *rme, struct rme_unexpected *out, int max,
                                int wait_ms);

/* Frees the buffer of an unexpected message, also after the peer's disconnect.  -EINVAL: not
 * such a buffer. */
RME_API int rme_unexpected_free(struct rme *rme, void *buffer);

/*
 * Cancels an operation.  Returns 0 for any id.  The operation is reported as usual, with
 * success if it was complete, else with -ECANCELED, once the peer can no longer access its
 * memory.  A receive that fails or is cancelled is reported behind the unexpected sends with
 * its peer and tag that were posted before its end.
 */
RME_API int rme_cancel(struct rme *rme, rme_id id);

/* Lets every later cancel that would wait for a peer end the connection instead. */
RME_API void rme_set_forceful_cancel(struct rme *rme);

/* ---- Memory ---- */

/*
 * Allocate and free registered memory: 64-byte aligned, zeroed;  NULL if none can be had.
 * -EINVAL: not memory of rme_memory_alloc.
 */
RME_API void *rme_memory_alloc(struct rme *rme, size_t size);
RME_API int rme_memory_free(struct rme *rme, void *memory);

enum rme_direction { RME_TO_SEND, RME_TO_RECEIVE };

/*
 * Announces that a range will soon be sent, or received into, and registers it in one piece if
 * registrations are cached; of a larger range the first part.  Never fails, takes no ownership.
 * The range must stay mapped until the call returns.
 */
RME_API void rme_memory_hint(struct rme *rme, const void *memory, size_t size,
                             enum rme_direction direction);

/* ---- Inspection ---- */

/* One counter; stats.h has the names, units and texts. */
struct rme_counter {
    const char *name;
    const char *unit;
    const char *text;
    uint64_t value;
    bool gauge; /* a current value; else a count that only grows */
};

/* Reads the counter `index`, from 0 on; -ENOENT after the last. */
RME_API int rme_counter_get(struct rme *rme, int index, struct rme_counter *out);

/* Returns the value of the named counter, 0 for an unknown name. */
RME_API uint64_t rme_counter_value(struct rme *rme, const char *name);

/*
 * Reads one attribute of the connection to a peer, by which a host can size its buffers:
 * current sizes, credits and limits, then messages and bytes by protocol. `index` runs from 0;
 * -ENOENT after the last, -ENOTCONN without a connection.
 */
RME_API int rme_session_get(struct rme *rme, struct rme_addr *addr, int index,
                            struct rme_counter *out);

/* Prints one line for each peer: name, state, credits, outstanding work, bytes.  `write` runs
 * without the engine's lock. */
RME_API void rme_print_peers(struct rme *rme, void (*write)(void *arg, const char *line),
                             void *arg);

/* Prints the options of `fabric`, or with NULL those of the engine: name, default, range, unit,
 * text.  Needs no engine. */
RME_API void rme_print_options(FILE *out, const struct rme_fabric_ops *fabric);

/* Returns true if an engine over this fabric accepts the named option, also under an old name,
 * and if memory is too short for the look-up.  Needs no engine. */
RME_API bool rme_option_known(const struct rme_fabric_ops *fabric, const char *name);

/* Reads the value of an option as this engine uses it; -ENOENT: unknown option. */
RME_API int rme_option_get(struct rme *rme, const char *name, int64_t *value);

/* Returns in words how much memory an rkey of this engine gives a peer access to.  The fabric's
 * options and its device decide. */
RME_API const char *rme_key_opens(const struct rme *rme);

/*
 * Prints how a message of `bytes` would be sent from `segments` pieces of ordinary memory (not
 * of rme_memory_alloc) to one piece at an idle peer with the same costs: the cost table, the
 * limits computed from these, and the choice, made by the same calls as for a posted message.
 * Does not wait.
 */
RME_API void rme_explain(struct rme *rme, uint64_t bytes, uint64_t segments, FILE *out);

#ifdef __cplusplus
}
#endif
#endif

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A test of the software HCA runs in its own processes: each starts with a new device, may set
 * its own knobs, and may be stopped or killed. The program first executes itself under
 * emuverbs.
 */
#ifndef TESTS_EMUL_PAIR_H
#define TESTS_EMUL_PAIR_H

#include <infiniband/verbs.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

/* In a test process: ends it with a message unless the condition holds. */
#define CHECK(cond)                                                                            \
    do {                                                                                       \
        if (!(cond)) {                                                                         \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                         \
            _exit(1);                                                                          \
        }                                                                                      \
    } while (0)
#define CHECK_EQ(a, b)                                                                         \
    do {                                                                                       \
        long long a_ = (long long)(a), b_ = (long long)(b);                                    \
        if (a_ != b_) {                                                                        \
            fprintf(stderr, "%s:%d: %s is %lld, not %s = %lld\n", __FILE__, __LINE__, #a, a_,  \
                    #b, b_);                                                                   \
            _exit(1);                                                                          \
        }                                                                                      \
    } while (0)

#define BUF_SIZE (1 << 20)

/* Attributes that bring a UC QP to its states. */
#define UC_RTR (IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN)
#define UC_RTS (IBV_QP_STATE | IBV_QP_SQ_PSN)

#define QP_RIGHTS (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC)
#define RIGHTS    (IBV_ACCESS_LOCAL_WRITE | QP_RIGHTS)

struct side {
    int sock;   /* to the other process */
    int stop;   /* for a thread that stops at a step (EMUVERBS_STOP) */
    pid_t peer; /* in the active process: the other one */
    struct ibv_context *ctx;
    struct ibv_pd *pd;
    struct ibv_comp_channel *chan;
    struct ibv_cq *scq, *rcq;
    struct ibv_srq *srq;
    struct ibv_qp *qp;
    struct ibv_mr *mr;
    unsigned char *buf;
    /* options, set before side_open */
    bool use_srq, use_chan;
    size_t size; /* of its buffer; BUF_SIZE when it is 0 */
    int cqe, max_wr, max_sge, max_inline, access, qp_access, rnr_retry, min_rnr_timer, rd_depth;
    enum ibv_qp_type type;   /* RC when it is 0 */
    uint64_t send_ops;       /* of an extended QP */
    struct ibv_qp_ex *qp_ex; /* after side_open */
    int device, port, dlid;  /* index; port 1 and LID 1 when they are 0 */
    bool global;             /* the path has GIDs: */
    uint8_t sgid_index;
    union ibv_gid dgid;
    /* the other side's, after side_connect */
    uint64_t raddr;
    uint32_t rkey, rqpn;
    uint64_t operand, swap; /* of atomic operations */
};

typedef void (*side_fn)(struct side *s);

/* Executes itself under emuverbs unless it runs there already. */
void run_under_emuverbs(char **argv);
/* Calls `fn` before the first case, in the program's first process. */
void emul_before(void (*fn)(void));

/* Returns whether valgrind runs, which reports some deliberate accesses as errors. */
bool is_watched(void);
/* Runs `fn` in one process; returns 0 on success. */
int run_one(side_fn fn);

/* One or two sides of one process, opened and closed around a body. */
struct setup {
    struct side a, b;
    const char *env;  /* "NAME=VALUE ..." */
    const char *stop; /* steps of a thread, which waits behind a->stop */
    bool loop;        /* both, connected to each other */
    bool unwatched;   /* skipped under valgrind */
};
typedef void (*loop_fn)(struct side *a, struct side *b);
int run_setup(loop_fn fn, const struct setup *setup);
/* Runs `active` and `passive` in two processes that share a socket; returns 0 if both
 * succeeded. */
int run_two(side_fn active, side_fn passive);
/* The same; the active process must kill the passive one. */
int run_two_kill(side_fn active, side_fn passive);
/* Waits to be killed. */
_Noreturn void pause_forever(void);

/* Opens the device, makes a QP in INIT, registers BUF_SIZE bytes. */
void side_open(struct side *s);
/* Exchanges addresses over the socket and moves the QP to RTS. */
void side_connect(struct side *s);
void side_close(struct side *s);
/* Opens and connects; meets and closes. */
void side_join(struct side *s);
void side_leave(struct side *s);
/* Creates an RC, UC or UD QP with the side's CQs; in renew_qp() in place of the side's QP. */
struct ibv_qp *new_qp(struct side *s, enum ibv_qp_type type, uint32_t wrs);
void renew_qp(struct side *s, enum ibv_qp_type type);
/* Connect the QPs of two sides of one process, from INIT, or from any state. */
void join_sides(struct side *a, struct side *b);
void join_anew(struct side *a, struct side *b);
/* Brings the QP to RESET, and to INIT. */
void side_reset(struct side *s);
/* Makes two QPs in one process, connected to each other. */
void loop_open(struct side *a, struct side *b);
void loop_close(struct side *a, struct side *b);

int qp_init(struct side *s);
int qp_rtr(struct side *s, uint32_t dest);
int qp_rts(struct side *s);
int qp_error(struct side *s);
enum ibv_qp_state qp_state(struct side *s);

/* Synchronizes with the other process. */
void meet(struct side *s);

/*
 * Stopping a thread at a step (EMUVERBS_STOP). stop_at() sets the steps, before side_open();
 * struct setup's `stop` does so within one process, behind a->stop. wait_stopped()
 * returns when a thread has stopped. go_on() lets it continue; the next thread stops after
 * `next` further arrivals, 0: none.
 */
void stop_at(struct side *s, const char *steps);
void wait_stopped(int fd);
void go_on(int fd, unsigned char next);

/* Kills the other process, and waits until this process's device has handled its death. */
void kill_peer_and_wait(struct side *s);

/* Starts a thread. */
pthread_t spawn(void *(*fn)(void *), void *arg);

/* Waits until the service thread has handled all messages to this process so far. */
void settle(void);

/*
 * Deregisters with the device's clock stopped. The clock advances only to the next check of the
 * memory's users, after each check. Deregistration gives up after some 230 checks; from the
 * 200th on each waits until `peer`, unless 0, has stopped. The clock stays stopped.
 */
int dereg_by_looks(struct ibv_mr *mr, pid_t peer);

/* Control the device's clock, which the first call stops; step by ms or ns. */
void clock_stop(void);
void clock_run(void); /* lets it run again */
uint64_t clock_step_ms(uint64_t ms);
uint64_t clock_step_ns(uint64_t ns);

void post_recv(struct side *s, uint64_t id, uint32_t off, uint32_t len);
int try_send(struct side *s, uint64_t id, enum ibv_wr_opcode op, uint32_t off, uint32_t len,
             unsigned flags, uint64_t raddr, uint32_t rkey);
/* Posts a signalled request from offset `off` of the buffer; the call must succeed. */
void post_send(struct side *s, uint64_t id, enum ibv_wr_opcode op, uint32_t off, uint32_t len,
               uint64_t roff);

/* The same, to any address by any key. */
void post_to(struct side *s, uint64_t id, enum ibv_wr_opcode op, uint32_t off, uint32_t len,
             uint64_t raddr, uint32_t rkey);
/* Posts a request and takes its completion, which must be a success. */
struct ibv_wc post_done(struct side *s, enum ibv_wr_opcode op, uint32_t off, uint32_t len,
                        uint64_t roff);

/* Waits for an event of a channel and acknowledges it. */
struct ibv_cq *take_event(struct ibv_comp_channel *chan);
/* Waits up to a minute for a completion. */
struct ibv_wc wait_wc(struct ibv_cq *cq);
/* Waits for a completion and checks its id and status. */
struct ibv_wc expect_wc(struct ibv_cq *cq, uint64_t id, enum ibv_wc_status status);
void expect_none(struct ibv_cq *cq);
/* Waits up to 20 s for an asynchronous event of this type on this object. */
void expect_async(struct side *s, enum ibv_event_type type, void *element);
bool readable(int fd, int ms);

#define WRITE IBV_WR_RDMA_WRITE
#define READ  IBV_WR_RDMA_READ
#define SEND  IBV_WR_SEND
#define WIMM  IBV_WR_RDMA_WRITE_WITH_IMM
#define SIMM  IBV_WR_SEND_WITH_IMM
#define FADD  IBV_WR_ATOMIC_FETCH_AND_ADD
#define SWAP  IBV_WR_ATOMIC_CMP_AND_SWP

/* CASE(name): a test that registers itself before main; its body runs in the program's first
 * process. */
struct emul_case {
    const char *name;
    void (*run)(void **state);
    struct emul_case *next;
};
void emul_add(struct emul_case *c);
#define CASE(name)                                                                             \
    static void name(void **state);                                                            \
    static struct emul_case name##_case = {#name, name, NULL};                                 \
    __attribute__((constructor)) static void name##_add(void)                                  \
    {                                                                                          \
        emul_add(&name##_case);                                                                \
    }                                                                                          \
    static void name(void **state __attribute__((unused)))
/* TEST(name): a test in its own process. */
#define TEST(name)                                                                             \
    static void name##_body(struct side *unused);                                              \
    CASE(name)                                                                                 \
    {                                                                                          \
        assert_int_equal(run_one(name##_body), 0);                                             \
    }                                                                                          \
    static void name##_body(struct side *unused __attribute__((unused)))
/* A test with accesses that valgrind would report: skipped there. */
#define TEST_UNWATCHED(name)                                                                   \
    static void name##_body(struct side *unused);                                              \
    CASE(name)                                                                                 \
    {                                                                                          \
        if (is_watched())                                                                      \
            skip();                                                                            \
        assert_int_equal(run_one(name##_body), 0);                                             \
    }                                                                                          \
    static void name##_body(struct side *unused __attribute__((unused)))

/* SIDE(name, options of struct setup): a test in its own process with an open side `s`; LOOP:
 * with two, `a` and `b`. Both are closed behind its body. */
#define SIDE(name, ...)                                                                        \
    static void name##_body(struct side *s, struct side *none);                                \
    CASE(name)                                                                                 \
    {                                                                                          \
        assert_int_equal(run_setup(name##_body, &(const struct setup){__VA_ARGS__}), 0);       \
    }                                                                                          \
    static void name##_body(struct side *s __attribute__((unused)),                            \
                            struct side *none __attribute__((unused)))
#define LOOP(name, ...)                                                                        \
    static void name##_body(struct side *a, struct side *b);                                   \
    CASE(name)                                                                                 \
    {                                                                                          \
        assert_int_equal(                                                                      \
            run_setup(name##_body, &(const struct setup){.loop = true, __VA_ARGS__}), 0);      \
    }                                                                                          \
    static void name##_body(struct side *a __attribute__((unused)),                            \
                            struct side *b __attribute__((unused)))

/* PAIR(name, run_two): a test in two processes, with bodies ACTIVE(name) and PASSIVE(name). */
#define PAIR(name, run)                                                                        \
    static void name##_active(struct side *s);                                                 \
    static void name##_passive(struct side *s);                                                \
    CASE(name)                                                                                 \
    {                                                                                          \
        assert_int_equal(run(name##_active, name##_passive), 0);                               \
    }
/* TWO(name, run_two, f, g): the same with two functions. */
#define TWO(name, run, active, passive)                                                        \
    CASE(name)                                                                                 \
    {                                                                                          \
        assert_int_equal(run(active, passive), 0);                                             \
    }
#define ACTIVE(name)  static void name##_active(struct side *s)
#define PASSIVE(name) static void name##_passive(struct side *s)

/* Lets the process open n more descriptors; returns the limit before. */
struct rlimit leave_descriptors(int n);
void limit_descriptors(const struct rlimit *limit);
/* Calls a function and returns the text that it prints on stderr. */
const char *printed(void (*fn)(void *arg), void *arg);
int lowest_descriptor(void);

/* Bytes that depend on their position. */
void pattern(unsigned char *p, size_t n, unsigned seed);
bool is_pattern(const unsigned char *p, size_t n, unsigned seed);

int64_t counter(const char *name);
uint64_t now_ms(void);

#endif

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Lengths beyond 32 bits, and memory that cannot be registered. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "cases.h"
#include "../fabric/loop.h"

#define GIB (INT64_C(1) << 30)

/* A receive of 5 GiB works, also for a small message. */
CASE(receive_of_5_gib)
{
    static const int64_t sizes[] = {0, 100, 100000, 3000000};
    struct pair p;

    pair_open(&p);
    uint8_t *huge = mmap(NULL, (size_t)(5 * GIB), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(huge, MAP_FAILED);
    for (size_t i = 0; i < 4; i++) {
        for (int recv_first = 0; recv_first < 2; recv_first++) {
            struct blob out,
                in = {.count = 1, .base = {huge}, .length = {5 * GIB}, .total = 5 * GIB};
            struct op send, recv;
            blob_flat(&out, (size_t)sizes[i]);
            blob_fill(&out, i);
            if (recv_first)
                post_recv(&recv, p.server, p.to_client, &in, 1);
            post_send(&send, p.client, p.to_server, &out, 1);
            pump_times(20);
            if (!recv_first)
                post_recv(&recv, p.server, p.to_client, &in, 1);
            pump_until_both(&send, &recv);
            op_check(&send, sizes[i]);
            op_check(&recv, sizes[i]);
            for (int64_t at = 0; at < sizes[i]; at++)
                if (huge[at] != pattern_byte(i, at))
                    fail_msg("byte %lld is wrong", (long long)at);
            assert_int_equal(huge[sizes[i]], huge[5 * GIB - 1]);
            memset(huge, 0, (size_t)sizes[i]);
            blob_free(&out);
        }
    }
    node_close(p.server);
    munmap(huge, (size_t)(5 * GIB));
}

/* Lists of more than 4 GiB, and a message longer than the receive by more than 4 GiB. */
CASE(lengths_beyond_4_gib)
{
    struct pair p;
    struct op send, recv;

    pair_open(&p);
    uint8_t *huge = mmap(NULL, (size_t)(5 * GIB), PROT_READ | PROT_WRITE,
                         MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    assert_ptr_not_equal(huge, MAP_FAILED);
    struct blob in, out = {.count = 2,
                           .base = {huge, huge + 3 * GIB},
                           .length = {3 * GIB, GIB + 100},
                           .total = 4 * GIB + 100};
    blob_flat(&in, 100); /* equal in the low 32 bits */
    post_recv(&recv, p.server, p.to_client, &in, 1);
    post_send(&send, p.client, p.to_server, &out, 1);
    pump_until_both(&send, &recv);
    op_check_error(&send, -EMSGSIZE, -EMSGSIZE);
    op_check_error(&recv, -EMSGSIZE, -EMSGSIZE);
    blob_check(&in, 0, 0);
    node_close(p.client);
    munmap(huge, (size_t)(5 * GIB));
}

/* No user memory can be registered, as all of it, or mappings that the kernel registers for no
 * device: a shared file of a disk (Linux 6.5) or of fsdax. All data is copied and right. */
CASE(registration_refused)
{
    static const int errors[] = {-ENOMEM, -EFAULT, -EINVAL, -EOPNOTSUPP, -EACCES};
    static const char *const options[] = {"rndv=write", "rndv=read", ""};
    static const char *const hosts[] = {NULL, "client", "server"};
    struct pair p;

    only_over_loop();
    for (int i = 0; i < 15; i++) {
        pair_open_with(&p, options[i % 3]);
        for (int k = 0; k < 3; k++) {
            loop_fault(hosts[k], LOOP_REG, 1, UINT64_MAX, errors[i / 3]);
            for (size_t size = 100; size < 600000; size *= 30)
                pair_exchange(&p, size, 1);
        }
        loop_fault(NULL, LOOP_REG, 1, 0, 0);
        pair_exchange(&p, 3000000, 1);
        if (errors[i / 3] == -ENOMEM)
            assert_true(node_counter(p.client, "reg_refused") > 0);
        bed_again();
    }
}

/* Every second registration of lists of pieces fails. */
CASE(registration_refused_now_and_then)
{
    struct pair p;

    only_over_loop();
    pair_open(&p);
    for (int k = 1; k < 30; k++) {
        struct blob out, in;
        struct op send, recv;
        blob_pieces(&out, 40, 1, 20000, true, (uint64_t)k);
        blob_split(&in, out.total, 30, (uint64_t)k);
        blob_fill(&out, (uint64_t)k);
        loop_fault(NULL, LOOP_REG, (uint64_t)k % 7 + 1, (uint64_t)k % 5, -ENOMEM);
        post_recv(&recv, p.server, p.to_client, &in, 1);
        post_send(&send, p.client, p.to_server, &out, 1);
        pump_until_both(&send, &recv);
        op_check_blob(&recv, &in, (uint64_t)k, out.total);
    }
}

/* Read-only memory can be sent. */
CASE(send_from_read_only_memory)
{
    static const size_t sizes[] = {100, 10000, 500000};
    struct pair p;

    for (int i = 0; i < 2; i++) {
        pair_open_with(&p, i ? "rndv=read" : "rndv=write");
        uint8_t *memory =
            mmap(NULL, 500000, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(memory, MAP_FAILED);
        for (int64_t at = 0; at < 500000; at++)
            memory[at] = pattern_byte(4, at);
        assert_int_equal(mprotect(memory, 500000, PROT_READ), 0);
        for (size_t s = 0; s < 3; s++) {
            struct blob out = {.count = 1,
                               .base = {memory},
                               .length = {(int64_t)sizes[s]},
                               .total = (int64_t)sizes[s]};
            struct blob in;
            struct op send, recv;
            blob_flat(&in, sizes[s]);
            post_recv(&recv, p.server, p.to_client, &in, 1);
            post_send(&send, p.client, p.to_server, &out, 1);
            pump_until_both(&send, &recv);
            op_check_blob(&recv, &in, 4, out.total);
            blob_free(&in);
        }
        node_close(p.client);
        munmap(memory, 500000);
        bed_again();
    }
}

/* Sends one message between memory of the test and valid memory of the other side. */
static void not_there(struct pair *p, uint8_t *memory, bool sends)
{
    enum { SIZE = 500000 };
    struct blob bad = {.count = 1, .base = {memory}, .length = {SIZE}, .total = SIZE}, good;
    struct op send, recv;

    blob_flat(&good, SIZE);
    post_recv(&recv, p->server, p->to_client, sends ? &good : &bad, 1);
    post_send(&send, p->client, p->to_server, sends ? &bad : &good, 1);
    pump_until_reported(sends ? &send : &recv);
    op_check_error(sends ? &send : &recv, -EFAULT, -EFAULT);
    if (sends)
        op_cancel(&recv); /* RTS was perhaps never sent */
    pump_until_both(&send, &recv);
    assert_int_not_equal(sends ? recv.error : send.error, 0);
    blob_free(&good);
}

/*
 * Returns whether this lane's device refuses protected memory. For real devices the kernel pins
 * protected memory, as for a debugger: up to Linux 6.1 unreadable pages are read, and
 * unwritable ones are copied first, as after fork().
 */
static bool protection_counts(void)
{
    return strcmp(lane.ops->scheme, "ib") != 0 || lane_is_emuverbs();
}

/* Large messages from unmapped memory: by a device and, on the loop, by a copy because the
 * device has no room for registrations. */
CASE(memory_that_is_not_there)
{
    enum { SIZE = 500000 };
    uint8_t *nowhere = (uint8_t *)0x20000; /* the kernel chooses no address there */
    struct pair p;

    for (int i = 0; i < 2; i++) {
        /* the planner's limits may have fewer bytes than SIZE copied, and a copy from unmapped
         * memory ends the process, as in any library */
        pair_open_with(&p, i ? "rndv=read" : "rndv=write");
        uint8_t *memory = mmap(NULL, SIZE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        assert_ptr_not_equal(memory, MAP_FAILED);
        if (lane.is_loop)
            loop_fault(NULL, LOOP_REG, 1, UINT64_MAX, -ENOMEM);
        not_there(&p, nowhere, true);
        not_there(&p, nowhere, false);
        if (protection_counts()) {
            not_there(&p, memory, true);
            not_there(&p, memory, false);
            assert_int_equal(mprotect(memory, SIZE, PROT_READ), 0);
            not_there(&p, memory, false);
            /* the first page alone */
            assert_int_equal(mprotect(memory, 4096, PROT_READ | PROT_WRITE), 0);
            not_there(&p, memory, false);
        }
        munmap(memory, SIZE);
        loop_fault(NULL, LOOP_REG, 1, 0, 0);
        pair_exchange(&p, SIZE, 1);
        bed_again();
    }
}

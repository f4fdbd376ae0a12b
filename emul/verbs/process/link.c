/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The link model, enabled by a rate (EMUVERBS_LINK_MB_S).
 *
 * Each process has one engine per device for outgoing data: messages, writes, read requests,
 * and data read by peers. The engine serves requests of all QPs in order of arrival, each for
 * its bytes divided by the rate. A request arrives, and is executed, EMUVERBS_LINK_NS after its
 * last byte has left. A read enters the peer's engine when its request has arrived; its data
 * arrives the latency after that engine has finished. Acknowledgements and results of atomics
 * take no time.
 *
 * All times are known when a request enters an engine. Therefore an engine is just the time at
 * which it will be free: a word in its process's segment, advanced by posters and peers with
 * compare-and-swap. Requests in flight are in the send queue of their poster (post.c) and
 * executed by its timer; such requests are lost when that process dies, and flushed when the QP
 * fails. Used engine time is not returned.
 *
 * With the link model nothing is executed while posting, but only by timers in order of time
 * (timer.c). So requests of several QPs of a process arrive in the order of the model, even if
 * timers run late.
 */
#include "emul/verbs/process/process.h"

#define HEADER 64u /* bytes of a request or response besides data */

uint64_t emu_link_leave(const struct emu_dev *d, struct shm_head *of, uint8_t device,
                        uint64_t from, uint64_t bytes)
{
    /* the device number may come from a peer */
    _Atomic uint64_t *engine = &of->link_free[device % EMU_MAX_DEVICES];
    uint64_t free = atomic_load(engine), end;

    do
        end = (free > from ? free : from) + (bytes + HEADER) * 1000 / d->knobs.link_mb_s;
    while (!atomic_compare_exchange_weak(engine, &free, end));
    return end + d->knobs.link_ns;
}

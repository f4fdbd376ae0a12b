/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The model of a link, which is off unless a rate is given (EMUVERBS_LINK_MB_S).
 *
 * Each process has an engine for what leaves it by a device: its own messages and writes, its
 * requests to read, and the data that peers read from it. The engine takes them in the order
 * in which they come to it, whatever queue pair they are of, and each keeps it for its bytes by
 * the rate. A request has arrived the latency after its last byte left; then, and not before,
 * it is executed as it is without the model. A read comes to the peer's engine when its request
 * has arrived there, and has its data the latency after that engine is through with it. What
 * acknowledges a request takes no time, nor does the result of an atomic operation.
 *
 * All of that is known when a request comes to an engine, so an engine is nothing but the time
 * at which it will be free: one word in the segment of its process, which its own posters and
 * its peers move by compare-and-swap. Nobody has to run there. What is under way is in the send
 * queue of who posted it (post.c), whose timer executes it: it is lost when that process dies,
 * and flushed when the queue pair fails. The time that it took of the engine is not given back.
 *
 * Posting executes nothing while there is a link. Only timers do, one after the other in the
 * order of their times (timer.c), so what two queue pairs of a process have under way arrives
 * in the order of the model however late the timers run.
 */
#include "emul/verbs/process/process.h"

#define HEADER 64u /* bytes of a request or an answer besides its data */

uint64_t emu_link_leave(const struct emu_dev *d, struct shm_head *of, uint8_t device,
                        uint64_t from, uint64_t bytes)
{
    _Atomic uint64_t *engine = &of->link_free[device % EMU_MAX_DEVICES]; /* a peer said it */
    uint64_t free = atomic_load(engine), end;

    do
        end = (free > from ? free : from) + (bytes + HEADER) * 1000 / d->knobs.link_mb_s;
    while (!atomic_compare_exchange_weak(engine, &free, end));
    return end + d->knobs.link_ns;
}

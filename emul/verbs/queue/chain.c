/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * RDMA writes that are posted together, moved by one system call.
 *
 * A device overlaps the requests of a chain, so a small one costs little more than its bytes.
 * Here each would cost a system call, which takes as long as copying some kilobytes. So writes
 * of a chain with nothing queued before them are moved together in order: process_vm_writev
 * stops at the first byte that cannot be moved, and moves nothing behind it, as after a failed
 * request.
 *
 * Only the error-free case is handled here. After any error all writes are left to emu_exec(),
 * which finds the failing one and repeats those before it.
 */
#include "emul/verbs/queue/queue.h"

/* Limit of local segments of a chain, below IOV_MAX. */
#define MAX_SEGMENTS 512

/* Collects the local segments; -1 if there are too many, or some may be unmapped. */
static int gather(struct emu_dev *d, struct emu_qp *qp, const struct emu_wr *wr, unsigned n,
                  struct iovec *local)
{
    int used = 0;

    for (unsigned k = 0; k < n; k++)
        for (uint32_t i = 0; i < wr[k].nsge; i++) {
            if (wr[k].sge[i].length == 0)
                continue;
            if (used == MAX_SEGMENTS ||
                emu_mr_local(d, qp->qp.pd->handle, &wr[k].sge[i], 0, &local[used]) != 0)
                return -1;
            used++;
        }
    return used;
}

/* Pins the remote ranges; returns their number, or -1 if one is not writable. */
static int pin_all(struct emu_dev *d, struct emu_qp *qp, const struct shm_qp *rs,
                   const struct emu_wr *wr, unsigned n, struct iovec *remote,
                   struct emu_pin *pin)
{
    int used = 0;

    for (unsigned k = 0; k < n; k++) {
        if (wr[k].length == 0)
            continue;
        if (emu_mr_pin(d, qp->peer, wr[k].rkey, true, &rs->user, wr[k].raddr, wr[k].length,
                       IBV_ACCESS_REMOTE_WRITE, &remote[used], &pin[used]) < 0) {
            while (used > 0)
                emu_mr_unpin(&pin[--used]);
            return -1;
        }
        used++;
    }
    return used;
}

bool emu_exec_writes(struct emu_dev *d, struct emu_qp *qp, const struct emu_wr *wr, unsigned n)
{
    struct iovec local[MAX_SEGMENTS], remote[EMU_CHAIN_MAX];
    struct emu_pin pin[EMU_CHAIN_MAX];
    int nlocal = gather(d, qp, wr, n, local);
    struct shm_qp *rs;
    uint64_t token, total = 0;
    int nremote = -1, err = 0;

    if (nlocal < 0 || !(token = emu_exec_enter(d, qp, &rs)))
        return false;
    for (unsigned k = 0; k < n; k++)
        total += wr[k].length;
    if (rs->access & IBV_ACCESS_REMOTE_WRITE)
        nremote = pin_all(d, qp, rs, wr, n, remote, pin);
    if (nremote > 0)
        err = emu_copy_to(qp->peer, local, (unsigned)nlocal, remote, (unsigned)nremote, total);
    for (int k = 0; k < nremote; k++)
        emu_mr_unpin(&pin[k]);
    emu_exec_leave(rs, token);
    return nremote >= 0 && err == 0;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Trace of work requests and completions (EMUVERBS_TRACE): a line each, appended by one write,
 * so that processes may share a file. The file is opened for each line, because the program may
 * close descriptors that are not its own, and reuse their numbers. */
#include "emul/verbs/process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

bool emu_tracing;
static char path[PATH_MAX];

static int open_trace(void)
{
    return open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY, 0666);
}

void emu_trace_init(const struct emu_knobs *k)
{
    char folder[PATH_MAX] = "";
    int fd = -1;

    emu_tracing = false;
    if (!*k->trace)
        return;
    /* also for a program that changes its working directory later */
    if (*k->trace != '/' && getcwd(folder, sizeof(folder)) == NULL)
        *folder = 0;
    int n = snprintf(path, sizeof(path), "%s%s%s", folder, *folder ? "/" : "", k->trace);
    if (n >= (int)sizeof(path))
        errno = ENAMETOOLONG;
    else
        fd = open_trace();
    if (fd < 0)
        fprintf(stderr,
                "emuverbs: EMUVERBS_TRACE=%s: cannot be opened: %s; no trace; name a file that "
                "can be written\n",
                k->trace, strerror(errno));
    else
        close(fd);
    emu_tracing = fd >= 0;
}

/* Appends a line, after the time and the process. */
__attribute__((format(printf, 1, 2))) static void line(const char *format, ...)
{
    unsigned long long now = emu_now();
    char text[256];
    int saved = errno;
    int fd = open_trace();
    va_list args;

    int n = snprintf(text, sizeof(text), "%llu.%09llu %d ", now / EMU_NSEC, now % EMU_NSEC,
                     (int)getpid());
    va_start(args, format);
    n += vsnprintf(text + n, sizeof(text) - (size_t)n, format, args);
    va_end(args);
    /* a full disk costs lines of the trace, not the program */
    if (fd < 0 || write(fd, text, (size_t)n) < n)
        emu_count(COUNT_trace_lost, 1);
    if (fd >= 0)
        close(fd);
    errno = saved;
}

void emu_trace_request(uint32_t qpn, enum ibv_wr_opcode opcode, uint32_t bytes, uint64_t wr_id)
{
    static const char *const names[] = {
        [IBV_WR_RDMA_WRITE] = "RDMA_WRITE",
        [IBV_WR_RDMA_WRITE_WITH_IMM] = "RDMA_WRITE_WITH_IMM",
        [IBV_WR_SEND] = "SEND",
        [IBV_WR_SEND_WITH_IMM] = "SEND_WITH_IMM",
        [IBV_WR_RDMA_READ] = "RDMA_READ",
        [IBV_WR_ATOMIC_CMP_AND_SWP] = "ATOMIC_CMP_AND_SWP",
        [IBV_WR_ATOMIC_FETCH_AND_ADD] = "ATOMIC_FETCH_AND_ADD",
        [IBV_WR_LOCAL_INV] = "LOCAL_INV",
        [IBV_WR_BIND_MW] = "BIND_MW",
        [IBV_WR_SEND_WITH_INV] = "SEND_WITH_INV",
    };
    const char *name = opcode < sizeof(names) / sizeof(names[0]) ? names[opcode] : NULL;

    line("qp 0x%06x post %s %u bytes wr_id 0x%" PRIx64 "\n", qpn, name != NULL ? name : "?",
         bytes, wr_id);
}

void emu_trace_receive(const char *queue, uint32_t number, const struct ibv_recv_wr *wr)
{
    uint64_t bytes = 0;

    for (int i = 0; i < wr->num_sge; i++)
        bytes += wr->sg_list[i].length;
    line("%s 0x%06x post RECV %" PRIu64 " bytes wr_id 0x%" PRIx64 "\n", queue, number, bytes,
         wr->wr_id);
}

void emu_trace_completion(const struct shm_cqe *c)
{
    static const char *const sent[] = {
        [IBV_WC_SEND] = "SEND",           [IBV_WC_RDMA_WRITE] = "RDMA_WRITE",
        [IBV_WC_RDMA_READ] = "RDMA_READ", [IBV_WC_COMP_SWAP] = "COMP_SWAP",
        [IBV_WC_FETCH_ADD] = "FETCH_ADD", [IBV_WC_BIND_MW] = "BIND_MW",
        [IBV_WC_LOCAL_INV] = "LOCAL_INV",
    };
    const char *name = c->opcode == IBV_WC_RECV_RDMA_WITH_IMM ? "RECV_RDMA_WITH_IMM" : "RECV";

    if (c->from_sq)
        name = c->opcode < sizeof(sent) / sizeof(sent[0]) ? sent[c->opcode] : "?";
    line("qp 0x%06x done %s %u bytes wr_id 0x%" PRIx64 " %s\n", c->qpn, name, c->byte_len,
         c->wr_id, ibv_wc_status_str((enum ibv_wc_status)c->status));
}

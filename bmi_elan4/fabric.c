/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* fabric.c - open, close, options and the function table. */
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "bmi_elan4/bmi_elan4.h"
#include "bmi_elan4/elan.h"

/* Logs an error.  Returns rc. */
#define FAIL(f, rc, ...) (elan_log(f, RME_LOG_ERROR, __VA_ARGS__), (rc))

static int read_range(struct rme_fabric *f, const char *name, int *low, int *high)
{
    const char *text = rme_option_string(f->config.options, name);
    char end;

    return sscanf(text, "%5d-%5d%c", low, high, &end) == 2
               ? 0
               : FAIL(f, -EINVAL, "%s=%s: expected FIRST-LAST", name, text);
}

/* Mixes the characters of elan_key to a key. */
static void read_key(struct rme_fabric *f, unsigned key[4])
{
    uint32_t mix = RME_HASH_NONE;

    for (const char *at = rme_option_string(f->config.options, "elan_key"); *at; at++) {
        mix = rme_hash(mix, at, 1);
        for (unsigned i = 0; i < 4; i++)
            key[i] = (key[i] + mix) * (2 * i + 3);
    }
}

/* Reads the address to listen at, if any. */
static int read_address(struct rme_fabric *f, struct bmi_elan4_nic_config *config, int *node)
{
    const struct rme_addr_part *at;

    config->context = BMI_ELAN4_CLIENT;
    if (f->config.listen == NULL)
        return 0;
    at = rme_addr_part(f->config.listen, 0);
    if (at == NULL || (*node = bmi_elan4_decimal(at->host, NULL)) < 0 ||
        (config->context = bmi_elan4_decimal(at->port, NULL)) < 0)
        return FAIL(f, -EINVAL, "address=%s: expected elan4://NODE:CONTEXT",
                    at != NULL ? at->host : "");
    if (config->context < config->range.low_context ||
        config->context > config->range.high_context)
        return FAIL(f, -EADDRNOTAVAIL, "elan4://%d:%d: context outside elan_contexts=%d-%d",
                    *node, config->context, config->range.low_context,
                    config->range.high_context);
    return 0;
}

static int open_nic(struct rme_fabric *f)
{
    const char *folder = getenv(BMI_ELAN4_LOG_ENV), *fewer = "lower elan_tx_buffers";
    struct bmi_elan4_nic_config config = {
        .folder = folder != NULL && *folder ? folder : BMI_ELAN4_LOG_FOLDER};
    char why[300] = "";
    int node = -1, rc;

    if (read_range(f, "elan_nodes", &config.range.low_node, &config.range.high_node) < 0 ||
        read_range(f, "elan_contexts", &config.range.low_context, &config.range.high_context) <
            0)
        return -EINVAL;
    rc = read_address(f, &config, &node);
    if (rc < 0)
        return rc;
    read_key(f, config.key);
    f->tx_bytes = f->config.rx_size > ELAN_HELLO_MAX ? f->config.rx_size : ELAN_HELLO_MAX;
    f->packets_max = elan_packets(f->tx_bytes);
    /* two and a half times the limit, which excludes orphans */
    config.main_bytes =
        (size_t)f->tx_max * 2 * BMI_ELAN4_SLOT +
        (size_t)5 * f->tx_max / 2 * (f->tx_bytes + (f->packets_max + 1) * 2048) +
        ((size_t)4 << 20);
    config.sdram_bytes = (size_t)2 << 20;
    rc = bmi_elan4_nic_open(&config, &f->nic, why, sizeof(why));
    if (rc < 0)
        return FAIL(f, rc == -EBUSY && f->config.listen ? -EADDRINUSE : rc, "%s", why);
    if (f->config.listen != NULL && node != f->nic->node)
        return FAIL(f, -EADDRNOTAVAIL,
                    "elan4://%d:%d: not an address of this host, which is node %d", node,
                    config.context, f->nic->node);
    f->active.per_node = f->places.per_node = f->held.per_node = f->answers.per_node =
        f->messages.per_node =
            (unsigned)(config.range.high_context - config.range.low_context + 1);
    rc = bmi_elan4_inbox_open(f->nic, f->tx_max, &f->inbox);
    if (rc < 0)
        return FAIL(f, rc, "input queue of %u slots: %s; %s", f->tx_max, strerror(-rc),
                    rc == -ENOMEM ? fewer : rme_remedy(rc, fewer));
    bmi_elan4_conn_info_fill(&f->conn_info, &f->nic->range, config.key, f->nic->node,
                             f->nic->context, bmi_elan4_inbox_queue(f->inbox),
                             f->nic->generation);
    return 0;
}

/* Reads the table of servers.  A server opens its bootstrap server, or logs the address of its
 * queue. */
static int open_bootstrap(struct rme_fabric *f)
{
    const char *text = rme_option_string(f->config.options, "elan_servers");
    const char *env = getenv(BMI_ELAN4_SERVER_ENV);
    struct bmi_elan4_where where;
    struct bmi_elan4_nic *nic = f->nic;
    const char *why_not;
    char why[300] = "", host[64] = "", port[8] = "";
    int rc;

    if (!*text && env != NULL)
        text = env;
    rc = bmi_elan4_servers_new(text, &f->servers, why, sizeof(why));
    if (rc < 0)
        return FAIL(f, rc, "elan_servers=%s: %s", text, why);
    why_not = bmi_elan4_servers_why(f->servers);
    if (*why_not)
        elan_log(f, RME_LOG_WARN,
                 "%s; the name is looked up again when a connection to its server is requested",
                 why_not);
    if (f->config.listen == NULL)
        return 0;
    rc = bmi_elan4_servers_find(f->servers, &nic->range, nic->node, nic->context, &where);
    elan_log(f, RME_LOG_INFO,
             "server elan4://%d:%d; clients may set " BMI_ELAN4_SERVER_ENV "=%d:%d=0x%llx",
             nic->node, nic->context, nic->node, nic->context,
             (unsigned long long)f->conn_info.queue);
    if (rc < 0 && rc != -ENOENT && rc != -EINVAL) /* the name is that of this host */
        return FAIL(f, -EINVAL, "elan_servers=%s: %s", text, why_not);
    if (rc < 0 || where.queue)
        return 0;
    rc = bmi_elan4_bootstrap_open((struct sockaddr *)&where.tcp, where.tcp_length,
                                  &f->conn_info, &f->bootstrap);
    if (rc == 0)
        return 0;
    getnameinfo((struct sockaddr *)&where.tcp, where.tcp_length, host, sizeof(host), port,
                sizeof(port), NI_NUMERICHOST | NI_NUMERICSERV);
    return FAIL(f, rc, "elan4://%d:%d: cannot listen on %s port %s (elan_servers): %s%s",
                nic->node, nic->context, host, port, strerror(-rc),
                rc == -EADDRINUSE ? "; another process listens there" : "");
}

static void elan_close(struct rme_fabric *f)
{
    if (f->nic != NULL)
        elan_leave(f);
    if (f->servers != NULL)
        bmi_elan4_servers_free(f->servers);
    if (f->epoll_fd >= 0)
        close(f->epoll_fd);
    if (f->inbox != NULL)
        bmi_elan4_inbox_close(f->inbox);
    if (f->nic != NULL)
        bmi_elan4_nic_close(f->nic);
    /* not earlier: to peers a refused query says that nothing of this process is in flight */
    if (f->bootstrap.listener >= 0)
        bmi_elan4_bootstrap_close(&f->bootstrap);
    elan_tx_close(f);
    free(f->account);
    free(f);
}

static void lists_init(struct rme_fabric *f)
{
    struct list_head *lists[] = {&f->links,   &f->eventful, &f->dirty,  &f->ready,
                                 &f->sending, &f->ending,   &f->wanting};
    for (unsigned i = 0; i < sizeof(lists) / sizeof(lists[0]); i++)
        list_init(lists[i]);
}

static int elan_open(const struct rme_fabric_config *config, struct rme_fabric **out)
{
    struct rme_fabric *f = calloc(1, sizeof(*f));
    int rc;

    if (f != NULL)
        f->account = calloc(BMI_ELAN4_MAX_VPS, sizeof(*f->account));
    if (f == NULL || f->account == NULL) {
        free(f);
        config->log(config->log_arg, RME_LOG_ERROR, "elan4: opening: %s", strerror(ENOMEM));
        return -ENOMEM;
    }
    f->config = *config;
    f->epoll_fd = f->bootstrap.listener = -1;
    f->tx_max = (uint32_t)rme_option(config->options, "elan_tx_buffers");
    f->kept_max = f->tx_max < ELAN_KEPT_MAX ? f->tx_max : ELAN_KEPT_MAX;
    f->tx_per_link = f->tx_max < 64 ? 8 : f->tx_max / 8;
    f->active.most = f->tx_max / 4;
    f->places.most = ELAN_LINKS;
    f->held.most = ELAN_HELD;
    f->answers.most = f->kept_max / 2;
    f->messages.most = f->tx_max;
    f->dead_ms = rme_option(config->options, "elan_dead_ms");
    f->quarantine_ms = rme_option(config->options, "elan_quarantine_ms");
    lists_init(f);
    list_init(&f->orphans);
    for (unsigned i = 0; i < ELAN_POOLS; i++)
        list_init(&f->free[i]);
    rc = open_nic(f);
    if (rc == 0)
        rc = open_bootstrap(f);
    if (rc == 0)
        rc = elan_wait_open(f);
    if (rc == 0 && (rc = bmi_elan4_nic_listen(f->nic)) < 0)
        (void)FAIL(f, rc, "cannot open context %d to the network: %s", f->nic->context,
                   strerror(-rc));
    if (rc < 0) {
        elan_close(f);
        return rc;
    }
    *out = f;
    return 0;
}

/* Returns the context, which is the port of the address. */
static uint16_t elan_listen_port(const struct rme_fabric *f)
{
    return f->config.listen != NULL ? (uint16_t)f->nic->context : 0;
}

static const struct rme_caps *elan_caps(const struct rme_fabric *f)
{
    /* a DMA costs 350 ns, the packet that requests one 1100 */
    static const struct rme_limits software = {
        .once = {64u << 10, 2u << 10, 12u << 10},
        .list = {64u << 10, 2u << 10, 12u << 10},
        .read = 4,
    };
    static const struct rme_caps caps = {.max_sge = 64,
                                         .max_read_sge = 64,
                                         .segments_apart = true,         /* one DMA each */
                                         .max_piece = UINT64_C(1) << 30, /* of a DMA */
                                         .max_regs = UINT32_MAX,
                                         .has_read = true,
                                         .chains_reads = true, /* by a chained event */
                                         .limits = COMPAT_SOFTWARE ? &software
                                                                   : &rme_limits_unregistered,
                                         .look_ms = ELAN_ASK_MS,
                                         .open_memory = true};

    (void)f;
    return &caps;
}

#ifndef MADV_POPULATE_READ /* since Linux 5.14 */
#define MADV_POPULATE_READ  22
#define MADV_POPULATE_WRITE 23
#endif

/* Returns true if the kernel has memory there with the requested access, or cannot tell. */
static bool is_there(uintptr_t base, size_t length, int advice)
{
    uintptr_t from = base & ~((uintptr_t)sysconf(_SC_PAGESIZE) - 1);
    int rc;

    do
        rc = madvise((void *)from, base + length - from, advice);
    while (rc < 0 && (errno == EAGAIN || errno == EINTR));
    return rc == 0 || (errno == EINVAL && madvise((void *)from, 0, advice) < 0); /* unknown */
}

/*
 * Registers memory.  The interface accesses all memory of the process.  The rkey, which peers
 * add to an address, may be 0; the lkey is not used and only marks a registration.  An address
 * without memory would end the link, so the memory is tested here if possible.
 */
static int elan_reg(struct rme_fabric *f, void *base, size_t length, unsigned access,
                    struct rme_mr *mr)
{
    E4_Addr at = bmi_elan4_at(f->nic, base);

    if (!compat_is_address(at))
        return -EACCES;
    if (!is_there((uintptr_t)base, length,
                  access & (RME_ACCESS_LOCAL_WRITE | RME_ACCESS_REMOTE_WRITE)
                      ? MADV_POPULATE_WRITE
                      : MADV_POPULATE_READ))
        return -EFAULT;
    *mr = (struct rme_mr){
        .base = (uintptr_t)base, .length = length, .lkey = 1, .rkey = at - (uintptr_t)base};
    return 0;
}

static void elan_dereg(struct rme_fabric *f, struct rme_mr *mr)
{
    (void)f;
    (void)mr;
}

static const char *elan_peer(const struct rme_link *l)
{
    return l->name;
}

static void elan_path(const struct rme_link *l, char *text, size_t size)
{
    const struct bmi_elan4_nic *nic = l->f->nic;
    int node, context;

    text[0] = '\0';
    if (l->state == ELAN_UP_STATE &&
        !bmi_elan4_place(&nic->range, (int)l->peer.vp, &node, &context))
        snprintf(text, size,
                 "node %d context %d (VPID %u) to node %d context %d (VPID %u), rail 0",
                 nic->node, nic->context, nic->vp, node, context, l->peer.vp);
}

static const struct rme_option_row options[] = {
    {"elan_nodes", "name", 0, 0, 0, "0-63",
     "Nodes that take part, FIRST-LAST; the same for all processes."},
    {"elan_contexts", "name", 0, 0, 0, "2-65",
     "Contexts on each node, FIRST-LAST: the first for the server, the others for clients; the "
     "same for all processes.  Nodes times contexts is at most 8192."},
    {"elan_key", "name", 0, 0, 0, "",
     "Shared secret of the processes of a file system.  Connections with another key are "
     "refused."},
    {"elan_servers", "name", 0, 0, 0, "",
     "Contact addresses of servers: [SERVER=]WHERE.  SERVER is NODE, NODE:CONTEXT or *; WHERE "
     "is the address of the input queue (0x...) or HOST:PORT.  Empty: the environment's "
     "BMI_ELAN4_SERVER_ADDR, which may hold several entries separated by commas."},
    {"elan_tx_buffers", "count", 1024, 16, 65536, NULL,
     "Send buffers of all connections together, and slots of the input queue, 1920 bytes "
     "each.  One process may hold an eighth of the buffers, so that a dead one cannot take "
     "all; the processes of one node together three quarters.  A quarter as many DMAs may be "
     "outstanding at the network interface, half of them for one process, three quarters for "
     "one node; more wait."},
    {"elan_dead_ms", "ms", 10000, 200, 3600000, NULL,
     "A peer whose input queue has accepted no message for this long is considered "
     "unresponsive (elan_quarantine_ms).  A dead peer of the same node is found immediately by "
     "the context log; a server of another node that is met at HOST:PORT is asked there."},
    {"elan_quarantine_ms", "ms", 5000, 0, 3600000, NULL,
     "Time for which the memory of an aborted connection stays mapped while its peer may still "
     "write to it."},
    {NULL, NULL, 0, 0, 0, NULL, NULL},
};

static const struct rme_fabric_ops ops = {
    .release = RME_RELEASE,
    .size = sizeof(struct rme_fabric_ops),
    .scheme = "elan4",
    .options = options,
    .open = elan_open,
    .close = elan_close,
    .caps = elan_caps,
    .listen_port = elan_listen_port,
    .reg = elan_reg,
    .dereg = elan_dereg,
    .link_connect = elan_op_connect,
    .link_accept = elan_op_accept,
    .link_reject = elan_op_reject,
    .link_disconnect = elan_link_end,
    .link_probe = elan_op_probe,
    .link_free = elan_op_free,
    .link_peer = elan_peer,
    .link_path = elan_path,
    .rx_reserve = elan_op_rx_reserve,
    .rx_release = elan_op_rx_release,
    .rx_return = elan_op_rx_return,
    .tx_get = elan_op_tx_get,
    .tx_put = elan_op_tx_put,
    .tx_send = elan_op_tx_send,
    .rdma_op = elan_op_rdma,
    .flush = elan_op_flush,
    .poll = elan_op_poll,
    .arm = elan_op_arm,
    .wait = elan_op_wait,
    .wake = elan_op_wake,
    .deadline = elan_op_deadline,
};

const struct rme_fabric_ops *bmi_elan4_fabric(void)
{
    return &ops;
}

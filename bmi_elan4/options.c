/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The fabric's tunables: one table for parsing and `bmi-perf --options`. */
#include "bmi_elan4/elan.h"

const struct rme_option_row elan_options[] = {
    {"elan_nodes", "name", 0, 0, 0,
     "Nodes of the network that take part, FIRST-LAST; the same for all processes.", "0-63"},
    {"elan_contexts", "name", 0, 0, 0,
     "Contexts on each node, FIRST-LAST: the first is the server's, the others are for "
     "clients; the same for all processes.  Nodes times contexts is at most 8192.",
     "2-65"},
    {"elan_key", "name", 0, 0, 0,
     "Words that all processes of a file system share, so that those of another one are "
     "refused.",
     ""},
    {"elan_log", "name", 0, 0, 0,
     "Folder of the node's log of contexts; the same for all processes of a node.  Empty takes "
     "the environment's BMI_ELAN4_LOG, else /var/tmp/bmi_elan4.",
     ""},
    {"elan_servers", "name", 0, 0, 0,
     "Where servers are met: [WHO=]WHERE, WHO a node, NODE:CONTEXT or *, WHERE the address of "
     "the input queue (0x…) or HOST:PORT.  Empty takes the environment's "
     "BMI_ELAN4_SERVER_ADDR, where several may stand, with commas.",
     ""},
    {"elan_slots", "count", 1024, 16, 65536, "Slots of the input queue, of 1920 bytes each.",
     NULL},
    {"elan_tx_buffers", "count", 1024, 16, 65536, "Send buffers of all connections.", NULL},
    {"elan_tx_per_link", "count", 128, 8, 65536,
     "Send buffers one connection, and all with one process, may hold, so that a dead peer "
     "starves nobody.",
     NULL},
    {"elan_transfers", "count", 256, 4, 4096,
     "Transfers that may be with the network interface at a time, half of them to one process "
     "at most; others wait.",
     NULL},
    {"elan_drain_timeout_ms", "ms", 300, 10, 600000,
     "Time that a connection has to come to its end in order before it is given up.", NULL},
    {"elan_dead_ms", "ms", 10000, 200, 3600000,
     "A peer whose input queue has taken no message of ours for so long is given up as silent "
     "(elan_quarantine_ms).  A dead one of the same "
     "node is found out at once, by the log; a server of another node that is met at "
     "HOST:PORT soon, by asking there.",
     NULL},
    {"elan_quarantine_ms", "ms", 5000, 0, 3600000,
     "Time for which the memory of a connection that was given up is kept from its owner, "
     "where its peer is not known to be dead and so may still write there.",
     NULL},
    {NULL, NULL, 0, 0, 0, NULL, NULL},
};

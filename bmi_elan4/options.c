/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Options of the fabric: one table for parsing and for `bmi-perf --options`. */
#include "bmi_elan4/elan.h"

const struct rme_option_row elan_options[] = {
    {"elan_nodes", "name", 0, 0, 0,
     "Nodes that take part, FIRST-LAST; the same for all processes.", "0-63"},
    {"elan_contexts", "name", 0, 0, 0,
     "Contexts on each node, FIRST-LAST: the first for the server, the others for clients; the "
     "same for all processes.  Nodes times contexts is at most 8192.",
     "2-65"},
    {"elan_key", "name", 0, 0, 0,
     "Shared secret of the processes of a file system.  Connections with another key are "
     "refused.",
     ""},
    {"elan_log", "name", 0, 0, 0,
     "Folder of the node's context log; the same for all processes of a node.  Empty: the "
     "environment's BMI_ELAN4_LOG, else /var/tmp/bmi_elan4.",
     ""},
    {"elan_servers", "name", 0, 0, 0,
     "Contact addresses of servers: [SERVER=]WHERE.  SERVER is NODE, NODE:CONTEXT or *; WHERE "
     "is the address of the input queue (0x...) or HOST:PORT.  Empty: the environment's "
     "BMI_ELAN4_SERVER_ADDR, which may hold several entries separated by commas.",
     ""},
    {"elan_slots", "count", 1024, 16, 65536, "Slots of the input queue, 1920 bytes each.",
     NULL},
    {"elan_tx_buffers", "count", 1024, 16, 65536, "Send buffers of all connections together.",
     NULL},
    {"elan_tx_per_link", "count", 128, 8, 65536,
     "Limit on send buffers held by one connection, and by all connections with one process, "
     "so that a dead peer cannot take all.",
     NULL},
    {"elan_transfers", "count", 256, 4, 4096,
     "Limit on DMAs outstanding at the network interface, half of them per process; more wait.",
     NULL},
    {"elan_drain_timeout_ms", "ms", 300, 10, 600000,
     "Time for a connection to close in order before it is aborted.", NULL},
    {"elan_dead_ms", "ms", 10000, 200, 3600000,
     "A peer whose input queue has accepted no message for this long is considered "
     "unresponsive (elan_quarantine_ms).  A dead peer of the same node is found at once by the "
     "context log; a server of another node that is met at HOST:PORT is asked there.",
     NULL},
    {"elan_quarantine_ms", "ms", 5000, 0, 3600000,
     "Time for which the memory of an aborted connection stays mapped while its peer may still "
     "write to it.",
     NULL},
    {NULL, NULL, 0, 0, 0, NULL, NULL},
};

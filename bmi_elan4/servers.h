/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * servers.h - meeting points of servers.
 *
 * An address elan4://NODE:CONTEXT identifies a server, but not its input queue, whose address
 * is either configured or requested over TCP:
 *
 *   WHERE                      for all servers
 *   SERVER=WHERE[,...]         SERVER: *, NODE, or NODE:CONTEXT; the most specific match counts
 *
 * WHERE is 0xADDRESS, the Elan address of the queue, as logged by the server at its start, or
 * HOST:PORT ([HOST]:PORT for IPv6).  With * the port is increased by the number of the process,
 * with NODE by the index of its context, so that each server has its own.
 */
#ifndef BMI_ELAN4_SERVERS_H
#define BMI_ELAN4_SERVERS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

#include "bmi_elan4/process.h"

#define BMI_ELAN4_SERVER_ENV "BMI_ELAN4_SERVER_ADDR"

struct bmi_elan4_servers;

struct bmi_elan4_where {
    uint64_t queue; /* 0: request it at */
    struct sockaddr_storage tcp;
    socklen_t tcp_length; /* 0 with a queue */
};

/*
 * Parses the text and resolves host names, which may take long.  Returns 0, or -EINVAL or
 * -ENOMEM with the reason in `why`.  An empty text is an empty table.  If a name cannot be
 * resolved, the table is valid for the others, and bmi_elan4_servers_why() has the reason.
 */
int bmi_elan4_servers_new(const char *text, struct bmi_elan4_servers **out, char *why,
                          size_t size);
void bmi_elan4_servers_free(struct bmi_elan4_servers *s);

/* Returns the name that could not be resolved last, and the reason; "": none.  Valid until the
 * next bmi_elan4_servers_find(), or the end of the table. */
const char *bmi_elan4_servers_why(const struct bmi_elan4_servers *s);

/* Finds a server without blocking.  Returns 0; -ENOENT: not in the table; -EINVAL: process or
 * port out of range; -EAGAIN: host name unresolved, and being resolved again for a later call;
 * or another error if that is impossible. */
int bmi_elan4_servers_find(struct bmi_elan4_servers *s, const struct bmi_elan4_range *r,
                           int node, int context, struct bmi_elan4_where *where);

#endif

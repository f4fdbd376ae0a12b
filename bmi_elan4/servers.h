/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Where servers are met. An address elan4://NODE:CONTEXT says who a server is, not where its
 * input queue lies; that is either known beforehand, or asked for over TCP.
 *
 *   WHERE                      of all servers
 *   SERVER=WHERE[,...]         SERVER: *, NODE, or NODE:CONTEXT; the most specific one applies
 *
 * WHERE is 0xADDRESS, the Elan address of the queue, as the server said it when it began; or
 * HOST:PORT ([HOST]:PORT for IPv6). Behind * the port is counted up by the number of the
 * process, behind NODE by the place of its context, so that each server has one of its own.
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
    uint64_t queue; /* 0: ask there: */
    struct sockaddr_storage tcp;
    socklen_t tcp_length; /* 0 with a queue */
};

/*
 * Reads the text; names of hosts are looked up here, which may take its time. 0, or -EINVAL,
 * -ENOMEM, with the reason in `why`. An empty text is a table of nobody. Where a name cannot be
 * looked up the table is good for the others, and bmi_elan4_servers_why() says so.
 */
int bmi_elan4_servers_new(const char *text, struct bmi_elan4_servers **out, char *why,
                          size_t size);
void bmi_elan4_servers_free(struct bmi_elan4_servers *s);

/* Which name could not be looked up last, and why; "": none. As long as the table, until the
 * next call of find. */
const char *bmi_elan4_servers_why(const struct bmi_elan4_servers *s);

/* 0; -ENOENT: the table has nobody there; -EINVAL: that process is outside of the range, or its
 * port is; -EAGAIN: its host's name could not be looked up, and is looked up once more; a later
 * call may know it. Other errors where that is impossible. Never waits. */
int bmi_elan4_servers_find(struct bmi_elan4_servers *s, const struct bmi_elan4_range *r,
                           int node, int context, struct bmi_elan4_where *where);

#endif

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * access.h - lists of hosts and networks: clients of a server, and servers of a client.
 *
 * A list is not modified after its creation; any number of threads may read it.
 */
#ifndef IOD_ACCESS_H
#define IOD_ACCESS_H

#include <stdbool.h>
#include <stddef.h>

struct access;

/* Makes a list from "ADDRESS|NET/BITS|NODE,...": addresses (IPv6 with or without brackets),
 * networks, and node numbers of Elan4.  Returns NULL with one line in `why`. */
struct access *access_new(const char *text, char *why, size_t size);
void access_free(struct access *access); /* NULL is allowed */

/* Makes the list of loopback addresses: 127.0.0.0/8 and ::1.  NULL: no memory. */
struct access *access_loopback(void);

/* Copies the host of "[scheme://]host[:port]", without brackets.  Returns false if the host is
 * missing or longer than `size`. */
bool access_host_of(const char *uri, char *host, size_t size);

/* Returns true if a numeric address or a node number is in the list. */
bool access_admits(const struct access *access, const char *host);

#endif

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * access.h - lists of hosts and networks: whom a server serves, where a client may go.
 *
 * A list is made once and then only read, by any number of threads.
 */
#ifndef IOD_ACCESS_H
#define IOD_ACCESS_H

#include <stdbool.h>
#include <stddef.h>

struct access;

/*
 * Makes a list from "HOST|NET/BITS,...": addresses (IPv6 with or without brackets), networks,
 * and names, which are resolved now (this may block).  NULL: `why` is one line without a
 * newline.
 */
struct access *access_new(const char *text, char *why, size_t size);
void access_free(struct access *access); /* NULL is allowed */

/* The list of this machine's own addresses that no network reaches: 127.0.0.0/8 and ::1.  NULL:
 * no memory. */
struct access *access_loopback(void);

/* The host part of "[scheme://]host[:port]", without brackets.  False: there is none, or no
 * room.
 */
bool access_host_of(const char *uri, char *host, size_t size);

/* Is this host, a numeric address, in the list?  Anything else is compared as text with the
 * names of the list. */
bool access_admits(const struct access *access, const char *host);

/* The same for a host that may be a name, which is resolved (this may block): all its addresses
 * must be in the list. */
bool access_admits_name(const struct access *access, const char *host);

#endif

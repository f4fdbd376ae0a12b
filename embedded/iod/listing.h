/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* listing.h - lists all objects of servers. */
#ifndef IOD_LISTING_H
#define IOD_LISTING_H

#include "embedded/iod/args.h"
#include "embedded/iod/client.h"

/* Object on one server.  The name is in `name`; entry.name.text is NULL. */
struct listing_part {
    char name[IOD_NAME_MAX + 1];
    struct iod_entry entry;
    const char *server; /* owned by the session */
};

struct listing {
    struct client client; /* first member: the session's callbacks convert the pointer */
    struct listing_part *part;
    size_t count, room;
};

/* Lists all objects of these servers; unreadable ones are omitted and counted in `unread` of
 * each server.  Returns false with one line in listing->client.why. */
bool listing_take(struct listing *listing, const struct client_options *options,
                  const struct args_list *servers);

/* Ends the session and frees the parts, also after a failure of listing_take(). */
void listing_end(struct listing *listing);

#endif

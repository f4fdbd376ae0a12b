/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* listing.h - what servers have: all their objects, asked for. */
#ifndef IOD_LISTING_H
#define IOD_LISTING_H

#include "embedded/iod/args.h"
#include "embedded/iod/client.h"

/* One object on one server.  Of `entry` the name's text is gone; it is in `name`. */
struct listing_part {
    char name[IOD_NAME_MAX + 1];
    struct iod_entry entry;
    const char *server; /* the session's */
};

struct listing {
    struct client client; /* first: the session's callbacks get at the listing from it */
    struct listing_part *part;
    size_t count, room;
};

/* Asks all these servers for all they have; what they cannot read themselves is missing, and
 * counted in `unread` of each.  False: listing->client.why is one line. */
bool listing_take(struct listing *listing, const struct client_options *options,
                  const struct args_list *servers);

/* Ends the session and frees the parts.  After listing_take(), whatever it said. */
void listing_end(struct listing *listing);

#endif

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The last error line of BMI; see lastline.h. */
#include "bench/lastline.h"

#include <stdio.h>
#include <string.h>
#include "embedded/bmi/gossip.h"

static void keep(void *arg, char kind, const char *line)
{
    struct lastline *last = arg;
    size_t used;

    if (kind != 'E')
        return;
    pthread_mutex_lock(&last->lock);
    used = last->all ? strlen(last->text) : 0;
    snprintf(last->text + used, sizeof last->text - used, "%s%s", used ? "; " : "", line);
    pthread_mutex_unlock(&last->lock);
}

void lastline_begin(struct lastline *last, bool all)
{
    pthread_mutex_init(&last->lock, NULL);
    last->all = all;
    last->text[0] = 0;
    gossip_set_sink(keep, last);
}

void lastline_end(struct lastline *last)
{
    gossip_set_sink(NULL, NULL);
    pthread_mutex_destroy(&last->lock);
}

void lastline_get(struct lastline *last, char *text)
{
    pthread_mutex_lock(&last->lock);
    memcpy(text, last->text, LASTLINE_SIZE);
    pthread_mutex_unlock(&last->lock);
}

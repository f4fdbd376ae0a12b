/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* event.c - events of a poll, log and clock. */
#include <stdarg.h>
#include <stdio.h>

#include "base/timer.h"
#include "bmi_elan4/elan.h"

void elan_log(struct rme_fabric *f, enum rme_log_level level, const char *format, ...)
{
    char line[400];
    va_list ap;

    va_start(ap, format);
    vsnprintf(line, sizeof(line), format, ap);
    va_end(ap);
    f->config.log(f->config.log_arg, level, "elan4: %s", line);
}

int64_t elan_now(void)
{
    return (int64_t)rme_now();
}

struct rme_event *elan_emit(struct rme_fabric *f, enum rme_event_type type, struct rme_link *l)
{
    struct rme_event *e = &f->out[f->used++];

    *e = (struct rme_event){.type = type, .link = l, .owner = l->owner};
    return e;
}

static void emit_hello(struct rme_fabric *f, enum rme_event_type type, struct rme_link *l)
{
    struct rme_event *e = elan_emit(f, type, l);

    if (!l->heard)
        return;
    e->hello = l->hello;
    e->hello_length = l->hello_length;
}

/* Delivers the events of a link; LINK_DOWN is the last one. */
void elan_tell(struct rme_link *l)
{
    struct rme_fabric *f = l->f;

    if (l->tell_request && elan_room(f)) {
        l->tell_request = false;
        emit_hello(f, RME_EV_LINK_REQUEST, l);
    }
    if (l->tell_up && elan_room(f)) {
        l->tell_up = false;
        emit_hello(f, RME_EV_LINK_UP, l);
    }
    if (l->tell_room && elan_room(f)) {
        l->tell_room = false;
        elan_emit(f, RME_EV_TX_ROOM, l);
    }
    if (l->tell_down && elan_room(f)) {
        l->tell_down = false;
        emit_hello(f, RME_EV_LINK_DOWN, l);
        f->out[f->used - 1].error = l->error;
        f->out[f->used - 1].why = l->why;
    }
}

void elan_tell_all(struct rme_fabric *f)
{
    struct rme_link *l;

    while (elan_room(f) && (l = TAILQ_FIRST(&f->eventful)) != NULL) {
        ELAN_REMOVE(l, eventful);
        elan_tell(l);
        if (l->tell_request || l->tell_up || l->tell_room || l->tell_down)
            ELAN_ADD(l, eventful);
    }
}

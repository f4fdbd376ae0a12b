/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * ask.c - queries by TCP whether a server is still the same process.
 *
 * The desk of a server (exchange.h) shows whether an unresponsive server is gone: no process
 * listens, or a process of another generation answers.  Either side of a link queries the
 * server of a node; a client has no desk.  A refused connection is significant only if the desk
 * was open before.
 */
#include <errno.h>
#include <sys/epoll.h>

#include "bmi_elan4/elan.h"

/* Returns the generation that the peer should have. */
static uint64_t whom(const struct rme_link *l)
{
    return l->met ? l->met : l->generation;
}

static void gone(struct rme_link *l)
{
    if (!l->met) {
        elan_link_dead(l);
        return;
    }
    elan_owner_died(l->f, l->vp, l->met);
    elan_link_down(l, -ECONNREFUSED);
}

static bool had_desk(const struct rme_link *l)
{
    return !l->passive || l->f->owner[l->vp].desk;
}

void elan_ask_step(struct rme_link *l, int64_t now)
{
    struct bmi_elan4_card theirs;
    int rc = bmi_elan4_call_step(l->question, &theirs);

    if (rc == -EAGAIN && now - l->asked < BMI_ELAN4_VISIT_MS)
        return;
    bmi_elan4_call_end(l->question);
    l->question = NULL;
    l->f->callings--;
    if (rc == -ECONNREFUSED && had_desk(l)) {
        gone(l);
    } else if (rc == 0 && theirs.vp == l->vp) {
        l->f->owner[l->vp].desk = true;
        elan_see(l->f, l->vp, theirs.generation);
        if (theirs.generation != whom(l)) {
            elan_owners_before(l->f, l->vp, theirs.generation);
            gone(l);
            return;
        }
        l->answers++;
        l->asked = now;
    }
}

void elan_ask(struct rme_link *l, int64_t now)
{
    struct rme_fabric *f = l->f;
    struct bmi_elan4_where where;
    struct bmi_elan4_card card = f->card;
    int node, context;

    if (l->question || (l->asked && now - l->asked < ELAN_ASK_MS) ||
        bmi_elan4_place(&f->nic->range, (int)l->vp, &node, &context) < 0 ||
        (l->passive && context != f->nic->range.low_context) ||
        (node == f->nic->node && !l->met) || /* the context log shows this */
        bmi_elan4_servers_find(f->servers, &f->nic->range, node, context, &where) < 0 ||
        where.queue)
        return;
    l->asked = now;
    card.wanted = l->vp;
    int rc = bmi_elan4_call_begin((struct sockaddr *)&where.tcp, where.tcp_length, &card,
                                  &l->question);
    if (rc == -ECONNREFUSED && had_desk(l))
        gone(l);
    else if ((rc == -EMFILE || rc == -ENFILE) && l->state == ELAN_GREETING_STATE)
        elan_link_down(l, rc); /* under emuelan4 the peer's memory needs a descriptor, too */
    if (rc < 0)
        return;
    f->callings++;
    elan_watch(f, bmi_elan4_call_fd(l->question), EPOLLIN | EPOLLOUT | EPOLLET);
}

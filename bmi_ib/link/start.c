/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* start.c - starts a connection to the chosen address. */
#include <errno.h>
#include <string.h>
#include "bmi_ib/link/links.h"

int ib_no_way(int status)
{
    switch (status) {
    case 0:
    case -ENODEV:
    case -ENETUNREACH:
    case -EADDRNOTAVAIL:
    case -EHOSTDOWN:
    case -EINVAL:
        return -EHOSTUNREACH;
    default:
        return status < 0 ? status : -EHOSTUNREACH;
    }
}

int ib_link_start(struct rme_link *l)
{
    struct rme_fabric *f = l->f;
    struct sockaddr_storage own;
    struct sockaddr *source;
    if (l->bound) {
        source = ib_rail_source(f, l->address->ai_addr);
    } else if (ib_path_source(f, l->address->ai_addr, &own, &source)) {
        ib_log(f, RME_LOG_WARN, "%s: the option gid has an address of another family", l->peer);
        return -EHOSTUNREACH;
    }
    if (rdma_create_id(f->cm, &l->id, l, RDMA_PS_TCP)) {
        l->id = NULL;
        return ib_errno();
    }
    l->deliver = true; /* an earlier attempt may have failed */
    memcpy(&l->sockaddr, l->address->ai_addr, l->address->ai_addrlen);
    if (rdma_resolve_addr(l->id, source, l->address->ai_addr,
                          (int)ib_option(f, "resolve_timeout_ms"))) {
        int error = ib_no_way(ib_errno());
        rdma_destroy_id(l->id);
        l->id = NULL;
        return error;
    }
    ib_link_state_set(l, IB_ADDRESSING);
    ib_link_way(l, true);
    return 0;
}

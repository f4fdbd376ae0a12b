/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * shim-table.h - the shim of one method: code, state and method table.
 *
 * BMI's functions do not name the method that is called.  So the shim is compiled once for each
 * method, with its own state: this file includes all of it, and everything but the table is
 * static.  The including file defines
 *
 *     SHIM_OPS      the symbol that the host looks for: bmi_ib_ops
 *     SHIM_SCHEME   "ib"
 *     SHIM_FABRIC   bmi_ib_fabric
 *
 * and optionally SHIM_FORM, the form of its addresses, and SHIM_FIRST_LOOKUP_MS (see
 * shim_lookup()): 3000, or 0 in a host whose lookups connect nothing, which its headers state
 * by BMI_LOOKUP_CONNECTS_NOTHING.
 */
#include "bmi-method-support.h"

#ifndef SHIM_FORM
#define SHIM_FORM "host:port, the port from 1 to 65535, an IPv6 address in brackets"
#endif

#ifndef SHIM_FIRST_LOOKUP_MS
#ifdef BMI_LOOKUP_CONNECTS_NOTHING
#define SHIM_FIRST_LOOKUP_MS 0
#else
#define SHIM_FIRST_LOOKUP_MS 3000
#endif
#endif

#include "shim.h"
#include "shim-addr.c"
#include "shim-op.c"
#include "shim.c"

extern struct bmi_method_ops SHIM_OPS;

struct bmi_method_ops SHIM_OPS = {
    .method_name = "bmi_" SHIM_SCHEME,
    .initialize = __builtin_choose_expr(
        __builtin_types_compatible_p(__typeof__(((struct bmi_method_ops *)0)->initialize),
                                     int (*)(bmi_method_addr_p, int, int, char *)),
        shim_initialize, initialize_without_options),
    .finalize = shim_finalize,
    .set_info = shim_set_info,
    .get_info = shim_get_info,
    .memalloc = shim_memalloc,
    .memfree = shim_memfree,
    .unexpected_free = shim_unexpected_free,
    .post_send = post_send,
    .post_sendunexpected = post_sendunexpected,
    .post_recv = post_recv,
    .test = test,
    .testsome = shim_test_some,
    .testcontext = shim_test_context,
    .testunexpected = shim_test_unexpected,
    .method_addr_lookup = shim_lookup,
    .post_send_list = post_send_list,
    .post_recv_list = post_recv_list,
    .post_sendunexpected_list = post_sendunexpected_list,
    .open_context = shim_open_context,
    .close_context = shim_close_context,
    .cancel = shim_cancel,
    .rev_lookup_unexpected = shim_rev_lookup,
    .query_addr_range = shim_query_range,
};

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * shim-table.h - the method table of one scheme.
 *
 * BMI's functions get no hint which method is meant, so each method has its own set of them,
 * each of which only adds its struct shim.  A file that includes this one has defined
 *
 *     SHIM_OPS      the symbol that the host looks for: bmi_ib_ops
 *     SHIM_SCHEME   "ib"
 *     SHIM_FABRIC   bmi_ib_fabric
 *
 * and may have defined SHIM_FORM, what its addresses look like, and SHIM_FIRST_LOOKUP_MS (see
 * shim_lookup()); 3000, or 0 in a host whose lookups connect nothing, which its headers say by
 * BMI_LOOKUP_CONNECTS_NOTHING.
 */
#include "shim.h"

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

extern struct bmi_method_ops SHIM_OPS;

static struct shim self =
    SHIM_INITIALIZER(self, SHIM_SCHEME, SHIM_FORM, SHIM_FABRIC, SHIM_FIRST_LOOKUP_MS);

static int initialize(bmi_method_addr_p listen, int method_id, int flags, char *options)
{
    return shim_initialize(&self, listen, method_id, flags, options);
}

/* OrangeFS before 2.9.8 has no options. */
static int initialize_without_options(bmi_method_addr_p listen, int method_id, int flags)
{
    return shim_initialize(&self, listen, method_id, flags, NULL);
}

static int finalize(void)
{
    return shim_finalize(&self);
}

static int set_info(int option, void *value)
{
    return shim_set_info(&self, option, value);
}

static int get_info(int option, void *value)
{
    return shim_get_info(&self, option, value);
}

static void *memalloc(bmi_size_t size, enum bmi_op_type send_recv)
{
    (void)send_recv;
    return shim_memalloc(&self, size);
}

static int memfree(void *buffer, bmi_size_t size, enum bmi_op_type send_recv)
{
    (void)size;
    (void)send_recv;
    return shim_memfree(&self, buffer);
}

static int unexpected_free(void *buffer)
{
    return shim_unexpected_free(&self, buffer);
}

static int post_send_list(bmi_op_id_t *id, bmi_method_addr_p dest, const void *const *buffers,
                          const bmi_size_t *sizes, int count, bmi_size_t total,
                          enum bmi_buffer_type type, bmi_msg_tag_t tag, void *user,
                          bmi_context_id context, PVFS_hint hints)
{
    (void)type;
    (void)hints;
    return shim_post(&self, SHIM_SEND, id, dest, (void *const *)buffers, sizes, count, total,
                     NULL, tag, user, context);
}

static int post_sendunexpected_list(bmi_op_id_t *id, bmi_method_addr_p dest,
                                    const void *const *buffers, const bmi_size_t *sizes,
                                    int count, bmi_size_t total, enum bmi_buffer_type type,
                                    bmi_msg_tag_t tag, void *user, bmi_context_id context,
                                    PVFS_hint hints)
{
    (void)type;
    (void)hints;
    return shim_post(&self, SHIM_UNEXPECTED, id, dest, (void *const *)buffers, sizes, count,
                     total, NULL, tag, user, context);
}

static int post_recv_list(bmi_op_id_t *id, bmi_method_addr_p src, void *const *buffers,
                          const bmi_size_t *sizes, int count, bmi_size_t total,
                          bmi_size_t *actual, enum bmi_buffer_type type, bmi_msg_tag_t tag,
                          void *user, bmi_context_id context, PVFS_hint hints)
{
    (void)type;
    (void)hints;
    return shim_post(&self, SHIM_RECV, id, src, buffers, sizes, count, total, actual, tag, user,
                     context);
}

static int post_send(bmi_op_id_t *id, bmi_method_addr_p dest, const void *buffer,
                     bmi_size_t size, enum bmi_buffer_type type, bmi_msg_tag_t tag, void *user,
                     bmi_context_id context, PVFS_hint hints)
{
    return post_send_list(id, dest, &buffer, &size, 1, size, type, tag, user, context, hints);
}

static int post_sendunexpected(bmi_op_id_t *id, bmi_method_addr_p dest, const void *buffer,
                               bmi_size_t size, enum bmi_buffer_type type, bmi_msg_tag_t tag,
                               void *user, bmi_context_id context, PVFS_hint hints)
{
    return post_sendunexpected_list(id, dest, &buffer, &size, 1, size, type, tag, user, context,
                                    hints);
}

static int post_recv(bmi_op_id_t *id, bmi_method_addr_p src, void *buffer, bmi_size_t expected,
                     bmi_size_t *actual, enum bmi_buffer_type type, bmi_msg_tag_t tag,
                     void *user, bmi_context_id context, PVFS_hint hints)
{
    return post_recv_list(id, src, &buffer, &expected, 1, expected, actual, type, tag, user,
                          context, hints);
}

static int test(bmi_op_id_t id, int *outcount, bmi_error_code_t *error, bmi_size_t *actual,
                void **user, int idle_ms, bmi_context_id context)
{
    (void)context;
    return shim_test_some(&self, 1, &id, outcount, NULL, error, actual, user, idle_ms);
}

static int testsome(int incount, bmi_op_id_t *ids, int *outcount, int *index,
                    bmi_error_code_t *error, bmi_size_t *actual, void **user, int idle_ms,
                    bmi_context_id context)
{
    (void)context;
    return shim_test_some(&self, incount, ids, outcount, index, error, actual, user, idle_ms);
}

static int testcontext(int incount, bmi_op_id_t *ids, int *outcount, bmi_error_code_t *error,
                       bmi_size_t *actual, void **user, int idle_ms, bmi_context_id context)
{
    return shim_test_context(&self, incount, ids, outcount, error, actual, user, idle_ms,
                             context);
}

static int testunexpected(int incount, int *outcount, struct bmi_method_unexpected_info *info,
                          int idle_ms)
{
    return shim_test_unexpected(&self, incount, outcount, info, idle_ms);
}

static bmi_method_addr_p method_addr_lookup(const char *id_string)
{
    return shim_lookup(&self, id_string);
}

static int open_context(bmi_context_id context)
{
    return shim_open_context(&self, context);
}

static void close_context(bmi_context_id context)
{
    shim_close_context(&self, context);
}

static int cancel(bmi_op_id_t id, bmi_context_id context)
{
    (void)context;
    return shim_cancel(&self, id);
}

static const char *rev_lookup_unexpected(bmi_method_addr_p addr)
{
    return shim_rev_lookup(&self, addr);
}

static int query_addr_range(bmi_method_addr_p addr, const char *id_string, int netmask)
{
    return shim_query_range(&self, addr, id_string, netmask);
}

struct bmi_method_ops SHIM_OPS = {
    .method_name = "bmi_" SHIM_SCHEME,
    .initialize = __builtin_choose_expr(
        __builtin_types_compatible_p(__typeof__(((struct bmi_method_ops *)0)->initialize),
                                     int (*)(bmi_method_addr_p, int, int, char *)),
        initialize, initialize_without_options),
    .finalize = finalize,
    .set_info = set_info,
    .get_info = get_info,
    .memalloc = memalloc,
    .memfree = memfree,
    .unexpected_free = unexpected_free,
    .post_send = post_send,
    .post_sendunexpected = post_sendunexpected,
    .post_recv = post_recv,
    .test = test,
    .testsome = testsome,
    .testcontext = testcontext,
    .testunexpected = testunexpected,
    .method_addr_lookup = method_addr_lookup,
    .post_send_list = post_send_list,
    .post_recv_list = post_recv_list,
    .post_sendunexpected_list = post_sendunexpected_list,
    .open_context = open_context,
    .close_context = close_context,
    .cancel = cancel,
    .rev_lookup_unexpected = rev_lookup_unexpected,
    .query_addr_range = query_addr_range,
};

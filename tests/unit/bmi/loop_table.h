/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The method table of one loop; included once for each, with LOOP, SELF, PREFIX and LOOP_NAME
 * defined. */

static int PREFIX(initialize)(bmi_method_addr_p listen, int method_id, int flags, char *options)
{
    return loop_initialize(SELF, listen, method_id, flags, options);
}

static int PREFIX(finalize)(void)
{
    return loop_finalize(SELF);
}

static int PREFIX(set_info)(int option, void *value)
{
    return loop_set_info(SELF, option, value);
}

static int PREFIX(get_info)(int option, void *value)
{
    return loop_get_info(SELF, option, value);
}

static void *PREFIX(memalloc)(bmi_size_t size, enum bmi_op_type type)
{
    (void)type;
    char *memory = malloc((size_t)size + 1);
    if (memory)
        memset(memory, 0x5a, (size_t)size + 1);
    return memory;
}

static int PREFIX(memfree)(void *buffer, bmi_size_t size, enum bmi_op_type type)
{
    (void)size;
    (void)type;
    free(buffer);
    return 0;
}

static int PREFIX(unexpected_free)(void *buffer)
{
    return loop_unexpected_free(SELF, buffer);
}

static int PREFIX(send_list)(bmi_op_id_t *id, bmi_method_addr_p dest,
                             const void *const *buffers, const bmi_size_t *sizes, int count,
                             bmi_size_t total, enum bmi_buffer_type type, bmi_msg_tag_t tag,
                             void *user, bmi_context_id context, PVFS_hint hints)
{
    (void)type;
    (void)hints;
    return loop_post(SELF, BMI_SEND, id, dest, buffers, sizes, count, total, tag, user,
                     context);
}

static int PREFIX(recv_list)(bmi_op_id_t *id, bmi_method_addr_p src, void *const *buffers,
                             const bmi_size_t *sizes, int count, bmi_size_t total,
                             bmi_size_t *actual, enum bmi_buffer_type type, bmi_msg_tag_t tag,
                             void *user, bmi_context_id context, PVFS_hint hints)
{
    (void)type;
    (void)hints;
    (void)actual;
    return loop_post(SELF, BMI_RECV, id, src, (const void *const *)buffers, sizes, count, total,
                     tag, user, context);
}

static int PREFIX(send)(bmi_op_id_t *id, bmi_method_addr_p dest, const void *buffer,
                        bmi_size_t size, enum bmi_buffer_type type, bmi_msg_tag_t tag,
                        void *user, bmi_context_id context, PVFS_hint hints)
{
    return PREFIX(send_list)(id, dest, &buffer, &size, 1, size, type, tag, user, context,
                             hints);
}

static int PREFIX(send_unexpected)(bmi_op_id_t *id, bmi_method_addr_p dest, const void *buffer,
                                   bmi_size_t size, enum bmi_buffer_type type,
                                   bmi_msg_tag_t tag, void *user, bmi_context_id context,
                                   PVFS_hint hints)
{
    (void)id, (void)dest, (void)buffer, (void)type, (void)tag, (void)user, (void)context,
        (void)hints;
    return size > 100 ? -EMSGSIZE : 1;
}

static int PREFIX(recv)(bmi_op_id_t *id, bmi_method_addr_p src, void *buffer,
                        bmi_size_t expected, bmi_size_t *actual, enum bmi_buffer_type type,
                        bmi_msg_tag_t tag, void *user, bmi_context_id context, PVFS_hint hints)
{
    return PREFIX(recv_list)(id, src, &buffer, &expected, 1, expected, actual, type, tag, user,
                             context, hints);
}

static int PREFIX(testsome)(int incount, bmi_op_id_t *ids, int *outcount, int *index,
                            bmi_error_code_t *error, bmi_size_t *actual, void **user,
                            int idle_ms, bmi_context_id context)
{
    (void)context;
    return loop_testsome(SELF, incount, ids, outcount, index, error, actual, user, idle_ms);
}

static int PREFIX(test)(bmi_op_id_t id, int *outcount, bmi_error_code_t *error,
                        bmi_size_t *actual, void **user, int idle_ms, bmi_context_id context)
{
    int index;
    return PREFIX(testsome)(1, &id, outcount, &index, error, actual, user, idle_ms, context);
}

static int PREFIX(testcontext)(int incount, bmi_op_id_t *ids, int *outcount,
                               bmi_error_code_t *error, bmi_size_t *actual, void **user,
                               int idle_ms, bmi_context_id context)
{
    return loop_testcontext(SELF, incount, ids, outcount, error, actual, user, idle_ms,
                            context);
}

static int PREFIX(testunexpected)(int incount, int *outcount,
                                  struct bmi_method_unexpected_info *info, int idle_ms)
{
    return loop_testunexpected(SELF, incount, outcount, info, idle_ms);
}

static bmi_method_addr_p PREFIX(lookup)(const char *text)
{
    return loop_lookup(SELF, text);
}

static int PREFIX(open_context)(bmi_context_id context)
{
    return loop_open_context(SELF, context);
}

static void PREFIX(close_context)(bmi_context_id context)
{
    loop_close_context(SELF, context);
}

static int PREFIX(cancel)(bmi_op_id_t id, bmi_context_id context)
{
    (void)context;
    return loop_cancel(SELF, id);
}

static const char *PREFIX(rev_lookup)(bmi_method_addr_p addr)
{
    return ((struct loop_addr *)addr->method_data)->name;
}

struct bmi_method_ops LOOP = {
    .method_name = LOOP_NAME,
    .initialize = PREFIX(initialize),
    .finalize = PREFIX(finalize),
    .set_info = PREFIX(set_info),
    .get_info = PREFIX(get_info),
    .memalloc = PREFIX(memalloc),
    .memfree = PREFIX(memfree),
    .unexpected_free = PREFIX(unexpected_free),
    .post_send = PREFIX(send),
    .post_sendunexpected = PREFIX(send_unexpected),
    .post_recv = PREFIX(recv),
    .test = PREFIX(test),
    .testsome = PREFIX(testsome),
    .testcontext = PREFIX(testcontext),
    .testunexpected = PREFIX(testunexpected),
    .method_addr_lookup = PREFIX(lookup),
    .post_send_list = PREFIX(send_list),
    .post_recv_list = PREFIX(recv_list),
    .post_sendunexpected_list = PREFIX(send_list),
    .open_context = PREFIX(open_context),
    .close_context = PREFIX(close_context),
    .cancel = PREFIX(cancel),
    .rev_lookup_unexpected = PREFIX(rev_lookup),
    .query_addr_range = loop_query_range,
};

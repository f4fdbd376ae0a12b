/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* post.c - posting and cancelling: finds the address and passes the operation to its method. */
#include <stdbool.h>
#include <stddef.h>
#include "core.h"

/* Checks the arguments of a post and pins its address.  Returns 0 or the error of the post. */
static int begin(bmi_op_id_t *id, BMI_addr_t addr, bmi_context_id context, bool is_bad,
                 struct bmi_ref **ref)
{
    if (id == NULL)
        return -BMI_EINVAL;
    *id = 0;
    if (!bmi_is_up())
        return -BMI_ENETDOWN;
    if (is_bad || !bmi_context_is_open(context))
        return -BMI_EINVAL;
    *ref = bmi_refs_pin(&bmi_core.refs, addr);
    return *ref != NULL ? 0 : -BMI_EPROTO;
}

static int end(struct bmi_ref *ref, int ret)
{
    bmi_refs_unpin(&bmi_core.refs, ref);
    return bmi_result(ret);
}

static bool is_bad_buffer(const void *buffer, bmi_size_t size)
{
    return size < 0 || (size > 0 && buffer == NULL);
}

static bool is_bad_list(const void *buffers, const bmi_size_t *sizes, int count,
                        bmi_size_t total)
{
    return count < 0 || total < 0 || (count > 0 && (buffers == NULL || sizes == NULL));
}

int BMI_post_send(bmi_op_id_t *id, BMI_addr_t dest, const void *buffer, bmi_size_t size,
                  enum bmi_buffer_type buffer_type, bmi_msg_tag_t tag, void *user_ptr,
                  bmi_context_id context_id, bmi_hint hints)
{
    struct bmi_ref *ref;
    int ret = begin(id, dest, context_id, is_bad_buffer(buffer, size), &ref);
    if (ret < 0)
        return ret;
    return end(ref, ref->ops->post_send(id, ref->method_addr, buffer, size, buffer_type, tag,
                                        user_ptr, context_id, hints));
}

int BMI_post_sendunexpected(bmi_op_id_t *id, BMI_addr_t dest, const void *buffer,
                            bmi_size_t size, enum bmi_buffer_type buffer_type,
                            bmi_msg_tag_t tag, void *user_ptr, bmi_context_id context_id,
                            bmi_hint hints)
{
    struct bmi_ref *ref;
    int ret = begin(id, dest, context_id, is_bad_buffer(buffer, size), &ref);
    if (ret < 0)
        return ret;
    return end(ref,
               ref->ops->post_sendunexpected(id, ref->method_addr, buffer, size, buffer_type,
                                             tag, user_ptr, context_id, hints));
}

int BMI_post_recv(bmi_op_id_t *id, BMI_addr_t src, void *buffer, bmi_size_t expected_size,
                  bmi_size_t *actual_size, enum bmi_buffer_type buffer_type, bmi_msg_tag_t tag,
                  void *user_ptr, bmi_context_id context_id, bmi_hint hints)
{
    struct bmi_ref *ref;
    int ret = begin(id, src, context_id, is_bad_buffer(buffer, expected_size), &ref);
    if (ret < 0)
        return ret;
    return end(ref,
               ref->ops->post_recv(id, ref->method_addr, buffer, expected_size, actual_size,
                                   buffer_type, tag, user_ptr, context_id, hints));
}

int BMI_post_send_list(bmi_op_id_t *id, BMI_addr_t dest, const void *const *buffer_list,
                       const bmi_size_t *size_list, int list_count, bmi_size_t total_size,
                       enum bmi_buffer_type buffer_type, bmi_msg_tag_t tag, void *user_ptr,
                       bmi_context_id context_id, bmi_hint hints)
{
    struct bmi_ref *ref;
    int ret = begin(id, dest, context_id,
                    is_bad_list(buffer_list, size_list, list_count, total_size), &ref);
    if (ret < 0)
        return ret;
    return end(ref, ref->ops->post_send_list(id, ref->method_addr, buffer_list, size_list,
                                             list_count, total_size, buffer_type, tag, user_ptr,
                                             context_id, hints));
}

int BMI_post_recv_list(bmi_op_id_t *id, BMI_addr_t src, void *const *buffer_list,
                       const bmi_size_t *size_list, int list_count,
                       bmi_size_t total_expected_size, bmi_size_t *total_actual_size,
                       enum bmi_buffer_type buffer_type, bmi_msg_tag_t tag, void *user_ptr,
                       bmi_context_id context_id, bmi_hint hints)
{
    struct bmi_ref *ref;
    int ret = begin(id, src, context_id,
                    is_bad_list(buffer_list, size_list, list_count, total_expected_size), &ref);
    if (ret < 0)
        return ret;
    return end(ref, ref->ops->post_recv_list(id, ref->method_addr, buffer_list, size_list,
                                             list_count, total_expected_size, total_actual_size,
                                             buffer_type, tag, user_ptr, context_id, hints));
}

int BMI_post_sendunexpected_list(bmi_op_id_t *id, BMI_addr_t dest,
                                 const void *const *buffer_list, const bmi_size_t *size_list,
                                 int list_count, bmi_size_t total_size,
                                 enum bmi_buffer_type buffer_type, bmi_msg_tag_t tag,
                                 void *user_ptr, bmi_context_id context_id, bmi_hint hints)
{
    struct bmi_ref *ref;
    int ret = begin(id, dest, context_id,
                    is_bad_list(buffer_list, size_list, list_count, total_size), &ref);
    if (ret < 0)
        return ret;
    return end(ref, ref->ops->post_sendunexpected_list(
                        id, ref->method_addr, buffer_list, size_list, list_count, total_size,
                        buffer_type, tag, user_ptr, context_id, hints));
}

/* Passes the id to all methods, because an id does not name its method.  A method ignores the
 * ids of others. */
int BMI_cancel(bmi_op_id_t id, bmi_context_id context_id)
{
    int ret = 0;
    if (!bmi_is_up())
        return -BMI_ENETDOWN;
    for (int i = 0; i < bmi_active_count(); i++) {
        int one = bmi_core.active[i]->cancel(id, context_id);
        if (one < 0 && ret == 0)
            ret = bmi_result(one);
    }
    return ret;
}

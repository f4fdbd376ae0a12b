/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Counts what a program asks of OrangeFS.  Linked with -Wl,--wrap= of the functions below. */
#include "bmi/bmi.h"
#include "pvfs2.h"

void requests_count(uint64_t *calls, uint64_t *messages);

static uint64_t io_calls, io_messages;
static int within; /* PVFS_sys_io */

void requests_count(uint64_t *calls, uint64_t *messages)
{
    *calls = io_calls;
    *messages = io_messages;
}

PVFS_error __real_PVFS_sys_io(PVFS_object_ref ref, PVFS_Request file_req, PVFS_offset offset,
                              void *buffer, PVFS_Request mem_req,
                              const PVFS_credential *credential, PVFS_sysresp_io *resp,
                              enum PVFS_io_type type, PVFS_hint hints);
PVFS_error __wrap_PVFS_sys_io(PVFS_object_ref ref, PVFS_Request file_req, PVFS_offset offset,
                              void *buffer, PVFS_Request mem_req,
                              const PVFS_credential *credential, PVFS_sysresp_io *resp,
                              enum PVFS_io_type type, PVFS_hint hints)
{
    PVFS_error ret;

    io_calls++;
    within++;
    ret = __real_PVFS_sys_io(ref, file_req, offset, buffer, mem_req, credential, resp, type,
                             hints);
    within--;
    return ret;
}

int __real_BMI_post_sendunexpected_list(bmi_op_id_t *id, BMI_addr_t dest, const void *const *at,
                                        const bmi_size_t *length, int count, bmi_size_t bytes,
                                        enum bmi_buffer_type type, bmi_msg_tag_t tag,
                                        void *user, bmi_context_id context, bmi_hint hints);
int __wrap_BMI_post_sendunexpected_list(bmi_op_id_t *id, BMI_addr_t dest, const void *const *at,
                                        const bmi_size_t *length, int count, bmi_size_t bytes,
                                        enum bmi_buffer_type type, bmi_msg_tag_t tag,
                                        void *user, bmi_context_id context, bmi_hint hints)
{
    io_messages += within != 0;
    return __real_BMI_post_sendunexpected_list(id, dest, at, length, count, bytes, type, tag,
                                               user, context, hints);
}

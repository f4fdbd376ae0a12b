/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bmi.h - the Buffered Message Interface, as programs use it.
 *
 * BMI moves tagged messages between peers over one or several network methods.  This is the
 * public API of OrangeFS's BMI over a core of our own, for programs that run without OrangeFS.
 *
 * It is the API of OrangeFS 2.9.8 and later.  Up to 2.9.7 BMI_initialize and BMI_addr_lookup
 * had no options: a program written for these defines BMI_API to 20900 before it includes this
 * header.
 *
 * Rules for every function:
 *  - any thread may call at any time between BMI_initialize and the last BMI_finalize; calls
 * outside of that fail with -BMI_ENETDOWN (or NULL);
 *  - errors are -BMI_E…; nothing is left behind by a call that failed;
 *  - nothing waits for a peer; only the four test functions sleep, and no longer than
 * max_idle_time_ms.
 *
 * Posting returns 0 (under way, *id is set), 1 (complete at once, *id is 0, nothing will be
 * reported) or a negative error (nothing was started).  What was accepted is reported exactly
 * once by one of the test functions, in the context in which it was posted.  Memory and, for
 * lists, the memory behind the list belong to BMI until then.
 */
#ifndef BMI_H
#define BMI_H

#include <stddef.h>
#include "bmi-types.h"

#ifndef BMI_API
#define BMI_API 20908 /* of OrangeFS's releases: 2.9.8 */
#endif

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* An unexpected message. */
struct BMI_unexpected_info {
    bmi_error_code_t error_code;
    BMI_addr_t addr;
    void *buffer; /* 8-byte aligned; the caller's until BMI_unexpected_free */
    bmi_size_t size;
    bmi_msg_tag_t tag;
};

/*
 * Starts BMI.  Each call needs one BMI_finalize; only the first of nested calls does anything.
 *
 * A server (flags has BMI_INIT_SERVER) names its methods and one listen address for each
 * ("bmi_ib,bmi_tcp", "ib://host:3335,tcp://host:3334"; port 0 is any free one, BMI_TCP_GET_PORT
 * tells which).  A client may name methods to start at once, else they start when an address of
 * theirs is looked up.  `options` is one string for all methods: "key=value,key=value"; NULL
 * for none.  It is copied, for those that start later; they say then what is wrong in it.
 *
 * -BMI_EINVAL bad arguments or an address that its method does not understand (BMI_addr_lookup
 * says -BMI_ENOPROTOOPT then), -BMI_ENOPROTOOPT no such method; else the method's error
 * (-BMI_ENODEV, -BMI_EADDRINUSE …).
 */
int BMI_initialize(const char *method_list, const char *listen_addr, int flags, char *options);

/* Stops BMI: ends all operations without reporting them and forgets all addresses.  No other
 * call may be running. */
int BMI_finalize(void);

/*
 * Opens a context: a set of operations that is tested together.  -BMI_EBUSY when
 * BMI_MAX_CONTEXTS are open.  Operations of a context that is closed are never reported.
 */
int BMI_open_context(bmi_context_id *context_id);
void BMI_close_context(bmi_context_id context_id);

/*
 * Finds or makes the address for a string.  Nothing is connected yet.  `bmi_opts` are options
 * for the method, if this lookup is what starts it; NULL: those of BMI_initialize.
 * -BMI_ENOPROTOOPT no method takes the string, -BMI_ENAMETOOLONG.
 */
int BMI_addr_lookup(BMI_addr_t *new_addr, const char *id_string, char *bmi_opts);

/* The string that was looked up; NULL for a peer that came to us and for what is no address. */
const char *BMI_addr_rev_lookup(BMI_addr_t addr);

/* What the method calls the peer; "UNKNOWN" for what is no address.  Both strings live as long
 * as the address. */
const char *BMI_addr_rev_lookup_unexpected(BMI_addr_t addr);

/* Is the peer in "proto://host" or "proto://network" with `netmask` leading bits?  1, 0, or a
 * negative error. */
int BMI_query_addr_range(BMI_addr_t addr, const char *id_string, int netmask);

/*
 * Post an operation.  They return 0 when it is under way and will be reported, 1 when it is
 * complete already and will not, or a negative error when nothing was started; *id is 0 in the
 * last two cases.
 *
 * Another thread may get the report before the post returns.  *id has its value by then, and a
 * post that returns 0 has not touched it since: who gets the report may free it.
 */
int BMI_post_send(bmi_op_id_t *id, BMI_addr_t dest, const void *buffer, bmi_size_t size,
                  enum bmi_buffer_type buffer_type, bmi_msg_tag_t tag, void *user_ptr,
                  bmi_context_id context_id, bmi_hint hints);

/* To a server that did not post a receive.  At most BMI_GET_UNEXP_SIZE bytes, else
 * -BMI_EMSGSIZE. */
int BMI_post_sendunexpected(bmi_op_id_t *id, BMI_addr_t dest, const void *buffer,
                            bmi_size_t size, enum bmi_buffer_type buffer_type,
                            bmi_msg_tag_t tag, void *user_ptr, bmi_context_id context_id,
                            bmi_hint hints);

/* A message may be shorter than expected_size, not longer.  *actual_size is set only when 1 is
 * returned. */
int BMI_post_recv(bmi_op_id_t *id, BMI_addr_t src, void *buffer, bmi_size_t expected_size,
                  bmi_size_t *actual_size, enum bmi_buffer_type buffer_type, bmi_msg_tag_t tag,
                  void *user_ptr, bmi_context_id context_id, bmi_hint hints);

/* The same with list_count pieces of memory; total_size is the sum of size_list.  The two
 * arrays are copied. */
int BMI_post_send_list(bmi_op_id_t *id, BMI_addr_t dest, const void *const *buffer_list,
                       const bmi_size_t *size_list, int list_count, bmi_size_t total_size,
                       enum bmi_buffer_type buffer_type, bmi_msg_tag_t tag, void *user_ptr,
                       bmi_context_id context_id, bmi_hint hints);
int BMI_post_recv_list(bmi_op_id_t *id, BMI_addr_t src, void *const *buffer_list,
                       const bmi_size_t *size_list, int list_count,
                       bmi_size_t total_expected_size, bmi_size_t *total_actual_size,
                       enum bmi_buffer_type buffer_type, bmi_msg_tag_t tag, void *user_ptr,
                       bmi_context_id context_id, bmi_hint hints);
int BMI_post_sendunexpected_list(bmi_op_id_t *id, BMI_addr_t dest,
                                 const void *const *buffer_list, const bmi_size_t *size_list,
                                 int list_count, bmi_size_t total_size,
                                 enum bmi_buffer_type buffer_type, bmi_msg_tag_t tag,
                                 void *user_ptr, bmi_context_id context_id, bmi_hint hints);

/*
 * Report what is complete, and make progress.  They return 1 when *outcount is not 0, 0 when it
 * is, or a negative error that concerns the call.  Where user_ptr arrays are NULL the pointers
 * are not reported.
 *
 * BMI_test: one operation.  BMI_testsome: those of id_array (zeros are skipped) that are
 * complete; index_array says which.  BMI_testcontext: any of a context, up to incount.  An id
 * that is unknown or was reported gives nothing.
 */
int BMI_test(bmi_op_id_t id, int *outcount, bmi_error_code_t *error_code,
             bmi_size_t *actual_size, void **user_ptr, int max_idle_time_ms,
             bmi_context_id context_id);
int BMI_testsome(int incount, bmi_op_id_t *id_array, int *outcount, int *index_array,
                 bmi_error_code_t *error_code_array, bmi_size_t *actual_size_array,
                 void **user_ptr_array, int max_idle_time_ms, bmi_context_id context_id);
int BMI_testcontext(int incount, bmi_op_id_t *out_id_array, int *outcount,
                    bmi_error_code_t *error_code_array, bmi_size_t *actual_size_array,
                    void **user_ptr_array, int max_idle_time_ms, bmi_context_id context_id);

/* Unexpected messages, up to incount.  With BMI_AUTO_REF_COUNT each adds a reference to its
 * address. */
int BMI_testunexpected(int incount, int *outcount, struct BMI_unexpected_info *info_array,
                       int max_idle_time_ms);

/* Gives the buffer of an unexpected message back; also after its sender died. */
int BMI_unexpected_free(BMI_addr_t addr, void *buffer);

/* Memory that the address's method transfers best, zeroed.  It is freed by its address; the
 * size is not needed. */
void *BMI_memalloc(BMI_addr_t addr, bmi_size_t size, enum bmi_op_type send_recv);
int BMI_memfree(BMI_addr_t addr, void *buffer, bmi_size_t size, enum bmi_op_type send_recv);

/*
 * Options (bmi-types.h).  With address 0 set_info goes to every active method.  get_info hands
 * options that it does not know to the address's method.
 */
int BMI_set_info(BMI_addr_t addr, int option, void *inout_parameter);
int BMI_get_info(BMI_addr_t addr, int option, void *inout_parameter);

/* Asks for an operation to end.  It is still reported, with success or -BMI_ECANCEL.  0 also
 * for unknown ids. */
int BMI_cancel(bmi_op_id_t id, bmi_context_id context_id);

#if BMI_API < 20908
static inline int bmi_initialize_without_options(const char *method_list,
                                                 const char *listen_addr, int flags)
{
    return BMI_initialize(method_list, listen_addr, flags, NULL);
}
static inline int bmi_addr_lookup_without_options(BMI_addr_t *new_addr, const char *id_string)
{
    return BMI_addr_lookup(new_addr, id_string, NULL);
}
#define BMI_initialize  bmi_initialize_without_options
#define BMI_addr_lookup bmi_addr_lookup_without_options
#endif

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif

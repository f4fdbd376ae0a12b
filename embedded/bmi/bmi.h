/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bmi.h - the Buffered Message Interface for programs.
 *
 * BMI moves tagged messages between peers over one or several network methods.  This is the
 * public API of OrangeFS's BMI with a core for programs that run without OrangeFS.
 *
 * The API is that of OrangeFS 2.9.8 and later.  Up to 2.9.7 BMI_initialize and BMI_addr_lookup
 * had no options: define BMI_API as 20900 before including this header for such a program.
 *
 * Rules for all functions:
 *  - Any thread may call between BMI_initialize and the last BMI_finalize; other calls fail
 *    with -BMI_ENETDOWN (or NULL).
 *  - Errors are -BMI_E...; a failed call leaves nothing behind.  An operation whose peer's
 *    host name is unknown ends with -BMI_EHOSTNTFD.
 *  - No function waits for a peer; only the four test functions sleep, for at most
 *    max_idle_time_ms.
 *
 * A post returns 0 (in flight, *id is set), 1 (complete, *id is 0, no report follows) or a
 * negative error (not started).  An operation in flight is reported exactly once by a test
 * function, in the context in which it was posted.  Until then its memory, and for lists the
 * memory behind the list, belongs to BMI.
 */
#ifndef BMI_H
#define BMI_H

#include <stddef.h>
#include "bmi-types.h"

#ifndef BMI_API
#define BMI_API 20908 /* as in OrangeFS 2.9.8 */
#endif

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Unexpected message. */
struct BMI_unexpected_info {
    bmi_error_code_t error_code;
    BMI_addr_t addr;
    void *buffer; /* 8-byte aligned; owned by the caller until BMI_unexpected_free */
    bmi_size_t size;
    bmi_msg_tag_t tag;
};

/*
 * Starts BMI.  Each call needs one BMI_finalize; only the first of nested calls has an effect.
 *
 * A server (flags has BMI_INIT_SERVER) names its methods and one listening address for each
 * ("bmi_ib,bmi_tcp", "ib://host:3335,tcp://host:3334"; port 0: any free port, returned by
 * BMI_TCP_GET_PORT).  A client may name methods to start immediately; other methods start when
 * an address of theirs is looked up.  `options` is one string for all methods,
 * "key=value,key=value", or NULL.  The string is copied for methods that start later, which
 * then report errors in it.
 *
 * Returns -BMI_EINVAL for bad arguments or an address that its method does not understand
 * (-BMI_ENOPROTOOPT from BMI_addr_lookup), -BMI_ENOPROTOOPT for an unknown method, else the
 * method's error (-BMI_ENODEV, -BMI_EADDRINUSE ...).
 */
int BMI_initialize(const char *method_list, const char *listen_addr, int flags, char *options);

/* Stops BMI: ends all operations without reporting them and drops all addresses.  No other call
 * may be in progress.  Messages that peers have not received yet are lost, even those whose
 * sends are complete (see BMI_post_send). */
int BMI_finalize(void);

/*
 * Opens a context, a set of operations that are tested together.  Returns -BMI_EBUSY if
 * BMI_MAX_CONTEXTS are open.  Operations of a closed context are not reported.
 */
int BMI_open_context(bmi_context_id *context_id);
void BMI_close_context(bmi_context_id context_id);

/*
 * Returns the address of a string in *new_addr, without connecting.  `bmi_opts` are options for
 * the method if this lookup starts it; NULL: those of BMI_initialize.  Returns -BMI_ENOPROTOOPT
 * if no method accepts the string, or -BMI_ENAMETOOLONG.
 */
int BMI_addr_lookup(BMI_addr_t *new_addr, const char *id_string, char *bmi_opts);

/* Returns the string that was looked up; NULL for a peer that connected to this host, and for
 * an invalid address.  The string is valid as long as the address. */
const char *BMI_addr_rev_lookup(BMI_addr_t addr);

/* Returns the method's name of the peer; "UNKNOWN" for an invalid address.  The string is valid
 * as long as the address. */
const char *BMI_addr_rev_lookup_unexpected(BMI_addr_t addr);

/* Returns 1 if the peer is in "proto://host", or in "proto://network" with `netmask` leading
 * bits, where 32 means the whole address; else 0, or a negative error. */
int BMI_query_addr_range(BMI_addr_t addr, const char *id_string, int netmask);

/*
 * Posts an operation.  Returns 0 (in flight, will be reported), 1 (complete, will not be
 * reported) or a negative error (not started); *id is 0 in the last two cases.
 *
 * Another thread may get the report before the post returns.  *id is set before, and a post
 * that returns 0 does not access *id afterwards, so the reporting thread may free it.
 *
 * A complete send means that its buffer may be used again, not that the peer's program has the
 * message: a small one may wait at the peer for its receive, and is dropped when the sender
 * ends.  Wait for an answer before ending.
 */
int BMI_post_send(bmi_op_id_t *id, BMI_addr_t dest, const void *buffer, bmi_size_t size,
                  enum bmi_buffer_type buffer_type, bmi_msg_tag_t tag, void *user_ptr,
                  bmi_context_id context_id, bmi_hint hints);

/* Sends to a server that has not posted a receive.  Returns -BMI_EMSGSIZE for more than
 * BMI_GET_UNEXP_SIZE bytes. */
int BMI_post_sendunexpected(bmi_op_id_t *id, BMI_addr_t dest, const void *buffer,
                            bmi_size_t size, enum bmi_buffer_type buffer_type,
                            bmi_msg_tag_t tag, void *user_ptr, bmi_context_id context_id,
                            bmi_hint hints);

/* Posts a receive; the message may be shorter than expected_size, not longer.  Sets
 * *actual_size only if the result is 1. */
int BMI_post_recv(bmi_op_id_t *id, BMI_addr_t src, void *buffer, bmi_size_t expected_size,
                  bmi_size_t *actual_size, enum bmi_buffer_type buffer_type, bmi_msg_tag_t tag,
                  void *user_ptr, bmi_context_id context_id, bmi_hint hints);

/* As above with list_count segments of memory; total_size is the sum of size_list.  Both arrays
 * are copied. */
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
 * Reports completed operations and makes progress.  Returns 1 if *outcount is not 0, 0 if
 * *outcount is 0, or a negative error of the call itself.  A NULL array of user_ptr omits the
 * pointers.
 *
 * BMI_test tests one operation; BMI_testsome those in id_array (zeros are skipped), with their
 * indices in index_array; BMI_testcontext any of a context, up to incount.  Unknown and
 * reported ids are ignored.
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

/* Reports unexpected messages, up to incount.  With BMI_AUTO_REF_COUNT each adds a reference to
 * its address. */
int BMI_testunexpected(int incount, int *outcount, struct BMI_unexpected_info *info_array,
                       int max_idle_time_ms);

/* Frees the buffer of an unexpected message, also after the death of its sender. */
int BMI_unexpected_free(BMI_addr_t addr, void *buffer);

/* Allocates zeroed memory of the address's method, which transfers it fastest; BMI_memfree with
 * the same address frees it (the size is not needed).  NULL: no memory. */
void *BMI_memalloc(BMI_addr_t addr, bmi_size_t size, enum bmi_op_type send_recv);
int BMI_memfree(BMI_addr_t addr, void *buffer, bmi_size_t size, enum bmi_op_type send_recv);

/*
 * Sets or gets an option (bmi-types.h).  BMI_set_info with address 0 sets the option of all
 * active methods.  BMI_get_info passes options unknown to the core to the address's method.
 */
int BMI_set_info(BMI_addr_t addr, int option, void *inout_parameter);
int BMI_get_info(BMI_addr_t addr, int option, void *inout_parameter);

/* Requests the end of an operation, which is still reported, with success or -BMI_ECANCEL.  A
 * receive is reported behind the unexpected sends of its address and tag.  Returns 0 also for
 * unknown ids. */
int BMI_cancel(bmi_op_id_t id, bmi_context_id context_id);

/*
 * Passes log lines, without a newline, to `sink`; NULL: to stderr, as at first.  `kind` is 'E'
 * for errors, 'D' for debug lines.  No other thread may be logging.  Any thread may call the
 * sink, which calls no function of BMI and returns: after an exception or longjmp() BMI cannot
 * be used.  Not in OrangeFS.
 */
typedef void BMI_log_sink(void *arg, char kind, const char *line);
void BMI_set_log_sink(BMI_log_sink *sink, void *arg);

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

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bmi-method-support.h - what a BMI method offers to its host.
 *
 * The host calls a method with no lock of its own held, except initialize, open_context,
 * close_context, method_addr_lookup and the DROP_ADDR options, which must therefore not call
 * back.
 */
#ifndef BMI_METHOD_SUPPORT_H
#define BMI_METHOD_SUPPORT_H

#include "bmi-types.h"

/* What a look-up of this host is: a name for a peer, whether it is there or not. */
#define BMI_LOOKUP_CONNECTS_NOTHING 1

#define BMI_MAX_CONTEXTS 16

typedef struct PVFS_hint_s *PVFS_hint;

/* A peer, as host and method share it. */
struct bmi_method_addr {
    int method_type;   /* the number that initialize got */
    void *method_data; /* the method's */
    void *parent;      /* the host's */
};
typedef struct bmi_method_addr *bmi_method_addr_p;

struct bmi_method_unexpected_info {
    bmi_error_code_t error_code;
    bmi_method_addr_p addr;
    void *buffer;
    bmi_size_t size;
    bmi_msg_tag_t tag;
};

#define BMI_METHOD_FLAG_NO_POLLING 1 /* the host should not poll the method busily */

/*
 * A method.  Post functions return 0, 1 or a negative error as in bmi.h; the test functions
 * return 0 or, when there was any activity, a positive number, and count what they report in
 * *outcount.  An id that is not the method's own is skipped silently.
 */
struct bmi_method_ops {
    const char *method_name; /* "bmi_" and the scheme of its addresses */
    int flags;
    int (*initialize)(bmi_method_addr_p listen, int method_id, int flags, char *options);
    int (*finalize)(void);
    int (*set_info)(int option, void *value);
    int (*get_info)(int option, void *value);
    void *(*memalloc)(bmi_size_t size, enum bmi_op_type send_recv);
    int (*memfree)(void *buffer, bmi_size_t size, enum bmi_op_type send_recv);
    int (*unexpected_free)(void *buffer);
    int (*post_send)(bmi_op_id_t *id, bmi_method_addr_p dest, const void *buffer,
                     bmi_size_t size, enum bmi_buffer_type type, bmi_msg_tag_t tag, void *user,
                     bmi_context_id context, PVFS_hint hints);
    int (*post_sendunexpected)(bmi_op_id_t *id, bmi_method_addr_p dest, const void *buffer,
                               bmi_size_t size, enum bmi_buffer_type type, bmi_msg_tag_t tag,
                               void *user, bmi_context_id context, PVFS_hint hints);
    int (*post_recv)(bmi_op_id_t *id, bmi_method_addr_p src, void *buffer, bmi_size_t expected,
                     bmi_size_t *actual, enum bmi_buffer_type type, bmi_msg_tag_t tag,
                     void *user, bmi_context_id context, PVFS_hint hints);
    int (*test)(bmi_op_id_t id, int *outcount, bmi_error_code_t *error, bmi_size_t *actual,
                void **user, int idle_ms, bmi_context_id context);
    int (*testsome)(int incount, bmi_op_id_t *ids, int *outcount, int *index,
                    bmi_error_code_t *error, bmi_size_t *actual, void **user, int idle_ms,
                    bmi_context_id context);
    int (*testcontext)(int incount, bmi_op_id_t *ids, int *outcount, bmi_error_code_t *error,
                       bmi_size_t *actual, void **user, int idle_ms, bmi_context_id context);
    int (*testunexpected)(int incount, int *outcount, struct bmi_method_unexpected_info *info,
                          int idle_ms);
    bmi_method_addr_p (*method_addr_lookup)(const char *id_string);
    int (*post_send_list)(bmi_op_id_t *id, bmi_method_addr_p dest, const void *const *buffers,
                          const bmi_size_t *sizes, int count, bmi_size_t total,
                          enum bmi_buffer_type type, bmi_msg_tag_t tag, void *user,
                          bmi_context_id context, PVFS_hint hints);
    int (*post_recv_list)(bmi_op_id_t *id, bmi_method_addr_p src, void *const *buffers,
                          const bmi_size_t *sizes, int count, bmi_size_t total,
                          bmi_size_t *actual, enum bmi_buffer_type type, bmi_msg_tag_t tag,
                          void *user, bmi_context_id context, PVFS_hint hints);
    int (*post_sendunexpected_list)(bmi_op_id_t *id, bmi_method_addr_p dest,
                                    const void *const *buffers, const bmi_size_t *sizes,
                                    int count, bmi_size_t total, enum bmi_buffer_type type,
                                    bmi_msg_tag_t tag, void *user, bmi_context_id context,
                                    PVFS_hint hints);
    int (*open_context)(bmi_context_id context);
    void (*close_context)(bmi_context_id context);
    int (*cancel)(bmi_op_id_t id, bmi_context_id context);
    const char *(*rev_lookup_unexpected)(bmi_method_addr_p addr);
    int (*query_addr_range)(bmi_method_addr_p addr, const char *id_string, int netmask);
};

/*
 * The methods of a program in order of preference, ended by NULL.  Every program that uses this
 * BMI defines it once (methods.c for the usual ones).
 */
extern struct bmi_method_ops *const bmi_static_methods[];

/*
 * What an operation id points to in OrangeFS.  OrangeFS reads op_id and addr through an id
 * without asking the method, so a method that shall run in both hosts keeps such an object
 * behind each id.  This core reads none of it.
 */
struct method_op {
    bmi_op_id_t op_id;
    enum bmi_op_type send_recv;
    void *user_ptr;
    bmi_msg_tag_t msg_tag;
    bmi_error_code_t error_code;
    bmi_size_t actual_size;
    bmi_size_t expected_size;
    bmi_method_addr_p addr;
    bmi_context_id context_id;
    void *method_data;
};
typedef struct method_op method_op_st, *method_op_p;

/* The value of BMI_DROP_ADDR_QUERY: the method answers 1 when the peer is dead and its address
 * of no more use. */
struct method_drop_addr_query {
    struct bmi_method_addr *addr;
    int response;
};

/* A zeroed address object with payload_size bytes at method_data; NULL when there is no memory.
 */
bmi_method_addr_p bmi_alloc_method_addr(int method_type, bmi_size_t payload_size);
void bmi_dealloc_method_addr(bmi_method_addr_p addr);

#endif

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bmi-method-support.h - interface of a BMI method.
 *
 * The host calls a method without holding locks, except for initialize, open_context,
 * close_context, method_addr_lookup and the DROP_ADDR options, which must not call back.
 */
#ifndef BMI_METHOD_SUPPORT_H
#define BMI_METHOD_SUPPORT_H

#include "bmi-types.h"

/* A lookup only makes an address object; no connection is made. */
#define BMI_LOOKUP_CONNECTS_NOTHING 1

#define BMI_MAX_CONTEXTS 16

typedef struct PVFS_hint_s *PVFS_hint;

/* Address object of a peer, shared by host and method. */
struct bmi_method_addr {
    int method_type;   /* number passed to initialize */
    void *method_data; /* owned by the method */
    void *parent;      /* owned by the host */
};
typedef struct bmi_method_addr *bmi_method_addr_p;

struct bmi_method_unexpected_info {
    bmi_error_code_t error_code;
    bmi_method_addr_p addr;
    void *buffer;
    bmi_size_t size;
    bmi_msg_tag_t tag;
};

#define BMI_METHOD_FLAG_NO_POLLING 1 /* the host should not busy-poll the method */

/*
 * Functions of a method.  Post functions return 0, 1 or a negative error, as in bmi.h.  Test
 * functions return 0, or a positive number after any activity, and the number of results in
 * *outcount.  Ids of other methods are ignored.
 */
struct bmi_method_ops {
    const char *method_name; /* "bmi_" and the scheme of the method's addresses */
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
 * Methods of the program in order of preference, ended by NULL.  Each program that uses this
 * BMI defines the array once (methods.c for the usual programs).
 */
extern struct bmi_method_ops *const bmi_static_methods[];

/*
 * Object behind an operation id in OrangeFS, which reads op_id and addr through the id without
 * calling the method.  A method for both hosts needs this object behind each id; this core does
 * not read it.
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

/* Value of BMI_DROP_ADDR_QUERY.  The method sets `response` to 1 if the peer is dead and the
 * address is of no further use. */
struct method_drop_addr_query {
    struct bmi_method_addr *addr;
    int response;
};

/* Allocates a zeroed address object with payload_size bytes at method_data; NULL: no memory. */
bmi_method_addr_p bmi_alloc_method_addr(int method_type, bmi_size_t payload_size);
/* Frees an address object; NULL is allowed. */
void bmi_dealloc_method_addr(bmi_method_addr_p addr);

#endif

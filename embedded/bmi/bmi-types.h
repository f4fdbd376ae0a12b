/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * bmi-types.h - types, options and error codes of the Buffered Message Interface.
 *
 * Names and values are those of OrangeFS, so that BMI methods and programs compile unchanged
 * with either.
 */
#ifndef BMI_TYPES_H
#define BMI_TYPES_H

#include <stdint.h>

typedef int64_t bmi_size_t;           /* bytes */
typedef int32_t bmi_msg_tag_t;        /* chosen by the program, the same on both sides */
typedef int64_t bmi_context_id;       /* 0 … BMI_MAX_CONTEXTS-1 */
typedef int64_t bmi_op_id_t;          /* operation in flight; never 0 */
typedef int64_t BMI_addr_t;           /* peer; never 0, never reused for another peer */
typedef int32_t bmi_error_code_t;     /* 0 or -BMI_E… */
typedef struct PVFS_hint_s *bmi_hint; /* unused: pass NULL */

#define BMI_MAX_ADDR_LEN 2048 /* maximum length of an address string, with the final zero */

/* Flags of BMI_initialize. */
enum {
    BMI_INIT_SERVER = 1,       /* listen, and accept unexpected messages */
    BMI_TCP_BIND_SPECIFIC = 2, /* listen only on the given address, not on all addresses of the
                                * host */
    BMI_AUTO_REF_COUNT = 4     /* each unexpected message adds a reference to its sender */
};

enum bmi_op_type { BMI_SEND = 1, BMI_RECV = 2 };

/* Origin of an operation's memory; a hint. */
enum bmi_buffer_type {
    BMI_PRE_ALLOC = 1, /* BMI_memalloc */
    BMI_EXT_ALLOC = 2  /* any other allocator */
};

/* Options of BMI_set_info and BMI_get_info, with the type of the value. */
enum {
    BMI_DROP_ADDR = 1,             /* methods only: drop a method address */
    BMI_CHECK_INIT = 2,            /* get: 0 if a method is active, else -BMI_ENETDOWN */
    BMI_CHECK_MAXSIZE = 3,         /* get, int: largest message that all methods support */
    BMI_GET_METH_ADDR = 4,         /* get, void *: address object of the method */
    BMI_INC_ADDR_REF = 5,          /* set */
    BMI_DEC_ADDR_REF = 6,          /* set; at zero the address is dropped if its peer is dead */
    BMI_DROP_ADDR_QUERY = 7,       /* methods only, struct method_drop_addr_query */
    BMI_FORCEFUL_CANCEL_MODE = 8,  /* set: a cancel may break the connection */
    BMI_TRUSTED_CONNECTION = 9,    /* not used */
    BMI_GET_UNEXP_SIZE = 10,       /* get, int: largest unexpected message to this address */
    BMI_TCP_BUFFER_SEND_SIZE = 11, /* TCP only, as the next two */
    BMI_TCP_BUFFER_RECEIVE_SIZE = 12,
    BMI_TCP_CLOSE_SOCKET = 13,
    BMI_OPTIMISTIC_BUFFER_REG = 14, /* set, struct bmi_optimistic_buffer_info */
    BMI_TCP_CHECK_UNEXPECTED = 15,
    /* get, char *: "tcp,ib,", to be freed by the caller; returns the number of methods */
    BMI_TRANSPORT_METHODS_STRING = 16,
    /* get, int: port of the first listening method, of any network; needed if its address has
     * port 0.  -BMI_ENODEV: no method listens */
    BMI_TCP_GET_PORT = 17
};

enum BMI_io_type { BMI_IO_READ = 1, BMI_IO_WRITE = 2 };

/* Memory that will be transferred soon. */
struct bmi_optimistic_buffer_info {
    const void *buffer;
    bmi_size_t len;
    enum BMI_io_type rw;
};

/*
 * Error codes are positive; functions return them negated.  Bit 30 marks codes of the file
 * system, bit 7 those of BMI (which make OrangeFS retry), bit 29 those without an errno; the
 * low bits hold the number.  The lists below generate enumerators, names and the mapping from
 * errno.
 */
#define BMI_SUCCESS             0
#define BMI_ERROR_BIT           (1 << 30)
#define BMI_NON_ERRNO_ERROR_BIT (1 << 29)
#define BMI_ERROR               (1 << 7)

/* clang-format off */
#define BMI_ERRNO_CODES(X)                                                                    \
    X(EPERM, 1) X(ENOENT, 2) X(EINTR, 3) X(EIO, 4) X(ENXIO, 5) X(EBADF, 6) X(EAGAIN, 7)       \
    X(ENOMEM, 8) X(EFAULT, 9) X(EBUSY, 10) X(EEXIST, 11) X(ENODEV, 12) X(ENOTDIR, 13)         \
    X(EISDIR, 14) X(EINVAL, 15) X(EMFILE, 16) X(EFBIG, 17) X(ENOSPC, 18) X(EROFS, 19)         \
    X(EMLINK, 20) X(EPIPE, 21) X(EDEADLK, 22) X(ENAMETOOLONG, 23) X(ENOLCK, 24)               \
    X(ENOSYS, 25) X(ENOTEMPTY, 26) X(ELOOP, 27) X(EWOULDBLOCK, 28) X(ENOMSG, 29)              \
    X(EUNATCH, 30) X(EBADR, 31) X(EDEADLOCK, 32) X(ENODATA, 33) X(ETIME, 34) X(ENONET, 35)    \
    X(EREMOTE, 36) X(ECOMM, 37) X(EPROTO, 38) X(EBADMSG, 39) X(EOVERFLOW, 40)                 \
    X(ERESTART, 41) X(EMSGSIZE, 42) X(EPROTOTYPE, 43) X(ENOPROTOOPT, 44)                      \
    X(EPROTONOSUPPORT, 45) X(EOPNOTSUPP, 46) X(EADDRINUSE, 47) X(EADDRNOTAVAIL, 48)           \
    X(ENETDOWN, 49) X(ENETUNREACH, 50) X(ENETRESET, 51) X(ENOBUFS, 52) X(ETIMEDOUT, 53)       \
    X(ECONNREFUSED, 54) X(EHOSTDOWN, 55) X(EHOSTUNREACH, 56) X(EALREADY, 57) X(EACCES, 58)    \
    X(ECONNRESET, 59)

#define BMI_OTHER_CODES(X)                                                                    \
    X(ECANCEL, 1) X(EDEVINIT, 2) X(EDETAIL, 3) X(EHOSTNTFD, 4) X(EADDRNTFD, 5)                \
    X(ENORECVR, 6) X(ETRYAGAIN, 7)
/* clang-format on */

enum {
#define X(name, number) BMI_##name = (number) | BMI_ERROR_BIT | BMI_ERROR,
    BMI_ERRNO_CODES(X)
#undef X
#define X(name, number)                                                                        \
    BMI_##name = (number) | BMI_NON_ERRNO_ERROR_BIT | BMI_ERROR_BIT | BMI_ERROR,
        BMI_OTHER_CODES(X)
#undef X
};

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

/* Converts +-errno to +-BMI_E...; other values, and BMI codes, are returned unchanged. */
int bmi_errno_to_pvfs(int error);

/* Returns "BMI_ENOMEM" for +-BMI_ENOMEM; "(UNKNOWN)" for an unknown code. */
const char *bmi_status_string(int status);

/* Converts +-BMI_E... to a positive errno: ECANCELED for BMI_ECANCEL, ENONET for
 * BMI_EHOSTNTFD, EIO for other codes without errno, 0 for 0. */
int bmi_error_to_errno(int error);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
#endif

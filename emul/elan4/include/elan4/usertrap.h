/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Traps: requests refused by the network interface, as reported to a context by the driver. */
#ifndef ELAN4_USERTRAP_H
#define ELAN4_USERTRAP_H

#include <elan4/neterr.h>
#include <elan4/trap.h>

/* ut_type. Positive values are handled by libelan4. */
#define UTS_FINISHED            0
#define UTS_RESCHEDULE          1
#define UTS_UNIMP_INSTR         2
#define UTS_EXECUTE_PACKET      3
#define UTS_NETWORK_ERROR_TRAP  4
#define UTS_NETWORK_ERROR_MSG   5
#define UTS_NETWORK_ERROR_TIMER 6
/* Negative values: cannot be resolved. */
#define UTS_EFAULT            (-1)
#define UTS_INVALID_ADDR      (-2) /* address not mapped; here also: not aligned */
#define UTS_INVALID_VPROC     (-3) /* no route to this virtual process */
#define UTS_INVALID_COMMAND   (-4) /* unknown or truncated command */
#define UTS_BAD_TRAP          (-5) /* any other error, such as overflow of an event's count */
#define UTS_ALIGNMENT_ERROR   (-6)
#define UTS_QUEUE_OVERFLOW    (-7)
#define UTS_QUEUE_ERROR       (-8)
#define UTS_INVALID_TRANS     (-9)
#define UTS_PERMISSION_DENIED (-10) /* command not permitted on this command queue */
#define UTS_CPROC_ERROR       (-11) /* command queue overflow */
#define UTS_INVALID_COOKIE    (-12)
#define UTS_NETERR_ERROR      (-13)

/* Matches any type when registering a handler. The emulation also accepts the value for the
 * unit. */
#define UTS_ALL_TRAPS (-9999)

/* ut_proc: the unit that trapped. */
#define UTS_NOPROC     0
#define UTS_EPROC      1
#define UTS_CPROC      2
#define UTS_DPROC      3
#define UTS_TPROC      4
#define UTS_IPROC      5
#define UTS_NETERR_MSG 6

typedef struct elan4_user_trap {
    int ut_type;
    unsigned ut_proc;
    unsigned ut_args[4]; /* command queue (CPROC), channel (IPROC), virtual process */
    union {
        ELAN4_EPROC_TRAP eproc;
        ELAN4_CPROC_TRAP cproc;
        ELAN4_DPROC_TRAP dproc;
        ELAN4_IPROC_TRAP iproc;
        ELAN4_TPROC_TRAP tproc;
        ELAN4_NETERR_MSG msg;
    } ut_trap; /* contains the address */
} ELAN4_USER_TRAP;

#endif

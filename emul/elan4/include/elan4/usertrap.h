/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * What a context is told when the network interface refuses something. The numbers are the
 * emulation's own.
 */
#ifndef ELAN4_USERTRAP_H
#define ELAN4_USERTRAP_H

#include <elan4/types.h>

enum {
    UTS_ALL = -1,
    UTS_INVALID_ADDR = 1, /* an address that is not mapped, or not aligned */
    UTS_INVALID_VPROC,    /* no route to this virtual process */
    UTS_INVALID_COMMAND,  /* no such command, or it is cut off */
    UTS_PERMISSION,       /* the command queue may not issue this */
    UTS_CMDQ_OVERFLOW,    /* more dwords than the queue holds */
    UTS_BAD_TRAP          /* anything else: an event's count went over */
};

/* The unit that met it. */
enum { UTS_CPROC = 1, UTS_EPROC, UTS_DPROC, UTS_IPROC };

typedef struct elan4_user_trap {
    int ut_type;
    int ut_proc;
    E4_uint64 ut_args[4]; /* the address or command, and what it belonged to */
} ELAN4_USER_TRAP;

#endif

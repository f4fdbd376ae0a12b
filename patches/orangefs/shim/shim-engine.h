/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* shim-engine.h - what the embedded BMI core and its tools have with a method beyond OrangeFS's
 * interface. */
#ifndef RME_SHIM_ENGINE_H
#define RME_SHIM_ENGINE_H

/*
 * BMI_get_info with an address, value struct rme **: the engine behind it, good until
 * BMI_finalize.  The core passes options that it does not know to the method; OrangeFS's does
 * not, so this is out of reach there.
 */
#define SHIM_GET_ENGINE 0x726d65

/*
 * Attributes of the session with a peer, by which an application can size its buffers [002
 * IV-B]: BMI_get_info with an address, value struct shim_attribute *.  The caller fills `addr`,
 * from BMI_GET_METH_ADDR, and what it asks for: an index from 0, or with index -1 a name.  The
 * method fills the rest.  Names stay from release to release; an index is for counting on, and
 * moves when there are more attributes.  -BMI_ENOENT: there is no such one, which is how
 * counting on ends; -BMI_ECONNRESET: nothing is connected there now.  OrangeFS's core does not
 * pass the number on; who has the method's table there calls its get_info.
 */
#define SHIM_GET_ATTRIBUTE 0x726d66

struct bmi_method_addr;
struct shim_attribute {
    struct bmi_method_addr *addr;
    int index;
    const char *name;
    const char *unit, *text; /* constant, as is the name */
    unsigned long long value;
};

/*
 * Of the flags of a method's initialize: the options are for this method alone, because no
 * other was named.  The core sets it; OrangeFS, which has one string for all, never does.
 */
#define SHIM_OPTIONS_ALONE (1 << 30)

/*
 * The host reports errors of operations without the reason, so that the log has to tell it.
 * The core sets it; OrangeFS logs "msgpair failed" with the error, and a line of ours is a
 * second one.
 */
#define SHIM_TELLS_WHY (1 << 29)

/* Of a method's get_info, before its start, too: has it an option of this name?  0, or
 * -BMI_ENOENT: it has none. */
#define SHIM_KNOWS_OPTION 0x726d67

/* BMI_get_info, int: the port that a listening method got; BMI_TCP_GET_PORT of hosts that have
 * it. */
#define SHIM_GET_PORT 17

#endif

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* shim-engine.h - requests of the embedded BMI core and its tools to a method, beyond
 * OrangeFS's interface. */
#ifndef RME_SHIM_ENGINE_H
#define RME_SHIM_ENGINE_H

/*
 * BMI_get_info with an address, value struct rme **: returns its engine, valid until
 * BMI_finalize.  The embedded core passes unknown options to the method; OrangeFS's core does
 * not.
 */
#define SHIM_GET_ENGINE 0x726d65

/*
 * Attributes of the session with a peer, by which an application can size its buffers [002
 * IV-B]: BMI_get_info with an address, value struct shim_attribute *.  The caller fills in
 * `addr`, from BMI_GET_METH_ADDR, and an index from 0, or index -1 and a name.  The method
 * fills in the rest.  Names are stable between releases; indices, for enumeration, are not.
 * -BMI_ENOENT: no such attribute, which ends an enumeration; -BMI_ECONNRESET: not connected.
 * OrangeFS's core does not pass this option on; code with access to the method's table calls
 * its get_info.
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
 * A flag of a method's initialize: log the reasons of failed operations, because the host
 * reports errors without reasons.  Set by the embedded core; OrangeFS logs "msgpair failed"
 * with the error, and a second line would be redundant.
 */
#define SHIM_LOG_NOTICES (1 << 29)

/* get_info, also before the start: does the method have an option of this name?  0, or
 * -BMI_ENOENT. */
#define SHIM_KNOWS_OPTION 0x726d67

/* BMI_get_info, int: port of a listening method; BMI_TCP_GET_PORT of hosts that define it. */
#define SHIM_GET_PORT 17

#endif

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
 * Of the flags of a method's initialize: the options are for this method alone, because no
 * other was named.  The core sets it; OrangeFS, which has one string for all, never does.
 */
#define SHIM_OPTIONS_ALONE (1 << 30)

/* BMI_get_info, int: the port that a listening method got; BMI_TCP_GET_PORT of hosts that have
 * it. */
#define SHIM_GET_PORT 17

#endif

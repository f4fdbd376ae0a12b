/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* shim-engine.h - for tools of the embedded BMI core that look inside a method. */
#ifndef RME_SHIM_ENGINE_H
#define RME_SHIM_ENGINE_H

/*
 * BMI_get_info with an address, value struct rme **: the engine behind it, good until
 * BMI_finalize.  The core passes options that it does not know to the method; OrangeFS's does
 * not, so this is out of reach there.
 */
#define SHIM_GET_ENGINE 0x726d65

#endif

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Control device: creation of the capabilities needed for contexts of the upper half. */
#ifndef ELAN_ELANCTRL_H
#define ELAN_ELANCTRL_H

#include <elan/capability.h>
#include <elan/devinfo.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef int ELANCTRL_HANDLE;

/* All functions return 0, or -1 with errno. */
int elanctrl_open(ELANCTRL_HANDLE *handle);
int elanctrl_close(ELANCTRL_HANDLE handle);
int elanctrl_create_cap(ELANCTRL_HANDLE handle, ELAN_CAPABILITY *cap);
int elanctrl_destroy_cap(ELANCTRL_HANDLE handle, ELAN_CAPABILITY *cap);
int elanctrl_get_position(ELANCTRL_HANDLE handle, int rail, ELAN_POSITION *position);

#ifdef __cplusplus
}
#endif

#endif

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ELAN_ELAN_H
#define ELAN_ELAN_H

#include <elan/capability.h>
#include <elan/devinfo.h>
#include <elan/version.h>

#endif

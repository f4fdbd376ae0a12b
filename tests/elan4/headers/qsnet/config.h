/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef QSNET_CONFIG_H
#define QSNET_CONFIG_H
#ifndef __LITTLE_ENDIAN__
#define __LITTLE_ENDIAN__
#endif
#endif

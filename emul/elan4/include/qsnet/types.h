/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef QSNET_TYPES_H
#define QSNET_TYPES_H

#include <qsnet/config.h>
#include <stdint.h>
#include <sys/types.h>

#endif

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef ELAN_VERSION_H
#define ELAN_VERSION_H

#define QSNETLIBS_VERSION(a, b, c) (((a) << 16) + ((b) << 8) + (c))
#ifndef QSNETLIBS_VERSION_CODE /* overridden by tests */
#define QSNETLIBS_VERSION_CODE QSNETLIBS_VERSION(1, 8, 0)
#endif

#endif

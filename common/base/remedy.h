/* SPDX-License-Identifier: LGPL-2.1-or-later */
#ifndef RME_REMEDY_H
#define RME_REMEDY_H

/* Returns the remedy for an error (negative errno) that may be a limit of this process or
 * machine; otherwise `else_do`. */
const char *rme_remedy(int error, const char *else_do);

#endif

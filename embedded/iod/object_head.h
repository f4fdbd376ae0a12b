/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* object_head.h - the first 4096 bytes of an object's file.  Pure functions. */
#ifndef IOD_OBJECT_HEAD_H
#define IOD_OBJECT_HEAD_H

#include "embedded/iod/store.h"

/* Writes all STORE_HEAD bytes. */
void object_head_encode(const struct object_meta *meta, uint8_t *head);

/* Decodes a head.  Returns 0, or -EUCLEAN for a damaged head or other data. */
int object_head_decode(const uint8_t *head, struct object_meta *meta);

#endif

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * object_head.c - the head of an object's file, little-endian:
 *
 *      0  magic "BMIOBJ4" and a line feed
 *      8  size of the file          u64
 *     16  upload                    u64
 *     24  strip                     u64
 *     32  index                     u32
 *     36  count                     u32
 *     40  origin                    u64
 *     48  mode                      u32
 *     52  length of the name        u32
 *     56  name
 *   4088  FNV-1a sum of all before  u64
 */
#include "config.h"
#include "embedded/iod/object_head.h"

#include <errno.h>
#include <string.h>

#define AT_SIZE   8
#define AT_UPLOAD 16
#define AT_STRIP  24
#define AT_INDEX  32
#define AT_COUNT  36
#define AT_ORIGIN 40
#define AT_MODE   48
#define AT_LENGTH 52
#define AT_NAME   56
#define AT_SUM    (STORE_HEAD - 8)

static const char magic[8] = "BMIOBJ4\n";

static void put(uint8_t *head, size_t at, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++)
        head[at + (size_t)i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get(const uint8_t *head, size_t at, int bytes)
{
    uint64_t value = 0;

    for (int i = 0; i < bytes; i++)
        value |= (uint64_t)head[at + (size_t)i] << (8 * i);
    return value;
}

static uint64_t sum_of(const uint8_t *head)
{
    uint64_t sum = UINT64_C(14695981039346656037);

    for (size_t i = 0; i < AT_SUM; i++)
        sum = (sum ^ head[i]) * UINT64_C(1099511628211);
    return sum;
}

void object_head_encode(const struct object_meta *meta, uint8_t *head)
{
    size_t length = strnlen(meta->name, IOD_NAME_MAX);

    memset(head, 0, STORE_HEAD);
    memcpy(head, magic, sizeof magic);
    put(head, AT_SIZE, meta->layout.size, 8);
    put(head, AT_UPLOAD, meta->id.upload, 8);
    put(head, AT_STRIP, meta->layout.strip, 8);
    put(head, AT_INDEX, meta->layout.index, 4);
    put(head, AT_COUNT, meta->layout.count, 4);
    put(head, AT_MODE, meta->mode, 4);
    put(head, AT_LENGTH, length, 4);
    put(head, AT_ORIGIN, meta->id.origin, 8);
    memcpy(head + AT_NAME, meta->name, length);
    put(head, AT_SUM, sum_of(head), 8);
}

int object_head_decode(const uint8_t *head, struct object_meta *meta)
{
    struct iod_layout *l = &meta->layout;
    uint64_t length = get(head, AT_LENGTH, 4);

    if (memcmp(head, magic, sizeof magic) != 0 || get(head, AT_SUM, 8) != sum_of(head) ||
        length > IOD_NAME_MAX || memchr(head + AT_NAME, 0, length) != NULL)
        return -EUCLEAN;
    l->size = get(head, AT_SIZE, 8);
    l->strip = get(head, AT_STRIP, 8);
    l->index = (uint32_t)get(head, AT_INDEX, 4);
    l->count = (uint32_t)get(head, AT_COUNT, 4);
    meta->id.upload = get(head, AT_UPLOAD, 8);
    meta->mode = (uint32_t)get(head, AT_MODE, 4);
    meta->id.origin = get(head, AT_ORIGIN, 8);
    memcpy(meta->name, head + AT_NAME, length);
    meta->name[length] = 0;
    if (l->size > IOD_SIZE_MAX || l->strip < IOD_STRIP_MIN || l->strip > IOD_STRIP_MAX ||
        l->count < 1 || l->count > IOD_STRIPE_MAX || l->index >= l->count || meta->mode > 0777)
        return -EUCLEAN;
    return 0;
}

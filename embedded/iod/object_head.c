/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * object_head.c - the head of an object's file, little-endian:
 *
 *      0  magic "BMIOBJ5" and a line feed
 *      8  mode                       u32
 *     12  entry of a list, with name, layout and id (proto.h)
 *   4088  FNV-1a sum of all before  u64
 */
#include "config.h"
#include "embedded/iod/object_head.h"

#include <errno.h>
#include <string.h>

#define AT_MODE  8
#define AT_ENTRY 12
#define AT_SUM   (STORE_HEAD - 8)

static const char magic[8] = "BMIOBJ5\n";

static void put(uint8_t *head, size_t at, uint64_t value, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        head[at + i] = (uint8_t)(value >> (8 * i));
}

static uint64_t get(const uint8_t *head, size_t at, size_t bytes)
{
    uint64_t value = 0;

    for (size_t i = 0; i < bytes; i++)
        value |= (uint64_t)head[at + i] << (8 * i);
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
    struct iod_entry entry = {
        .name = iod_string_of(meta->name), .layout = meta->layout, .id = meta->id};
    uint32_t at = AT_ENTRY;

    memset(head, 0, STORE_HEAD);
    memcpy(head, magic, sizeof magic);
    put(head, AT_MODE, meta->mode, 4);
    (void)iod_entry_append(&entry, head, AT_SUM, &at); /* fits */
    put(head, AT_SUM, sum_of(head), 8);
}

int object_head_decode(const uint8_t *head, struct object_meta *meta)
{
    struct iod_entries entries = {.wire = head, .length = AT_SUM};
    struct iod_entry entry;
    uint32_t at = AT_ENTRY;

    meta->mode = (uint32_t)get(head, AT_MODE, 4);
    if (memcmp(head, magic, sizeof magic) != 0 || get(head, AT_SUM, 8) != sum_of(head) ||
        meta->mode > 0777 || !iod_entry_next(&entries, &at, &entry) || !iod_entry_ok(&entry))
        return -EUCLEAN;
    meta->layout = entry.layout;
    meta->id = entry.id;
    memcpy(meta->name, entry.name.text, entry.name.length);
    meta->name[entry.name.length] = 0;
    return 0;
}

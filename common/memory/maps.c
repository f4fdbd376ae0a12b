/* SPDX-License-Identifier: LGPL-2.1-or-later */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "memory/maps.h"

/* Not in the headers of systems before Linux 6.11. */
struct query {
    uint64_t size, flags, addr; /* in; the flags are rights that the mapping must have */
    uint64_t start, end, vma_flags, page_size, offset, inode;
    uint32_t major, minor;
    uint32_t name_size, build_id_size; /* 0: not requested */
    uint64_t name, build_id;
};
#define QUERY          _IOWR('f', 17, struct query)
#define QUERY_READABLE 1u
#define QUERY_WRITABLE 2u

static int digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Parses one character of a line "start-end rights offset device inode …".  `*field` counts the
 * numbers, and then the letters of the rights.  True: the line is complete. */
static bool takes(struct rme_mapping *mapping, int *field, char c)
{
    uintptr_t *number = *field == 0 ? &mapping->start : &mapping->end;

    if (c == '\n')
        return true;
    if (*field < 2 && digit(c) >= 0) {
        *number = *number << 4 | (uintptr_t)digit(c);
    } else if (*field < 4) {
        mapping->readable = mapping->readable || (*field == 2 && c == 'r');
        mapping->writable = mapping->writable || (*field == 3 && c == 'w');
        ++*field;
    }
    return false;
}

int rme_maps_open(void)
{
    return (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/maps", O_RDONLY | O_CLOEXEC);
}

void rme_maps_close(int maps)
{
    if (maps >= 0)
        (void)syscall(SYS_close, maps);
}

void rme_maps_walk(int maps, bool (*each)(void *arg, const struct rme_mapping *mapping),
                   void *arg)
{
    struct rme_mapping mapping = {0};
    char text[4096];
    int field = 0;
    long got;

    if (syscall(SYS_lseek, maps, 0L, SEEK_SET) != 0)
        return;
    while ((got = syscall(SYS_read, maps, text, sizeof(text))) > 0) {
        for (long i = 0; i < got; i++) {
            if (!takes(&mapping, &field, text[i]))
                continue;
            if (!each(arg, &mapping))
                return;
            mapping = (struct rme_mapping){0};
            field = 0;
        }
    }
}

bool rme_maps_cover(int maps, uintptr_t start, uintptr_t end, bool write)
{
    while (start < end) {
        struct query query = {.size = sizeof(query),
                              .flags = QUERY_READABLE | (write ? QUERY_WRITABLE : 0),
                              .addr = start};

        if (ioctl(maps, QUERY, &query) != 0 || query.end <= start)
            return false;
        start = (uintptr_t)query.end;
    }
    return true;
}

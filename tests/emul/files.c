/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/emul/files.h"

#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/timerfd.h>
#include <unistd.h>

#define DATA  "0123456789abcdef"
#define FOUND UINT64_C(0x7700000004) /* in a set of the software HCA: a peer */

int program_file(enum file_kind kind, int readable_fd)
{
    struct itimerspec late = {.it_value.tv_sec = 1000000};
    struct epoll_event ev = {.events = EPOLLIN, .data.u64 = FOUND};
    int fd;

    switch (kind) {
    case FILE_DATA:
        fd = memfd_create("program", 0);
        return pwrite(fd, DATA, 16, 0) == 16 ? fd : -1;
    case FILE_COUNT:
        return eventfd(7, 0);
    case FILE_TIMER:
        fd = timerfd_create(CLOCK_MONOTONIC, 0);
        return timerfd_settime(fd, 0, &late, NULL) == 0 ? fd : -1;
    default:
        fd = epoll_create1(0);
        return epoll_ctl(fd, EPOLL_CTL_ADD, readable_fd, &ev) == 0 ? fd : -1;
    }
}

bool file_is_untouched(enum file_kind kind, int fd)
{
    struct itimerspec left = {0};
    struct epoll_event ev[2];
    uint64_t count = 0;
    char text[32];

    switch (kind) {
    case FILE_DATA:
        return pread(fd, text, sizeof(text), 0) == 16 && memcmp(text, DATA, 16) == 0 &&
               lseek(fd, 0, SEEK_CUR) == 0;
    case FILE_COUNT:
        return read(fd, &count, sizeof(count)) == sizeof(count) && count == 7;
    case FILE_TIMER:
        return timerfd_gettime(fd, &left) == 0 && left.it_value.tv_sec > 900000;
    default:
        return epoll_wait(fd, ev, 2, 0) == 1 && ev[0].data.u64 == FOUND;
    }
}

void segments_mapped(const char *name, unsigned *all, unsigned *dumped)
{
    char line[512];
    bool inside = false;
    FILE *f = fopen("/proc/self/smaps", "re");

    *all = *dumped = 0;
    while (f != NULL && fgets(line, sizeof(line), f) != NULL) {
        if (strstr(line, name) != NULL)
            inside = true;
        if (!inside || strncmp(line, "VmFlags:", 8) != 0)
            continue;
        inside = false;
        ++*all;
        if (strstr(line, " dd") == NULL)
            ++*dumped;
    }
    if (f != NULL)
        fclose(f);
}

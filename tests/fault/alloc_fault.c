/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>

#include "alloc_fault.h"

static atomic_ulong calls;
static unsigned long fail_at;

void alloc_fault_start(unsigned long kth)
{
    fail_at = kth;
}

unsigned long alloc_fault_count(void)
{
    return atomic_load(&calls);
}

bool alloc_fault_hit(void)
{
    return fail_at != 0 && atomic_load(&calls) >= fail_at;
}

/* Counts a call; returns true if it has to fail. */
static bool fails(int error)
{
    if (atomic_fetch_add(&calls, 1) + 1 != fail_at)
        return false;
    errno = error;
    return true;
}

/* The linker redirects calls of NAME to __wrap_NAME, and calls of __real_NAME to NAME. */
void *__real_malloc(size_t size);
void *__real_calloc(size_t count, size_t size);
void *__real_realloc(void *old, size_t size);
char *__real_strdup(const char *text);
char *__real_strndup(const char *text, size_t size);
int __real_posix_memalign(void **out, size_t alignment, size_t size);
void *__real_aligned_alloc(size_t alignment, size_t size);
void *__real_mmap(void *address, size_t length, int protection, int flags, int fd,
                  off_t offset);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg);
int __real_eventfd(unsigned value, int flags);
int __real_epoll_create1(int flags);
int __real_epoll_ctl(int epoll, int command, int fd, struct epoll_event *event);
int __real_fcntl(int fd, int command, long value);

/* Visible, because sanitizer libraries that are linked, too, refer to these functions. */
#pragma GCC visibility push(default)
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t count, size_t size);
void *__wrap_realloc(void *old, size_t size);
char *__wrap_strdup(const char *text);
char *__wrap_strndup(const char *text, size_t size);
int __wrap_posix_memalign(void **out, size_t alignment, size_t size);
void *__wrap_aligned_alloc(size_t alignment, size_t size);
void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd,
                  off_t offset);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg);
int __wrap_eventfd(unsigned value, int flags);
int __wrap_epoll_create1(int flags);
int __wrap_epoll_ctl(int epoll, int command, int fd, struct epoll_event *event);
int __wrap_fcntl(int fd, int command, long value);
#pragma GCC visibility pop

void *__wrap_malloc(size_t size)
{
    return fails(ENOMEM) ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t count, size_t size)
{
    return fails(ENOMEM) ? NULL : __real_calloc(count, size);
}

void *__wrap_realloc(void *old, size_t size)
{
    return fails(ENOMEM) ? NULL : __real_realloc(old, size);
}

char *__wrap_strdup(const char *text)
{
    return fails(ENOMEM) ? NULL : __real_strdup(text);
}

char *__wrap_strndup(const char *text, size_t size)
{
    return fails(ENOMEM) ? NULL : __real_strndup(text, size);
}

int __wrap_posix_memalign(void **out, size_t alignment, size_t size)
{
    return fails(ENOMEM) ? ENOMEM : __real_posix_memalign(out, alignment, size);
}

void *__wrap_aligned_alloc(size_t alignment, size_t size)
{
    return fails(ENOMEM) ? NULL : __real_aligned_alloc(alignment, size);
}

void *__wrap_mmap(void *address, size_t length, int protection, int flags, int fd, off_t offset)
{
    return fails(ENOMEM) ? MAP_FAILED
                         : __real_mmap(address, length, protection, flags, fd, offset);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*run)(void *),
                          void *arg)
{
    return fails(EAGAIN) ? EAGAIN : __real_pthread_create(thread, attr, run, arg);
}

int __wrap_eventfd(unsigned value, int flags)
{
    return fails(EMFILE) ? -1 : __real_eventfd(value, flags);
}

int __wrap_epoll_create1(int flags)
{
    return fails(EMFILE) ? -1 : __real_epoll_create1(flags);
}

int __wrap_epoll_ctl(int epoll, int command, int fd, struct epoll_event *event)
{
    bool failing = command == EPOLL_CTL_ADD && fails(ENOSPC);
    return failing ? -1 : __real_epoll_ctl(epoll, command, fd, event);
}

int __wrap_fcntl(int fd, int command, long value)
{
    return fails(ENOMEM) ? -1 : __real_fcntl(fd, command, value);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Answers of the functions that are not supported, and their names: included once, by the
 * source that is made of the table `exports`, which has no other declarations of them. */
#include <errno.h>
#include <stddef.h>
#include <stdint.h>

/* Of port_query.c. Headers of verbs would declare the functions with other types. */
extern int emu_query_gid_type(void *context, uint8_t port, unsigned index, void *type);

static int positive(void)
{
    return EOPNOTSUPP;
}

static int negative(void)
{
    return -EOPNOTSUPP;
}

static int minus(void)
{
    errno = EOPNOTSUPP;
    return -1;
}

static void *null(void)
{
    errno = EOPNOTSUPP;
    return NULL;
}

static int nothing(void)
{
    return 0;
}

static int gid_type(void *context, uint8_t port, unsigned index, void *type)
{
    return emu_query_gid_type(context, port, index, type);
}

#define EXPORTED(answer) __attribute__((alias(#answer), visibility("default")))

#define PUBLIC(answer, name)                                                                   \
    extern __typeof__(answer) name;                                                            \
    extern __typeof__(answer) name EXPORTED(answer);

/* One of the functions for providers: `at` is "@@" for the default among equal names. */
#define PRIVATE(answer, name, number, at)                                                      \
    extern __typeof__(answer) emu_##number##_##name;                                           \
    extern __typeof__(answer) emu_##number##_##name EXPORTED(answer);                          \
    __asm__(".symver emu_" #number "_" #name ", " #name at "IBVERBS_PRIVATE_" #number);

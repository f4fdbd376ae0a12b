/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* errors.c - conversion of error codes from errno, to errno and to names. */
#include <errno.h>
#include <limits.h>
#include <stddef.h>
#include "bmi-types.h"

struct code {
    int code;   /* BMI_E... */
    int number; /* errno; 0: none */
    const char *name;
};

/* The first row of an errno is used for the conversion from errno: EAGAIN, not EWOULDBLOCK. */
static const struct code codes[] = {
#define X(name, number) {BMI_##name, name, "BMI_" #name},
    BMI_ERRNO_CODES(X)
#undef X
#define X(name, number) {BMI_##name, 0, "BMI_" #name},
        BMI_OTHER_CODES(X)
#undef X
};

#define CODES (sizeof(codes) / sizeof(codes[0]))

static int magnitude(int error)
{
    return error < 0 && error != INT_MIN ? -error : error;
}

static const struct code *find_code(int error)
{
    for (size_t i = 0; i < CODES; i++)
        if (codes[i].code == magnitude(error))
            return &codes[i];
    return NULL;
}

int bmi_errno_to_pvfs(int error)
{
    int number = magnitude(error);
    if (number == 0 || (number & BMI_ERROR_BIT))
        return error;
    for (size_t i = 0; i < CODES; i++)
        if (codes[i].number == number)
            return error < 0 ? -codes[i].code : codes[i].code;
    return error;
}

const char *bmi_status_string(int status)
{
    if (status == BMI_SUCCESS)
        return "BMI_SUCCESS";
    const struct code *c = find_code(status);
    return c != NULL ? c->name : "(UNKNOWN)";
}

int bmi_error_to_errno(int error)
{
    if (error == 0)
        return 0;
    const struct code *c = find_code(error);
    if (c != NULL && c->number)
        return c->number;
    if (c != NULL && c->code == BMI_ECANCEL)
        return ECANCELED;
    if (c != NULL && c->code == BMI_EHOSTNTFD)
        return ENONET;
    return magnitude(error) & BMI_ERROR_BIT ? EIO : magnitude(error);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bmi-method-callback.h"
#include "other_method.h"
#include "patches/orangefs/shim/shim-engine.h"

#define FIRST_ID 0x1000 /* ids of this method's operations, odd ones are none of the shim's */

struct other other;

static int other_initialize(bmi_method_addr_p listen, int number, int flags, char *options)
{
    snprintf(other.options, sizeof(other.options), "%s", options != NULL ? options : "");
    if (listen != NULL)
        snprintf(other.listening, sizeof(other.listening), "%s", (char *)listen->method_data);
    bmi_dealloc_method_addr(listen);
    if (other.initialize_error)
        return other.initialize_error;
    other.initialized++;
    other.flags = flags;
    other.number = number;
    return 0;
}

static int other_finalize(void)
{
    other.finalized++;
    other.contexts = 0;
    return 0;
}

static bmi_method_addr_p other_lookup(const char *text)
{
    const char *at = strstr(text, "other://");
    bmi_method_addr_p addr;

    if (at == NULL)
        return NULL;
    addr = bmi_alloc_method_addr(other.number, 64);
    snprintf(addr->method_data, 64, "%s", at);
    return addr;
}

static int other_set_info(int option, void *value)
{
    if (option != BMI_DROP_ADDR)
        return other.set_info_error;
    bmi_dealloc_method_addr(value);
    return 0;
}

static int other_get_info(int option, void *value)
{
    switch (option) {
    case BMI_CHECK_MAXSIZE:
        *(int *)value = 500;
        return 0;
    case BMI_TCP_GET_PORT:
        *(int *)value = other.port;
        return other.port ? 0 : -ENOTCONN;
    case SHIM_KNOWS_OPTION:
        return other.knows != NULL && strcmp(value, other.knows) ? -BMI_ENOENT : 0;
    default:
        return -ENOSYS;
    }
}

static int other_send(bmi_op_id_t *id, bmi_method_addr_p dest, const void *buffer,
                      bmi_size_t size, enum bmi_buffer_type type, bmi_msg_tag_t tag, void *user,
                      bmi_context_id context, bmi_hint hints)
{
    (void)dest, (void)buffer, (void)size, (void)type, (void)tag, (void)user, (void)context,
        (void)hints;
    *id = FIRST_ID + other.results++;
    return 0;
}

static int take(int *waiting, int room)
{
    int n = *waiting < room ? *waiting : room;
    *waiting -= n;
    return n;
}

static void report(int i, bmi_error_code_t *error, bmi_size_t *actual, void **user)
{
    error[i] = 0;
    actual[i] = 1;
    if (user != NULL)
        user[i] = &other;
}

/* Sleeps as long as it may if there is no result. */
static int other_testcontext(int room, bmi_op_id_t *ids, int *count, bmi_error_code_t *error,
                             bmi_size_t *actual, void **user, int idle_ms, bmi_context_id ctx)
{
    const struct timespec t = {.tv_nsec = idle_ms * 1000000L};

    (void)ctx;
    *count = 0;
    if (other.test_error)
        return other.test_error;
    other.asked++;
    *count = take(&other.results, room);
    for (int i = 0; i < *count; i++) {
        ids[i] = FIRST_ID + other.results + i;
        report(i, error, actual, user);
    }
    if (*count == 0 && idle_ms > 0) {
        other.idle_ms += idle_ms;
        nanosleep(&t, NULL);
    }
    return other.active;
}

static int other_testsome(int ids, bmi_op_id_t *id, int *count, int *index,
                          bmi_error_code_t *error, bmi_size_t *actual, void **user, int idle_ms,
                          bmi_context_id context)
{
    (void)idle_ms, (void)context;
    *count = 0;
    for (int i = 0; i < ids && other.results; i++)
        if (id[i] == FIRST_ID) {
            other.results--;
            index[*count] = i;
            report((*count)++, error, actual, user);
        }
    return 0;
}

static int other_testunexpected(int room, int *count, struct bmi_method_unexpected_info *info,
                                int idle_ms)
{
    (void)idle_ms;
    (void)room, (void)info;
    *count = 0;
    return 0;
}

static int other_unexpected_free(void *buffer)
{
    (void)buffer;
    return 0;
}

static int other_open_context(bmi_context_id context)
{
    if (other.context_error)
        return other.context_error;
    other.contexts |= 1u << context;
    return 0;
}

static void other_close_context(bmi_context_id context)
{
    other.contexts &= ~(1u << context);
}

static int other_cancel(bmi_op_id_t id, bmi_context_id context)
{
    (void)id, (void)context;
    return 0;
}

struct bmi_method_ops other_ops = {
    .method_name = "bmi_other",
    .initialize = other_initialize,
    .finalize = other_finalize,
    .set_info = other_set_info,
    .get_info = other_get_info,
    .unexpected_free = other_unexpected_free,
    .post_send = other_send,
    .testsome = other_testsome,
    .testcontext = other_testcontext,
    .testunexpected = other_testunexpected,
    .method_addr_lookup = other_lookup,
    .open_context = other_open_context,
    .close_context = other_close_context,
    .cancel = other_cancel,
};

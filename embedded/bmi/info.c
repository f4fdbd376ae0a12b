/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* info.c - options, names and memory: calls that a method answers for an address. */
#include <stdlib.h>
#include <string.h>
#include "core.h"
#include "gossip.h"

static struct bmi_ref *pin(BMI_addr_t addr)
{
    return bmi_is_up() ? bmi_refs_pin(&bmi_core.refs, addr) : NULL;
}

static void unpin(struct bmi_ref *ref)
{
    bmi_refs_unpin(&bmi_core.refs, ref);
}

/* Returns the error of a call whose address was not found. */
static int no_address(void)
{
    return bmi_is_up() ? -BMI_EINVAL : -BMI_ENETDOWN;
}

/* Sets an option of all methods, also after a failure.  Returns the first error. */
static int set_everywhere(int option, void *value)
{
    int ret = 0;
    for (int i = 0; i < bmi_active_count(); i++) {
        int one = bmi_core.active[i]->set_info(option, value);
        if (one < 0 && ret == 0)
            ret = bmi_result(one);
    }
    return ret;
}

int BMI_set_info(BMI_addr_t addr, int option, void *inout_parameter)
{
    int ret;

    if (option == BMI_DROP_ADDR)
        return -BMI_EINVAL;
    if (addr == 0)
        return bmi_is_up() ? set_everywhere(option, inout_parameter) : -BMI_ENETDOWN;
    struct bmi_ref *ref = pin(addr);
    if (ref == NULL)
        return no_address();
    switch (option) {
    case BMI_INC_ADDR_REF:
        bmi_refs_count(&bmi_core.refs, ref, 1);
        ret = 0;
        break;
    case BMI_DEC_ADDR_REF:
        ret = bmi_refs_count(&bmi_core.refs, ref, -1);
        if (ret == 0)
            bmi_drop_if_dead(ref);
        ret = ret < 0 ? -BMI_EINVAL : 0;
        break;
    default:
        ret = bmi_result(ref->ops->set_info(option, inout_parameter));
        break;
    }
    unpin(ref);
    return ret;
}

/* Returns in *maxsize the smallest of the methods' largest messages. */
static int get_maxsize(int *maxsize)
{
    if (bmi_active_count() == 0)
        return -BMI_ENETDOWN;
    for (int i = 0; i < bmi_active_count(); i++) {
        int one = 0;
        int ret = bmi_core.active[i]->get_info(BMI_CHECK_MAXSIZE, &one);
        if (ret < 0)
            return bmi_result(ret);
        if (i == 0 || one < *maxsize)
            *maxsize = one;
    }
    return 0;
}

/* Returns in *port the port of the first listening method. */
static int get_port(int *port)
{
    int ret = -BMI_ENODEV;

    for (int i = 0; ret < 0 && i < bmi_active_count(); i++)
        ret = bmi_core.active[i]->get_info(BMI_TCP_GET_PORT, port);
    return ret < 0 ? -BMI_ENODEV : 0;
}

static int get_methods_string(char **out)
{
    int count = 0;
    size_t length = 1;

    for (; bmi_static_methods[count]; count++)
        length += strlen(bmi_method_scheme(bmi_static_methods[count])) + 1;
    char *text = malloc(length);
    if (text == NULL)
        return -BMI_ENOMEM;
    char *end = text;
    for (int i = 0; i < count; i++) {
        end = stpcpy(end, bmi_method_scheme(bmi_static_methods[i]));
        *end++ = ',';
    }
    *end = '\0';
    *out = text;
    return count;
}

int BMI_get_info(BMI_addr_t addr, int option, void *inout_parameter)
{
    int ret = 0;
    struct bmi_ref *ref;

    switch (option) {
    case BMI_CHECK_INIT:
        return bmi_is_up() && bmi_active_count() > 0 ? 0 : -BMI_ENETDOWN;
    case BMI_CHECK_MAXSIZE:
        return bmi_is_up() ? get_maxsize(inout_parameter) : -BMI_ENETDOWN;
    case BMI_TCP_GET_PORT:
        return bmi_is_up() ? get_port(inout_parameter) : -BMI_ENETDOWN;
    case BMI_TRANSPORT_METHODS_STRING:
        return get_methods_string(inout_parameter);
    default: /* option of one address; unknown options go to its method */
        ref = pin(addr);
        if (ref == NULL)
            return no_address();
        if (option == BMI_GET_METH_ADDR)
            *(void **)inout_parameter = ref->method_addr;
        else
            ret = bmi_result(ref->ops->get_info(option, inout_parameter));
        unpin(ref);
        return ret;
    }
}

const char *BMI_addr_rev_lookup(BMI_addr_t addr)
{
    struct bmi_ref *ref = pin(addr);
    if (ref == NULL)
        return NULL;
    const char *name = ref->name;
    unpin(ref);
    return name;
}

const char *BMI_addr_rev_lookup_unexpected(BMI_addr_t addr)
{
    const char *name = NULL;
    struct bmi_ref *ref = pin(addr);
    if (ref != NULL) {
        if (ref->ops->rev_lookup_unexpected != NULL)
            name = ref->ops->rev_lookup_unexpected(ref->method_addr);
        unpin(ref);
    }
    return name != NULL ? name : "UNKNOWN";
}

int BMI_query_addr_range(BMI_addr_t addr, const char *id_string, int netmask)
{
    if (id_string == NULL || strstr(id_string, "://") == NULL)
        return -BMI_EINVAL;
    if (strnlen(id_string, BMI_MAX_ADDR_LEN) == BMI_MAX_ADDR_LEN)
        return -BMI_ENAMETOOLONG;
    struct bmi_ref *ref = pin(addr);
    if (ref == NULL)
        return bmi_is_up() ? -BMI_EPROTO : -BMI_ENETDOWN;
    int ret = 0; /* a rule for another network does not match this peer */
    if (bmi_has_scheme(id_string, bmi_method_scheme(ref->ops)))
        ret = ref->ops->query_addr_range != NULL
                  ? bmi_result(ref->ops->query_addr_range(ref->method_addr, id_string, netmask))
                  : -BMI_ENOSYS;
    unpin(ref);
    return ret;
}

void *BMI_memalloc(BMI_addr_t addr, bmi_size_t size, enum bmi_op_type send_recv)
{
    if (size < 0)
        return NULL;
    struct bmi_ref *ref = pin(addr);
    if (ref == NULL)
        return NULL;
    void *memory = ref->ops->memalloc(size, send_recv);
    unpin(ref);
    if (memory != NULL)
        memset(memory, 0, (size_t)size);
    return memory;
}

int BMI_memfree(BMI_addr_t addr, void *buffer, bmi_size_t size, enum bmi_op_type send_recv)
{
    struct bmi_ref *ref = pin(addr);
    if (ref == NULL)
        return no_address();
    int ret = bmi_result(ref->ops->memfree(buffer, size, send_recv));
    unpin(ref);
    return ret;
}

int BMI_unexpected_free(BMI_addr_t addr, void *buffer)
{
    struct bmi_ref *ref = pin(addr);
    if (ref == NULL)
        return no_address();
    int ret = bmi_result(ref->ops->unexpected_free(buffer));
    unpin(ref);
    return ret;
}

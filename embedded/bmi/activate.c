/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* activate.c - finds, starts and stops methods; looks up addresses, which may start a
 * method. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include "core.h"
#include "gossip.h"
#include "patches/orangefs/shim/shim-engine.h"
#include "pvfs2-debug.h"

const char *bmi_method_scheme(const struct bmi_method_ops *ops)
{
    return strncmp(ops->method_name, "bmi_", 4) == 0 ? ops->method_name + 4 : ops->method_name;
}

struct bmi_method_ops *bmi_method_by_name(const char *name, size_t length)
{
    for (int i = 0; bmi_static_methods[i]; i++) {
        const char *known = bmi_static_methods[i]->method_name;
        if (strlen(known) == length && memcmp(known, name, length) == 0)
            return bmi_static_methods[i];
    }
    return NULL;
}

bool bmi_has_scheme(const char *text, const char *scheme)
{
    size_t length = strlen(scheme);
    for (const char *part = text; part; part = strchr(part, ',')) {
        part += strspn(part, ", \t\n");
        if (strncmp(part, scheme, length) == 0 &&
            (part[length] == '-' || strncmp(part + length, "://", 3) == 0))
            return true;
    }
    return false;
}

int bmi_activate(struct bmi_method_ops *ops, const char *listen, int flags, char *options)
{
    int number = bmi_active_count();
    bmi_method_addr_p addr = NULL;

    for (int i = 0; i < number; i++)
        if (bmi_core.active[i] == ops)
            return 0;
    if (number == BMI_MAX_METHODS) {
        gossip_err("BMI: %s: too many methods: %d are active\n", ops->method_name, number);
        return -BMI_EBUSY;
    }
    if (listen != NULL) {
        addr = ops->method_addr_lookup(listen);
        if (addr == NULL) /* the method has logged the cause */
            return -BMI_EINVAL;
        addr->method_type = number;
    }
    int ret = ops->initialize(addr, number, flags | SHIM_LOG_NOTICES, options);
    if (ret < 0) {
        ret = bmi_result(ret);
        gossip_debug(GOSSIP_BMI_DEBUG_CONTROL, "BMI: %s did not start: %s\n", ops->method_name,
                     bmi_status_string(ret));
        return ret;
    }
    for (int context = 0; context < BMI_MAX_CONTEXTS; context++) {
        if (!bmi_context_is_open(context))
            continue;
        ret = ops->open_context(context);
        if (ret < 0) {
            ops->finalize();
            return bmi_result(ret);
        }
    }
    bmi_core.active[number] = ops;
    atomic_store_explicit(&bmi_core.active_count, number + 1, memory_order_release);
    gossip_debug(GOSSIP_BMI_DEBUG_CONTROL, "BMI: %s started as method %d\n", ops->method_name,
                 number);
    return 0;
}

/* Returns true if a method has the option, or cannot tell. */
static bool may_be_known(char *option)
{
    for (int i = 0; bmi_static_methods[i]; i++)
        if (bmi_static_methods[i]->get_info(SHIM_KNOWS_OPTION, option) != -BMI_ENOENT)
            return true;
    return false;
}

bool bmi_has_unknown(const char *options, char *key, size_t size)
{
    static const char separators[] = ", \t\n";

    for (const char *one = options; *(one += strspn(one, separators));
         one += strcspn(one, separators)) {
        snprintf(key, size, "%.*s", (int)strcspn(one, ", \t\n="), one);
        if (!may_be_known(key))
            return true;
    }
    return false;
}

void bmi_warn_of_unknown(const char *options)
{
    char key[64];

    if (options != NULL && bmi_has_unknown(options, key, sizeof key))
        gossip_err("BMI: unknown option \"%s\" ignored; bmi-perf --options lists all, "
                   "NEWS the removed ones\n",
                   key);
}

void bmi_deactivate_all(void)
{
    int number = bmi_active_count();
    while (number > 0)
        bmi_core.active[--number]->finalize();
    atomic_store_explicit(&bmi_core.active_count, 0, memory_order_release);
}

static bool is_active(const struct bmi_method_ops *ops)
{
    for (int i = 0; i < bmi_active_count(); i++)
        if (bmi_core.active[i] == ops)
            return true;
    return false;
}

/*
 * Passes a string to the active methods, then to those that must be started for it, in the
 * order of the program's table.  A method that fails to start (no device) does not stop the
 * search; its error is returned only if no method accepts the string.
 */
static int find_method(const char *text, char *options, struct bmi_method_ops **ops,
                       bmi_method_addr_p *addr)
{
    int ret = -BMI_ENOPROTOOPT;

    pthread_mutex_lock(&bmi_core.methods);
    *addr = NULL;
    for (int i = 0; *addr == NULL && i < bmi_active_count(); i++) {
        *ops = bmi_core.active[i];
        *addr = (*ops)->method_addr_lookup(text);
    }
    for (int i = 0; *addr == NULL && bmi_static_methods[i] != NULL; i++) {
        *ops = bmi_static_methods[i];
        if (is_active(*ops) || !bmi_has_scheme(text, bmi_method_scheme(*ops)))
            continue;
        bmi_warn_of_unknown(options);
        int started = bmi_activate(*ops, NULL, 0, options != NULL ? options : bmi_core.options);
        if (started == 0)
            *addr = (*ops)->method_addr_lookup(text);
        else if (ret == -BMI_ENOPROTOOPT)
            ret = started;
    }
    pthread_mutex_unlock(&bmi_core.methods);
    return *addr != NULL ? 0 : ret;
}

int BMI_addr_lookup(BMI_addr_t *new_addr, const char *id_string, char *bmi_opts)
{
    struct bmi_method_ops *ops;
    bmi_method_addr_p method_addr;
    bool found;

    if (new_addr == NULL || id_string == NULL)
        return -BMI_EINVAL;
    *new_addr = 0;
    if (!bmi_is_up())
        return -BMI_ENETDOWN;
    if (strnlen(id_string, BMI_MAX_ADDR_LEN) == BMI_MAX_ADDR_LEN)
        return -BMI_ENAMETOOLONG;

    struct bmi_ref *ref = bmi_refs_pin_name(&bmi_core.refs, id_string);
    if (ref == NULL) {
        int ret = find_method(id_string, bmi_opts, &ops, &method_addr);
        if (ret < 0)
            return ret;
        ref = bmi_refs_add(&bmi_core.refs, ops, method_addr, id_string, &found);
        /* Another thread may have looked up the same string in the meantime. */
        if (ref == NULL || found)
            ops->set_info(BMI_DROP_ADDR, method_addr);
        if (ref == NULL)
            return -BMI_ENOMEM;
    }
    *new_addr = ref->id;
    bmi_refs_unpin(&bmi_core.refs, ref);
    return 0;
}

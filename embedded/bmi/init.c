/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* init.c - start and stop of BMI, and contexts. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include "core.h"
#include "gossip.h"
#include "patches/orangefs/shim/shim-engine.h"
#include "pvfs2-debug.h"

struct bmi_core bmi_core = {
    .life = PTHREAD_MUTEX_INITIALIZER,
    .methods = PTHREAD_MUTEX_INITIALIZER,
    .refs = {.lock = PTHREAD_MUTEX_INITIALIZER, .generation = 1},
};

static void before_fork(void)
{
    pthread_mutex_lock(&bmi_core.refs.lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&bmi_core.refs.lock);
}

/*
 * Registers the fork handlers, so that a child has a consistent address table and its lock
 * free; before those of the methods, so that the table's lock is taken last
 * (doc/architecture.md, "Fork").
 */
static void guard_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork, after_fork);
}

static int check_arguments(const char *method_list, const char *listen_addr, int flags)
{
    if (flags & BMI_INIT_SERVER) {
        if (method_list == NULL || listen_addr == NULL) {
            gossip_err("BMI: a server needs a list of methods and an address to listen on\n");
            return -BMI_EINVAL;
        }
    } else if (listen_addr != NULL) {
        gossip_err("BMI: a client cannot listen on %s: the flag BMI_INIT_SERVER is missing\n",
                   listen_addr);
        return -BMI_EINVAL;
    }
    return 0;
}

static int keep_options(const char *options)
{
    bmi_core.options = options != NULL ? strdup(options) : NULL;
    return options != NULL && bmi_core.options == NULL ? -BMI_ENOMEM : 0;
}

static void drop_options(void)
{
    free(bmi_core.options);
    bmi_core.options = NULL;
}

/* Starts one method of the list; `name` is not terminated. */
static int start_listed(const char *name, size_t length, const char *listen_addr, int flags,
                        char *options)
{
    struct bmi_method_ops *ops = bmi_method_by_name(name, length);
    if (ops == NULL) {
        gossip_err(
            "BMI: unknown method \"%.*s\"; the methods of this program are named bmi_ and the "
            "scheme of their addresses\n",
            (int)length, name);
        return -BMI_ENOPROTOOPT;
    }
    if (listen_addr != NULL && !bmi_has_scheme(listen_addr, bmi_method_scheme(ops))) {
        gossip_err(
            "BMI: no address for %s to listen on in \"%s\"; add one like %s://host:port\n",
            ops->method_name, listen_addr, bmi_method_scheme(ops));
        return -BMI_EINVAL;
    }
    return bmi_activate(ops, listen_addr, flags, options);
}

int BMI_initialize(const char *method_list, const char *listen_addr, int flags, char *options)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    int ret = 0;

    (void)pthread_once(&once, guard_forks);
    pthread_mutex_lock(&bmi_core.life);
    if (bmi_is_up()) {
        atomic_fetch_add(&bmi_core.users, 1);
        goto out;
    }
    ret = check_arguments(method_list, listen_addr, flags);
    if (ret < 0)
        goto out;
    atomic_store(&bmi_core.flags, flags);

    pthread_mutex_lock(&bmi_core.methods);
    ret = keep_options(options);
    const char *name = method_list != NULL ? method_list : "";
    bmi_warn_of_unknown(options);
    while (ret == 0 && *(name += strspn(name, ", \t"))) {
        size_t length = strcspn(name, ", \t");
        ret = start_listed(name, length, listen_addr, flags, options);
        name += length;
    }
    if (ret == 0 && (flags & BMI_INIT_SERVER) && bmi_active_count() == 0) {
        gossip_err("BMI: the list of methods is empty\n");
        ret = -BMI_EINVAL;
    }
    if (ret < 0) {
        bmi_deactivate_all();
        drop_options();
    }
    pthread_mutex_unlock(&bmi_core.methods);
    if (ret < 0)
        bmi_refs_clear(&bmi_core.refs);
    else
        atomic_store_explicit(&bmi_core.users, 1, memory_order_release);
out:
    pthread_mutex_unlock(&bmi_core.life);
    return ret;
}

int BMI_finalize(void)
{
    int ret = 0;

    pthread_mutex_lock(&bmi_core.life);
    int users = atomic_load(&bmi_core.users);
    if (users <= 0) {
        ret = -BMI_ENETDOWN;
    } else if (users > 1) {
        atomic_store(&bmi_core.users, users - 1);
    } else {
        atomic_store(&bmi_core.users, 0);
        pthread_mutex_lock(&bmi_core.methods);
        bmi_deactivate_all();
        drop_options();
        atomic_store(&bmi_core.contexts, 0);
        pthread_mutex_unlock(&bmi_core.methods);
        /* Addresses are dropped after their methods have stopped, as in OrangeFS. */
        bmi_refs_clear(&bmi_core.refs);
    }
    pthread_mutex_unlock(&bmi_core.life);
    return ret;
}

int BMI_open_context(bmi_context_id *context_id)
{
    int ret = 0;
    int context = 0;

    if (!bmi_is_up())
        return -BMI_ENETDOWN;
    pthread_mutex_lock(&bmi_core.methods);
    while (context < BMI_MAX_CONTEXTS && bmi_context_is_open(context))
        context++;
    if (context == BMI_MAX_CONTEXTS) {
        ret = -BMI_EBUSY;
        goto out;
    }
    int opened = 0;
    for (; opened < bmi_active_count(); opened++) {
        ret = bmi_result(bmi_core.active[opened]->open_context(context));
        if (ret < 0)
            goto undo;
    }
    ret = 0;
    atomic_fetch_or(&bmi_core.contexts, 1u << context);
    *context_id = context;
    goto out;
undo:
    gossip_err("BMI: %s cannot open context %d: %s\n", bmi_core.active[opened]->method_name,
               context, bmi_status_string(ret));
    while (opened-- > 0)
        bmi_core.active[opened]->close_context(context);
out:
    pthread_mutex_unlock(&bmi_core.methods);
    return ret;
}

void BMI_close_context(bmi_context_id context_id)
{
    if (!bmi_is_up())
        return;
    pthread_mutex_lock(&bmi_core.methods);
    if (bmi_context_is_open(context_id)) {
        atomic_fetch_and(&bmi_core.contexts, ~(1u << context_id));
        for (int i = 0; i < bmi_active_count(); i++)
            bmi_core.active[i]->close_context(context_id);
    }
    pthread_mutex_unlock(&bmi_core.methods);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Start and stop of the method, its options, its memory, its errors. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shim.h"
#include "shim-engine.h"
#include "gossip.h"
#include "pvfs2-debug.h"

#define HINT_READ                                                                              \
    1 /* of a buffer hint: what OrangeFS calls PVFS_IO_READ, our core BMI_IO_READ */

/* OrangeFS tries four times in a row to start a method, or to find its first server: the same
 * complaint is not heard again. */
static bool heard_before(struct shim *s, enum rme_log_level level, const char *line)
{
    if (!atomic_load(&s->starting) || level > RME_LOG_NOTICE)
        return false;
    pthread_mutex_lock(&s->complaint_lock);
    bool heard = strncmp(s->complaint, line, sizeof(s->complaint) - 1) == 0;
    if (!heard)
        snprintf(s->complaint, sizeof(s->complaint), "%s", line);
    pthread_mutex_unlock(&s->complaint_lock);
    return heard;
}

void shim_start(struct shim *s)
{
    atomic_store(&s->starting, true);
}

void shim_started(struct shim *s, bool well)
{
    atomic_store(&s->starting, false);
    pthread_mutex_lock(&s->complaint_lock);
    if (well)
        s->complaint[0] = '\0';
    pthread_mutex_unlock(&s->complaint_lock);
}

static void log_line(void *arg, enum rme_log_level level, const char *line)
{
    struct shim *s = arg;

    bool notice = s->tells_why || atomic_load(&s->starting);

    if (heard_before(s, level, line))
        return;
    if (level <= (notice ? RME_LOG_NOTICE : RME_LOG_WARN))
        gossip_err("bmi_%s: %s\n", s->scheme, line);
    else
        gossip_debug(GOSSIP_BMI_DEBUG_IB, "bmi_%s: %s\n", s->scheme, line);
}

/*
 * The engine's errors are errno values, nearly all of which have a BMI code with OrangeFS's
 * "try again" bit.  The rest is named here; what nobody has named is an I/O error, never an
 * unknown number.
 */
bmi_error_code_t shim_error(int error)
{
    switch (error) {
    case 0:
        return 0;
    case -ECANCELED:
        return -BMI_ECANCEL;
    case -ESHUTDOWN:
    case -ENOTCONN:
    case -ECONNABORTED:
        return -BMI_ECONNRESET;
    default:
        error = bmi_errno_to_pvfs(error);
        return -error & BMI_ERROR_BIT ? error : -BMI_EIO;
    }
}

/* ---- Fork ---- */

/* The methods of this process that were ever started: their locks are taken around a fork. */
static pthread_mutex_t known_lock = PTHREAD_MUTEX_INITIALIZER;
static struct shim *known;

static void before_fork(void)
{
    pthread_mutex_lock(&known_lock);
    for (struct shim *s = known; s; s = s->next)
        pthread_mutex_lock(&s->newcomer);
    for (struct shim *s = known; s; s = s->next)
        pthread_mutex_lock(&s->lock);
    for (struct shim *s = known; s; s = s->next)
        pthread_mutex_lock(&s->complaint_lock);
}

static void after_fork(void)
{
    for (struct shim *s = known; s; s = s->next) {
        pthread_mutex_unlock(&s->complaint_lock);
        pthread_mutex_unlock(&s->lock);
        pthread_mutex_unlock(&s->newcomer);
    }
    pthread_mutex_unlock(&known_lock);
}

/* The threads that were in testunexpected, and what they had in hand, are the parent's. */
static void after_fork_in_child(void)
{
    for (struct shim *s = known; s; s = s->next) {
        atomic_store(&s->scans[0], 0);
        atomic_store(&s->scans[1], 0);
        atomic_store(&s->unsettled, s->parked_count);
    }
    after_fork();
}

static void guard_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

static void make_known(struct shim *s)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;

    (void)pthread_once(&once, guard_forks);
    pthread_mutex_lock(&known_lock);
    if (!s->known) {
        s->known = true;
        s->next = known;
        known = s;
    }
    pthread_mutex_unlock(&known_lock);
}

/* ---- Start and stop ---- */

int shim_initialize(struct shim *s, bmi_method_addr_p listen, int method_id, int flags,
                    const char *options)
{
    struct shim_addr *addr = NULL;
    int ret;

    make_known(s);
    s->tells_why = (flags & SHIM_TELLS_WHY) != 0;
    if (listen) {
        listen->method_type = method_id;
        addr = listen->method_data;
    }
    struct rme_config config = {
        .fabric = s->fabric(),
        .listen = addr ? addr->peer : NULL,
        .bind_specific = (flags & BMI_TCP_BIND_SPECIFIC) != 0,
        .options = options,
        .options_are_mine = (flags & SHIM_OPTIONS_ALONE) != 0,
        .log = log_line,
        .log_arg = s,
        .op_template = &s->op_template,
        .op_size = sizeof(s->op_template),
    };
    s->op_template.addr = &s->op_addr;
    shim_start(s);
    ret = rme_open(&config, &s->rme);
    shim_started(s, ret == 0);
    if (ret < 0) {
        s->rme = NULL;
        if (listen) /* the host forgets it without dropping it */
            shim_drop_addr(s, listen);
        return shim_error(ret);
    }
    s->listen = addr;
    atomic_store(&s->reached, listen != NULL || s->first_lookup_ms == 0);
    s->method_id = method_id;
    s->op_addr.method_type = method_id;
    shim_adopt_lookups(s);
    return 0;
}

/* Addresses stay: the host drops them afterwards, and may use others of this method after the
 * next initialize. */
int shim_finalize(struct shim *s)
{
    if (!s->rme)
        return 0;
    rme_close(s->rme);
    s->rme = NULL;
    s->method_id = -1;
    shim_free_messages(s);
    if (s->listen)
        shim_drop_addr(s, s->listen->host);
    s->listen = NULL;
    return 0;
}

/*
 * Options of other methods, and of hosts that know more than we do, are accepted: OrangeFS
 * gives up on all methods when one of them refuses.
 */
int shim_set_info(struct shim *s, int option, void *value)
{
    switch (option) {
    case BMI_DROP_ADDR:
        shim_drop_addr(s, value);
        break;
    case BMI_FORCEFUL_CANCEL_MODE:
        if (s->rme)
            rme_set_forceful_cancel(s->rme);
        break;
    case BMI_OPTIMISTIC_BUFFER_REG: {
        const struct bmi_optimistic_buffer_info *hint = value;
        if (s->rme && hint && hint->buffer && hint->len > 0)
            rme_memory_hint(s->rme, hint->buffer, (size_t)hint->len,
                            (int)hint->rw == HINT_READ ? RME_TO_RECEIVE : RME_TO_SEND);
        break;
    }
    default:
        break;
    }
    return 0;
}

static int get_attribute(struct shim *s, struct shim_attribute *a)
{
    struct shim_addr *addr =
        a->addr && a->addr->method_type == s->method_id ? a->addr->method_data : NULL;
    struct rme_counter found = {.name = NULL};
    int error = s->rme && addr ? 0 : -ENOTCONN;

    for (int i = a->index < 0 ? 0 : a->index; !error; i++) {
        error = rme_session_get(s->rme, addr->peer, i, &found);
        if (!error && (a->index >= 0 || strcmp(found.name, a->name) == 0))
            break;
    }
    if (error)
        return shim_error(error);
    a->name = found.name;
    a->unit = found.unit;
    a->text = found.text;
    a->value = found.value;
    return 0;
}

int shim_get_info(struct shim *s, int option, void *value)
{
    switch (option) {
    case BMI_CHECK_MAXSIZE:
        *(int *)value = INT_MAX;
        return 0;
    case BMI_GET_UNEXP_SIZE: /* OrangeFS has buffers for no more */
        *(int *)value = RME_UNEXPECTED_MAX;
        return 0;
    case BMI_DROP_ADDR_QUERY:
        shim_drop_query(s, value);
        return 0;
    case SHIM_GET_PORT: {
        int port = s->rme ? rme_listen_port(s->rme) : -ENOTCONN;
        if (port < 0)
            return -BMI_ENODEV;
        *(int *)value = port;
        return 0;
    }
    case SHIM_GET_ATTRIBUTE:
        return get_attribute(s, value);
    case SHIM_GET_ENGINE:
        *(struct rme **)value = s->rme;
        return s->rme ? 0 : -BMI_ENETDOWN;
    case SHIM_KNOWS_OPTION:
        return rme_option_known(s->fabric(), value) ? 0 : -BMI_ENOENT;
    default:
        return -BMI_ENOSYS;
    }
}

void *shim_memalloc(struct shim *s, bmi_size_t size)
{
    return s->rme && size >= 0 ? rme_memory_alloc(s->rme, (size_t)size) : NULL;
}

int shim_memfree(struct shim *s, void *buffer)
{
    if (!s->rme) /* the engine took its memory with it */
        return 0;
    return shim_error(rme_memory_free(s->rme, buffer));
}

int shim_open_context(struct shim *s, bmi_context_id context)
{
    if (!s->rme)
        return -BMI_ENETDOWN;
    if (context < 0 || context >= BMI_MAX_CONTEXTS)
        return -BMI_EINVAL;
    return shim_error(rme_context_open(s->rme, (int)context));
}

void shim_close_context(struct shim *s, bmi_context_id context)
{
    if (s->rme && context >= 0 && context < BMI_MAX_CONTEXTS)
        rme_context_close(s->rme, (int)context);
}

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

/* a buffer hint: PVFS_IO_READ of OrangeFS, BMI_IO_READ of the embedded core */
#define HINT_READ 1

/* Returns true for a line that the last failed start has logged already: OrangeFS tries four
 * times in a row to start a method, or to reach its first server. */
static bool is_repeated(enum rme_log_level level, const char *line)
{
    bool repeated;
    if (!atomic_load(&self.starting) || level > RME_LOG_NOTICE)
        return false;
    pthread_mutex_lock(&self.complaint_lock);
    repeated = strncmp(self.complaint, line, sizeof(self.complaint) - 1) == 0;
    if (!repeated)
        snprintf(self.complaint, sizeof(self.complaint), "%s", line);
    pthread_mutex_unlock(&self.complaint_lock);
    return repeated;
}

static void shim_start(void)
{
    atomic_store(&self.starting, true);
}

static void shim_started(bool well)
{
    atomic_store(&self.starting, false);
    pthread_mutex_lock(&self.complaint_lock);
    if (well)
        self.complaint[0] = '\0';
    pthread_mutex_unlock(&self.complaint_lock);
}

static void log_line(void *arg, enum rme_log_level level, const char *line)
{
    bool notice = self.log_notices || atomic_load(&self.starting);

    (void)arg;
    if (is_repeated(level, line))
        return;
    if (level <= (notice ? RME_LOG_NOTICE : RME_LOG_WARN))
        gossip_err("bmi_%s: %s\n", SHIM_SCHEME, line);
    else
        gossip_debug(GOSSIP_BMI_DEBUG_IB, "bmi_%s: %s\n", SHIM_SCHEME, line);
}

/*
 * Nearly all errno values of the engine have a BMI code with OrangeFS's "try again" bit.  This
 * table has the others; any further one becomes an I/O error.
 */
static bmi_error_code_t shim_error(int error)
{
    switch (error) {
    case 0:
        return 0;
    case -ECANCELED:
        return -BMI_ECANCEL;
    case -ENONET: /* unknown host name; the same code as bmi_tcp's */
        return -BMI_EHOSTNTFD;
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

static void before_fork(void)
{
    pthread_mutex_lock(&self.lock);
    pthread_mutex_lock(&self.complaint_lock);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&self.complaint_lock);
    pthread_mutex_unlock(&self.lock);
}

/* The parked messages are the parent's. */
static void after_fork_in_child(void)
{
    self.newcomer = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    self.parked_count = 0;
    after_fork();
}

/*
 * Registers the fork handlers, after those of the engine and its fabric, whose locks are inner
 * (doc/architecture.md, "Fork"): `lock` is taken first, as by a thread that asks the engine
 * with `lock` held.
 */
static void guard_forks(void)
{
    (void)pthread_atfork(before_fork, after_fork, after_fork_in_child);
}

/* ---- Start and stop ---- */

static int shim_initialize(bmi_method_addr_p listen, int method_id, int flags, char *options)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    struct shim_addr *addr = NULL;
    int ret;
    struct rme_config config;

    self.log_notices = (flags & SHIM_LOG_NOTICES) != 0;
    if (listen != NULL) {
        listen->method_type = method_id;
        addr = listen->method_data;
    }
    config = (struct rme_config){
        .fabric = SHIM_FABRIC(),
        .listen = addr != NULL ? addr->peer : NULL,
        .bind_specific = (flags & BMI_TCP_BIND_SPECIFIC) != 0,
        .options = options,
        .log = log_line,
        .op_template = &self.op_template,
        .op_size = sizeof(self.op_template),
    };
    self.op_template.addr = &self.op_addr;
    shim_start();
    ret = rme_open(&config, &self.rme);
    shim_started(ret == 0);
    if (ret < 0) {
        self.rme = NULL;
        if (listen != NULL) /* the host forgets this address without dropping it */
            shim_drop_addr(listen);
        return shim_error(ret);
    }
    (void)pthread_once(&once, guard_forks);
    self.listen = addr;
    atomic_store(&self.reached, listen != NULL || SHIM_FIRST_LOOKUP_MS == 0);
    self.method_id = method_id;
    self.op_addr.method_type = method_id;
    shim_adopt_lookups();
    return 0;
}

/* For OrangeFS before 2.9.8, which has no options. */
static int initialize_without_options(bmi_method_addr_p listen, int method_id, int flags)
{
    return shim_initialize(listen, method_id, flags, NULL);
}

/* Keeps the addresses: the host drops them afterwards, and may use others of this method after
 * the next initialize. */
static int shim_finalize(void)
{
    if (self.rme == NULL)
        return 0;
    rme_close(self.rme);
    self.rme = NULL;
    self.method_id = -1;
    shim_free_messages();
    if (self.listen != NULL)
        shim_drop_addr(self.listen->host);
    self.listen = NULL;
    return 0;
}

/*
 * Accepts options of other methods and of newer hosts: OrangeFS drops all methods if one
 * of them refuses.
 */
static int shim_set_info(int option, void *value)
{
    switch (option) {
    case BMI_DROP_ADDR:
        shim_drop_addr(value);
        break;
    case BMI_FORCEFUL_CANCEL_MODE:
        if (self.rme != NULL)
            rme_set_forceful_cancel(self.rme);
        break;
    case BMI_OPTIMISTIC_BUFFER_REG: {
        const struct bmi_optimistic_buffer_info *hint = value;
        if (self.rme != NULL && hint != NULL && hint->buffer != NULL && hint->len > 0)
            rme_memory_hint(self.rme, hint->buffer, (size_t)hint->len,
                            (int)hint->rw == HINT_READ ? RME_TO_RECEIVE : RME_TO_SEND);
        break;
    }
    default:
        break;
    }
    return 0;
}

static int get_attribute(struct shim_attribute *a)
{
    struct shim_addr *addr = shim_addr_of(a->addr);
    struct rme_counter found = {.name = NULL};
    int error = self.rme != NULL && addr != NULL ? 0 : -ENOTCONN;

    for (int i = a->index < 0 ? 0 : a->index; !error; i++) {
        error = rme_session_get(self.rme, addr->peer, i, &found);
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

static int shim_get_info(int option, void *value)
{
    switch (option) {
    case BMI_CHECK_MAXSIZE:
        *(int *)value = INT_MAX;
        return 0;
    case BMI_GET_UNEXP_SIZE: /* size of OrangeFS's buffers */
        *(int *)value = RME_UNEXPECTED_MAX;
        return 0;
    case BMI_DROP_ADDR_QUERY:
        shim_drop_query(value);
        return 0;
    case SHIM_GET_PORT: {
        int port = self.rme != NULL ? rme_listen_port(self.rme) : -ENOTCONN;
        if (port < 0)
            return -BMI_ENODEV;
        *(int *)value = port;
        return 0;
    }
    case SHIM_GET_ATTRIBUTE:
        return get_attribute(value);
    case SHIM_GET_ENGINE:
        *(struct rme **)value = self.rme;
        return self.rme != NULL ? 0 : -BMI_ENETDOWN;
    case SHIM_KNOWS_OPTION:
        return rme_option_known(SHIM_FABRIC(), value) ? 0 : -BMI_ENOENT;
    default:
        return -BMI_ENOSYS;
    }
}

static void *shim_memalloc(bmi_size_t size, enum bmi_op_type send_recv)
{
    (void)send_recv;
    return self.rme != NULL && size >= 0 ? rme_memory_alloc(self.rme, (size_t)size) : NULL;
}

static int shim_memfree(void *buffer, bmi_size_t size, enum bmi_op_type send_recv)
{
    (void)size;
    (void)send_recv;
    if (self.rme == NULL) /* rme_close has freed the memory */
        return 0;
    return shim_error(rme_memory_free(self.rme, buffer));
}

static int shim_open_context(bmi_context_id context)
{
    if (self.rme == NULL)
        return -BMI_ENETDOWN;
    if (context < 0 || context >= BMI_MAX_CONTEXTS)
        return -BMI_EINVAL;
    return shim_error(rme_context_open(self.rme, (int)context));
}

static void shim_close_context(bmi_context_id context)
{
    if (self.rme != NULL && context >= 0 && context < BMI_MAX_CONTEXTS)
        rme_context_close(self.rme, (int)context);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A library whose constructor uses RDMA, like OrangeFS's liborangefs: the constructor connects
 * to EARLY_PORT of this host, and a forked child opens a device. The library is loaded after
 * the software HCA, like a program's libraries, and therefore its constructor runs before the
 * HCA's. The process exits with the number of the failed step.
 */
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <rdma/rdma_cma.h>

static int connect_and_leave(const char *port)
{
    struct rdma_addrinfo hints = {.ai_flags = RAI_NUMERICHOST, .ai_port_space = RDMA_PS_TCP};
    struct ibv_qp_init_attr attr = {
        .cap = {4, 4, 1, 1, 0}, .sq_sig_all = 1, .qp_type = IBV_QPT_RC};
    struct rdma_addrinfo *found;
    struct rdma_cm_id *id;

    if (rdma_getaddrinfo("127.0.0.1", port, &hints, &found))
        return 81;
    if (rdma_create_ep(&id, found, NULL, &attr))
        return 82;
    rdma_freeaddrinfo(found);
    if (rdma_connect(id, NULL))
        return 83;
    if (rdma_disconnect(id))
        return 84;
    rdma_destroy_ep(id);
    return 0;
}

/* ThreadSanitizer cannot follow threads created in a child of a multi-threaded process */
#ifndef __SANITIZE_THREAD__
static int open_device(void)
{
    struct ibv_device **list = ibv_get_device_list(NULL);
    struct ibv_context *ctx = list != NULL && list[0] != NULL ? ibv_open_device(list[0]) : NULL;

    return ctx != NULL && ibv_close_device(ctx) == 0 ? 0 : 85;
}

static int in_a_child(void)
{
    int status = 0;
    pid_t pid = fork();

    if (pid == 0)
        _exit(open_device());
    return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 ? 0 : 86;
}
#else
static int in_a_child(void)
{
    return 0;
}
#endif

__attribute__((constructor)) static void loaded(void)
{
    const char *port = getenv("EARLY_PORT");
    int step;

    if (port == NULL)
        return;
    alarm(60);
    step = connect_and_leave(port);
    if (!step)
        step = in_a_child();
    if (step)
        _exit(step);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Measures registrations on the first device: registration SIZE COUNT prints the microseconds
 * of ibv_reg_mr and ibv_dereg_mr for a buffer of SIZE bytes. COUNT buffers, each of its own
 * pages, written beforehand, are registered one after the other, then deregistered. With
 * `demand` the regions are on demand, which devices without on-demand paging refuse.
 */
#include <infiniband/verbs.h>

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define PAGE      ((size_t)4096)
#define MAX_SIZE  ((size_t)64 << 20)
#define MAX_COUNT ((size_t)4096)

struct run {
    size_t size, count, step; /* bytes of a buffer; buffers; distance of buffers */
    char *memory;
    struct ibv_mr **mr;
    int access;
    double in, out; /* microseconds of all registrations, deregistrations */
};

static double now_us(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec / 1e3;
}

static int measure(struct run *run, struct ibv_pd *pd)
{
    double begin = now_us(), middle;
    size_t i, done;
    int error = 0;

    for (done = 0; done < run->count; done++) {
        run->mr[done] = ibv_reg_mr(pd, run->memory + done * run->step, run->size, run->access);
        if (!run->mr[done]) {
            error = errno;
            break;
        }
    }
    middle = now_us();
    for (i = 0; i < done; i++)
        ibv_dereg_mr(run->mr[i]);
    run->in = middle - begin;
    run->out = now_us() - middle;
    return error;
}

static int with_device(struct run *run)
{
    int number = 0, error = ENODEV;
    struct ibv_device **devices = ibv_get_device_list(&number);
    struct ibv_context *context = devices && number ? ibv_open_device(devices[0]) : NULL;
    struct ibv_pd *pd = context ? ibv_alloc_pd(context) : NULL;

    if (pd) {
        error = measure(run, pd); /* warm-up */
        if (!error)
            error = measure(run, pd);
        ibv_dealloc_pd(pd);
    }
    if (context)
        ibv_close_device(context);
    if (devices)
        ibv_free_device_list(devices);
    return error;
}

/* Parses a number from 1 to `most`; 0 if invalid. */
static size_t number(const char *text, size_t most)
{
    char *end;
    unsigned long long n = strtoull(text, &end, 10);

    return *text < '0' || *text > '9' || *end || n > most ? 0 : (size_t)n;
}

int main(int argc, char **argv)
{
    struct run run = {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ |
                                IBV_ACCESS_REMOTE_WRITE};
    bool demand = argc == 4 && strcmp(argv[3], "demand") == 0;
    int error;

    if (demand)
        run.access |= IBV_ACCESS_ON_DEMAND;
    if (argc == 3 || demand) {
        run.size = number(argv[1], MAX_SIZE);
        run.count = number(argv[2], MAX_COUNT);
    }
    if (!run.size || !run.count) {
        fprintf(
            stderr,
            "Usage: registration SIZE COUNT [demand]  (at most 67108864 bytes, 4096 times)\n");
        return 2;
    }
    run.step = (run.size + PAGE - 1) / PAGE * PAGE;
    run.mr = calloc(run.count, sizeof(struct ibv_mr *));
    run.memory = mmap(NULL, run.step * run.count, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (!run.mr || run.memory == MAP_FAILED) {
        fprintf(stderr, "registration: no memory for %zu buffers of %zu bytes\n", run.count,
                run.size);
        free(run.mr);
        return 1;
    }
    memset(run.memory, 1, run.step * run.count); /* allocates the pages */
    error = with_device(&run);
    if (error)
        fprintf(stderr, "registration: %zu buffers of %zu bytes on the first RDMA device: %s\n",
                run.count, run.size, strerror(error));
    else
        printf("register %.3f deregister %.3f\n", run.in / (double)run.count,
               run.out / (double)run.count);
    munmap(run.memory, run.step * run.count);
    free(run.mr);
    return error ? 1 : 0;
}

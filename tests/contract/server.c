/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The server of the contract tests: any number of clients; each request is a job. */
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "contract.h"

/* One message of a request. */
struct part {
    struct flight flight;
    struct job *job;
    char *memory;
    int64_t size;
};

struct job {
    struct request ask;
    struct reply reply;
    BMI_addr_t client;
    void *buffer; /* the unexpected message, held until the end like in OrangeFS */
    int open;     /* parts in progress */
    struct part *part;
    struct flight answer;
    struct job *next;
};

struct server {
    bmi_context_id context;
    struct job *jobs;
};

static void *get_memory(int64_t size)
{
    return malloc((size_t)size + 1);
}

static void put_memory(void *memory, int64_t size)
{
    (void)size;
    free(memory);
}

struct server_memory server_memory = {get_memory, fill, is_filled, put_memory};

static int64_t part_size(const struct request *ask, int i)
{
    return ask->size != MIXED_SIZES ? ask->size
           : ask->ask == ASK_TAKE   ? MIXED_MAX
                                    : mixed_size(i);
}

static int64_t part_expect(const struct request *ask, int i)
{
    return ask->size == MIXED_SIZES ? mixed_size(i) : ask->expect;
}

static void note_end(struct job *job, int i)
{
    struct part *p = &job->part[i];

    job->open--;
    if (p->flight.error) {
        if (job->reply.errors++ == 0)
            job->reply.error = p->flight.error;
    } else if (job->ask.ask == ASK_TAKE) {
        int64_t expect = part_expect(&job->ask, i);
        if (p->flight.actual != expect ||
            !server_memory.is_filled(p->memory, expect, job->ask.tag, i))
            job->reply.bad++;
    }
    server_memory.put(p->memory, p->size);
    p->memory = NULL;
}

/* Starts a part. Posting fails if the peer has died; then the part is over at once. */
static void start_part(struct server *s, struct job *job, int i)
{
    struct part *p = &job->part[i];
    struct flight *f = &p->flight;
    bmi_size_t actual = 0;
    int ret;

    p->size = part_size(&job->ask, i);
    p->memory = server_memory.get(p->size);
    CHECK(p->memory != NULL);
    if (job->ask.ask == ASK_TAKE) {
        ret = BMI_post_recv(&f->id, job->client, p->memory, p->size, &actual, BMI_EXT_ALLOC,
                            job->ask.tag, f, s->context, NULL);
        CHECK(ret <= 0);
    } else {
        server_memory.fill(p->memory, p->size, job->ask.tag, i);
        ret = BMI_post_send(&f->id, job->client, p->memory, p->size, BMI_EXT_ALLOC,
                            job->ask.tag, f, s->context, NULL);
    }
    job->open++;
    if (ret != 0) {
        f->reports = 1;
        f->error = ret < 0 ? ret : 0;
        f->actual = p->size;
    }
}

/* Checks that address ranges match the client, even if it has died meanwhile. */
static void check_range(BMI_addr_t client)
{
    if (strcmp(test_host, "127.0.0.1") != 0)
        return;
    /* Elan4 nodes have numbers and no networks */
    if (strcmp(test_network()->scheme, "elan4") == 0) {
        CHECK_EQUAL(BMI_query_addr_range(client, "elan4://0", 32), 1);
        CHECK_EQUAL(BMI_query_addr_range(client, "elan4://1", 32), 0);
        CHECK_EQUAL(BMI_query_addr_range(client, "tcp://0", 32), 0);
        return;
    }
    CHECK_EQUAL(BMI_query_addr_range(client, "ib://127.0.0.1", 32), 1);
    CHECK_EQUAL(BMI_query_addr_range(client, "ib://127.0.0.0", 8), 1);
    CHECK_EQUAL(BMI_query_addr_range(client, "ib://10.0.0.0", 8), 0);
    CHECK_EQUAL(BMI_query_addr_range(client, "tcp://127.0.0.1", 32), 0);
}

static void finish(struct job *job)
{
    check_range(job->client);
    CHECK_EQUAL(BMI_unexpected_free(job->client, job->buffer), 0);
    CHECK_EQUAL(BMI_set_info(job->client, BMI_DEC_ADDR_REF, NULL), 0);
    free(job->part);
    free(job);
}

static void start_job(struct server *s, const struct BMI_unexpected_info *info)
{
    struct job *job = calloc(1, sizeof(*job));

    CHECK(job != NULL);
    CHECK_EQUAL(info->error_code, 0);
    CHECK(info->size >= (bmi_size_t)sizeof(job->ask));
    CHECK((uintptr_t)info->buffer % 8 == 0);
    memcpy(&job->ask, info->buffer, sizeof(job->ask));
    /* A pattern follows the request, up to the end of the message. */
    CHECK(is_filled((char *)info->buffer + sizeof(job->ask),
                    info->size - (bmi_size_t)sizeof(job->ask), job->ask.tag, 0));
    job->client = info->addr;
    check_range(job->client);
    job->buffer = info->buffer;
    job->reply.pid = (int32_t)getpid();
    if (job->ask.ask == ASK_TAKE || job->ask.ask == ASK_GIVE) {
        job->part = calloc((size_t)job->ask.count, sizeof(*job->part));
        CHECK(job->part != NULL);
        for (int i = 0; i < job->ask.count; i++)
            start_part(s, job, i);
    }
    job->next = s->jobs;
    s->jobs = job;
}

/* Returns true when the job is over. */
static bool advance(struct server *s, struct job *job)
{
    for (int i = 0; job->open > 0 && i < job->ask.count; i++)
        if (job->part[i].memory != NULL && job->part[i].flight.reports)
            note_end(job, i);
    if (job->open > 0)
        return false;
    if (job->answer.reports == 0 && job->answer.id == 0) {
        int ret =
            BMI_post_send(&job->answer.id, job->client, &job->reply, sizeof(job->reply),
                          BMI_EXT_ALLOC, job->ask.reply_tag, &job->answer, s->context, NULL);
        if (ret != 0)
            job->answer.reports = 1;
    }
    return job->answer.reports > 0;
}

static bool may_read(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return poll(&p, 1, 0) > 0;
}

void serve(int ready, int stop)
{
    struct server s = {.jobs = NULL};
    struct BMI_unexpected_info info[5];
    int n;

    CHECK_EQUAL(BMI_initialize(test_network()->method, test_uri(),
                               BMI_INIT_SERVER | BMI_AUTO_REF_COUNT, method_options),
                0);
    CHECK_EQUAL(BMI_open_context(&s.context), 0);
    CHECK(write(ready, "r", 1) == 1);
    while (s.jobs != NULL || !may_read(stop)) {
        CHECK(BMI_testunexpected(5, &n, info, 0) >= 0);
        for (int i = 0; i < n; i++)
            start_job(&s, &info[i]);
        collect(s.context, n > 0 ? 0 : 10);
        for (struct job **at = &s.jobs; *at;) {
            struct job *job = *at;
            if (advance(&s, job)) {
                *at = job->next;
                finish(job);
            } else {
                at = &job->next;
            }
        }
    }
    BMI_close_context(s.context);
    CHECK_EQUAL(BMI_finalize(), 0);
}

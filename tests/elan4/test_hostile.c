/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A process that may map others' segments overwrites their state at random. The victims may
 * lose messages or wait forever, but must not crash, and when the process is gone a new pair
 * works.
 */
#include "tests/elan4/bed.h"
#include "tests/elan4/cases.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "emul/elan4/shm.h"

#define ROUNDS 400 /* of each victim */

static uint64_t random_state = 88172645463325252;

static uint64_t next_random(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    return random_state ^= random_state << 17;
}

/* Maps a process's segment writable; NULL if it has none. */
static struct shm_head *map_segment(int pid)
{
    char path[300], link[100];
    struct shm_head *seg = NULL;

    snprintf(path, sizeof(path), "/proc/%d/fd", pid);
    DIR *dir = opendir(path);
    for (struct dirent *e; dir && !seg && (e = readdir(dir)) != NULL;) {
        snprintf(path, sizeof(path), "/proc/%d/fd/%s", pid, e->d_name);
        ssize_t n = readlink(path, link, sizeof(link) - 1);
        link[n > 0 ? n : 0] = 0;
        char own[40];
        snprintf(own, sizeof(own), "/memfd:emuelan4-%d ", pid);
        if (strncmp(link, own, strlen(own)) != 0)
            continue;
        int fd = open(path, O_RDWR);
        CHECK(ftruncate(fd, 4096) < 0); /* truncation must fail */
        void *at = mmap(NULL, sizeof(*seg), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        CHECK(at != MAP_FAILED);
        seg = at;
        close(fd);
    }
    if (dir)
        closedir(dir);
    return seg;
}

/* Both send and take messages, without checking contents, for a number of rounds. */
static void victim(struct bed *b)
{
    setenv("EMUELAN4_LOCK_MS", "20", 1);
    bed_open(b, LOW);
    bed_queue(b, 64);
    volatile E4_uint64 *word = main_mem(b, 64);
    E4_Event *ev = word_event(b, word, 1);
    char *msg = main_mem(b, 64), *mem = malloc(65536);
    tell(b, b->node, elan(b, b->queue));
    tell(b, 4 + b->node, (uint64_t)getpid());
    E4_Addr other = told(b, 1 - b->node);
    unsigned vp = vp_of(1 - b->node, LOW);
    meet(b, 0, 3);
    for (int round = 0; round < ROUNDS; round++) {
        run_dma(b, dma(8, DMA_QueueWrite, vp, elan(b, msg), 0, elan(b, ev), other));
        run_dma(b, dma(4096, 0, b->vp, elan(b, mem), elan(b, mem + 8192), elan(b, ev), 0));
        flush(b);
        word_set(b, word, 1);
        /* restore the queue's pointers, which may have been changed as well */
        b->queue->q_fptr = b->first;
        b->queue->q_control = E4_InputQueueControl(b->first, b->last, 64);
        elan4_store64(b->first, &b->queue->q_bptr);
        elan4_store64(0, word);
        elan4_primeevent_write(b->ctx, ev, 1);
    }
    tell(b, 8 + b->node, 1);
}

static void hostile(struct bed *b)
{
    struct shm_head *seg[2];
    unsigned all = 0;

    for (int i = 0; i < 2; i++)
        CHECK((seg[i] = map_segment((int)told(b, 4 + i))) != NULL);
    meet(b, 0, 3);
    random_state += (uint64_t)getpid() * 7919;
    while (!atomic_load(&b->m->word[8]) || !atomic_load(&b->m->word[9])) {
        struct shm_head *s = seg[next_random() % 2];
        struct shm_ctx *c = &s->ctx[0];
        size_t at, span;
        switch (next_random() % 8) {
        case 0: /* anywhere in the head, the users and their processes */
            at = 0, span = offsetof(struct shm_head, ctx);
            break;
        case 1: /* lock, state, log */
            at = (size_t)((char *)c - (char *)s), span = 64 + 64 + 8 * sizeof(struct shm_store);
            break;
        case 2: /* the inbox's numbers */
            at = (size_t)((char *)&c->inbox_head - (char *)s), span = 64;
            break;
        case 3: /* the maps of the table */
            at = (size_t)((char *)c->used - (char *)s), span = 3 * sizeof(c->used) + 64;
            break;
        case 4: /* a DMA */
            at = (size_t)((char *)c->dma - (char *)s), span = 4 * sizeof(c->dma[0]);
            break;
        case 5:
            at = (size_t)((char *)c->cq - (char *)s), span = 64;
            break;
        case 6:
            at = (size_t)((char *)c->route - (char *)s), span = 4 * 64;
            break;
        default: /* anywhere in the segment */
            at = 0, span = sizeof(*s) - 8;
        }
        uint64_t v = next_random();
        switch (v % 4) { /* small numbers, large ones, bits, noise */
        case 0:
            v = next_random() % 8;
            break;
        case 1:
            v = ~(next_random() % 4096);
            break;
        case 2:
            v = UINT64_C(1) << next_random() % 64;
            break;
        }
        memcpy((char *)s + (at + next_random() % span) / 8 * 8, &v, 8);
        if (++all % 8 == 0)
            usleep(50);
    }
}

static int random_writes_harm_no_process(void)
{
    int rc = 0;

    for (int i = 0; i < 3; i++)
        rc |= run_beds(3, (bed_fn[]){victim, victim, hostile});
    return rc;
}

/* The registry's contents are validated, too. */
static void registry_one(struct bed *b)
{
    char path[300];
    snprintf(path, sizeof(path), "%s/records-1", getenv("EMUELAN4_DIR"));
    int fd = open(path, O_RDWR | O_CREAT, 0666);
    CHECK(fd >= 0);
    bed_open(b, LOW);
    char *mem = main_mem(b, 64);
    for (int round = 0; round < 200; round++) {
        uint64_t rec[8];
        for (int i = 0; i < 8; i++)
            rec[i] = next_random();
        rec[0] = EMU4_MAGIC;
        int32_t who[2] = {round % 2 ? getpid() : 1, (int32_t)(next_random() % 8)};
        memcpy(&rec[2], who, 8);
        CHECK(pwrite(fd, rec, sizeof(rec), LOW * 64) == sizeof(rec));
        /* in use, so that it counts */
        run_dma(b, dma(8, 0, vp_of(1, LOW), elan(b, mem), elan(b, mem), 0, 0));
        flush(b);
        usleep(1000);
    }
    CHECK(ftruncate(fd, 10) == 0);
    run_dma(b, dma(8, 0, vp_of(1, LOW), elan(b, mem), elan(b, mem), 0, 0));
    flush(b);
    usleep(50000);
    tell(b, 0, 1);
}

static void registry_two(struct bed *b)
{
    char path[300];
    snprintf(path, sizeof(path), "%s/records-1", getenv("EMUELAN4_DIR"));
    int fd = open(path, O_RDWR | O_CREAT, 0666);
    struct flock l = {.l_type = F_WRLCK, .l_start = LOW * 64, .l_len = 1};
    CHECK(fcntl(fd, F_SETLK, &l) == 0);
    told(b, 0);
}

static int registry_scribbled(void)
{
    return run_beds(2, (bed_fn[]){registry_one, registry_two});
}

int main(void)
{
    CASE(random_writes_harm_no_process());
    CASE(registry_scribbled());
    return cases_end();
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Many small files; see files_work.h. */
#include "bench/files_work.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct small {
    unsigned number, version;
    size_t size;
    uint64_t id;
};

struct pool {
    struct work *work;
    struct small *file;
    unsigned live, made;
    uint64_t random;
    char *data, *want;
};

static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

static unsigned draw(struct pool *p, unsigned most)
{
    p->random = mix(p->random);
    return (unsigned)(p->random >> 32) % most;
}

/* Fills in a file's contents; a longer version begins with the same bytes. */
static void fill(const struct pool *p, const struct small *s, char *data)
{
    uint64_t x = mix(p->work->seed ^ (uint64_t)s->number << 32 ^ s->version ^
                     (uint64_t)p->work->client << 20);

    for (size_t at = 0; at < s->size; at += 8, x = mix(x))
        memcpy(data + at, &x, s->size - at < 8 ? s->size - at : 8);
}

static const char *name_of(const struct pool *p, const struct small *s)
{
    static char name[40];

    snprintf(name, sizeof name, "d%u-%u-f%u", p->work->client, s->number / 20, s->number);
    return name;
}

static bool make(struct pool *p, struct small *s)
{
    struct files *f = p->work->files;

    fill(p, s, p->data);
    return f->ops->make(f, name_of(p, s), p->data, s->size, &s->id);
}

static bool make_next(struct pool *p)
{
    struct small *s = &p->file[p->live];

    *s = (struct small){.number = p->made++, .size = p->work->size};
    p->live++;
    return make(p, s);
}

static bool read_it(struct pool *p, const struct small *s)
{
    struct files *f = p->work->files;

    fill(p, s, p->want);
    memset(p->data, 0, s->size);
    if (!f->ops->read(f, name_of(p, s), p->data, s->size))
        return false;
    if (memcmp(p->data, p->want, s->size) == 0)
        return true;
    snprintf(f->why, sizeof f->why, "%s: contents differ from the data written", name_of(p, s));
    return false;
}

static bool remove_it(struct pool *p, unsigned i)
{
    struct files *f = p->work->files;

    if (!f->ops->remove(f, name_of(p, &p->file[i]), p->file[i].id))
        return false;
    p->file[i] = p->file[--p->live];
    return true;
}

/* Appends to a file by reading and rewriting it, because the servers have no append. */
static bool append(struct pool *p, struct small *s)
{
    if (!read_it(p, s))
        return false;
    s->size += p->work->size / 4 + 1;
    return make(p, s);
}

static bool rewrite(struct pool *p, struct small *s)
{
    s->version++;
    return make(p, s);
}

/* Reads or writes a file, then makes or removes one. */
static bool transaction(struct pool *p)
{
    struct small *s = &p->file[draw(p, p->live)];
    bool good;

    if (draw(p, 2) || (p->work->append && s->size > 2 * p->work->size))
        good = read_it(p, s);
    else
        good = p->work->append ? append(p, s) : rewrite(p, s);
    if (!good)
        return false;
    return draw(p, 2) || p->live == 1 ? make_next(p) : remove_it(p, draw(p, p->live));
}

static bool pool_new(struct pool *p, struct work *work)
{
    size_t most = 3 * work->size + 16;

    *p = (struct pool){.work = work, .random = mix(work->seed + work->client)};
    p->file = calloc((size_t)work->count + work->transactions + 1, sizeof *p->file);
    p->data = malloc(most);
    p->want = malloc(most);
    if (p->file && p->data && p->want)
        return true;
    snprintf(work->files->why, sizeof work->files->why, "out of memory");
    return false;
}

static void pool_free(struct pool *p)
{
    free(p->file);
    free(p->data);
    free(p->want);
}

bool work_postmark(struct work *work)
{
    struct pool p;
    bool good = pool_new(&p, work);

    for (unsigned i = 0; good && i < work->count; i++)
        good = make_next(&p);
    if (good)
        work->begin(work->arg);
    for (unsigned i = 0; good && i < work->transactions; i++)
        good = transaction(&p);
    if (good)
        work->end(work->arg, 0, work->transactions);
    for (unsigned i = 0; good && i < p.live; i++) /* checks that nothing was lost */
        good = read_it(&p, &p.file[i]);
    while (good && p.live)
        good = remove_it(&p, p.live - 1);
    pool_free(&p);
    return good;
}

static bool look(struct pool *p, const struct small *s)
{
    struct files *f = p->work->files;
    uint64_t size = 0;

    if (!f->ops->look(f, name_of(p, s), &size))
        return false;
    if (size == s->size)
        return true;
    snprintf(f->why, sizeof f->why, "%s has %llu bytes, not %zu", name_of(p, s),
             (unsigned long long)size, s->size);
    return false;
}

bool work_fileop(struct work *work)
{
    struct pool p;
    bool good = pool_new(&p, work);

    for (unsigned figure = 0; good && figure < 5; figure++) {
        work->begin(work->arg);
        for (unsigned i = 0; good && i < work->count; i++) {
            struct small *s = &p.file[i];

            good = figure == 0   ? make_next(&p)
                   : figure == 1 ? look(&p, s)
                   : figure == 2 ? read_it(&p, s)
                   : figure == 3 ? rewrite(&p, s)
                                 : remove_it(&p, p.live - 1);
        }
        if (good)
            work->end(work->arg, figure, work->count);
        for (unsigned i = 0; good && figure == 3 && i < work->count; i++)
            good = read_it(&p, &p.file[i]);
    }
    pool_free(&p);
    return good;
}

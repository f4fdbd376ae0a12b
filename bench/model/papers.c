/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The papers' ratios on the papers' own machines, by bench/papers.model, which explains its
 * lines. */
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "bench/model/cells.h"
#include "bench/model/pages.h"
#include "embedded/program/program.h"

enum { MACHINES = 8, TCPS = 8, LETS = 80, LEFT = 60, FIELDS = 8, TEXT = 1 << 16, DEPTH = 4 };

struct let {
    const char *name, *words;
};

/* A ratio that the model does not compute. */
struct left_out {
    const char *item, *text, *cause;
};

enum outcome { REACHED, NEARLY, MISSED, NETWORK, UNNUMBERED, OUTCOMES };

static struct book {
    char text[TEXT]; /* of the file; names and words point into it */
    struct device machine[MACHINES];
    const char *like[MACHINES]; /* names of the devices */
    struct tcp tcp[TCPS];
    struct let let[LETS];
    struct left_out left[LEFT];
    char copy[4096]; /* words of the present ratio */
    size_t copied;
    int machines, tcps, lets, lefts, line, wrong;
    int of[OUTCOMES];
    FILE *rows;
    const char *devices; /* NULL: all; else the beginning of the names of those that count */
    struct papers_outcomes *outcomes;
} book;

/* ---- Words ---- */

static void complain(const char *what)
{
    fprintf(stderr, "model: papers: line %d: %s\n", book.line, what);
    book.wrong++;
}

static const char *const figures[] = {
    [RAW_LATENCY] = "raw",          [RAW_RATE] = "raw-rate", [FENCE] = "ordered",
    [MESSAGE] = "message",          [RATE] = "stream",       [ACCESS] = "time",
    [ACCESS_RATE] = "rate",         [BUSY] = "busy",         [REGISTERING] = "registering",
    [REGISTERED] = "registrations", [REGISTER] = "register", [TCP_LATENCY] = "latency-of",
    [TCP_RATE] = "rate-of",         [TCP_ACCESS] = "same"};
static const char *const kinds[] = {
    [REQUEST_SEND] = "send", [REQUEST_WRITE] = "write", [REQUEST_READ] = "read"};
static const char *const orders[] = {
    [ORDER_NONE] = "none", [ORDER_FENCE] = "fence", [ORDER_WAIT] = "wait"};

enum type { SIZE, COUNT, REAL, PER_BYTE, STRING };
static const struct key {
    const char *name;
    enum type type;
    size_t at;
} keys[] = {{"bytes", SIZE, offsetof(struct cell, bytes)},
            {"unit", SIZE, offsetof(struct cell, unit)},
            {"stride", SIZE, offsetof(struct cell, stride)},
            {"clients", COUNT, offsetof(struct cell, clients)},
            {"servers", COUNT, offsetof(struct cell, servers)},
            {"pieces", COUNT, offsetof(struct cell, pieces)},
            {"to", COUNT, offsetof(struct cell, recv_pieces)},
            {"flight", COUNT, offsetof(struct cell, in_flight)},
            {"groups", COUNT, offsetof(struct cell, groups)},
            {"hits", REAL, offsetof(struct cell, hits)},
            {"number", REAL, offsetof(struct cell, given)},
            {"request", REAL, offsetof(struct cell, store.request)},
            {"store", PER_BYTE, offsetof(struct cell, store.byte)},
            {"options", STRING, offsetof(struct cell, options)},
            {"client", STRING, offsetof(struct cell, client)}};

/* ns of a byte, of MiB/s */
static double per_byte(const char *text)
{
    return 1e9 / (atof(text) * 1048576);
}

/* False: the value is no size. */
static bool set(struct cell *c, const struct key *k, const char *value)
{
    char *at = (char *)c + k->at;

    switch (k->type) {
    case SIZE:
        return program_size(value, (uint64_t *)at);
    case COUNT:
        *(int *)at = atoi(value);
        break;
    case REAL:
        *(double *)at = atof(value);
        break;
    case PER_BYTE:
        *(double *)at = per_byte(value);
        break;
    case STRING:
        *(const char **)at = value;
        break;
    }
    return true;
}

/* Returns the place of the word in the list, or -1. */
static int place(const char *word, const char *const *list, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (list[i] != NULL && strcmp(list[i], word) == 0)
            return (int)i;
    return -1;
}

#define PLACE(word, list) place(word, list, sizeof(list) / sizeof *(list))

static bool set_named(struct cell *c, const char *key, const char *value)
{
    int i;

    if (strcmp(key, "kind") == 0 && (i = PLACE(value, kinds)) >= 0) {
        c->kind = (enum request_kind)i;
        return true;
    }
    if (strcmp(key, "order") == 0 && (i = PLACE(value, orders)) >= 0) {
        c->order = (enum order)i;
        return true;
    }
    for (i = 0; i < book.machines && strcmp(key, "on") == 0; i++)
        if (strcmp(book.machine[i].name, value) == 0) {
            c->d = &book.machine[i];
            return true;
        }
    for (i = 0; i < book.tcps && strcmp(key, "tcp") == 0; i++)
        if (strcmp(book.tcp[i].name, value) == 0) {
            c->tcp = &book.tcp[i];
            return true;
        }
    return false;
}

static bool read_words(struct cell *c, const char *words, int depth);

static bool read_key(struct cell *c, const char *key, const char *value)
{
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
        if (strcmp(keys[i].name, key) == 0)
            return set(c, &keys[i], value);
    return set_named(c, key, value);
}

static bool read_word(struct cell *c, char *word, int depth)
{
    char *equals = strchr(word, '=');
    int i = PLACE(word, figures);

    if (equals != NULL) {
        *equals = '\0';
        return read_key(c, word, equals + 1);
    }
    if (strcmp(word, "read") == 0) {
        c->read = true;
        return true;
    }
    if (i >= 0) {
        c->of = (enum figure)i;
        return true;
    }
    for (i = 0; i < book.lets; i++)
        if (strcmp(book.let[i].name, word) == 0)
            return depth < DEPTH && read_words(c, book.let[i].words, depth + 1);
    return false;
}

/* Options point into a copy of the words, which lasts until the next ratio. */
static bool read_words(struct cell *c, const char *words, int depth)
{
    char *at = book.copy + book.copied, *word, *rest;
    size_t length = strlen(words) + 1;

    if (book.copied + length > sizeof book.copy)
        return false;
    memcpy(at, words, length);
    book.copied += length;
    for (word = strtok_r(at, " ", &rest); word != NULL; word = strtok_r(NULL, " ", &rest))
        if (!read_word(c, word, depth))
            return false;
    return true;
}

/* ---- Rows ---- */

static void print_value(double value, const char *unit)
{
    int digits = value < 1 ? 3 : value < 10 ? 2 : value < 100 ? 1 : 0;

    fprintf(book.rows, " %.*f%s |", digits, value, unit);
}

static double apart_of(const char *better, double paper, double ratio)
{
    return strcmp(better, "less") == 0 ? ratio / paper : paper / ratio;
}

static enum outcome outcome_of(double apart)
{
    return apart <= 1 ? REACHED : apart <= 1.1 ? NEARLY : MISSED;
}

static void print_outcome(const char *better, double paper, double ratio)
{
    double apart = apart_of(better, paper, ratio);
    bool network = strcmp(better, "network") == 0;
    enum outcome o = outcome_of(apart);

    if (strcmp(better, "-") == 0) {
        book.of[UNNUMBERED]++;
        fputs(" - |", book.rows);
        return;
    }
    book.of[network ? NETWORK : o]++;
    fputs(network ? " network alone: " : " ", book.rows);
    if (o == NEARLY)
        fprintf(book.rows, "within %.0f %% |", 100 * (apart - 1) + 0.5);
    else
        fputs(o == REACHED ? "yes |" : "**no** |", book.rows);
}

/* Returns whether the ratio is one of other devices, or without a number. */
static bool is_skipped(const struct cell *ours, const char *better)
{
    const char *like = ours->d != NULL ? book.like[ours->d - book.machine] : "";

    return book.devices != NULL &&
           (*better == '-' || strncmp(like, book.devices, strlen(book.devices)) != 0);
}

static void note(char *const *field, double value, bool skipped)
{
    struct papers_outcomes *o = book.outcomes;

    if (o == NULL || o->count == sizeof o->row / sizeof *o->row)
        return;
    o->row[o->count].item = field[0];
    o->row[o->count].text = field[1];
    o->row[o->count].ratio = value;
    o->row[o->count++].outcome =
        skipped                                                           ? '-'
        : outcome_of(apart_of(field[3], atof(field[2]), value)) == MISSED ? 'n'
                                                                          : 'y';
}

/* item, ratio, paper, better, ours, beside, cause */
static void ratio(char *const *field)
{
    struct cell ours = {0}, beside = {0};
    double a, b;

    book.copied = 0;
    if (!read_words(&ours, field[4], 0) || !read_words(&beside, field[5], 0)) {
        complain("an unknown word");
        return;
    }
    if (is_skipped(&ours, field[3])) {
        note(field, 0, true);
        return;
    }
    if (cell_value(&ours, NULL, &a) || cell_value(&beside, &ours, &b)) {
        complain("a run failed");
        return;
    }
    note(field, a / b, false);
    fprintf(book.rows, "| %s | %s | %s |", field[0], field[1], field[2]);
    print_value(a / b, "");
    print_value(a, cell_unit(&ours));
    print_value(b, cell_unit(&ours));
    print_outcome(field[3], atof(field[2]), a / b);
    fprintf(book.rows, " %s |\n", field[6] != NULL ? field[6] : "");
}

/* ---- Tables ---- */

/* name, device, registration, deregistration */
static void machine(char *const *field)
{
    const struct device *like = field[3] != NULL ? model_device(field[1]) : NULL;
    struct device *d = &book.machine[book.machines];

    if (like == NULL || book.machines == MACHINES) {
        complain("no such device, or too many");
        return;
    }
    *d = *like;
    book.like[book.machines] = like->name;
    d->name = field[0];
    sscanf(field[2], "%lf + %lf", &d->reg.call, &d->reg.page);
    sscanf(field[3], "%lf + %lf", &d->dereg.call, &d->dereg.page);
    d->reg = (struct call_cost){1e3 * d->reg.call, 1e3 * d->reg.page};
    d->dereg = (struct call_cost){1e3 * d->dereg.call, 1e3 * d->dereg.page};
    book.machines++;
}

/* name, us, MiB/s, wire or store, source */
static void tcp(char *const *field)
{
    if (field[4] == NULL || book.tcps == TCPS) {
        complain("a part is missing, or too many");
        return;
    }
    book.tcp[book.tcps++] = (struct tcp){.name = field[0],
                                         .source = field[4],
                                         .latency = 1e3 * atof(field[1]),
                                         .byte = per_byte(field[2]),
                                         .stored = strcmp(field[3], "store") == 0};
}

static void let(char *const *field)
{
    if (book.lets == LETS)
        complain("too many");
    else
        book.let[book.lets++] = (struct let){field[0], field[1]};
}

static void left(char *const *field)
{
    if (book.lefts == LEFT)
        complain("too many");
    else
        book.left[book.lefts++] = (struct left_out){field[0], field[1], field[2]};
}

/* ---- The book ---- */

static char *trim(char *text)
{
    text += strspn(text, " ");
    for (size_t n = strlen(text); n && text[n - 1] == ' '; n--)
        text[n - 1] = '\0';
    return text;
}

static void read_line(char *text)
{
    static const struct {
        const char *name;
        void (*read)(char *const *field);
        int fields;
    } lines[] = {{"machine", machine, 4},
                 {"tcp", tcp, 5},
                 {"let", let, 2},
                 {"left", left, 3},
                 {"ratio", ratio, 6}};
    char *field[FIELDS + 1] = {NULL}, *part;
    int n = 0;

    while (n <= FIELDS && (part = strsep(&text, "|")) != NULL)
        field[n++] = trim(part);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++)
        if (strcmp(lines[i].name, field[0]) == 0 && n > lines[i].fields) {
            lines[i].read(field + 1);
            return;
        }
    complain("not a line of this file");
}

static bool read_book(const char *path)
{
    FILE *in = fopen(path, "r");
    char *rest = book.text, *line;

    if (in == NULL) {
        perror(path);
        return false;
    }
    book.text[fread(book.text, 1, TEXT - 1, in)] = '\0';
    fclose(in);
    while ((line = strsep(&rest, "\n")) != NULL) {
        book.line++;
        if (*line && *line != '#')
            read_line(line);
    }
    return book.wrong == 0;
}

static void print_page(FILE *out, const char *rows)
{
    fputs(
        "# Devices in virtual time: the papers on their own machines\n\n"
        "Written by `bench/model/model papers bench/papers.model`, whose lines say what a row "
        "runs. Not\nmeasured: modelled (`doc/design/model.md`). Bytes are sent by the engine "
        "with the protocol that the\npaper measured, or by TCP at the latency and the rate "
        "that the paper prints. *Network alone*: the\npaper's time of the file system is "
        "left out. Paper: \"-\" without a number in its text.\n\n",
        out);
    fprintf(out,
            "%d ratios are reached, %d within a tenth, %d are not; %d of the network alone; %d "
            "without a number.\n\n"
            "| item | ratio | paper | model | engine | beside | reached | cause, remark |\n"
            "|---|---|---|---|---|---|---|---|\n%s",
            book.of[REACHED], book.of[NEARLY], book.of[MISSED], book.of[NETWORK],
            book.of[UNNUMBERED], rows);
    fputs("\n## TCP\n\n| TCP | us one way | MB/s | source |\n|---|---|---|---|\n", out);
    for (const struct tcp *t = book.tcp; t < book.tcp + book.tcps; t++)
        fprintf(out, "| %s | %.1f | %.0f | %s |\n", t->name, t->latency / 1e3, 1e3 / t->byte,
                t->source);
    fputs("\n## Left out\n\n| item | ratio | cause |\n|---|---|---|\n", out);
    for (const struct left_out *l = book.left; l < book.left + book.lefts; l++)
        fprintf(out, "| %s | %s | %s |\n", l->item, l->text, l->cause);
}

/* Fills the book; *rows is the caller's to free. */
static int fill_book(const char *path, const char *devices, struct papers_outcomes *outcomes,
                     char **rows)
{
    size_t size = 0;

    *rows = NULL;
    memset(&book, 0, sizeof book);
    book.devices = devices;
    book.outcomes = outcomes;
    book.rows = open_memstream(rows, &size);
    if (book.rows == NULL)
        return -1;
    bool good = read_book(path);
    fclose(book.rows);
    return good ? 0 : -1;
}

int papers_page(FILE *out, const char *path)
{
    char *rows;
    int rc = fill_book(path, NULL, NULL, &rows);

    if (rc == 0)
        print_page(out, rows);
    free(rows);
    return rc;
}

int papers_judge(const char *path, const char *devices, struct papers_outcomes *out)
{
    char *rows;

    out->count = 0;
    int rc = fill_book(path, devices, out, &rows);
    free(rows);
    return rc;
}

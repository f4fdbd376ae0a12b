/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The counters' tables and their text forms. */
#include "emul/verbs/counters.h"

#include <string.h>

static struct emu_counters early; /* before the segment exists, and when it cannot be made */
struct emu_counters *emu_counters = &early;

static const char *const call_name[CALL_COUNT] = {
#define X(name, sweep) #name,
    EMU_CALLS(X)
#undef X
};

static const struct {
    const char *name, *unit, *prose;
} count_info[COUNT_COUNT] = {
#define X(name, unit, prose) {#name, unit, prose},
    EMU_COUNTS(X)
#undef X
};

void emu_counters_move(struct emu_counters *to)
{
    for (int i = 0; i < CALL_COUNT; i++)
        atomic_store(&to->call[i], atomic_load(&emu_counters->call[i]));
    for (int i = 0; i < COUNT_COUNT; i++)
        atomic_store(&to->count[i], atomic_load(&emu_counters->count[i]));
    emu_counters = to;
}

int64_t emu_counters_find(const struct emu_counters *c, const char *name)
{
    for (int i = 0; i < CALL_COUNT; i++)
        if (strcmp(name, call_name[i]) == 0)
            return (int64_t)atomic_load(&c->call[i]);
    for (int i = 0; i < COUNT_COUNT; i++)
        if (strcmp(name, count_info[i].name) == 0)
            return (int64_t)atomic_load(&c->count[i]);
    return -1;
}

static void json_string(const char *s, FILE *out)
{
    fputc('"', out);
    for (; *s; s++) {
        unsigned char ch = (unsigned char)*s;
        if (ch == '"' || ch == '\\')
            fprintf(out, "\\%c", ch);
        else if (ch < 0x20)
            fprintf(out, "\\u%04x", ch);
        else
            fputc(ch, out);
    }
    fputc('"', out);
}

void emu_counters_json(const struct emu_counters *c, int pid, const char *program, FILE *out)
{
    fprintf(out, "{\n  \"pid\": %d,\n  \"program\": ", pid);
    json_string(program, out);
    fprintf(out, ",\n  \"calls\": {");
    for (int i = 0; i < CALL_COUNT; i++)
        fprintf(out, "%s\n    \"%s\": %llu", i ? "," : "", call_name[i],
                (unsigned long long)atomic_load(&c->call[i]));
    fprintf(out, "\n  },\n  \"counters\": {");
    for (int i = 0; i < COUNT_COUNT; i++)
        fprintf(out, "%s\n    \"%s\": %llu", i ? "," : "", count_info[i].name,
                (unsigned long long)atomic_load(&c->count[i]));
    fprintf(out, "\n  }\n}\n");
}

void emu_counters_help(FILE *out)
{
    for (int i = 0; i < COUNT_COUNT; i++)
        fprintf(out, "  %-18s %-12s %s\n", count_info[i].name, count_info[i].unit,
                count_info[i].prose);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Tables of the counters, and their text forms. */
#include "emul/verbs/base/counters.h"

#include <string.h>

/* used until the segment exists, or if it cannot be created */
static struct emu_counters early;
struct emu_counters *_Atomic emu_counters = &early;

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

static const struct {
    const char *name, *prose;
} port_info[PORT_COUNT_COUNT] = {
#define X(name, prose) {#name, prose},
    EMU_PORT_COUNTS(X)
#undef X
};

#define PORTS (EMU_MAX_DEVICES * EMU_MAX_PORTS)

static uint64_t port_count(const struct emu_counters *c, unsigned number, int which)
{
    static const enum emu_count requests[] = {
        COUNT_wr_send,   COUNT_wr_write, COUNT_wr_write_imm, COUNT_wr_read,
        COUNT_wr_atomic, COUNT_wr_bind,  COUNT_wr_local_inv};
    static const enum emu_count bytes[] = {COUNT_bytes_send, COUNT_bytes_write,
                                           COUNT_bytes_read};
    uint64_t n = 0;

    if (number)
        return atomic_load(&c->port[number][which]);
    if (which == PORT_COUNT_requests)
        for (unsigned i = 0; i < sizeof(requests) / sizeof(requests[0]); i++)
            n += atomic_load(&c->count[requests[i]]);
    else
        for (unsigned i = 0; i < sizeof(bytes) / sizeof(bytes[0]); i++)
            n += atomic_load(&c->count[bytes[i]]);
    for (unsigned i = 1; i < PORTS; i++)
        n -= atomic_load(&c->port[i][which]);
    return n;
}

void emu_counters_move(struct emu_counters *to)
{
    for (int i = 0; i < CALL_COUNT; i++)
        atomic_store(&to->call[i], atomic_load(&emu_counters->call[i]));
    for (int i = 0; i < COUNT_COUNT; i++)
        atomic_store(&to->count[i], atomic_load(&emu_counters->count[i]));
    for (unsigned i = 0; i < PORTS; i++)
        for (int j = 0; j < PORT_COUNT_COUNT; j++)
            atomic_store(&to->port[i][j], atomic_load(&emu_counters->port[i][j]));
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
    unsigned device, port;
    char which[16];
    if (sscanf(name, "%u.%u %15s", &device, &port, which) == 3 && device < EMU_MAX_DEVICES &&
        port >= 1 && port <= EMU_MAX_PORTS)
        for (int i = 0; i < PORT_COUNT_COUNT; i++)
            if (strcmp(which, port_info[i].name) == 0)
                return (int64_t)port_count(c, device * EMU_MAX_PORTS + port - 1, i);
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
    fprintf(out, "\n  },\n  \"ports\": {");
    const char *comma = "";
    for (unsigned n = 0; n < PORTS; n++) {
        if (n && !port_count(c, n, PORT_COUNT_requests))
            continue;
        fprintf(out, "%s\n    \"%u.%u\": {", comma, n / EMU_MAX_PORTS, n % EMU_MAX_PORTS + 1);
        for (int i = 0; i < PORT_COUNT_COUNT; i++)
            fprintf(out, "%s\"%s\": %llu", i ? ", " : "", port_info[i].name,
                    (unsigned long long)port_count(c, n, i));
        fprintf(out, "}");
        comma = ",";
    }
    fprintf(out, "\n  }\n}\n");
}

void emu_counters_help(FILE *out)
{
    for (int i = 0; i < COUNT_COUNT; i++)
        fprintf(out, "  %-18s %-12s %s\n", count_info[i].name, count_info[i].unit,
                count_info[i].prose);
    fprintf(out, "\nCounters of each port, by device and port (\"0.1\"):\n");
    for (int i = 0; i < PORT_COUNT_COUNT; i++)
        fprintf(out, "  %-31s %s\n", port_info[i].name, port_info[i].prose);
}

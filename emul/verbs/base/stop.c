/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Stops at named steps, see EMUVERBS_STOP in knobs.h. */
#include "emul/verbs/base/stop.h"
#include "emul/verbs/base/sysio.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

uint32_t emu_steps;

static _Atomic long arrivals; /* arrivals left until a thread stops; 0 or less: none stops */
static int channel = -1;

static const struct {
    const char *name, *prose;
} steps[] = {
#define X(name, prose) {#name, prose},
    EMU_STEPS(X)
#undef X
};
_Static_assert(EMU_STEP_COUNT <= 32, "a bit for each step");

static uint32_t step_bit(const char *name, size_t len)
{
    for (unsigned i = 0; i < EMU_STEP_COUNT; i++)
        if (strlen(steps[i].name) == len && memcmp(steps[i].name, name, len) == 0)
            return 1u << i;
    return 0;
}

void emu_steps_init(const struct emu_knobs *k)
{
    const char *at = k->stop;
    size_t names = strcspn(at, ":");
    long first = at[names] ? strtol(at + names + 1, NULL, 10) : 1;
    uint32_t bits = 0;
    bool good = first > 0 && k->stop_fd > 0;

    emu_steps = 0;
    for (size_t len; good && names; names -= len, at += len) {
        len = strcspn(at, ",:");
        uint32_t bit = step_bit(at, len);
        good = bit != 0;
        bits |= bit;
        len += at[len] == ',';
    }
    if (!good && *k->stop) {
        fprintf(
            stderr,
            "emuverbs: EMUVERBS_STOP=%s ignored: unknown steps, or EMUVERBS_STOP_FD is not a "
            "descriptor; emuverbs --help lists the steps\n",
            k->stop);
        return;
    }
    channel = (int)k->stop_fd;
    atomic_store(&arrivals, first);
    emu_steps = bits;
}

void emu_step_here(enum emu_step s)
{
    unsigned char byte = (unsigned char)s;
    ssize_t n;

    if (atomic_load(&arrivals) <= 0 || atomic_fetch_sub(&arrivals, 1) != 1)
        return;
    do
        n = sys_write(channel, &byte, 1);
    while (n < 0 && errno == EINTR);
    do
        n = sys_read(channel, &byte, 1);
    while (n < 0 && errno == EINTR);
    if (n == 1 && byte)
        atomic_store(&arrivals, byte);
}

void emu_steps_help(FILE *out)
{
    for (unsigned i = 0; i < EMU_STEP_COUNT; i++)
        fprintf(out, "  %-24s %s\n", steps[i].name, steps[i].prose);
}

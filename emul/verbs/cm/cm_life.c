/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Devices that fail, are removed and return, and ports that go down, in this process only: each
 * process is a host with its own device.
 *
 * A removed device is no longer listed, and calls on its contexts fail. Its ids get
 * DEVICE_REMOVAL, listeners on one of its addresses included; listeners on all addresses stay,
 * and serve the device that returns. That one is another device of the same name: it has
 * its own contexts, and the objects of the old one can only be destroyed.
 */
#include "emul/verbs/cm/cm.h"

#include <stdlib.h>
#include <string.h>

/* Ends all ids of a device. The device sends nothing, so their peers learn nothing. */
static void remove_device(struct emu_dev *d, struct emu_hca *h)
{
    emu_device_fail(d, h);
    if (atomic_exchange(&h->gone, true))
        return;
    pthread_mutex_lock(&cm.lock);
    for (struct cm_id *id = cm.ids; id; id = id->next) {
        if (id->hca != h || id->state == CM_CLOSED)
            continue;
        id->state = CM_CLOSED;
        id->hold_left = 0;
        cm_set_deadline(id, 0);
        cm_event_post(id, RDMA_CM_EVENT_DEVICE_REMOVAL, 0, NULL, 0);
    }
    pthread_mutex_unlock(&cm.lock);
}

/* Lists another device in place of one, which is removed if that is not done. */
static void add(struct emu_dev *d, struct emu_hca *h)
{
    struct emu_hca *fresh = calloc(1, sizeof(*fresh));

    if (fresh == NULL)
        return;
    remove_device(d, h);
    fresh->ibdev = h->ibdev;
    fresh->index = h->index;
    fresh->dev = d;
    fresh->before = h; /* its contexts may be in use */
    atomic_store(&d->hca[h->index], fresh);
}

static void down(struct emu_dev *d, struct emu_hca *h)
{
    atomic_store(&h->down, ~0u);
    for (int port = 1; port <= (int)d->knobs.ports; port++)
        emu_device_raise(d, h, IBV_EVENT_PORT_ERR, port);
}

static void up(struct emu_dev *d, struct emu_hca *h)
{
    atomic_store(&h->down, 0);
    for (int port = 1; port <= (int)d->knobs.ports; port++)
        emu_device_raise(d, h, IBV_EVENT_PORT_ACTIVE, port);
}

static const struct {
    const char *state;
    void (*enter)(struct emu_dev *d, struct emu_hca *h);
} changes[] = {
    {"failed", emu_device_fail},
    {"removed", remove_device},
    {"added", add},
    {"down", down},
    {"up", up},
};

/* Called by tests, through dlsym. */
EMU_EXPORT int emuverbs_device(const char *name, const char *state);

/* Changes a device of this process: "failed", "removed", "added", "down", "up", or the IP
 * address of its first port. Returns 0, or -1 for an unknown name or state. */
EMU_EXPORT int emuverbs_device(const char *name, const char *state)
{
    struct emu_dev *d = emu_dev();
    struct emu_hca *h = NULL;

    for (uint32_t i = 0; d != NULL && i < d->knobs.devices && h == NULL; i++)
        if (strcmp(d->first[i].ibdev.name, name) == 0)
            h = atomic_load(&d->hca[i]);
    for (size_t i = 0; h != NULL && i < sizeof(changes) / sizeof(changes[0]); i++)
        if (strcmp(changes[i].state, state) == 0) {
            changes[i].enter(d, h);
            return 0;
        }
    if (h == NULL || !emu_port_readdress(d, h->index, state))
        return -1;
    emu_device_raise(d, h, IBV_EVENT_GID_CHANGE, 1);
    return 0;
}

void cm_device_asked(struct emu_dev *d)
{
    struct shm_head *seg = d->seg;

    if (atomic_load(&seg->asked) != ASKED_CHANGE)
        return;
    seg->asked_device[EMU_ASKED_LEN - 1] = seg->asked_state[EMU_ASKED_LEN - 1] = 0;
    bool done = emuverbs_device(seg->asked_device, seg->asked_state) == 0;
    atomic_store(&seg->asked, done ? ASKED_NOTHING : ASKED_UNKNOWN);
}

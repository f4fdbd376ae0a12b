/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * inbox.c - receives messages.
 *
 * The queue's event counts arrivals, and writes a word at the first arrival after it was
 * primed.  The word is written after the data of the slot, while the queue's own pointer may
 * run ahead.  Therefore exactly one message is taken per word, and WAIT_EVENT primes the event
 * again; the event fires immediately if the next message has arrived already.
 *
 * Sleeping: the library can sleep for one event, without a time limit, and changes the event to
 * an interrupting one meanwhile.  The event thus has one user at a time: the owner of the
 * inbox, or, between arm() and the next message, the sleeper thread, together with the command
 * queues that change the event.  The thread returns the event before it raises the
 * signal, and leaves the word set for the owner.  To end the thread, the event is set as by a
 * message.
 */
#include "bmi_elan4/inbox.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>

#include "bmi_elan4/compat.h"
#include "base/thread.h"

struct bmi_elan4_inbox {
    struct bmi_elan4_nic *nic;
    E4_InputQueue *queue;
    E4_Event *event;
    volatile E4_uint64 *arrived;
    char *slots;
    E4_Addr first, last, front;
    /* the sleeper thread */
    pthread_t thread;
    sem_t wanted;      /* posted for each use of the event, and at the end */
    _Atomic int armed; /* the thread uses the event */
};

static void *sleeper(void *arg)
{
    struct bmi_elan4_inbox *in = arg;
    struct bmi_elan4_nic *nic = in->nic;

    for (;;) {
        while (sem_wait(&in->wanted) < 0)
            ; /* interrupted */
        if (!atomic_load(&in->armed))
            return NULL;
        elan4_waitevent_word(nic->ctx, nic->rx, nic->irq, nic->irq_block, BMI_ELAN4_INT_COOKIE,
                             in->event, in->arrived, ELAN_WAIT_EVENT);
        atomic_store(&in->armed, 0);
        bmi_elan4_signal_raise(&nic->signal);
    }
}

int bmi_elan4_inbox_open(struct bmi_elan4_nic *nic, unsigned slots,
                         struct bmi_elan4_inbox **out)
{
    struct bmi_elan4_inbox *in = calloc(1, sizeof(*in));
    int rc;

    if (in == NULL)
        return -ENOMEM;
    in->nic = nic;
    in->queue = bmi_elan4_sdram(nic, 64, sizeof(*in->queue));
    in->event = bmi_elan4_sdram(nic, 64, sizeof(E4_Event32));
    in->arrived = bmi_elan4_main(nic, 64, 64);
    in->slots = bmi_elan4_main(nic, 128, (size_t)(slots + 1) * BMI_ELAN4_SLOT);
    if (in->queue == NULL || in->event == NULL || in->arrived == NULL || in->slots == NULL) {
        free(in); /* the memory is freed with the nic */
        return -ENOMEM;
    }
    in->first = in->front = bmi_elan4_at(nic, in->slots);
    in->last = in->first + (E4_Addr)slots * BMI_ELAN4_SLOT;
    elan4_initevent_write(nic->ctx, in->event, in->arrived);
    elan4_primeevent_write(nic->ctx, in->event, 1);
    in->queue->q_fptr = in->first;
    in->queue->q_control = E4_InputQueueControl(in->first, in->last, BMI_ELAN4_SLOT);
    in->queue->q_event = bmi_elan4_at(nic, in->event);
    compat_store(in->first, &in->queue->q_bptr);
    MEMBAR_STORESTORE();
    sem_init(&in->wanted, 0, 0);
    rc = rme_thread_start(&in->thread, sleeper, in);
    if (rc < 0) {
        sem_destroy(&in->wanted);
        free(in);
        return rc;
    }
    *out = in;
    return 0;
}

void bmi_elan4_inbox_close(struct bmi_elan4_inbox *in)
{
    struct bmi_elan4_nic *nic = in->nic;

    sem_post(&in->wanted);
    if (atomic_load(&in->armed)) {
        elan4_set_event_cmd(nic->tx, bmi_elan4_at(nic, in->event));
        bmi_elan4_flush(nic);
    }
    pthread_join(in->thread, NULL);
    sem_destroy(&in->wanted);
    free(in);
}

E4_Addr bmi_elan4_inbox_queue(const struct bmi_elan4_inbox *in)
{
    return bmi_elan4_at(in->nic, in->queue);
}

const void *bmi_elan4_inbox_peek(struct bmi_elan4_inbox *in)
{
    if (atomic_load(&in->armed) || !elan4_pollevent_word(in->nic->ctx, in->arrived, 0))
        return NULL;
    return in->slots + (in->front - in->first);
}

void bmi_elan4_inbox_next(struct bmi_elan4_inbox *in)
{
    struct bmi_elan4_nic *nic = in->nic;

    in->front = in->front == in->last ? in->first : in->front + BMI_ELAN4_SLOT;
    compat_store(in->front, &in->queue->q_fptr);
    compat_store(0, in->arrived);
    MEMBAR_STORESTORE();
    elan4_wait_event_cmd(nic->rx, bmi_elan4_at(nic, in->event),
                         E4_EVENT_INIT_VALUE(-32, E4_EVENT_WRITE, E4_EVENT_DTYPE_LONG, 0),
                         bmi_elan4_at(nic, in->arrived), 1);
    compat_flush(nic->rx);
}

void bmi_elan4_inbox_arm(struct bmi_elan4_inbox *in)
{
    if (atomic_exchange(&in->armed, 1) == 0)
        sem_post(&in->wanted);
}

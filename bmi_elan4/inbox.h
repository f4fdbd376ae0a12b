/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * The input queue: a ring of slots that any process with our card writes messages into. A full
 * queue refuses, and the sender's interface tries again, so nothing is lost.
 *
 * Who has to do nothing until a message comes lends the queue's event to a thread of the inbox,
 * which sleeps until it fires and makes a descriptor readable: bmi_elan4_inbox_arm().
 *
 * One thread at a time uses an inbox; its descriptor may be waited for by any.
 */
#ifndef BMI_ELAN4_INBOX_H
#define BMI_ELAN4_INBOX_H

#include <stdbool.h>

#include "bmi_elan4/nic.h"

#define BMI_ELAN4_SLOT 1920 /* bytes; of 2048, which its size field cannot express for sure */

struct bmi_elan4_inbox;

/* With room for `slots` messages. 0, -ENOMEM, or what made no thread. */
int bmi_elan4_inbox_open(struct bmi_elan4_nic *nic, unsigned slots,
                         struct bmi_elan4_inbox **out);
/* Before the nic is closed. */
void bmi_elan4_inbox_close(struct bmi_elan4_inbox *inbox);

/* Where peers send to. */
E4_Addr bmi_elan4_inbox_queue(const struct bmi_elan4_inbox *inbox);

/*
 * The oldest message, BMI_ELAN4_SLOT bytes, of which the sender wrote as many as it meant to;
 * NULL when there is none, or the inbox is armed. It stays until bmi_elan4_inbox_next().
 */
const void *bmi_elan4_inbox_peek(struct bmi_elan4_inbox *inbox);
void bmi_elan4_inbox_next(struct bmi_elan4_inbox *inbox);

/*
 * Asks for the descriptor to become readable when there is a message, as it does at once if
 * there is one. Until then nothing can be peeked.
 */
void bmi_elan4_inbox_arm(struct bmi_elan4_inbox *inbox);
bool bmi_elan4_inbox_armed(struct bmi_elan4_inbox *inbox);
/* A signal (kernel.h); whoever finds it readable clears it. */
int bmi_elan4_inbox_fd(const struct bmi_elan4_inbox *inbox);

#endif

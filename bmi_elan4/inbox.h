/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * inbox.h - the input queue: a ring of slots into which any process with this process's
 * connection data writes messages.  A full queue refuses, and the sender's interface retries,
 * so no message is lost.
 *
 * To sleep until a message arrives, bmi_elan4_inbox_arm() hands the queue's event to a thread
 * of the inbox, which waits for the event and raises the nic's signal.
 *
 * One thread at a time uses an inbox.
 */
#ifndef BMI_ELAN4_INBOX_H
#define BMI_ELAN4_INBOX_H

#include <stdbool.h>

#include "bmi_elan4/nic.h"

#define BMI_ELAN4_SLOT 1920 /* bytes; the size field may not be able to express 2048 */

struct bmi_elan4_inbox;

/* Opens an inbox for `slots` messages.  Returns 0, -ENOMEM, or the error of starting a
 * thread. */
int bmi_elan4_inbox_open(struct bmi_elan4_nic *nic, unsigned slots,
                         struct bmi_elan4_inbox **out);
/* Closes the inbox; call before the nic is closed. */
void bmi_elan4_inbox_close(struct bmi_elan4_inbox *inbox);

/* Returns the address that peers send to. */
E4_Addr bmi_elan4_inbox_queue(const struct bmi_elan4_inbox *inbox);

/*
 * Returns the oldest message, BMI_ELAN4_SLOT bytes of which the sender wrote the first ones;
 * NULL: none, or the inbox is armed.  Valid until bmi_elan4_inbox_next().
 */
const void *bmi_elan4_inbox_peek(struct bmi_elan4_inbox *inbox);
void bmi_elan4_inbox_next(struct bmi_elan4_inbox *inbox);

/*
 * Requests that the nic's signal be raised at the next message, or immediately if there is one.
 *  No message can be peeked at until then.
 */
void bmi_elan4_inbox_arm(struct bmi_elan4_inbox *inbox);

#endif

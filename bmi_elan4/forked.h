/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* forked.h - descriptors that a forked child must close, because they hold a lock or a port. */
#ifndef BMI_ELAN4_FORKED_H
#define BMI_ELAN4_FORKED_H

struct bmi_elan4_held {
    struct bmi_elan4_held *next;
    int fd;
};

/* Registers a descriptor.  *h is owned by the caller and must not move until
 * bmi_elan4_let_go(), which precedes the close.  Any thread. */
void bmi_elan4_hold(struct bmi_elan4_held *h, int fd);
void bmi_elan4_let_go(struct bmi_elan4_held *h);

#endif

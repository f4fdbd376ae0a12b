/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* forked.h - descriptors that a forked child closes, as it would hold what they stand for. */
#ifndef BMI_ELAN4_FORKED_H
#define BMI_ELAN4_FORKED_H

struct bmi_elan4_held {
    struct bmi_elan4_held *next;
    int fd;
};

/* Registers a descriptor.  *h is the caller's and stays where it is until bmi_elan4_let_go(),
 * which comes before the descriptor is closed.  Any thread may call. */
void bmi_elan4_hold(struct bmi_elan4_held *h, int fd);
void bmi_elan4_let_go(struct bmi_elan4_held *h);

#endif

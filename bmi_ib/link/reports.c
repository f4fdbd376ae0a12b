/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* reports.c - handlers of the reports of queue/. */
#include "bmi_ib/link/links.h"

const struct ib_reports ib_link_reports = {
    .failed = ib_link_fail,
    .all_failed = ib_link_fail_all,
    .marked = ib_link_drained,
    .heard = ib_link_established,
};

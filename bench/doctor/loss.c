/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Packets that a port lost or got again, by the counters of its driver; see doctor.h. */
#include "bench/doctor/doctor.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* Of adapters by NVIDIA, of soft-RoCE, and of InfiniBand ports. */
static const char *const names[DOCTOR_LOSSES] = {
    "hw_counters/packet_seq_err",
    "hw_counters/out_of_sequence",
    "hw_counters/local_ack_timeout_err",
    "hw_counters/roce_adp_retrans",
    "hw_counters/rnr_nak_retry_err",
    "hw_counters/rx_icrc_encapsulated",
    "hw_counters/rcvd_seq_err",
    "hw_counters/out_of_seq_request",
    "hw_counters/completer_retry_err",
    "hw_counters/duplicate_request",
    "counters/symbol_error",
    "counters/port_rcv_errors",
    "counters/port_xmit_discards",
    "counters/link_downed",
};

bool doctor_loss_read(struct doctor_loss *loss, const char *device, unsigned port)
{
    bool any = false;

    for (int i = 0; i < DOCTOR_LOSSES; i++) {
        char folder[128], text[32];

        snprintf(folder, sizeof folder, "/sys/class/infiniband/%.63s/ports/%u", device, port);
        loss->value[i] = 0;
        if (doctor_line_of(text, sizeof text, folder, ".", names[i])) {
            loss->value[i] = strtoull(text, NULL, 10);
            any = true;
        }
    }
    return any;
}

void doctor_loss_row(struct doctor *doctor, const struct doctor_loss *before,
                     const struct doctor_loss *after)
{
    char text[512] = "";

    for (int i = 0; i < DOCTOR_LOSSES; i++)
        if (after->value[i] != before->value[i])
            snprintf(text + strlen(text), sizeof text - strlen(text), "%s%s +%" PRIu64,
                     *text ? ", " : "", strchr(names[i], '/') + 1,
                     after->value[i] - before->value[i]);
    doctor_row(doctor, *text ? DOCTOR_WARN : DOCTOR_PASS,
               *text
                   ? "RoCE: PFC or ECN for the packets' priority on hosts and switches, option "
                     "traffic_class; InfiniBand: cables, by ibqueryerrors; other programs of "
                     "the port count, too"
                   : NULL,
               "loss", "%s%s",
               *text ? "counted meanwhile: " : "the port counted none meanwhile", text);
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * conn_info.h - a process's connection information (connection data): identity and address of
 * its input queue.  A server sends its connection data over a temporary TCP connection
 * (exchange.h); the first message to a queue, and its answer, contain the sender's.
 *
 * All functions are pure.
 */
#ifndef BMI_ELAN4_CONN_INFO_H
#define BMI_ELAN4_CONN_INFO_H

#include <stdint.h>

#include "bmi_elan4/process.h"

#define BMI_ELAN4_CONN_INFO_BYTES 64
#define BMI_ELAN4_ANYBODY         UINT32_MAX

/* Results of the check of connection data, with their texts. */
#define BMI_ELAN4_VERDICTS(X)                                                                  \
    X(WELCOME, "welcome")                                                                      \
    X(VERSION, "different protocol version")                                                   \
    X(RANGE, "different elan_nodes or elan_contexts; give all processes the same")             \
    X(KEY, "different elan_key; give all processes of a file system the same")                 \
    X(OTHER, "another process, or no server, has this context")                                \
    X(FULL, "connection limit reached")

enum bmi_elan4_verdict {
#define X(NAME, prose) BMI_ELAN4_##NAME,
    BMI_ELAN4_VERDICTS(X)
#undef X
        BMI_ELAN4_VERDICT_COUNT
};

/* Connection data as sent: all hosts of Elan4 are little-endian. */
struct bmi_elan4_conn_info {
    uint64_t magic;
    uint32_t version;
    uint32_t unused; /* 0 */
    uint32_t vp;     /* process number of the connection data's owner */
    uint32_t wanted; /* process number of the receiver; BMI_ELAN4_ANYBODY for all */
    struct bmi_elan4_range range;
    uint64_t queue;      /* Elan address of the input queue */
    uint64_t generation; /* distinguishes this owner of the context from earlier ones; not 0 */
    uint64_t key;        /* hash of the shared key */
};
_Static_assert(sizeof(struct bmi_elan4_conn_info) == BMI_ELAN4_CONN_INFO_BYTES,
               "connection data");

/* Fills in the connection data of the process at `context` of `node`, for any receiver. */
void bmi_elan4_conn_info_fill(struct bmi_elan4_conn_info *conn_info,
                              const struct bmi_elan4_range *r, const unsigned key[4], int node,
                              int context, uint64_t queue, uint64_t generation);

void bmi_elan4_conn_info_encode(const struct bmi_elan4_conn_info *conn_info,
                                uint8_t out[BMI_ELAN4_CONN_INFO_BYTES]);

/* Decodes connection data.  Returns 0, or -EPROTO for other data, to which no reply is
 * possible.  Connection data of another version is valid. */
int bmi_elan4_conn_info_decode(const uint8_t in[BMI_ELAN4_CONN_INFO_BYTES],
                               struct bmi_elan4_conn_info *conn_info);

/* Returns the verdict of the owner of `mine` on the connection data `theirs`. */
enum bmi_elan4_verdict bmi_elan4_conn_info_judge(const struct bmi_elan4_conn_info *mine,
                                                 const struct bmi_elan4_conn_info *theirs);

/* Returns the text of a verdict; never NULL. */
const char *bmi_elan4_verdict_text(uint32_t verdict);

#endif

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Sends 64 scattered pieces of 4 KiB into one receive of 256 KiB, and back, like a flow with
 * strided access. Can be linked with any BMI of OrangeFS.
 *
 *     fragments URI server | client
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pvfs2-types.h"
#include "bmi.h"

#define PIECES 64
#define PIECE  4096
#define TOTAL  (PIECES * PIECE)
#define ROUNDS 20
#define TAG    7

static bmi_context_id context;

static int failed(const char *what, int code)
{
    fprintf(stderr, "fragments: %s: %d\n", what, code);
    exit(1);
}

/* Returns byte i of a round's message. */
static unsigned char byte_of(int round, int i)
{
    return (unsigned char)((i / PIECE) * 31 + (i % PIECE) * 7 + round);
}

static void wait_for(bmi_op_id_t id, int posted, bmi_size_t *actual)
{
    bmi_error_code_t error = 0;
    int n = posted == 1;

    if (posted < 0)
        failed("post", posted);
    while (n == 0) {
        int ret = BMI_test(id, &n, &error, actual, NULL, 10, context);
        if (ret < 0)
            failed("BMI_test", ret);
    }
    if (error)
        failed("the operation ended with", error);
}

/* Makes pieces with holes between them, so that none can be merged. */
static char *make_pieces(void *piece[PIECES], bmi_size_t size[PIECES])
{
    char *memory = malloc((size_t)PIECES * 2 * PIECE);

    if (memory == NULL)
        failed("malloc", 0);
    for (int i = 0; i < PIECES; i++) {
        piece[i] = memory + (size_t)i * 2 * PIECE;
        size[i] = PIECE;
    }
    return memory;
}

static void send_pieces(BMI_addr_t to, int round)
{
    void *piece[PIECES];
    bmi_size_t size[PIECES], actual = 0;
    bmi_op_id_t id = 0;
    char *memory = make_pieces(piece, size);

    for (int i = 0; i < TOTAL; i++)
        ((unsigned char *)piece[i / PIECE])[i % PIECE] = byte_of(round, i);
    int ret = BMI_post_send_list(&id, to, (const void *const *)piece, size, PIECES, TOTAL,
                                 BMI_EXT_ALLOC, TAG, NULL, context, NULL);
    wait_for(id, ret, &actual);
    free(memory);
}

static void receive_whole(BMI_addr_t from, int round)
{
    bmi_size_t actual = 0;
    bmi_op_id_t id = 0;
    unsigned char *memory = malloc(TOTAL);

    if (memory == NULL)
        failed("malloc", 0);
    memset(memory, 0xee, TOTAL);
    int ret = BMI_post_recv(&id, from, memory, TOTAL, &actual, BMI_EXT_ALLOC, TAG, NULL,
                            context, NULL);
    wait_for(id, ret, &actual);
    if (actual != TOTAL)
        failed("bytes received", (int)actual);
    for (int i = 0; i < TOTAL; i++)
        if (memory[i] != byte_of(round, i)) {
            fprintf(stderr, "fragments: round %d: byte %d is %d, not %d\n", round, i, memory[i],
                    byte_of(round, i));
            exit(1);
        }
    free(memory);
}

static BMI_addr_t hear_a_client(void)
{
    struct BMI_unexpected_info info;
    int n = 0;

    while (n == 0) {
        int ret = BMI_testunexpected(1, &n, &info, 10);
        if (ret < 0)
            failed("BMI_testunexpected", ret);
    }
    BMI_unexpected_free(info.addr, info.buffer);
    return info.addr;
}

static void say_hello(BMI_addr_t server)
{
    bmi_size_t actual = 0;
    bmi_op_id_t id = 0;
    char byte = 'h';

    int ret =
        BMI_post_sendunexpected(&id, server, &byte, 1, BMI_EXT_ALLOC, TAG, NULL, context, NULL);
    wait_for(id, ret, &actual);
}

int main(int argc, char **argv)
{
    int is_server = argc == 3 && strcmp(argv[2], "server") == 0;
    char method[32] = "bmi_";
    BMI_addr_t peer;
    int ret;

    if (argc != 3 || strstr(argv[1], "://") == NULL)
        failed("usage: fragments URI server|client", argc);
    strncat(method, argv[1], (size_t)(strstr(argv[1], "://") - argv[1]));
    ret = is_server ? BMI_initialize(method, argv[1], BMI_INIT_SERVER, NULL)
                    : BMI_initialize(NULL, NULL, 0, NULL);
    if (ret < 0)
        failed("BMI_initialize", ret);
    ret = BMI_open_context(&context);
    if (ret < 0)
        failed("BMI_open_context", ret);
    if (is_server) {
        peer = hear_a_client();
    } else {
        ret = BMI_addr_lookup(&peer, argv[1], NULL);
        if (ret < 0)
            failed("BMI_addr_lookup", ret);
        say_hello(peer);
    }
    for (int round = 0; round < ROUNDS; round++) {
        if (is_server == (round % 2 == 0))
            receive_whole(peer, round);
        else
            send_pieces(peer, round);
    }
    BMI_close_context(context);
    BMI_finalize();
    return 0;
}

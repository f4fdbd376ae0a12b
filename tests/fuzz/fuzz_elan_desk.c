/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Any bytes to a bootstrap server, and any answer of one: both ends are sockets of this
 * process. The first byte selects the end that the input plays and the splitting of its bytes.
 * In all cases the server sends its card, and a query ends.
 */
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "bmi_elan4/conn_info.h"
#include "fuzz.h"

static const struct bmi_elan4_range range = {0, 63, 2, 65};
static const unsigned key[4] = {1, 2, 3, 4};

/* Waits for the socket: the kernel delivers soon, but not always at once. */
static void await(int fd, short events)
{
    struct pollfd p = {.fd = fd, .events = events};

    FUZZ_CHECK(poll(&p, 1, 10000) == 1);
}

static void send_in_parts(int fd, const uint8_t *data, size_t size, unsigned part)
{
    while (size > 0) {
        size_t n = part > 0 && part < size ? part : size;

        if (send(fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)n)
            break;
        data += n;
        size -= n;
    }
}

static void visit(const struct sockaddr_in *at, struct bmi_elan4_bootstrap *bootstrap,
                  const uint8_t *data, size_t size, unsigned part)
{
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    struct linger gone = {1, 0}; /* no port stays in TIME_WAIT */

    FUZZ_CHECK(fd >= 0);
    FUZZ_CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &gone, sizeof(gone)) == 0);
    FUZZ_CHECK(connect(fd, (const struct sockaddr *)at, sizeof(*at)) == 0);
    send_in_parts(fd, data, size, part);
    await(bootstrap->listener, POLLIN);
    FUZZ_CHECK(bmi_elan4_bootstrap_serve(bootstrap) == 1);
    FUZZ_CHECK(!bootstrap->behind);
    close(fd);
}

static void call(const struct sockaddr_in *at, int listener, const uint8_t *data, size_t size,
                 unsigned part)
{
    struct bmi_elan4_conn_info theirs;
    struct bmi_elan4_query c;
    struct linger gone = {1, 0};
    int rc;

    FUZZ_CHECK(bmi_elan4_query_begin((const struct sockaddr *)at, sizeof(*at), &c) == 0);
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    FUZZ_CHECK(fd >= 0);
    send_in_parts(fd, data, size, part);
    FUZZ_CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &gone, sizeof(gone)) == 0);
    if (size < BMI_ELAN4_CONN_INFO_BYTES)
        close(fd);
    while ((rc = bmi_elan4_query_step(&c, &theirs)) == -EAGAIN)
        await(c.fd, POLLIN);
    FUZZ_CHECK(rc == 0 || rc == -EPROTO || rc == -ECONNRESET);
    FUZZ_CHECK(rc != 0 || size >= BMI_ELAN4_CONN_INFO_BYTES);
    if (size >= BMI_ELAN4_CONN_INFO_BYTES)
        close(fd);
    bmi_elan4_query_end(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct bmi_elan4_bootstrap bootstrap;
    static struct bmi_elan4_conn_info mine;
    static struct sockaddr_in at, there;
    static int listener;

    if (bootstrap.listener == 0) { /* opened once, because each would need a port */
        socklen_t length = sizeof(there);
        at = there = (struct sockaddr_in){.sin_family = AF_INET,
                                          .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
        bmi_elan4_conn_info_fill(&mine, &range, key, 0, 2, 0x40, 1);
        FUZZ_CHECK(bmi_elan4_bootstrap_open((struct sockaddr *)&at, sizeof(at), &mine,
                                            &bootstrap) == 0);
        FUZZ_CHECK(getsockname(bootstrap.listener, (struct sockaddr *)&at, &length) == 0);
        listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        FUZZ_CHECK(listener >= 0);
        FUZZ_CHECK(bind(listener, (struct sockaddr *)&there, sizeof(there)) == 0);
        FUZZ_CHECK(listen(listener, 4) == 0);
        FUZZ_CHECK(getsockname(listener, (struct sockaddr *)&there, &length) == 0);
    }
    if (size == 0 || size > 1024)
        return 0;
    if (data[0] & 1)
        call(&there, listener, data + 1, size - 1, data[0] >> 1);
    else
        visit(&at, &bootstrap, data + 1, size - 1, data[0] >> 1);
    return 0;
}

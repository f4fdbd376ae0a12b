/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "ports.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define FIRST_BLOCK 16384
#define BLOCKS      ((32768 - FIRST_BLOCK) / PORTS_IN_BLOCK)

/* Returns a socket of this type, bound to the port on 127.0.0.1 and inherited by exec. */
static int bound_socket(int type, int port)
{
    struct sockaddr_in at = {.sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int s = socket(AF_INET, type, 0);

    if (s < 0)
        return -errno;
    if (bind(s, (struct sockaddr *)&at, sizeof(at)) == 0)
        return s;
    int error = -errno;
    close(s);
    return error;
}

static bool tcp_is_free(int first)
{
    for (int i = 0; i < PORTS_IN_BLOCK; i++) {
        int s = bound_socket(SOCK_STREAM, first + i);
        if (s < 0)
            return false;
        close(s);
    }
    return true;
}

/* Returns whether the software HCA has no listeners on the block's ports: abstract sockets
 * emuverbs/cm/SPACE/PORT/ADDRESS. */
static bool hca_is_free(int first)
{
    char line[512];
    bool is_free = true;
    FILE *f = fopen("/proc/net/unix", "r");

    while (f != NULL && is_free && fgets(line, sizeof(line), f) != NULL) {
        const char *name = strstr(line, "@emuverbs/cm/");
        int port;
        if (name != NULL && sscanf(name, "@emuverbs/cm/%*x/%d/", &port) == 1)
            is_free = port < first || port >= first + PORTS_IN_BLOCK;
    }
    if (f != NULL)
        fclose(f);
    return is_free;
}

int ports_take(void)
{
    struct timespec now;

    clock_gettime(CLOCK_REALTIME, &now);
    /* Start at different blocks, so that ports of processes that just ended are not reused at
     * once. */
    unsigned start = (unsigned)now.tv_nsec / 1000 + (unsigned)getpid();
    for (unsigned i = 0; i < BLOCKS; i++) {
        int first = FIRST_BLOCK + (int)((start + i) % BLOCKS) * PORTS_IN_BLOCK;
        int holder = bound_socket(SOCK_DGRAM, first);
        if (holder >= 0) {
            if (tcp_is_free(first) && hca_is_free(first))
                return first;
            close(holder);
        } else if (holder != -EADDRINUSE) {
            return holder;
        }
    }
    return -EADDRINUSE;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A store of files over plain TCP. A connection carries any number of requests, each answered
 * before the next:
 *
 *   client                                                                server
 *   operation, length of the name, bytes; name                        ->
 *   put: the bytes of the whole file                                  ->
 *                                       <-  0 or an errno, when all is stored
 *   get                                                               ->
 *                                       <-  0 or an errno, bytes; the data
 *   size                                                              ->
 *                                       <-  0 or an errno, bytes
 *   remove, or nothing                                                ->
 *                                       <-  0 or an errno
 *   put-list, get-list: extents (offset, length); put: data           ->
 *                                       <-  0 or an errno, bytes; get: the data
 *
 * A list has at most TCP_STORE_EXTENTS extents of TCP_STORE_DATA bytes together; the first
 * put-list creates the file. Numbers are 64-bit, little-endian.
 */
#ifndef BENCH_TCP_STORE_H
#define BENCH_TCP_STORE_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define TCP_STORE_NAME    255
#define TCP_STORE_EXTENTS 1024
#define TCP_STORE_DATA    (1 << 20)

enum {
    TCP_STORE_PUT = 1,
    TCP_STORE_GET,
    TCP_STORE_SIZE,
    TCP_STORE_REMOVE,
    TCP_STORE_NOTHING,
    TCP_STORE_PUT_LIST,
    TCP_STORE_GET_LIST,
};

struct tcp_store_request {
    uint64_t what, name_length, bytes; /* of a list: extents */
};

struct tcp_store_answer {
    uint64_t error, bytes;
};

struct tcp_store_extent {
    uint64_t offset, length;
};

/* Serves until a signal ends the process. Returns -1 with one line in `why` on failure. */
int tcp_store(const char *address, const char *folder, char *why);

/* Transfer all bytes; return 0 or a negative errno; -EIO if the file ends early. */
int tcp_store_write(int fd, const char *data, size_t size, off_t offset);
int tcp_store_read(int fd, char *data, size_t size, off_t offset);

#endif

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Any bytes as the log of a node: each context can be taken once, has a generation that is not
 * 0 and grows, and is free again when returned. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bmi_elan4/context_log.h"
#include "fuzz.h"

static char folder[64], path[80];

static void go_away(void)
{
    unlink(path);
    rmdir(folder);
}

static void make_folder(void)
{
    struct stat st;
    bool shm = stat("/dev/shm", &st) == 0 && access("/dev/shm", W_OK) == 0;

    snprintf(folder, sizeof(folder), "%s/fuzz-elan-log-XXXXXX", shm ? "/dev/shm" : "/tmp");
    FUZZ_CHECK(mkdtemp(folder) != NULL);
    snprintf(path, sizeof(path), "%s/node-0", folder);
    atexit(go_away);
}

static void fill(const uint8_t *data, size_t size)
{
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);

    FUZZ_CHECK(fd >= 0);
    FUZZ_CHECK(pwrite(fd, data, size, 0) == (ssize_t)size);
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct bmi_elan4_log *mine, *other;
    uint64_t generation, later, owner;

    if (!*folder)
        make_folder();
    if (size > 1024)
        return 0;
    fill(data, size);
    FUZZ_CHECK(bmi_elan4_log_open(folder, 0, &mine) == 0);
    FUZZ_CHECK(bmi_elan4_log_open(folder, 0, &other) == 0);
    for (int c = 2; c <= 5; c++) {
        FUZZ_CHECK(bmi_elan4_log_owner(mine, c, &owner) == 0);
        FUZZ_CHECK(bmi_elan4_log_take(mine, c, &generation) == 0);
        FUZZ_CHECK(generation != 0);
        FUZZ_CHECK(bmi_elan4_log_take(other, c, &later) == -EBUSY);
        FUZZ_CHECK(bmi_elan4_log_owner(other, c, &owner) == 1);
        FUZZ_CHECK(owner == generation);
        bmi_elan4_log_give(mine, c);
        FUZZ_CHECK(bmi_elan4_log_owner(other, c, &owner) == 0);
        FUZZ_CHECK(bmi_elan4_log_take(other, c, &later) == 0);
        FUZZ_CHECK(later > generation);
    }
    FUZZ_CHECK(bmi_elan4_log_take(mine, 2, &generation) == -EBUSY);
    for (int c = 2; c <= 5; c++)
        bmi_elan4_log_give(mine, c);
    return 0;
}

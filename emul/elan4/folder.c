/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Versions of the rendezvous folder. The file `version` contains the version of the shared
 * data, registry and segments (EMU4_VERSION). Each process of the network holds a shared lock
 * (flock) on the file until exit. A process of another version replaces the version if no lock
 * is held, so that files of an older release do not matter. Otherwise it refuses to start,
 * because it would wait for peers without end.
 */
#include "emul/elan4/emu.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define PATIENCE_MS 500

/* Returns the version, or 0 if none is written. */
static unsigned version_of(int fd)
{
    char text[16] = "";

    return pread(fd, text, sizeof(text) - 1, 0) > 0 ? (unsigned)strtoul(text, NULL, 10) : 0;
}

static int write_version(int fd)
{
    char text[16];
    int n = snprintf(text, sizeof(text), "%u\n", EMU4_VERSION);

    if (ftruncate(fd, 0) < 0)
        return -errno;
    ssize_t put = pwrite(fd, text, (size_t)n, 0);
    return put == n ? 0 : put < 0 ? -errno : -EIO;
}

/* Locks the file and checks its version. 0: locked and equal; -EAGAIN: another process is
 * changing the file. */
static int agree(int fd, unsigned *theirs)
{
    int rc = -EAGAIN;

    *theirs = 0;
    if (flock(fd, LOCK_SH | LOCK_NB) < 0)
        return errno == EWOULDBLOCK || errno == EINTR ? -EAGAIN : -errno;
    *theirs = version_of(fd);
    if (*theirs == EMU4_VERSION)
        return 0;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0 && (rc = write_version(fd)) == 0)
        rc = flock(fd, LOCK_SH | LOCK_NB) < 0 || version_of(fd) != EMU4_VERSION ? -EAGAIN : 0;
    if (rc < 0)
        flock(fd, LOCK_UN);
    return rc;
}

int emu4_folder_enter(void)
{
    char path[300], folder[300];
    uint64_t end = emu4_now() + PATIENCE_MS * (EMU4_NSEC / 1000);
    unsigned theirs = 0;
    int rc, fd;

    if (emu4_path(path, sizeof(path), "version") < 0)
        return -1;
    snprintf(folder, sizeof(folder), "%.*s", (int)(strrchr(path, '/') - path), path);
    fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) {
        emu4_print("cannot open %s: %s; set EMUELAN4_DIR to a folder that all processes of the "
                   "network may write to",
                   path, strerror(errno));
        return -1;
    }
    while ((rc = agree(fd, &theirs)) == -EAGAIN && emu4_now() < end)
        usleep(1000 + emu4_random() % 2000); /* random: two new processes may have collided */
    if (rc == 0)
        return fd;
    if (rc == -EAGAIN)
        emu4_print(
            "folder %s: in use by processes with version %u of this library; this process has "
            "version %u; run all with the same version, or set EMUELAN4_DIR to another folder",
            folder, theirs, EMU4_VERSION);
    else
        emu4_print(
            "cannot write %s: %s; make room there, or set EMUELAN4_DIR to another folder", path,
            strerror(-rc));
    close(fd);
    errno = rc == -EAGAIN ? EPROTO : -rc;
    return -1;
}

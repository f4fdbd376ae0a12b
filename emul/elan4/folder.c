/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Versions of the rendezvous folder. The file `version` contains the version of the shared
 * data, registry and segments (EMU4_VERSION). Each process of the network holds a shared lock
 * (flock) on the file until exit. A process of another version replaces the version if no lock
 * is held, so that files of an older release do not matter. Otherwise it refuses to start,
 * because it would wait for peers without end.
 *
 * The first versions had no such file, but a registry in files `node-N`; logs of bmi_elan4 have
 * such names as well. A live owner is recognized by its record lock and the record's content.
 * The check closes descriptors and thereby drops this process's own locks on these files, so it
 * runs once, before any are taken.
 */
#include "emul/elan4/emu.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define PATIENCE_MS 500

/* Returns the process that holds a registry record of the first versions, or 0. */
static int old_owner(const char *path)
{
    struct flock l = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
    struct emu4_record r;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK), pid = 0;

    if (fd < 0)
        return 0;
    if (fcntl(fd, F_GETLK, &l) == 0 && l.l_type != F_UNLCK &&
        pread(fd, &r, sizeof(r), l.l_start) == sizeof(r) && r.magic == EMU4_MAGIC)
        pid = r.pid;
    close(fd);
    return pid;
}

/* Returns 0, or -EPROTO when a process of the first versions is running. */
static int find_old(const char *folder)
{
    char path[600];
    DIR *dir = opendir(folder);
    int pid = 0;

    for (struct dirent *e; dir && !pid && (e = readdir(dir)) != NULL;) {
        if (strncmp(e->d_name, "node-", 5) != 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        pid = old_owner(path);
    }
    if (dir)
        closedir(dir);
    if (!pid)
        return 0;
    emu4_print(
        "folder %s: in use by process %d with an older version of this library, which has %s "
        "there; this process has version %u; run both with the same version, or set "
        "EMUELAN4_DIR to another folder",
        folder, pid, strrchr(path, '/') + 1, EMU4_VERSION);
    return -EPROTO;
}

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
    if ((rc = find_old(folder)) < 0) {
        errno = -rc;
        return -1;
    }
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

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "embedded/iod/target.h"
#include "embedded/iod/fileio.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

static bool say(char *why, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static bool say(char *why, size_t size, const char *format, ...)
{
    va_list args;

    va_start(args, format);
    vsnprintf(why, size, format, args);
    va_end(args);
    return false;
}

static const char *remedy(int error)
{
    switch (error) {
    case EACCES:
    case EPERM:
        return "get permission to write there or choose another destination";
    case ENOENT:
        return "make the folder or choose another destination";
    case EROFS:
        return "choose a destination that is not read-only";
    case ENOSPC:
    case EDQUOT:
        return "free space there or choose another destination";
    case EFBIG:
        return "raise the file size limit (ulimit -f)";
    }
    return "choose another destination";
}

static bool is_null_device(const struct stat *st)
{
    return S_ISCHR(st->st_mode) && st->st_rdev == makedev(1, 3);
}

/* `destination`, or `name`'s last part in it. */
static bool choose_path(struct target *t, const char *destination, const char *name, char *why,
                        size_t size)
{
    const char *base = strrchr(name, '/');
    struct stat st;
    int length;

    base = base ? base + 1 : name;
    if (stat(destination, &st) == 0 && S_ISDIR(st.st_mode)) {
        if (!*base || strcmp(base, ".") == 0 || strcmp(base, "..") == 0)
            return say(why, size, "%s: is a folder, and '%s' is no file name; name the file",
                       destination, base);
        length = snprintf(t->path, sizeof t->path, "%s/%s", destination, base);
    } else {
        length = snprintf(t->path, sizeof t->path, "%s", destination);
    }
    if (length < 0 || (size_t)length >= sizeof t->path)
        return say(why, size, "%.100s...: the path is too long; choose a shorter one",
                   destination);
    if (length == 0 || t->path[length - 1] == '/')
        return say(why, size,
                   "%s: there is no such folder; make it or choose another destination",
                   destination);
    return true;
}

bool target_find(struct target *t, const char *destination, const char *name, char *why,
                 size_t size)
{
    struct stat st;

    *t = (struct target){.fd = -1};
    if (!choose_path(t, destination, name, why, size))
        return false;
    if (stat(t->path, &st) < 0 && errno != ENOENT)
        return say(why, size, "%s: %s; %s", t->path, strerror(errno), remedy(errno));
    if (stat(t->path, &st) < 0)
        return lstat(t->path, &st) < 0 ||
               say(why, size,
                   "%s: is a link to nothing; remove it or choose another destination",
                   t->path);
    if (S_ISDIR(st.st_mode))
        return say(why, size, "%s: is a folder; choose another destination", t->path);
    t->exists = true;
    t->mode = st.st_mode & 07777;
    t->owner = st.st_uid;
    t->group = st.st_gid;
    t->device = is_null_device(&st);
    if (!t->device && !S_ISREG(st.st_mode))
        return say(why, size, "%s: is not a regular file; choose another destination", t->path);
    if (!t->device) { /* a link stays one: what it points at is replaced */
        char *real = realpath(t->path, NULL);
        if (real)
            snprintf(t->path, sizeof t->path, "%s", real);
        free(real);
    }
    return true;
}

bool target_open(struct target *t, char *why, size_t size)
{
    const char *slash = strrchr(t->path, '/');
    int folder = slash ? (int)(slash - t->path) + 1 : 0;
    int length, error;

    if (t->device) {
        t->fd = open(t->path, O_WRONLY | O_CLOEXEC);
        return t->fd >= 0 ||
               say(why, size, "%s: %s; %s", t->path, strerror(errno), remedy(errno));
    }
    length = snprintf(t->temp, sizeof t->temp, "%.*s.bmi-cp.XXXXXX", folder, t->path);
    if (length < 0 || (size_t)length >= sizeof t->temp) {
        t->temp[0] = 0;
        return say(why, size, "%.100s...: the path is too long; choose a shorter one", t->path);
    }
    t->fd = mkostemp(t->temp, O_CLOEXEC);
    if (t->fd >= 0)
        return true;
    error = errno;
    t->temp[0] = 0;
    return say(why, size, "%.*s: cannot write in this folder: %s; %s", folder ? folder : 1,
               folder ? t->path : ".", strerror(error), remedy(error));
}

static bool finish_step(const struct target *t, int result, const char *what, char *why,
                        size_t size)
{
    if (result == 0)
        return true;
    return say(why, size, "%s: cannot %s: %s; %s", t->path, what, strerror(errno),
               remedy(errno));
}

static int close_file(struct target *t)
{
    int fd = t->fd;

    t->fd = -1;
    return close(fd);
}

/* The folder that the file gets its name in.  A descriptor, or -1 with errno. */
static int open_folder(const struct target *t)
{
    char folder[sizeof t->path];
    const char *slash = strrchr(t->path, '/');

    snprintf(folder, sizeof folder, "%.*s", slash ? (int)(slash - t->path) + 1 : 1,
             slash ? t->path : ".");
    return open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Renames; with `sync` the new name is on the disk then, too. */
static bool take_name(struct target *t, bool sync, char *why, size_t size)
{
    int folder = sync ? open_folder(t) : -1;
    bool good;

    if (sync && folder < 0)
        return say(why, size,
                   "%s: cannot open its folder to write it to the disk: %s; get permission to "
                   "read it, or copy without --fsync",
                   t->path, strerror(errno));
    good = finish_step(t, rename(t->temp, t->path), "give it its name", why, size);
    if (good)
        t->temp[0] = 0;
    if (good && sync) {
        errno = -file_sync_folder(folder);
        good = finish_step(t, -(errno != 0), "write its name to the disk", why, size);
    }
    if (folder >= 0)
        close(folder);
    return good;
}

/* Gives the file the owner, the group and the mode of the one it replaces.  A file that gets
 * another owner or group runs with nobody's rights: it loses the bits that say so. */
static int copy_rights(const struct target *t)
{
    mode_t mode = t->mode;

    if (fchown(t->fd, t->owner, (gid_t)-1) < 0)
        mode &= (mode_t)~S_ISUID;
    if (fchown(t->fd, (uid_t)-1, t->group) < 0)
        mode &= (mode_t)~S_ISGID;
    return fchmod(t->fd, mode);
}

bool target_finish(struct target *t, uint64_t bytes, mode_t mode, bool sync, char *why,
                   size_t size)
{
    mode_t mask;

    if (t->device)
        return true;
    mask = umask(0);
    umask(mask);
    return finish_step(t, ftruncate(t->fd, (off_t)bytes), "set its size", why, size) &&
           finish_step(t, t->exists ? copy_rights(t) : fchmod(t->fd, mode & ~mask),
                       "set its mode", why, size) &&
           finish_step(t, sync ? fsync(t->fd) : 0, "write it to the disk", why, size) &&
           finish_step(t, close_file(t), "write it", why, size) &&
           take_name(t, sync, why, size);
}

void target_close(struct target *t)
{
    if (t->temp[0])
        unlink(t->temp);
    if (t->fd >= 0)
        close(t->fd);
    t->temp[0] = 0;
    t->fd = -1;
}

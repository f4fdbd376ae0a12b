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

static bool explain(char *why, size_t size, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

static bool explain(char *why, size_t size, const char *format, ...)
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
        return file_size_is_limited() ? "raise the file size limit (ulimit -f)"
                                      : "choose a destination whose file system takes larger "
                                        "files";
    }
    return "choose another destination";
}

static bool is_null_device(const struct stat *st)
{
    return S_ISCHR(st->st_mode) && st->st_rdev == makedev(1, 3);
}

/* Sets the path: `destination`, or the last component of `name` in it. */
static bool choose_path(struct target *t, const char *destination, const char *name, char *why,
                        size_t size)
{
    const char *base = strrchr(name, '/');
    struct stat st;
    int length;

    base = base != NULL ? base + 1 : name;
    if (stat(destination, &st) == 0 && S_ISDIR(st.st_mode)) {
        if (!*base || strcmp(base, ".") == 0 || strcmp(base, "..") == 0)
            return explain(why, size,
                           "%s: is a folder, and '%s' is not a file name; name the file",
                           destination, base);
        length = snprintf(t->path, sizeof t->path, "%s/%s", destination, base);
    } else {
        length = snprintf(t->path, sizeof t->path, "%s", destination);
    }
    if (length < 0 || (size_t)length >= sizeof t->path)
        return explain(why, size, "%.100s...: the path is too long; choose a shorter one",
                       destination);
    if (t->path[length - 1] == '/' && stat(destination, &st) < 0 && errno == ENOTDIR)
        return explain(why, size, "%s: not a folder; choose another destination", destination);
    if (t->path[length - 1] == '/')
        return explain(why, size, "%s: no such folder; make it or choose another destination",
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
        return explain(why, size, "%s: %s; %s", t->path, strerror(errno), remedy(errno));
    if (stat(t->path, &st) < 0)
        return lstat(t->path, &st) < 0 ||
               explain(why, size,
                       "%s: is a dangling link; remove it or choose another destination",
                       t->path);
    if (S_ISDIR(st.st_mode))
        return explain(why, size, "%s: is a folder; choose another destination", t->path);
    t->exists = true;
    t->mode = st.st_mode & 07777;
    t->owner = st.st_uid;
    t->group = st.st_gid;
    t->device = is_null_device(&st);
    if (!t->device && !S_ISREG(st.st_mode))
        return explain(why, size, "%s: is not a regular file; choose another destination",
                       t->path);
    if (!t->device) { /* replace the target of a symbolic link, not the link */
        char *real = realpath(t->path, NULL);
        if (real != NULL)
            snprintf(t->path, sizeof t->path, "%s", real);
        free(real);
    }
    return true;
}

bool target_open(struct target *t, char *why, size_t size)
{
    const char *slash = strrchr(t->path, '/');
    int length = slash != NULL ? (int)(slash - t->path) + 1 : 0; /* of the folder */

    if (t->device) {
        t->fd = open(t->path, O_WRONLY | O_CLOEXEC);
        return t->fd >= 0 ||
               explain(why, size, "%s: %s; %s", t->path, strerror(errno), remedy(errno));
    }
    if (snprintf(t->temp, sizeof t->temp, "%.*s.bmi-cp.XXXXXX", length, t->path) >=
        (int)sizeof t->temp) {
        t->temp[0] = 0;
        return explain(why, size, "%.100s...: the path is too long; choose a shorter one",
                       t->path);
    }
    t->fd = mkostemp(t->temp, O_CLOEXEC);
    if (t->fd >= 0)
        return true;
    t->temp[0] = 0;
    return explain(why, size, "%.*s: cannot write in this folder: %s; %s",
                   slash != NULL ? length : 1, slash != NULL ? t->path : ".", strerror(errno),
                   remedy(errno));
}

static bool finish_step(const struct target *t, int result, const char *what, char *why,
                        size_t size)
{
    if (result == 0)
        return true;
    return explain(why, size, "%s: cannot %s: %s; %s", t->path, what, strerror(errno),
                   remedy(errno));
}

/* Reports write errors that a file system returns at close; the file stays open. */
static int flush_file(const struct target *t)
{
    int fd = dup(t->fd);

    return fd < 0 ? -1 : close(fd);
}

static int name_file(struct target *t)
{
    if (rename(t->temp, t->path) < 0)
        return -1;
    t->temp[0] = 0;
    return 0;
}

/* Copies owner, group and mode of the replaced file.  If owner or group cannot be copied,
 * clears the setuid or setgid bit. */
static int copy_rights(const struct target *t)
{
    mode_t mode = t->mode;

    if (fchown(t->fd, t->owner, (gid_t)-1) < 0)
        mode &= (mode_t)~S_ISUID;
    if (fchown(t->fd, (uid_t)-1, t->group) < 0)
        mode &= (mode_t)~S_ISGID;
    return fchmod(t->fd, mode);
}

bool target_resize(struct target *t, uint64_t bytes, char *why, size_t size)
{
    return t->device ||
           finish_step(t, ftruncate(t->fd, (off_t)bytes), "set its size", why, size);
}

bool target_finish(struct target *t, mode_t mode, char *why, size_t size)
{
    mode_t mask;

    if (t->device)
        return true;
    mask = umask(0);
    umask(mask);
    return finish_step(t, flush_file(t), "write it", why, size) &&
           finish_step(t, t->exists ? copy_rights(t) : fchmod(t->fd, mode & ~mask),
                       "set its mode", why, size) &&
           finish_step(t, name_file(t), "give it its name", why, size);
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

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * A mount namespace that shows the devices. Neither sysfs nor devtmpfs can show a folder to one
 * process only. So folders in memory are mounted over /sys/class and /dev, and their former
 * entries are mounted into them again, except names reserved for the devices. The namespace
 * ends with its last process.
 */
#include "emul/verbs/view.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

static int complain(const char *what, const char *path)
{
    int err = errno;

    fprintf(stderr, "emuverbs: --sysfs: %s%s: %s\n", what, path, strerror(err));
    return -1;
}

/* Creates a file or folder as a mount point. */
static int place(const char *path, bool is_folder)
{
    if (is_folder)
        return mkdir(path, 0755);
    int fd = open(path, O_CREAT | O_WRONLY | O_CLOEXEC, 0644);
    return fd < 0 ? -1 : close(fd);
}

/* Shows an entry of the folder `below` at `path`. */
static int show(int below, const char *name, const char *path)
{
    char from[PATH_MAX], link[PATH_MAX];
    struct stat st;

    if (fstatat(below, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return errno == ENOENT ? 0 : -1; /* removed meanwhile */
    if (S_ISLNK(st.st_mode)) {
        ssize_t n = readlinkat(below, name, link, sizeof(link) - 1);
        if (n < 0)
            return -1;
        link[n] = 0;
        return symlink(link, path);
    }
    snprintf(from, sizeof(from), "/proc/self/fd/%d/%s", below, name);
    if (place(path, S_ISDIR(st.st_mode)) < 0)
        return -1;
    return mount(from, path, NULL, MS_BIND | MS_REC, NULL) < 0 && errno != ENOENT ? -1 : 0;
}

/* Mounts a folder in memory over `folder`, with its former entries except names that begin with
 * `without`. */
static int cover(const char *folder, const char *without)
{
    char path[PATH_MAX];
    int ret = 0;
    int below = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *dir = below < 0 ? NULL : fdopendir(below);

    if (dir == NULL) {
        complain("", folder);
        if (below >= 0)
            close(below);
        return -1;
    }
    if (mount("emuverbs", folder, "tmpfs", MS_NOSUID, "mode=755") < 0)
        ret = complain("cannot mount over ", folder);
    for (struct dirent *e; !ret && (e = readdir(dir)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0 ||
            strncmp(e->d_name, without, strlen(without)) == 0)
            continue;
        snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        if (show(below, e->d_name, path) < 0)
            ret = complain("cannot keep ", path);
    }
    closedir(dir);
    return ret;
}

int view_make(const char *library)
{
    char path[64];

    void *lib = dlopen(library, RTLD_LAZY | RTLD_LOCAL);
    int (*tree)(const char *) =
        lib != NULL ? (int (*)(const char *))dlsym(lib, "emuverbs_sysfs") : NULL;
    if (tree == NULL) {
        fprintf(stderr, "emuverbs: --sysfs: %s\n", dlerror());
        return -1;
    }
    if (unshare(CLONE_NEWNS) < 0 || mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) {
        fprintf(stderr,
                "emuverbs: --sysfs: cannot make a mount namespace: %s; run as root, not in a "
                "chroot, or as unshare --user --map-root-user emuverbs --sysfs ...\n",
                strerror(errno));
        return -1;
    }
    if (cover("/sys/class", "infiniband") || cover("/dev", "infiniband"))
        return -1;
    int devices = tree("/sys/class");
    if (devices < 0 || mkdir("/dev/infiniband", 0755) < 0)
        return complain("cannot show the devices", "");
    for (int i = 0; i < devices; i++) {
        snprintf(path, sizeof(path), "/dev/infiniband/uverbs%d", i);
        if (place(path, false) < 0 || mount("/dev/null", path, NULL, MS_BIND, NULL) < 0)
            return complain("cannot make ", path);
    }
    return 0;
}

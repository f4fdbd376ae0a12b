/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Names that processes hold: of slots and of rdma_cm addresses.
 *
 * A name is that of a unix socket, held while the socket is open.  Connecting to it tells the
 * holder's process ID, even while the holder is stopped.  Names are abstract: they belong to
 * the network namespace and disappear with their holder.  With EMUVERBS_NAMES they are files of
 * a folder, which network namespaces can share.  A file without a holder refuses connections as
 * an absent one does, and is replaced under a lock of the folder.
 */
#include "emul/verbs/process/process.h"
#include "emul/verbs/base/sysio.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#define NAME_MAX_LEN 64 /* of the names that are held */

static const char *folder = ""; /* empty: abstract names */

int emu_names_use(const char *path)
{
    if (strlen(path) + 1 + NAME_MAX_LEN >= sizeof(((struct sockaddr_un *)0)->sun_path)) {
        fprintf(
            stderr,
            "emuverbs: EMUVERBS_NAMES=%s: the path is too long; name a folder of at most %zu "
            "characters\n",
            path, sizeof(((struct sockaddr_un *)0)->sun_path) - NAME_MAX_LEN - 2);
        return -ENAMETOOLONG;
    }
    if (*path != '\0' && access(path, W_OK | X_OK) < 0) {
        int err = errno;
        fprintf(
            stderr,
            "emuverbs: EMUVERBS_NAMES=%s: %s; make the folder, writable for the user of all "
            "processes\n",
            path, strerror(err));
        return -err;
    }
    folder = path;
    return 0;
}

bool emu_names_are_files(void)
{
    return *folder != '\0';
}

static socklen_t abstract_address(struct sockaddr_un *sun, const char *name)
{
    size_t length = strnlen(name, sizeof(sun->sun_path) - 1);

    memset(sun, 0, sizeof(*sun));
    sun->sun_family = AF_UNIX;
    memcpy(sun->sun_path + 1, name, length);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + length);
}

static socklen_t address(struct sockaddr_un *sun, const char *name)
{
    char *at;

    if (!emu_names_are_files())
        return abstract_address(sun, name);
    memset(sun, 0, sizeof(*sun));
    sun->sun_family = AF_UNIX;
    at = sun->sun_path + sprintf(sun->sun_path, "%s/", folder);
    for (; *name != '\0'; name++)
        *at++ = *name == '/' ? '+' : *name;
    return sizeof(*sun);
}

static int listen_at(const struct sockaddr_un *sun, socklen_t length)
{
    int s = sys_no_stream(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));

    if (s < 0)
        return -errno;
    if (bind(s, (const struct sockaddr *)sun, length) < 0 || listen(s, 4096) < 0) {
        int err = errno;
        sys_close(s);
        return -err;
    }
    emu_own(s);
    return s;
}

int emu_listen_abstract(const char *name)
{
    struct sockaddr_un sun;
    socklen_t length = abstract_address(&sun, name);

    return listen_at(&sun, length);
}

/* Returns a descriptor that locks the folder until it is closed, or -errno. */
static int lock(void)
{
    int fd = sys_no_stream(open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC));

    if (fd < 0)
        return -errno;
    while (flock(fd, LOCK_EX) < 0 && errno == EINTR)
        ;
    return fd;
}

int emu_name_hold(const char *name)
{
    struct sockaddr_un sun;
    socklen_t length = address(&sun, name);
    int locked, s;

    if (!emu_names_are_files())
        return listen_at(&sun, length);
    locked = lock();
    if (locked < 0)
        return locked;
    if (emu_name_holder(name) == -ECONNREFUSED)
        unlink(sun.sun_path);
    s = listen_at(&sun, length);
    sys_close(locked);
    return s;
}

void emu_name_add(const char *name, const char *other)
{
    struct sockaddr_un sun, more;
    int locked;

    if (!emu_names_are_files())
        return;
    address(&sun, name);
    address(&more, other);
    locked = lock();
    if (locked < 0)
        return;
    if (emu_name_holder(other) == -ECONNREFUSED)
        unlink(more.sun_path);
    (void)!link(sun.sun_path, more.sun_path); /* fails if another process holds the name */
    sys_close(locked);
}

/* Explains, once, that the process is in another PID namespace (the kernel reports 0). */
static void explain_namespace(void)
{
    static _Atomic int said;

    if (!atomic_exchange(&said, 1))
        fprintf(stderr,
                "emuverbs: a process of another PID namespace cannot be reached; use one PID "
                "namespace for both (Docker: --pid=host, or --pid=container:NAME; a pod: "
                "shareProcessNamespace)\n");
}

int emu_name_holder(const char *name)
{
    struct sockaddr_un sun;
    socklen_t length = address(&sun, name);
    struct ucred cred;
    socklen_t clen = sizeof(cred);
    int s = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    int ret;

    if (s < 0)
        return -errno;
    if (connect(s, (struct sockaddr *)&sun, length) < 0)
        ret = errno == ENOENT ? -ECONNREFUSED : -errno;
    else if (getsockopt(s, SOL_SOCKET, SO_PEERCRED, &cred, &clen) < 0)
        ret = -errno;
    else
        ret = cred.pid > 0 ? cred.pid : -EPERM;
    sys_close(s);
    if (ret == -EPERM)
        explain_namespace();
    return ret;
}

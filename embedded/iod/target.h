/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * target.h - the file that a copy out makes: without a name until it is complete, or, on a file
 * system that cannot have that, with a hidden one in the destination's folder.  An existing
 * file keeps its permission bits, its group and, where the user may give files away, its owner;
 * a symbolic link keeps pointing at it.
 */
#ifndef IOD_TARGET_H
#define IOD_TARGET_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct target {
    char path[PATH_MAX]; /* where the file will be */
    char temp[PATH_MAX]; /* where it is; empty when it has no name, or has its own */
    int fd;
    bool device; /* /dev/null: written in place */
    bool exists;
    mode_t mode; /* of the file that is there already; its owner and group */
    uid_t owner;
    gid_t group;
};

/* Finds the place: `destination`, or `name` in it if it is a folder.  False: `why` is one line.
 */
bool target_find(struct target *target, const char *destination, const char *name, char *why,
                 size_t size);

/* Makes the temporary file.  False also where it could not replace the file that is there. */
bool target_open(struct target *target, char *why, size_t size);

/* Gives the file its size, before there is data in it. */
bool target_resize(struct target *target, uint64_t bytes, char *why, size_t size);

/* Gives the file its mode (`mode` less the umask if it is new) and its name.  With `sync` all
 * that is on the disk; it has its name already when only that could not be written there. */
bool target_finish(struct target *target, mode_t mode, bool sync, char *why, size_t size);

/* Closes; removes what was not finished.  Harmless on a target that was only zeroed with fd -1.
 */
void target_close(struct target *target);

#endif

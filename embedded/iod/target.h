/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * target.h - output file of a copy out: with a hidden name in the destination's folder until
 * complete.  An existing file keeps its permission bits, its group and, where permitted, its
 * owner; a symbolic link remains.
 */
#ifndef IOD_TARGET_H
#define IOD_TARGET_H

#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

struct target {
    char path[PATH_MAX]; /* final path */
    char temp[PATH_MAX]; /* current name; empty: the final one */
    int fd;
    bool device; /* /dev/null: written in place */
    bool exists;
    mode_t mode; /* mode, owner and group of the existing file */
    uid_t owner;
    gid_t group;
};

/* Finds the path: `destination`, or `name` in it if it is a folder.  Returns false with one
 * line in `why`. */
bool target_find(struct target *target, const char *destination, const char *name, char *why,
                 size_t size);

/* Creates the temporary file. */
bool target_open(struct target *target, char *why, size_t size);

/* Sets the size of the file, before its data is written. */
bool target_resize(struct target *target, uint64_t bytes, char *why, size_t size);

/* Sets the mode (`mode` without the umask if new) and the name. */
bool target_finish(struct target *target, mode_t mode, char *why, size_t size);

/* Closes the file; removes an unfinished one.  Allowed on a zeroed target with fd -1. */
void target_close(struct target *target);

#endif

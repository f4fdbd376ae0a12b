/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Small files of OrangeFS by its system interface: creates COUNT files in the root of the file
 * system, or looks them up and gets their attributes, or removes them, one after the other.
 *
 *     small_files MOUNT_POINT COUNT create|stat|remove
 *
 * Prints the files per second. Each process starts with empty caches, so that all requests go
 * to the server. bench/run-metadata compiles it against an installed OrangeFS.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pvfs2.h"

static PVFS_credential credential;

static void failed(const char *what, int code)
{
    char text[256];

    PVFS_strerror_r(code, text, sizeof(text));
    fprintf(stderr, "small_files: %s: %s\n", what, text);
    exit(1);
}

static double now(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void make(PVFS_object_ref root, char *name)
{
    PVFS_sysresp_create response;
    PVFS_sys_attr attr = {
        .owner = credential.userid,
        .group = credential.group_array[0],
        .perms = 0644,
        .mask = PVFS_ATTR_SYS_ALL_SETABLE,
    };
    int ret;

    attr.atime = attr.mtime = attr.ctime = (PVFS_time)time(NULL);
    memset(&response, 0, sizeof(response));
    ret = PVFS_sys_create(name, root, attr, &credential, NULL, &response, NULL, NULL);
    if (ret < 0)
        failed("PVFS_sys_create", ret);
}

static void ask(PVFS_object_ref root, char *name)
{
    PVFS_sysresp_lookup found;
    PVFS_sysresp_getattr response;
    int ret;

    memset(&found, 0, sizeof(found));
    ret = PVFS_sys_ref_lookup(root.fs_id, name, root, &credential, &found,
                              PVFS2_LOOKUP_LINK_NO_FOLLOW, NULL);
    if (ret < 0)
        failed("PVFS_sys_ref_lookup", ret);
    memset(&response, 0, sizeof(response));
    ret = PVFS_sys_getattr(found.ref, PVFS_ATTR_SYS_ALL_NOHINT, &credential, &response, NULL);
    if (ret < 0)
        failed("PVFS_sys_getattr", ret);
    if (response.attr.objtype != PVFS_TYPE_METAFILE || response.attr.perms != 0644)
        failed("PVFS_sys_getattr, of another file", -PVFS_EIO);
    PVFS_util_release_sys_attr(&response.attr);
}

static void take_away(PVFS_object_ref root, char *name)
{
    int ret = PVFS_sys_remove(name, root, &credential, NULL);

    if (ret < 0)
        failed("PVFS_sys_remove", ret);
}

static const struct {
    const char *name;
    void (*act)(PVFS_object_ref root, char *name);
} acts[] = {{"create", make}, {"stat", ask}, {"remove", take_away}};

int main(int argc, char **argv)
{
    int count = argc == 4 ? atoi(argv[2]) : 0, ret;
    void (*act)(PVFS_object_ref root, char *name) = NULL;
    char path[PVFS_NAME_MAX], name[64];
    PVFS_sysresp_lookup response;
    PVFS_fs_id fs;

    for (unsigned i = 0; argc == 4 && i < sizeof(acts) / sizeof(acts[0]); i++)
        if (!strcmp(argv[3], acts[i].name))
            act = acts[i].act;
    if (count < 1 || !act) {
        fprintf(stderr, "usage: small_files MOUNT_POINT COUNT create|stat|remove\n");
        return 2;
    }
    if ((ret = PVFS_util_init_defaults()) < 0)
        failed("PVFS_util_init_defaults", ret);
    if ((ret = PVFS_util_resolve(argv[1], &fs, path, sizeof(path))) < 0)
        failed(argv[1], ret);
    if ((ret = PVFS_util_gen_credential_defaults(&credential)) < 0)
        failed("PVFS_util_gen_credential_defaults", ret);
    memset(&response, 0, sizeof(response));
    ret = PVFS_sys_lookup(fs, path[0] ? path : "/", &credential, &response,
                          PVFS2_LOOKUP_LINK_NO_FOLLOW, NULL);
    if (ret < 0)
        failed(argv[1], ret);

    double begin = now();
    for (int i = 0; i < count; i++) {
        snprintf(name, sizeof(name), "small-%d", i);
        act(response.ref, name);
    }
    printf("%.1f\n", count / (now() - begin));
    PVFS_sys_finalize();
    return 0;
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Stands in for libFuzzer where there is none: runs the target once for each file named, or
 * found in a folder named. */
#include <dirent.h>
#include "config.h"
#include <errno.h>

#include "fuzz.h"

static int replay_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    char *data = NULL;
    size_t size = 0, got;
    FILE *memory = open_memstream(&data, &size);
    char part[4096];

    if (file == NULL || memory == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return 1;
    }
    while ((got = fread(part, 1, sizeof(part), file)) > 0)
        fwrite(part, 1, got, memory);
    fclose(file);
    fclose(memory);
    LLVMFuzzerTestOneInput((const uint8_t *)data, size);
    free(data);
    return 0;
}

static int replay_folder(DIR *folder, const char *path, int *files)
{
    struct dirent *entry;
    int failed = 0;

    while ((entry = readdir(folder)) != NULL) {
        char *name = NULL;

        if (entry->d_name[0] == '.')
            continue;
        if (asprintf(&name, "%s/%s", path, entry->d_name) < 0)
            return 1;
        failed |= replay_file(name);
        free(name);
        ++*files;
    }
    return failed;
}

int main(int argc, char **argv)
{
    int failed = 0, files = 0;

    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);

        if (folder == NULL) {
            failed |= replay_file(argv[i]);
            files++;
            continue;
        }
        failed |= replay_folder(folder, argv[i], &files);
        closedir(folder);
    }
    if (files == 0) {
        fprintf(stderr, "usage: %s FILE-OR-FOLDER...\n", argv[0]);
        return 2;
    }
    printf("%d inputs\n", files);
    return failed;
}

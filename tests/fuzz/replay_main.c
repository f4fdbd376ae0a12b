/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Replaces libFuzzer where it is missing: runs the target for each file named, or in a folder
 * named. A target with a trace runs them once more, from the last to the first: an input's
 * effect must not depend on earlier inputs.
 */
#include <dirent.h>
#include "config.h"
#include <errno.h>

#include "fuzz.h"

#pragma weak fuzz_trace

struct input {
    char *path, *data;
    size_t size;
    uint64_t trace;
};

static struct input *inputs;
static size_t count;

static bool add_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    struct input input = {.path = strdup(path)};
    FILE *memory = open_memstream(&input.data, &input.size);
    struct input *more = realloc(inputs, (count + 1) * sizeof(*more));
    char part[4096];
    size_t got;

    if (more != NULL)
        inputs = more;
    if (file == NULL || input.path == NULL || memory == NULL || more == NULL) {
        fprintf(stderr, "%s: %s\n", path, strerror(errno));
        return false;
    }
    while ((got = fread(part, 1, sizeof(part), file)) > 0)
        fwrite(part, 1, got, memory);
    fclose(file);
    fclose(memory);
    inputs[count++] = input;
    return true;
}

static bool add_folder(DIR *folder, const char *path)
{
    struct dirent *entry;
    bool good = true;

    while (good && (entry = readdir(folder)) != NULL) {
        char *name = NULL;

        if (entry->d_name[0] == '.')
            continue;
        good = asprintf(&name, "%s/%s", path, entry->d_name) >= 0 && add_file(name);
        free(name);
    }
    return good;
}

static uint64_t replay(const struct input *input)
{
    char *exact = fuzz_copy((const uint8_t *)input->data, input->size, 0);

    LLVMFuzzerTestOneInput((const uint8_t *)exact, input->size);
    free(exact);
    return fuzz_trace != NULL ? fuzz_trace() : 0;
}

int main(int argc, char **argv)
{
    size_t differ = 0;

    for (int i = 1; i < argc; i++) {
        DIR *folder = opendir(argv[i]);
        bool good = folder != NULL ? add_folder(folder, argv[i]) : add_file(argv[i]);

        if (folder != NULL)
            closedir(folder);
        if (!good)
            return 1;
    }
    if (count == 0) {
        fprintf(stderr, "usage: %s FILE-OR-FOLDER...\n", argv[0]);
        return 2;
    }
    for (size_t i = 0; i < count; i++)
        inputs[i].trace = replay(&inputs[i]);
    for (size_t i = count; fuzz_trace != NULL && i-- > 0;) {
        if (replay(&inputs[i]) != inputs[i].trace) {
            fprintf(stderr, "%s: does something else when it runs again\n", inputs[i].path);
            differ++;
        }
    }
    for (size_t i = 0; i < count; i++) {
        free(inputs[i].path);
        free(inputs[i].data);
    }
    free(inputs);
    fprintf(stderr, "%zu inputs, %zu do something else when they run again\n", count, differ);
    return differ != 0;
}

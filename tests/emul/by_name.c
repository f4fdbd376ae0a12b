/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Uses the libraries of verbs as a program that is not linked with them: each handle is local,
 * and functions are asked for with their version. Prints what differs; status 0: nothing. */
#include <dlfcn.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#define CHECK(what) ((what) ? (void)0 : wrong(#what))

static int status;

static void wrong(const char *what)
{
    fprintf(stderr, "wrong: %s\n", what);
    status = 1;
}

static uintptr_t at(void *lib, const char *name, const char *version)
{
    void *found = version != NULL ? dlvsym(lib, name, version) : dlsym(lib, name);

    if (found == NULL)
        fprintf(stderr, "%s: %s\n", name, dlerror());
    return (uintptr_t)found;
}

#define CALL(type, lib, name, version) ((type)at(lib, name, version))

/* The first device, opened and used. */
static void use(void *verbs, void *cm)
{
    int count = 0;
    void **list = CALL(void **(*)(int *), verbs, "ibv_get_device_list", "IBVERBS_1.1")(&count);

    CHECK(list && count == 1);
    if (list == NULL || count != 1)
        return;
    CHECK(strcmp(CALL(const char *(*)(void *), verbs, "ibv_get_device_name",
                      "IBVERBS_1.1")(list[0]),
                 "emu0") == 0);
    void *context = CALL(void *(*)(void *), verbs, "ibv_open_device", "IBVERBS_1.1")(list[0]);
    CHECK(context);
    if (context == NULL)
        return;
    void *pd = CALL(void *(*)(void *), verbs, "ibv_alloc_pd", "IBVERBS_1.1")(context);
    CHECK(pd);
    char memory[4096];
    void *mr = CALL(void *(*)(void *, void *, size_t, uint64_t, unsigned), verbs,
                    "ibv_reg_mr_iova2", "IBVERBS_1.8")(pd, memory, sizeof(memory), 0, 1);
    CHECK(mr);
    CHECK(CALL(int (*)(void *), verbs, "ibv_dereg_mr", NULL)(mr) == 0);
    /* an id of one library uses the device of the other */
    void *channel = CALL(void *(*)(void), cm, "rdma_create_event_channel", "RDMACM_1.0")();
    void **id = NULL;
    CHECK(channel && CALL(int (*)(void *, void ***, void *, int), cm, "rdma_create_id",
                          "RDMACM_1.0")(channel, &id, NULL, 0x106) == 0);
    uint8_t address[16] = {2, 0, 0, 0, 127, 0, 0, 1}; /* sockaddr_in, AF_INET little-endian */
    memcpy(address, &(uint16_t){2}, 2);
    CHECK(CALL(int (*)(void *, void *), cm, "rdma_bind_addr", "RDMACM_1.0")(id, address) == 0);
    CHECK(id && id[0]); /* verbs: the device's context */
    CHECK(CALL(int (*)(void *), cm, "rdma_destroy_id", "RDMACM_1.0")(id) == 0);
}

/* Functions that are newer than the device's, by what they return. */
static void refuse(void *verbs, void *cm)
{
    static const char *const positive[][2] = {
        {"ibv_query_ece", "IBVERBS_1.10"},
        {"ibv_query_port_speed", "IBVERBS_1.16"},
        {"ibv_create_comp_cntr", "IBVERBS_1.18"},
        {"ibv_import_device", "IBVERBS_1.10"},
        {"ibv_reg_mr_ex", "IBVERBS_1.15"},
        {"ibv_alloc_buf", "IBVERBS_1.17"},
        {"ibv_set_comp_cntr", "IBVERBS_1.18"},
        {"ibv_export_buf_dmabuf_fd", "IBVERBS_1.18"},
        {"ibv_cmd_create_cq", "IBVERBS_PRIVATE_34"},
        {"ibv_cmd_create_cq", "IBVERBS_PRIVATE_65"},
    };
    static const char *const minus[][2] = {
        {"rdma_write_cm_event", "RDMACM_1.4"},
        {"repoll_create", "RDMACM_1.5"},
        {"rpoll", "RDMACM_1.0"},
    };

    for (size_t i = 0; i < sizeof(positive) / sizeof(positive[0]); i++) {
        errno = 0;
        intptr_t ret = CALL(intptr_t(*)(void), verbs, positive[i][0], positive[i][1])();
        if ((int)ret != EOPNOTSUPP && ((int)ret > 0 || errno != EOPNOTSUPP))
            wrong(positive[i][0]);
    }
    for (size_t i = 0; i < sizeof(minus) / sizeof(minus[0]); i++) {
        errno = 0;
        if (CALL(int (*)(void), cm, minus[i][0], minus[i][1])() != -1 || errno != EOPNOTSUPP)
            wrong(minus[i][0]);
    }
}

int main(void)
{
    void *verbs = dlopen("libibverbs.so.1", RTLD_NOW | RTLD_LOCAL);
    void *cm = dlopen("librdmacm.so.1", RTLD_LAZY | RTLD_LOCAL);
    char line[512];

    CHECK(verbs && cm);
    if (verbs == NULL || cm == NULL)
        return 1;
    /* one instance, under each name and preloaded */
    CHECK(at(verbs, "ibv_open_device", NULL) == at(RTLD_DEFAULT, "ibv_open_device", NULL));
    CHECK(at(verbs, "emuverbs_counter", NULL) == at(cm, "emuverbs_counter", NULL));
    use(verbs, cm);
    refuse(verbs, cm);
    FILE *maps = fopen("/proc/self/maps", "re");
    while (maps != NULL && fgets(line, sizeof(line), maps) != NULL)
        if (strstr(line, "libibverbs") != NULL || strstr(line, "librdmacm") != NULL)
            wrong(line);
    if (maps != NULL)
        fclose(maps);
    return status;
}

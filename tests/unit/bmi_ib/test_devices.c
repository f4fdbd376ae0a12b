/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The device list, whose contexts librdmacm keeps for the life of the process. */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "bmi_ib/device/device.h"
#include "rig.h"

static struct ibv_device device = {.name = "fake0"};
static struct ibv_context contexts[2]; /* a process's context, and one that its child opens */

static int set_up(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++)
        contexts[i] = (struct ibv_context){.device = &device};
    rig_open(NULL, 16, 0);
    rig.listed = &contexts[0];
    return 0;
}

static int tear_down(void **state)
{
    (void)state;
    rig_close();
    return 0;
}

/* Closes the device and lists again, like the next engine. */
static int open_again(void)
{
    rig.rail->dev.pd = NULL;
    ib_device_close(rig.rail);
    ib_device_unlist(rig.f);
    return ib_device_list(rig.f);
}

/* Returns the result in a child that inherited those contexts. */
static int in_a_child(int which)
{
    int status;
    pid_t pid = fork();

    assert_true(pid >= 0);
    if (pid == 0) {
        rig.listed = &contexts[which];
        int error = open_again();
        bool said = strstr(rig.lines, "before fork()") != NULL;
        _exit(error == 0 && !said ? 0 : error == -ENODEV && said ? 1 : 2);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void child_with_inherited_devices_is_refused(void **state)
{
    (void)state;
    assert_int_equal(in_a_child(0), 0);
    assert_int_equal(open_again(), 0);
    assert_int_equal(open_again(), 0);
    assert_int_equal(in_a_child(0), 1);
    assert_int_equal(in_a_child(1), 0); /* the software HCA gives a child its own context */
}

/* Opening warns where a fork parts the process from its registered memory, and nowhere else. */
static void fork_that_parts_memory_is_warned_of(void **state)
{
    static const enum ibv_fork_status kinds[] = {IBV_FORK_DISABLED, IBV_FORK_ENABLED,
                                                 IBV_FORK_UNNEEDED};
    (void)state;
    for (int i = 0; i < 3; i++) {
        rig_open(NULL, 16, 0);
        struct ibv_pd *kept = rig.rail->dev.pd;
        rig.rail->dev.attr.max_qp_wr = 128;
        rig.fork = kinds[i];
        assert_int_equal(ib_device_open(rig.rail), 0);
        const char *line = strstr(rig.lines, "calls system()");
        assert_true((line != NULL) == (kinds[i] == IBV_FORK_DISABLED));
        assert_true(!line || strstr(line, "RDMAV_FORK_SAFE=1"));
        rig.rail->dev.pd = kept;
        rig_close();
    }
}

/* Returns true if the kernel keeps a page from children of this process. */
static bool is_kept_from_children(const void *page)
{
    char line[512];
    bool within = false, kept = false;
    FILE *f = fopen("/proc/self/smaps", "r");

    assert_non_null(f);
    while (fgets(line, sizeof(line), f) != NULL) {
        unsigned long first, end;
        if (sscanf(line, "%lx-%lx ", &first, &end) == 2)
            within = (uintptr_t)page >= first && (uintptr_t)page < end;
        else if (within && strncmp(line, "VmFlags:", 8) == 0)
            kept = strstr(line, " dc") != NULL;
    }
    fclose(f);
    return kept;
}

static void buffers_are_kept_from_children(void **state)
{
    struct ib_memory m;

    (void)state;
    rig_open(NULL, 16, 0);
    assert_int_equal(ib_memory_get(rig.rail, 5000, &m), 0);
    assert_true(is_kept_from_children(m.base));
    assert_true(is_kept_from_children((char *)m.base + m.length - 1));
    ib_memory_put(&m);
    rig_close();
}

static void check_ordering(const char *options, int relaxed)
{
    static char buffer[8];
    struct ib_memory m;
    struct rme_mr mr;

    rig_open(options, 16, 0);
    assert_int_equal(ib_reg(rig.f, buffer, sizeof(buffer), RME_ACCESS_LOCAL_WRITE, &mr), 0);
    assert_int_equal(rig.access & IBV_ACCESS_RELAXED_ORDERING, relaxed);
    ib_dereg(rig.f, &mr);
    assert_int_equal(ib_memory_get(rig.rail, sizeof(buffer), &m), 0);
    assert_int_equal(rig.access & IBV_ACCESS_RELAXED_ORDERING, relaxed);
    ib_memory_put(&m);
    rig_close();
}

static void relaxed_ordering_chosen_reaches_registrations(void **state)
{
    (void)state;
    check_ordering("relaxed_ordering=on", IBV_ACCESS_RELAXED_ORDERING);
    check_ordering("relaxed_ordering=off", 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(child_with_inherited_devices_is_refused, set_up,
                                        tear_down),
        cmocka_unit_test(fork_that_parts_memory_is_warned_of),
        cmocka_unit_test(buffers_are_kept_from_children),
        cmocka_unit_test(relaxed_ordering_chosen_reaches_registrations),
    };

    return cmocka_run_group_tests_name("devices", tests, NULL, NULL);
}

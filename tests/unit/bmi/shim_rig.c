/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include <stdio.h>
#include <string.h>

#include "gossip.h"
#include "shim_rig.h"

struct lines lines;

static void count(void *arg, char kind, const char *line)
{
    (void)arg;
    if (kind == 'E') {
        lines.errors++;
        snprintf(lines.last_error, sizeof(lines.last_error), "%s", line);
    } else {
        lines.debug++;
    }
}

void lines_count(void)
{
    memset(&lines, 0, sizeof(lines));
    gossip_set_sink(count, NULL);
}

struct bmi_method_ops *const bmi_static_methods[] = {&bmi_fake_ops, &other_ops, NULL};

int shim_setup(void **state)
{
    (void)state;
    fake_reset();
    memset(&other, 0, sizeof(other));
    lines_count();
    return 0;
}

int shim_teardown(void **state)
{
    (void)state;
    while (BMI_finalize() == 0)
        ;
    return fake.engines != 0 || fake.addrs != 0;
}

bmi_context_id context;
BMI_addr_t peer;

void start_client(void)
{
    assert_int_equal(BMI_initialize(NULL, NULL, 0, NULL), 0);
    assert_int_equal(BMI_open_context(&context), 0);
    assert_int_equal(BMI_addr_lookup(&peer, "fake://host:1", NULL), 0);
}

void start_server(int flags)
{
    assert_int_equal(
        BMI_initialize("bmi_fake", "fake://me:1", BMI_INIT_SERVER | flags, "depth=3"), 0);
    assert_int_equal(BMI_open_context(&context), 0);
}

bmi_op_id_t post_recv(int tag, void *user)
{
    static char buffer[8];
    bmi_op_id_t id;
    assert_int_equal(
        BMI_post_recv(&id, peer, buffer, 8, NULL, BMI_EXT_ALLOC, tag, user, context, NULL), 0);
    assert_true(id != 0);
    return id;
}

void receive(struct BMI_unexpected_info *info)
{
    int n;
    assert_int_equal(BMI_testunexpected(1, &n, info, 0), 1);
    assert_int_equal(n, 1);
}

void answer(const struct BMI_unexpected_info *info)
{
    assert_int_equal(BMI_unexpected_free(info->addr, info->buffer), 0);
    assert_int_equal(BMI_set_info(info->addr, BMI_DEC_ADDR_REF, NULL), 0);
}

void find_nothing(int polls)
{
    struct BMI_unexpected_info info;
    int n;

    while (polls-- > 0)
        assert_int_equal(BMI_testunexpected(1, &n, &info, 0), 0);
}

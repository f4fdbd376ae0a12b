/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* addresses COUNT: looks up so many addresses, each twice and by two strings, and finalizes BMI
 * with them; tests/instructions/addresses counts the instructions of measured(). */
#include <bmi.h>
#include <stdio.h>
#include <stdlib.h>

static void die(const char *what, int ret)
{
    fprintf(stderr, "addresses: %s: %s\n", what, bmi_status_string(ret));
    exit(1);
}

static BMI_addr_t lookup(int number, const char *rest)
{
    char text[64];
    BMI_addr_t addr;

    snprintf(text, sizeof(text), "ib://10.%d.%d.%d:3335%s", number >> 16, number >> 8 & 255,
             number & 255, rest);
    int ret = BMI_addr_lookup(&addr, text, NULL);
    if (ret < 0)
        die(text, ret);
    return addr;
}

__attribute__((noinline)) void measured(int count);

void measured(int count)
{
    for (int i = 0; i < count; i++) {
        BMI_addr_t addr = lookup(i, "");
        if (lookup(i, "") != addr || lookup(i, "/export") == addr)
            die("another address was found", 0);
    }
    int ret = BMI_finalize();
    if (ret < 0)
        die("finalize", ret);
}

int main(int argc, char **argv)
{
    int count = argc == 2 ? atoi(argv[1]) : 0;

    int ret = count > 0 ? BMI_initialize(NULL, NULL, 0, NULL) : -BMI_EINVAL;
    if (ret < 0)
        die("usage: addresses COUNT", ret);
    lookup(0xffffff, ""); /* starts the method */
    measured(count);
    return 0;
}

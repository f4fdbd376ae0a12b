/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Joining and leaving the network: contexts are freed however their owners end, and a folder
 * has one version. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>

#include "bmi_elan4/inbox.h"
#include "emul/elan4/emu.h"
#include "tests/elan4/bed.h"
#include "tests/elan4/cases.h"

static const struct bmi_elan4_range range = {0, NODES - 1, LOW, LOW + CONTEXTS - 1};

struct member {
    struct bmi_elan4_nic *nic;
    struct bmi_elan4_inbox *inbox;
};

/* The log may be in the emulation's own folder. */
static const char *folder(void)
{
    return getenv("EMUELAN4_DIR");
}

static int try_join(struct member *me, int context)
{
    char why[200] = "";
    struct bmi_elan4_nic_config config = {.range = range,
                                          .key = {5, 6, 7, 8},
                                          .folder = folder(),
                                          .context = context,
                                          .main_bytes = 16 << 20,
                                          .sdram_bytes = 1 << 16};
    int rc = bmi_elan4_nic_open(&config, &me->nic, why, sizeof(why));

    if (rc < 0) {
        CHECK(why[0]);
        return rc;
    }
    CHECK(bmi_elan4_inbox_open(me->nic, 4, &me->inbox) == 0);
    CHECK(bmi_elan4_nic_listen(me->nic) == 0);
    return 0;
}

static void join(struct member *me, int context)
{
    CHECK(try_join(me, context) == 0);
}

static void leave(struct member *me)
{
    CHECK(atomic_load(&me->nic->traps) == 0);
    bmi_elan4_inbox_close(me->inbox);
    bmi_elan4_nic_close(me->nic);
}

/* ---- contexts are freed ---- */

static void crowd(struct bed *b)
{
    struct member me, many[CONTEXTS];
    char why[200] = "";
    int n = 0;

    /* one process may have several contexts: all of the clients', and no more */
    while (n < 4 && try_join(&many[n], BMI_ELAN4_CLIENT) == 0) {
        CHECK(many[n].nic->context == LOW + 1 + n);
        n++;
    }
    CHECK(n == 4);
    CHECK(try_join(&me, LOW + 2) == -EBUSY);
    leave(&many[1]);
    CHECK(try_join(&me, BMI_ELAN4_CLIENT) == 0);
    CHECK(me.nic->context == LOW + 2); /* the freed one */
    leave(&me);
    leave(&many[0]);
    leave(&many[2]);
    leave(&many[3]);
    for (int i = 0; i < 300; i++) {
        join(&me, BMI_ELAN4_CLIENT);
        CHECK(me.nic->context == LOW + 1);
        if (i % 10 == 0) /* asleep while it leaves */
            bmi_elan4_inbox_arm(me.inbox);
        leave(&me);
    }
    /* memory is freed in any order */
    for (int i = 0; i < 300; i++) {
        join(&many[i % 3], BMI_ELAN4_CLIENT);
        if (i >= 2)
            leave(&many[(i + 1) % 3]);
    }
    leave(&many[(300 - 1) % 3]);
    leave(&many[(300 - 2) % 3]);
    /* a process that ignores the log has the first one */
    bed_open(b, LOW + 1);
    join(&me, BMI_ELAN4_CLIENT);
    CHECK(me.nic->context == LOW + 2);
    leave(&me);
    bed_close(b);
    /* a node outside of the range */
    struct bmi_elan4_nic_config config = {.range = {5, 6, LOW, LOW + 3},
                                          .folder = folder(),
                                          .context = BMI_ELAN4_CLIENT,
                                          .main_bytes = 1 << 20,
                                          .sdram_bytes = 1 << 16};
    CHECK(bmi_elan4_nic_open(&config, &me.nic, why, sizeof(why)) < 0 && why[0]);
}

static void victim(struct bed *b)
{
    struct member me;

    join(&me, BMI_ELAN4_CLIENT);
    tell(b, 0, (uint64_t)me.nic->context);
    bmi_elan4_inbox_arm(me.inbox);
    usleep(2000);
    kill(getpid(), SIGKILL);
}

static void heir(struct bed *b)
{
    struct member me;
    int context = (int)told(b, 0);
    uint64_t end = now_ms() + 60000;

    for (;;) { /* on the victim's node; the victim may still be alive */
        join(&me, BMI_ELAN4_CLIENT);
        if (me.nic->context == context)
            break;
        leave(&me);
        CHECK(now_ms() < end);
        usleep(1000);
    }
    leave(&me);
}

/* Is between the victim and the next process of its node. */
static void bystander(struct bed *b)
{
    (void)b;
}

/* ---- shared folders ---- */

static int in_folder(const char *name)
{
    char path[300];

    snprintf(path, sizeof(path), "%s/%s", folder(), name);
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    CHECK(fd >= 0);
    return fd;
}

/* Checks that joining fails with one line that has both words. */
static void refused_with(const char *word, const char *other)
{
    char text[1000] = "";
    int pipes[2], saved = dup(2);

    CHECK(saved >= 0 && pipe(pipes) == 0 && dup2(pipes[1], 2) == 2);
    ELAN4_CTX *ctx = elan4_init(0);
    int err = errno;
    CHECK(dup2(saved, 2) == 2);
    CHECK(ctx == NULL && err == EPROTO);
    close(pipes[1]);
    CHECK(read(pipes[0], text, sizeof(text) - 1) > 0);
    fputs(text, stderr);
    CHECK(strstr(text, word) && strstr(text, other) && strstr(text, folder()) &&
          strstr(text, "; run "));
    CHECK(strchr(text, '\n') == text + strlen(text) - 1); /* one line */
    close(pipes[0]);
    close(saved);
}

/* Holds the folder like a process of version 6, until told to leave. */
static void of_another_version(struct bed *b)
{
    int fd = in_folder("version");

    CHECK(write(fd, "6\n", 2) == 2 && flock(fd, LOCK_SH) == 0);
    tell(b, 0, 1);
    told(b, 1);
    close(fd);
    tell(b, 2, 1);
}

static void of_this_version(struct bed *b)
{
    char text[16] = "", own[16];
    struct member me;

    told(b, 0);
    refused_with("version 6", "EMUELAN4_DIR");
    tell(b, 1, 1);
    told(b, 2);
    join(&me, BMI_ELAN4_CLIENT); /* remains there do not disturb */
    snprintf(own, sizeof(own), "%u\n", EMU4_VERSION);
    CHECK(pread(in_folder("version"), text, sizeof(text) - 1, 0) > 0);
    CHECK(strcmp(text, own) == 0);
    leave(&me);
}

static int folder_of_other_version_refused(void)
{
    return run_beds(2, (bed_fn[]){of_another_version, of_this_version});
}

/* Many processes start in a new folder at once: each joins. */
static void newcomer(struct bed *b)
{
    struct member me;

    meet(b, 0, 12);
    join(&me, BMI_ELAN4_CLIENT);
    leave(&me);
}

static int all_new_at_once(void)
{
    bed_fn fn[12];

    for (int i = 0; i < 12; i++)
        fn[i] = newcomer;
    return run_beds(12, fn);
}

static int contexts_come_back(void)
{
    static const bed_fn fn[] = {crowd};
    return run_beds(1, fn);
}

static int killed_client_context_is_reused(void)
{
    static const bed_fn fn[] = {victim, bystander, bystander, bystander, heir};
    return run_beds_kill(5, fn, 0);
}

int main(void)
{
    CASE(contexts_come_back());
    CASE(killed_client_context_is_reused());
    CASE(folder_of_other_version_refused());
    CASE(all_new_at_once());
    return cases_end();
}

/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "config.h"
#include "lane.h"
#include <dlfcn.h>
#include <fnmatch.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>
#include "../fabric/loop.h"
#include "embedded/bmi/methods.h"
#include "tests/ports/ports.h"

#define URIS      8
#define TESTS_MAX 256

struct lane lane;

static char first_uri[256];

struct fabric_choice {
    const char *name;
    const struct rme_fabric_ops *(*ops)(void);
};

/*
 * Options of Elan4.  One thread plays both sides, so no peer answers while an engine closes.
 * Closing would wait as long as a silent peer's writes may be in flight; these options shorten
 * that.  No device reports a peer's death, so waiters probe often.
 */
static const char elan4_preset[] = "elan_quarantine_ms=20,keepalive_ms=20";

/* Sets the bootstrap addresses of servers: ports of this process, unless the environment has
 * some. */
static int prepare_elan4(void)
{
    char text[URIS * 32];
    size_t at = 0;
    int port;

    if (getenv("BMI_ELAN4_SERVER_ADDR") != NULL)
        return 0;
    port = ports_take();
    if (port < 0)
        return port;
    snprintf(text, sizeof text, "*=127.0.0.1:%d", port);
    for (int n = 0; lane.nodes && n < URIS; n++)
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%d=127.0.0.1:%d", n ? "," : "",
                               n, port + n);
    return setenv("BMI_ELAN4_SERVER_ADDR", text, 1);
}

static const struct fabric_choice choices[] = {{"loop", loop_fabric},
#define CHOICE(name, address, emulator) {#name, bmi_##name##_fabric},
                                               BMI_METHODS(CHOICE)
#undef CHOICE
};

pid_t lane_spawn(const char *as, const char *uri, int out)
{
    pid_t child = fork();

    assert_true(child >= 0);
    if (child)
        return child;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    dup2(out, 1);
    execl("/proc/self/exe", lane.program, "--fabric", lane.ops->scheme, "--addr", uri,
          "--options", lane.options != NULL ? lane.options : "", "--client-options",
          lane.client_options != NULL ? lane.client_options : "", as, (char *)NULL);
    _exit(127);
}

uint64_t lane_env(const char *name, uint64_t unset)
{
    const char *text = getenv(name);

    return text != NULL && *text ? strtoull(text, NULL, 0) : unset;
}

int64_t lane_now(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

const char *lane_uri(int n)
{
    static char text[URIS][sizeof first_uri + 16];
    const char *colon = strrchr(first_uri, ':');
    int host = (int)(colon - first_uri);

    if (lane.nodes)
        snprintf(text[n % URIS], sizeof text[0], "elan4://%d:2", n);
    else
        snprintf(text[n % URIS], sizeof text[0], "%.*s:%d", host, first_uri,
                 atoi(colon + 1) + n);
    return text[n % URIS];
}

int lane_settle(const char *uri)
{
    static int last; /* node of the last engine that does not listen */
    char text[16];
    int node;

    if (!lane.nodes)
        return 0;
    if (uri == NULL || sscanf(uri, "elan4://%d:", &node) != 1)
        node = last = (last + 1) % lane.nodes;
    snprintf(text, sizeof text, "%d", node);
    setenv("EMUELAN4_NODE", text, 1);
    return node;
}

static const struct fabric_choice *choose(const char *name)
{
    for (size_t i = 0; i < sizeof choices / sizeof choices[0]; i++)
        if (!strcmp(choices[i].name, name))
            return &choices[i];
    return NULL;
}

bool lane_is_emuverbs(void)
{
    const char *loaded = getenv("LD_PRELOAD");

    return loaded != NULL && strstr(loaded, "emuverbs") != NULL;
}

int64_t lane_counter(const char *name)
{
    int64_t (*count)(const char *) =
        (int64_t(*)(const char *))(uintptr_t)dlsym(RTLD_DEFAULT, "emuverbs_counter");

    return count != NULL ? count(name) : 0;
}

const char *lane_options(bool listens)
{
    static char text[512];
    const char *preset = lane.preset != NULL ? lane.preset : "";
    const char *all = lane.options != NULL ? lane.options : "";
    const char *more = listens || lane.client_options == NULL ? "" : lane.client_options;

    /* Disables RNR retries: our own peers never send without a posted receive. */
    snprintf(text, sizeof text, "rnr_retry=0%s%s%s%s%s%s", *preset ? "," : "", preset,
             *all ? "," : "", all, *more ? "," : "", more);
    return text;
}

static bool wanted(const char *name, const char *only)
{
    char *list = strdup(only != NULL ? only : "*"), *rest = list;
    bool found = *list == '!';

    for (const char *pattern; (pattern = strsep(&rest, ","));)
        if (*pattern == '!')
            found = found && fnmatch(pattern + 1, name, 0);
        else
            found = found || !fnmatch(pattern, name, 0);
    free(list);
    return found;
}

static int usage(const char *program)
{
    fprintf(stderr,
            "usage: %s [--fabric loop|ib|elan4] [--addr URI] [--options LIST] "
            "[--client-options LIST] [--only NAME,…] [--list] [--seed N] [--nodes N]\n",
            program);
    return 2;
}

static int run(const struct CMUnitTest *tests, size_t count, const char *only, bool list)
{
    struct CMUnitTest chosen[TESTS_MAX];
    size_t n = 0;

    for (size_t i = 0; i < count && n < TESTS_MAX; i++) {
        if (!wanted(tests[i].name, only))
            continue;
        if (list)
            puts(tests[i].name);
        chosen[n++] = tests[i];
    }
    if (list)
        return 0;
    if (!n) {
        fprintf(stderr, "no test is called %s; --list prints the names\n",
                only != NULL ? only : "");
        return 2;
    }
    return _cmocka_run_group_tests(lane.ops->scheme, chosen, n, NULL, NULL) ? 1 : 0;
}

int lane_main(int argc, char **argv, const struct CMUnitTest *tests, size_t count)
{
    static const struct option longs[] = {
        {"fabric", required_argument, NULL, 'f'},
        {"addr", required_argument, NULL, 'a'},
        {"options", required_argument, NULL, 'o'},
        {"only", required_argument, NULL, 'n'},
        {"client-options", required_argument, NULL, 'c'},
        {"list", no_argument, NULL, 'l'},
        {"seed", required_argument, NULL, 's'},
        {"nodes", required_argument, NULL, 'd'},
        {"peer", no_argument, NULL, 'p'},
        {"guest", no_argument, NULL, 'g'},
        {"visitor", no_argument, NULL, 'v'},
        {0},
    };
    const struct fabric_choice *choice = &choices[0];
    const char *uri = NULL, *only = NULL;
    int (*instead)(const char *uri) = NULL;
    bool list = false, over_elan4;

    lane.program = argv[0];
    lane.seed = lane_env("CONFORMANCE_SEED", 1);
    for (int c; (c = getopt_long(argc, argv, "", longs, NULL)) != -1;) {
        switch (c) {
        case 'f':
            choice = choose(optarg);
            if (choice == NULL) {
                fprintf(stderr, "%s: no fabric is called %s in this build\n", argv[0], optarg);
                return 77; /* automake: skipped */
            }
            break;
        case 'a':
            uri = optarg;
            break;
        case 'o':
            lane.options = optarg;
            break;
        case 'c':
            lane.client_options = optarg;
            break;
        case 'n':
            only = optarg;
            break;
        case 'l':
            list = true;
            break;
        case 'd':
            lane.nodes = atoi(optarg);
            break;
        case 'p':
            instead = lane.peer;
            break;
        case 'g':
            instead = lane.guest;
            break;
        case 'v':
            instead = lane.visitor;
            break;
        case 's':
            lane.seed = strtoull(optarg, NULL, 0);
            break;
        default:
            return usage(argv[0]);
        }
    }
    lane.ops = choice->ops();
    lane.is_loop = choice->ops == loop_fabric;
    over_elan4 = strcmp(choice->name, "elan4") == 0;
    lane.preset = over_elan4 ? elan4_preset : NULL;
    lane.is_elan4 =
        over_elan4 || (lane.options != NULL && strstr(lane.options, "loop_elan4=1") != NULL);
    if (over_elan4 && !list) {
        int error = prepare_elan4();
        if (error) {
            fprintf(stderr, "%s: no ports: %s\n", argv[0], strerror(-error));
            return 1;
        }
    }
    if (uri == NULL && lane.is_loop)
        uri = "loop://server:1";
    else if (uri == NULL && over_elan4)
        uri = "elan4://0:2";
    if (uri != NULL) {
        snprintf(first_uri, sizeof first_uri, "%s", uri);
    } else { /* a port of this process */
        int port = list ? 0 : ports_take();
        if (port < 0) {
            fprintf(stderr, "%s: no ports: %s\n", argv[0], strerror(-port));
            return 1;
        }
        snprintf(first_uri, sizeof first_uri, "%s://127.0.0.1:%d", choice->name, port);
    }
    if (strrchr(first_uri, ':') == NULL || optind < argc)
        return usage(argv[0]);
    if (lane.nodes < 0 || lane.nodes > URIS || (lane.nodes && !over_elan4))
        return usage(argv[0]);
    if (instead != NULL)
        return instead(first_uri);
    return run(tests, count, only, list);
}

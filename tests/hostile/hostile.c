/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * hostile ATTACK iod|perf ADDRESS SECONDS: attacks a bmi-iod or a bmi-perf server as a client
 * and prints the counts. Exits with 0 if the server violated no rule; tests/hostile/run checks
 * the effect on other clients.
 */
#include "config.h"
#include "attack.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const struct {
    const char *name, *text;
    attack_fn *round;
} attacks[] = {
    {"malformed", "messages that are none", attack_malformed},
    {"hellos", "connection data that is none", attack_hellos},
    {"credits", "more messages than credits", attack_credits},
    {"windows", "more eager messages and RTS than was granted", attack_windows},
    {"deaf", "requests whose answers are never taken", attack_deaf},
    {"cancels", "cancels that cannot be answered", attack_cancels},
    {"rts", "as many and as large RTS as was granted", attack_rts},
    {"empty", "unexpected messages of no bytes", attack_empty},
    {"silent", "links that say nothing, or are asked for and left", attack_silent},
    {"storm", "links made and ended all the time", attack_storm},
    {"links", "1,000 links that do a little of everything", attack_links},
    {"deaths", "processes that are killed with links up, a dozen at a time", attack_deaths},
    {"leaver", "one of them", attack_leaver},
    {"crowd", "1,000 clients at once, each of which asks and is answered", attack_crowd},
    {"keys", "every key ever seen, used later and elsewhere", attack_keys},
    {"shared-keys", "the same where a key serves every link while its operation lasts",
     attack_shared_keys},
    {"lies", "words that are not true, behind a right handshake", attack_lies},
    {"lent", "lent memory that changes while it is read", attack_lent},
    {"unwritten", "data that is said to be written and is not (iod)", attack_unwritten},
    {"lists", "requests for lists by clients who leave (iod)", attack_lists},
    {"prepared", "parts of copies that are prepared and left (iod)", attack_prepared},
#ifdef HAVE_BMI_ELAN4
    {"visitors", "connections to the desk that say nothing (elan4)", attack_visitors},
    {"generations", "cards of others who had this process's place (elan4)", attack_generations},
    {"nowhere", "addresses where no memory is (elan4)", attack_nowhere},
    {"places", "more links than one process is given (elan4)", attack_places},
#endif
    {"jobs", "jobs that need much memory (perf)", attack_jobs},
};

#define ATTACKS (sizeof attacks / sizeof attacks[0])

void complain(struct attack *attack, const char *format, ...)
{
    va_list args;

    if (attack->failures++ >= 10)
        return; /* enough failures */
    printf("FAILED: ");
    va_start(args, format);
    vprintf(format, args);
    va_end(args);
    putchar('\n');
}

bool attack_over(const struct attack *attack)
{
    return clock_us() >= attack->deadline;
}

struct link *attack_open(struct attack *attack, const struct link_plan *plan)
{
    int error;
    struct link *link = link_open(&attack->target, plan, &error);

    if (link != NULL)
        attack->links++;
    else
        attack->refused++;
    return link;
}

struct link *attack_enter(struct attack *attack)
{
    struct link *link = NULL;

    for (unsigned i = 0; i < 6000 && link == NULL; i++, usleep(10000))
        link = attack_open(attack, &(struct link_plan){0});
    if (link == NULL)
        complain(attack, "no link is given any more");
    return link;
}

void attack_must_end(struct attack *attack, struct link *link, const char *after)
{
    if (link_ended(link, 20000))
        attack->ended++;
    else
        complain(attack, "the link goes on after %s", after);
}

bool attack_say(struct attack *attack, struct link *link,
                const struct rme_wire_message *message)
{
    if (link_say(link, message, NULL, NULL, 0) != 0)
        return false;
    attack->messages++;
    return true;
}

static int usage(void)
{
    fprintf(stderr, "usage: hostile ATTACK iod|perf ADDRESS SECONDS\n");
    for (unsigned i = 0; i < ATTACKS; i++)
        fprintf(stderr, "  %-11s %s\n", attacks[i].name, attacks[i].text);
    return 2;
}

int main(int argc, char **argv)
{
    struct attack attack = {.victim = VICTIM_PERF, .address = argc == 5 ? argv[3] : ""};
    unsigned which = 0;

    if (argc != 5 || !target_parse(argv[3], &attack.target) ||
        (strcmp(argv[2], "iod") != 0 && strcmp(argv[2], "perf") != 0))
        return usage();
    while (which < ATTACKS && strcmp(argv[1], attacks[which].name) != 0)
        which++;
    if (which == ATTACKS)
        return usage();
    if (strcmp(argv[2], "iod") == 0)
        attack.victim = VICTIM_IOD;
    setvbuf(stdout, NULL, _IOLBF, 0);
    attack.deadline = clock_us() + (uint64_t)(strtod(argv[4], NULL) * 1e6);
    do {
        attacks[which].round(&attack);
        attack.round++;
    } while (!attack_over(&attack) && attack.failures == 0);
    if (attack.links == 0 && attack.refused == 0)
        complain(&attack, "nothing was tried");
    printf("%s of %s: %u rounds, %u links (%u ended by the server, %u refused), %u messages",
           argv[1], argv[2], attack.round, attack.links, attack.ended, attack.refused,
           attack.messages);
    if (attack.keys > 0)
        printf(", %llu keys, %llu bytes stolen", (unsigned long long)attack.keys,
               (unsigned long long)attack.stolen);
    printf(", %u failures\n", attack.failures);
    return attack.failures > 0;
}

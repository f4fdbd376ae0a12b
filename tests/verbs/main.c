/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * verbs-answers [--from DEVICE] [--to DEVICE] [--address IPV4] [--port N] [WORD]
 *
 * Puts all questions (or those that contain WORD) to a verbs device, each in its own process
 * with newly opened devices, and prints a line "question: answer" for each. A process that does
 * not end within 300 s is killed, which is recorded as the answer. Exits with 0 if each
 * question could be put.
 */
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/verbs/ask.h"

#define PATIENCE_S 300

static bool put(const struct question *q)
{
    int status;

    printf("%s: ", q->text);
    fflush(stdout);
    pid_t pid = fork();
    if (pid == 0) {
        alarm(PATIENCE_S);
        question_put(q);
        exit(0);
    }
    if (pid < 0 || waitpid(pid, &status, 0) != pid) {
        puts("could not be asked: no process");
        return false;
    }
    if (WIFSIGNALED(status))
        printf(WTERMSIG(status) == SIGALRM ? " (and no end)" : " (and killed by signal %d)",
               WTERMSIG(status));
    puts("");
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

int main(int argc, char **argv)
{
    static const struct option options[] = {{"from", 1, NULL, 'f'},
                                            {"to", 1, NULL, 't'},
                                            {"address", 1, NULL, 'a'},
                                            {"port", 1, NULL, 'p'},
                                            {NULL, 0, NULL, 0}};
    const struct question *const all[] = {memory_questions,   window_questions, queue_questions,
                                          flow_questions,     event_questions,  cm_questions,
                                          datagram_questions, atomic_questions};
    bool good = true;
    int c;

    while ((c = getopt_long(argc, argv, "f:t:a:p:", options, NULL)) != -1)
        switch (c) {
        case 'f':
            from_name = optarg;
            break;
        case 't':
            to_name = optarg;
            break;
        case 'a':
            cm_address = optarg;
            break;
        case 'p':
            cm_port = atoi(optarg);
            break;
        default:
            fprintf(
                stderr,
                "usage: %s [--from DEVICE] [--to DEVICE] [--address IPV4] [--port N] [WORD]\n",
                argv[0]);
            return 2;
        }
    for (unsigned i = 0; i < sizeof(all) / sizeof(all[0]); i++)
        for (const struct question *q = all[i]; q->text; q++)
            if (optind == argc || strstr(q->text, argv[optind]) != NULL)
                good = put(q) && good;
    return good ? 0 : 1;
}

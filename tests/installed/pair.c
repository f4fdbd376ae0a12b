/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * pair.c - a user's program over the installed libbmi: a server on any free port, and a client
 * in a second process, exchange one unexpected message. Compiled as C and as C++, with the API
 * of new releases of OrangeFS and, with -DBMI_API=20900, of old ones.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <bmi.h>

#if BMI_API < 20908
#define OPTIONS
#else
#define OPTIONS , NULL
#endif

static char heard[256]; /* the last log line */

static void keep_line(void *arg, char kind, const char *line)
{
    (void)arg, (void)kind;
    snprintf(heard, sizeof(heard), "%s", line);
}

static void must(int ok, const char *what)
{
    if (ok)
        return;
    fprintf(stderr, "%s failed; the log's last line: %s\n", what, heard);
    exit(1);
}

static void client(int port)
{
    char text[64], word[] = "hello";
    bmi_context_id context;
    bmi_op_id_t id;
    BMI_addr_t server;
    bmi_error_code_t error = 0;
    bmi_size_t size = 0;
    void *user = NULL;
    int count = 0, ret;

    must(BMI_initialize(NULL, NULL, 0 OPTIONS) == 0, "BMI_initialize of the client");
    must(BMI_open_context(&context) == 0, "BMI_open_context");
    snprintf(text, sizeof(text), "ib://127.0.0.1:%d", port);
    must(BMI_addr_lookup(&server, text OPTIONS) == 0, "BMI_addr_lookup");
    must(BMI_addr_lookup(&server, "ib://127.0.0.1:0" OPTIONS) < 0,
         "refusing port 0 of a server");
    must(strstr(heard, "0 is any free port") != NULL, "naming port 0");
    must(BMI_addr_lookup(&server, text OPTIONS) == 0, "BMI_addr_lookup again");
    ret = BMI_post_sendunexpected(&id, server, word, sizeof(word), BMI_EXT_ALLOC, 7, NULL,
                                  context, NULL);
    must(ret >= 0, "BMI_post_sendunexpected");
    for (int i = 0; ret == 0 && count == 0 && i < 1000; i++)
        must(BMI_test(id, &count, &error, &size, &user, 10, context) >= 0, "BMI_test");
    must(ret == 1 || (count == 1 && error == 0), "the send");
    BMI_close_context(context);
    must(BMI_finalize() == 0, "BMI_finalize of the client");
}

int main(void)
{
    struct BMI_unexpected_info info;
    int port = 0, count = 0, status = 0;
    int way[2];
    pid_t pid;

    BMI_set_log_sink(keep_line, NULL);
    must(pipe(way) == 0, "pipe");
    pid = fork(); /* before BMI starts */
    must(pid >= 0, "fork");
    if (pid == 0) {
        must(read(way[0], &port, sizeof(port)) == (ssize_t)sizeof(port), "the server");
        client(port);
        exit(0);
    }
    must(BMI_initialize("bmi_ib", "ib://127.0.0.1", BMI_INIT_SERVER OPTIONS) < 0,
         "refusing an address without a port");
    must(strstr(heard, "host:port") != NULL, "naming what is missing");
    must(BMI_initialize("bmi_ib", "ib://127.0.0.1:0", BMI_INIT_SERVER OPTIONS) == 0,
         "BMI_initialize of the server");
    must(BMI_get_info(0, BMI_TCP_GET_PORT, &port) == 0 && port > 0, "BMI_TCP_GET_PORT");
    must(write(way[1], &port, sizeof(port)) == (ssize_t)sizeof(port), "write");
    for (int i = 0; count == 0 && i < 1000; i++)
        must(BMI_testunexpected(1, &count, &info, 10) >= 0, "BMI_testunexpected");
    must(count == 1 && info.size == 6 && info.tag == 7 &&
             strcmp((char *)info.buffer, "hello") == 0,
         "the message");
    must(BMI_unexpected_free(info.addr, info.buffer) == 0, "BMI_unexpected_free");
    waitpid(pid, &status, 0);
    must(status == 0, "the client");
    must(BMI_finalize() == 0, "BMI_finalize of the server");
#if BMI_API >= 20908
    {
        char options[] = "rndvv=read";

        heard[0] = '\0';
        must(BMI_initialize("bmi_ib", "ib://127.0.0.1:0", BMI_INIT_SERVER, options) == 0,
             "BMI_initialize with an option");
        must(strstr(heard, "rndvv") != NULL, "naming a misspelt option");
        BMI_finalize();
    }
#endif
    return 0;
}

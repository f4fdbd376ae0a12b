/* SPDX-License-Identifier: LGPL-2.1-or-later */
#include "tests/elan4/sides.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bmi_elan4/elan.h"
#include "tests/elan4/scratch.h"
#include "tests/lib/asleep.h"

static struct scratch scratch;
const struct rme_fabric_ops *ops;
const char *const folder = scratch.dir;
char said[400];

static void log_line(void *arg, enum rme_log_level level, const char *format, ...)
{
    char line[400];
    va_list ap;

    (void)arg;
    (void)level;
    va_start(ap, format);
    vsnprintf(line, sizeof(line), format, ap);
    va_end(ap);
    if (strstr(line, "BMI_ELAN4_SERVER_ADDR=") != NULL)
        strcpy(said, strstr(line, "BMI_ELAN4_SERVER_ADDR=") + strlen("BMI_ELAN4_SERVER_ADDR="));
}

pid_t fork_quietly(void)
{
    asleep_await_others();
    pid_t pid = fork();
    if (pid == 0)
        clock_run();
    return pid;
}

pid_t begin_child(void (*run)(int), int arg)
{
    pid_t pid = fork_quietly();

    assert_true(pid >= 0);
    if (pid == 0) {
        alarm(120);
        run(arg);
        _exit(0);
    }
    return pid;
}

void end_child(pid_t pid)
{
    int st;

    assert_int_equal(kill(pid, SIGKILL), 0);
    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_true(WIFSIGNALED(st) && WTERMSIG(st) == SIGKILL);
}

void stop_child(pid_t pid)
{
    int st;

    assert_int_equal(kill(pid, SIGSTOP), 0);
    assert_int_equal(waitpid(pid, &st, WUNTRACED), pid);
    assert_true(WIFSTOPPED(st));
}

void child_ends(pid_t pid)
{
    int st;

    assert_int_equal(waitpid(pid, &st, 0), pid);
    assert_true(WIFEXITED(st) && WEXITSTATUS(st) == 0);
}

void open_side(struct side *s, const char *listen, const char *more)
{
    const struct rme_option_row *tables[] = {rme_engine_options, ops->options};
    char text[300], why[200] = "";

    memset(s, 0, sizeof(*s));
    snprintf(text, sizeof(text), "%s/log", folder);
    assert_int_equal(setenv("BMI_ELAN4_LOG", text, 1), 0);
    s->options = rme_options_new(tables, 2);
    assert_non_null(s->options);
    assert_int_equal(rme_options_parse(s->options, more, why, sizeof(why)), 0);
    if (listen != NULL)
        assert_int_equal(rme_addr_parse("elan4", listen, &s->listen), 0);
    struct rme_fabric_config config = {.listen = s->listen,
                                       .rx_size = 4096,
                                       .options = s->options,
                                       .stats = &s->stats,
                                       .log = log_line};
    assert_int_equal(ops->open(&config, &s->f), 0);
}

void close_side(struct side *s)
{
    ops->close(s->f);
    if (s->listen != NULL)
        rme_addr_put(s->listen);
    rme_options_free(s->options);
}

void poll_side(struct side *s)
{
    struct rme_event e[8];
    int n = ops->poll(s->f, e, 8);

    for (int i = 0; i < n; i++) {
        s->count[e[i].type]++;
        switch (e[i].type) {
        case RME_EV_LINK_REQUEST:
            assert_int_equal(ops->link_accept(e[i].link, "yes", 4, RX, s), 0);
            break;
        case RME_EV_LINK_UP:
            s->link = e[i].link;
            break;
        case RME_EV_LINK_DOWN:
            s->error = e[i].error;
            s->why = e[i].why;
            s->ended[s->count[e[i].type] % 2] = e[i].link;
            ops->link_free(e[i].link);
            break;
        case RME_EV_RECV:
            snprintf(s->text, sizeof(s->text), "%s", (char *)e[i].data);
            ops->rx_return(s->f, e[i].rx);
            break;
        case RME_EV_IMM:
            s->imm = e[i].imm;
            break;
        default:
            break;
        }
    }
    ops->flush(s->f);
}

void look(struct side *s, struct side *other, int times)
{
    for (int i = 0; i < times; i++) {
        poll_side(s);
        if (other != NULL)
            poll_side(other);
    }
}

void until_landed(struct side *s)
{
    do
        poll_side(s);
    while (!list_empty(&s->f->sending));
}

void until(struct side *s, struct side *other, enum rme_event_type type, int count)
{
    uint64_t end = guard_ms() + PATIENCE_MS;

    while (s->count[type] < count) {
        assert_true(guard_ms() < end);
        poll_side(s);
        if (other != NULL)
            poll_side(other);
    }
}

#define STEP_MS   100 /* shorter than the gap that the fabric takes for having been stopped */
#define LOOK_OVER 64  /* polls until one checks its surroundings */

void pass(struct side *s, uint64_t ms)
{
    while (ms) {
        uint64_t step = ms < STEP_MS ? ms : STEP_MS;
        clock_step(step);
        look(s, NULL, LOOK_OVER);
        ms -= step;
    }
}

void dial(struct side *s, const char *uri)
{
    struct rme_addr *addr;

    assert_int_equal(rme_addr_parse("elan4", uri, &addr), 0);
    assert_int_equal(ops->link_connect(s->f, addr, 0, "may I", 6, RX, s, &s->link), 0);
    rme_addr_put(addr);
}

void open_client(struct side *client, struct side *server, const char *options)
{
    int ups = server->count[RME_EV_LINK_UP];

    open_side(client, NULL, options);
    dial(client, "elan4://0:2");
    until(client, server, RME_EV_LINK_UP, 1);
    until(server, client, RME_EV_LINK_UP, ups + 1);
}

void say(struct side *s, const char *text)
{
    char *tx = ops->tx_get(s->link);

    assert_non_null(tx);
    strcpy(tx, text);
    ops->tx_send(s->link, tx, strlen(text) + 1);
    ops->flush(s->f);
}

void part(struct side *a, struct side *b)
{
    ops->link_disconnect(a->link, -ESHUTDOWN);
    until(a, b, RME_EV_LINK_DOWN, 1);
    until(b, a, RME_EV_LINK_DOWN, 1);
}

void leave(struct side *client, struct side *server)
{
    int downs = server->count[RME_EV_LINK_DOWN];

    ops->link_disconnect(client->link, -ESHUTDOWN);
    until(client, server, RME_EV_LINK_DOWN, client->count[RME_EV_LINK_DOWN] + 1);
    until(server, client, RME_EV_LINK_DOWN, downs + 1);
    close_side(client);
}

void close_both(struct side *a, struct side *b)
{
    close_side(a);
    close_side(b);
}

void part_and_close(struct side *a, struct side *b)
{
    part(a, b);
    close_both(a, b);
}

void open_pair(struct side *server, struct side *client, const char *server_options,
               const char *client_options)
{
    open_side(server, "elan4://0:2", server_options);
    setenv("BMI_ELAN4_SERVER_ADDR", said, 1);
    open_client(client, server, client_options);
}

int sides_set_up(void **state)
{
    static char net[sizeof(scratch.dir) + 8];
    (void)state;
    if (scratch_open(&scratch, "/tmp/elan4-links") < 0)
        return -1;
    snprintf(net, sizeof(net), "%s/net", scratch.dir);
    ops = bmi_elan4_fabric();
    return setenv("EMUELAN4_DIR", net, 1);
}

int sides_tear_down(void **state)
{
    (void)state;
    scratch_close(&scratch);
    return 0;
}

void forge(struct side *to, const void *bytes, size_t size)
{
    struct bmi_elan4_nic *nic = to->f->nic;
    uint8_t *out = bmi_elan4_main(nic, 64, size);
    volatile E4_uint64 *landed = bmi_elan4_main(nic, 64, 64);
    E4_Event *event = bmi_elan4_sdram(nic, 64, sizeof(E4_Event32));
    E4_DMA dma;

    assert_true(out != NULL && landed != NULL && event != NULL);
    memcpy(out, bytes, size);
    elan4_store64(0, landed);
    elan4_initevent_write(nic->ctx, event, landed);
    elan4_primeevent_write(nic->ctx, event, 1);
    bmi_elan4_packet_dma(nic, nic->vp, bmi_elan4_inbox_queue(to->f->inbox), out, size, event,
                         &dma);
    MEMBAR_VISIBLE();
    elan4_run_dma_cmd(nic->tx, &dma);
    bmi_elan4_flush(nic);
    while (!elan4_pollevent_word(nic->ctx, landed, 0))
        poll_side(to);
    poll_side(to); /* takes the packet, if not taken yet */
    elan4_freeMain(nic->alloc, out);
    elan4_freeMain(nic->alloc, (void *)landed);
    elan4_freeElan(nic->alloc, event);
}

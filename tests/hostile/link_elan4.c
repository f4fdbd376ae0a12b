/* SPDX-License-Identifier: LGPL-2.1-or-later */
/*
 * Ends of connections over Elan4; see medium.h. As in bmi_elan4, all ends of the process share
 * one context and one input queue. Joining the network and finding servers use bmi_elan4;
 * packets are made here and need not follow bmi_elan4's rules.
 *
 * Dropping an end sends nothing to its peer.
 */
#include "link_elan4.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bmi_elan4/compat.h"
#include "bmi_elan4/servers.h"

#define SLOTS    1024 /* of the input queue */
#define BUFFERS  512  /* packets in flight */
#define ENDS     8192 /* a power of two */
#define WINDOW   64   /* packets of an end in flight, as in packet.h */
#define HELLO    512
#define WHERE_MS 5000

struct buffer {
    uint8_t *at;
    E4_Event *event;
    volatile E4_uint64 *landed;
    uint32_t link, seq; /* end that sent the packet, and the packet's number */
    bool busy;
};

struct piece {
    struct elan_packet p;
    uint8_t body[];
};

struct note {
    struct note *next;
    struct arrival arrival;
};

struct end {
    uint32_t number; /* own number */
    unsigned vp;
    E4_Addr queue;
    uint64_t generation;
    uint32_t peer_number;
    bool quiet; /* drop arrivals */
    bool up, rejected, ended;
    uint8_t hello[HELLO];
    size_t hello_length;
    /* outbound */
    uint32_t next_seq;
    struct buffer *out[WINDOW];
    uint8_t message[LINK_MESSAGE];
    /* inbound */
    uint32_t expected;
    struct piece *held[WINDOW];
    struct arrival filling;
    uint32_t filled;
    struct note *first, **last;
    unsigned arrived;
};

static struct bmi_elan4_nic *nic;
static struct bmi_elan4_inbox *inbox;
static struct bmi_elan4_servers *servers;
static struct bmi_elan4_conn_info own;
static struct buffer buffers[BUFFERS];
static unsigned next_buffer;
static struct end *ends[ENDS];
static uint32_t last_number;
static E4_CmdQ *reads;
static struct bmi_elan4_where desk; /* of the last target */

/* ---- Joining ---- */

static int make_buffers(void)
{
    for (unsigned i = 0; i < BUFFERS; i++) {
        struct buffer *b = &buffers[i];

        b->at = bmi_elan4_main(nic, 128, BMI_ELAN4_SLOT + 64 + 64);
        b->event = bmi_elan4_sdram(nic, 64, sizeof(E4_Event32));
        if (b->at == NULL || b->event == NULL)
            return -ENOMEM;
        b->landed = (volatile E4_uint64 *)(void *)(b->at + BMI_ELAN4_SLOT + 64);
        elan4_initevent_write(nic->ctx, b->event, b->landed);
    }
    return 0;
}

/* Joins the network once, with the defaults of bmi_elan4's options. */
static int join(void)
{
    struct bmi_elan4_nic_config config = {.range = {0, 63, 2, 65},
                                          .folder = getenv(BMI_ELAN4_LOG_ENV),
                                          .context = BMI_ELAN4_CLIENT,
                                          .main_bytes = 16u << 20,
                                          .sdram_bytes = 2u << 20};
    const char *where = getenv(BMI_ELAN4_SERVER_ENV);
    char why[300] = "";
    int rc;

    if (nic != NULL)
        return 0;
    rc = bmi_elan4_servers_new(where != NULL ? where : "", &servers, why, sizeof why);
    if (rc == 0)
        rc = bmi_elan4_nic_open(&config, &nic, why, sizeof why);
    if (rc == 0)
        rc = bmi_elan4_inbox_open(nic, SLOTS, &inbox);
    if (rc == 0)
        rc = make_buffers();
    if (rc == 0)
        rc = bmi_elan4_nic_listen(nic);
    if (rc == 0 &&
        (reads = elan4_alloc_cmdq(nic->ctx, CQ_Size8K, CQ_STENEnableBit | CQ_WriteEnableBit,
                                  NULL)) == NULL)
        rc = -ENOMEM;
    if (rc != 0) {
        fprintf(stderr, "hostile: joining: %s %s\n", strerror(-rc), why);
        exit(1);
    }
    bmi_elan4_conn_info_fill(&own, &nic->range, config.key, nic->node, nic->context,
                             bmi_elan4_inbox_queue(inbox), nic->generation);
    return 0;
}

/* Queries the bootstrap server for a server's connection information. */
static int ask_desk(const struct bmi_elan4_where *where, struct bmi_elan4_conn_info *theirs)
{
    uint64_t deadline = after_ms(WHERE_MS);
    struct bmi_elan4_query call;
    int rc =
        bmi_elan4_query_begin((const struct sockaddr *)&where->tcp, where->tcp_length, &call);

    if (rc != 0)
        return rc;
    while ((rc = bmi_elan4_query_step(&call, theirs)) == -EAGAIN && !past(deadline)) {
        struct pollfd at = {.fd = call.fd, .events = POLLIN};

        poll(&at, 1, 100);
    }
    bmi_elan4_query_end(&call);
    return rc;
}

int elan4_visit(void)
{
    int fd = socket(desk.tcp.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd >= 0 && connect(fd, (const struct sockaddr *)&desk.tcp, desk.tcp_length) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* Parses "node:context"; queries the server's connection information once. */
static bool parse(const char *text, struct target *target)
{
    struct bmi_elan4_conn_info theirs;
    struct bmi_elan4_where where;
    int node, context;
    char end;

    if (sscanf(text, "%5d:%5d%c", &node, &context, &end) != 2 || join() != 0 ||
        bmi_elan4_vp(&nic->range, node, context) < 0 ||
        bmi_elan4_servers_find(servers, &nic->range, node, context, &where) != 0)
        return false;
    desk = where;
    own.wanted = target->vp = (unsigned)bmi_elan4_vp(&nic->range, node, context);
    target->queue = where.queue;
    if (where.queue != 0)
        return true;
    if (ask_desk(&where, &theirs) != 0 || theirs.vp != target->vp)
        return false;
    target->queue = theirs.queue;
    target->generation = theirs.generation;
    return true;
}

/* ---- Packets out ---- */

static void look_all(void);

static bool has_landed(struct buffer *b)
{
    if (b->busy && elan4_load64(b->landed) != 0 && elan4_pollevent_word(nic->ctx, b->landed, 0))
        b->busy = false;
    return !b->busy;
}

/* Returns a free buffer; NULL: none became free in time. */
static struct buffer *free_buffer(void)
{
    uint64_t deadline = after_ms(STEP_MS);

    do {
        for (unsigned i = 0; i < BUFFERS; i++)
            if (has_landed(&buffers[next_buffer++ % BUFFERS]))
                return &buffers[(next_buffer - 1) % BUFFERS];
        look_all();
        breathe();
    } while (!past(deadline));
    return NULL;
}

static struct buffer *throw_at(unsigned vp, E4_Addr queue, const void *head, size_t head_length,
                               const void *body, size_t length)
{
    struct buffer *b = free_buffer();
    E4_DMA dma;

    if (b == NULL)
        return NULL;
    memcpy(b->at, head, head_length);
    if (length > 0)
        memcpy(b->at + head_length, body, length);
    b->busy = true;
    b->link = 0;
    elan4_store64(0, b->landed);
    elan4_primeevent_write(nic->ctx, b->event, 1);
    bmi_elan4_packet_dma(nic, vp, queue, b->at, head_length + length, b->event, &dma);
    MEMBAR_VISIBLE();
    elan4_run_dma_cmd(nic->tx, &dma);
    bmi_elan4_flush(nic);
    return b;
}

static struct buffer *send_packet(unsigned vp, E4_Addr queue, const struct elan_packet *p,
                                  const void *body)
{
    uint8_t head[ELAN_HEADER];

    elan_packet_encode(p, head);
    return throw_at(vp, queue, head, sizeof head, body, p->bytes <= ELAN_BODY ? p->bytes : 0);
}

/* Waits until the packet WINDOW numbers before the next one has been delivered. Returns false
 * if the connection ends or the time is over. */
static bool window_opens(struct end *end)
{
    uint32_t seq = end->next_seq;
    struct buffer *b = end->out[seq % WINDOW];
    uint64_t deadline = after_ms(STEP_MS);

    while (b != NULL && b->link == end->number && b->seq == seq - WINDOW && !has_landed(b)) {
        if (end->ended || past(deadline))
            return false;
        look_all();
        breathe();
    }
    return true;
}

static int send_ordered(struct end *end, struct elan_packet *p, const void *body)
{
    struct buffer *b;

    if (end->ended || !window_opens(end))
        return -ENOTCONN;
    p->link = end->peer_number;
    p->to = end->generation;
    p->from = nic->vp;
    p->seq = end->next_seq;
    b = send_packet(end->vp, end->queue, p, body);
    if (b == NULL)
        return -ENOTCONN;
    b->link = end->number;
    b->seq = p->seq;
    end->out[end->next_seq++ % WINDOW] = b;
    return 0;
}

static int send_message(struct end *end, size_t length)
{
    size_t at = 0;

    do {
        size_t bytes = length - at < ELAN_BODY ? length - at : ELAN_BODY;
        struct elan_packet p = {.kind = ELAN_MESSAGE,
                                .bytes = (uint16_t)bytes,
                                .arg = (uint32_t)length,
                                .offset = (uint32_t)at};

        if (send_ordered(end, &p, end->message + at) != 0)
            return -ENOTCONN;
        at += bytes;
    } while (at < length);
    return 0;
}

static int send_imm(struct end *end, uint32_t imm)
{
    struct elan_packet p = {.kind = ELAN_IMM, .arg = imm};

    return send_ordered(end, &p, NULL);
}

static uint8_t *room(struct end *end)
{
    look_all();
    return end->ended ? NULL : end->message;
}

/* ---- Packets in ---- */

static void note(struct end *end, const struct arrival *arrival)
{
    struct note *n;

    end->arrived++;
    if (end->quiet || (n = malloc(sizeof *n)) == NULL)
        return;
    n->next = NULL;
    n->arrival = *arrival;
    *end->last = n;
    end->last = &n->next;
}

static void message_part(struct end *end, const struct elan_packet *p, const uint8_t *body)
{
    if (p->offset != end->filled || p->arg > LINK_MESSAGE) {
        fprintf(stderr, "hostile: a fragment beyond its message\n");
        end->ended = true;
        return;
    }
    memcpy(end->filling.bytes + p->offset, body, p->bytes);
    end->filled += p->bytes;
    if (end->filled < p->arg)
        return;
    end->filling.length = end->filled;
    end->filled = 0;
    note(end, &end->filling);
}

static void accepted(struct end *end, const struct elan_packet *p, const uint8_t *body)
{
    struct bmi_elan4_conn_info theirs;

    if (end->up || p->bytes < BMI_ELAN4_CONN_INFO_BYTES ||
        p->bytes - BMI_ELAN4_CONN_INFO_BYTES > HELLO ||
        bmi_elan4_conn_info_decode(body, &theirs) != 0)
        return;
    end->up = true;
    end->queue = theirs.queue;
    end->generation = theirs.generation;
    end->peer_number = p->arg;
    end->hello_length = p->bytes - BMI_ELAN4_CONN_INFO_BYTES;
    memcpy(end->hello, body + BMI_ELAN4_CONN_INFO_BYTES, end->hello_length);
}

static void deliver(struct end *end, const struct elan_packet *p, const uint8_t *body)
{
    struct arrival imm = {.is_imm = true, .imm = p->arg};

    switch (p->kind) {
    case ELAN_ACCEPT:
        accepted(end, p, body);
        break;
    case ELAN_MESSAGE:
        message_part(end, p, body);
        break;
    case ELAN_IMM:
        note(end, &imm);
        break;
    default: /* BYE */
        end->ended = true;
        break;
    }
}

static void in_order(struct end *end, const struct elan_packet *p, const uint8_t *body)
{
    struct piece **at = &end->held[p->seq % WINDOW], *piece;

    if (p->seq - end->expected >= WINDOW || *at != NULL)
        return;
    piece = malloc(sizeof *piece + p->bytes);
    if (piece == NULL)
        return;
    piece->p = *p;
    memcpy(piece->body, body, p->bytes);
    *at = piece;
    while ((piece = end->held[end->expected % WINDOW]) != NULL) {
        end->held[end->expected++ % WINDOW] = NULL;
        deliver(end, &piece->p, piece->body);
        free(piece);
    }
}

static void look_all(void)
{
    const uint8_t *slot;

    while ((slot = bmi_elan4_inbox_peek(inbox)) != NULL) {
        struct elan_packet p;
        struct end *end = NULL;

        if (elan_packet_decode(slot, &p) == 0 && p.to == nic->generation)
            end = ends[p.link % ENDS];
        if (end != NULL && end->number == p.link && p.from == end->vp) {
            if (elan_kind_ordered(p.kind))
                in_order(end, &p, slot + ELAN_HEADER);
            else if (p.kind == ELAN_REJECT)
                end->rejected = end->ended = true;
            else if (p.kind == ELAN_BREAK || p.kind == ELAN_LEFT)
                end->ended = true;
        }
        bmi_elan4_inbox_next(inbox);
    }
}

static void look(struct end *end)
{
    (void)end;
    look_all();
}

static unsigned arrived(struct end *end)
{
    unsigned n = end->arrived;

    end->arrived = 0;
    return n;
}

static bool take(struct end *end, struct arrival *arrival)
{
    struct note *n = end->first;

    if (n == NULL)
        return false;
    *arrival = n->arrival;
    end->first = n->next;
    if (end->first == NULL)
        end->last = &end->first;
    free(n);
    return true;
}

static bool has_ended(const struct end *end)
{
    return end->ended;
}

/* ---- Connecting and ending ---- */

static void leave(struct end *end, bool goodbye)
{
    struct elan_packet bye = {.kind = ELAN_BYE}, left = {.kind = ELAN_LEFT,
                                                         .link = end->peer_number,
                                                         .to = end->generation,
                                                         .from = nic->vp};
    static struct arrival arrival;

    if (goodbye && end->up) {
        end->ended = false; /* ignore the peer's earlier packets */
        send_ordered(end, &bye, NULL);
    } else if (end->up && !end->ended) {
        send_packet(end->vp, end->queue, &left, NULL);
    }
    ends[end->number % ENDS] = NULL;
    while (take(end, &arrival))
        ;
    for (unsigned i = 0; i < WINDOW; i++)
        free(end->held[i]);
    free(end);
}

static void drop(struct end *end, bool goodbye)
{
    if (end != NULL)
        leave(end, goodbye);
}

static struct end *begin(const struct target *target, const struct link_plan *plan,
                         const void *hello, size_t length, int *error)
{
    uint8_t body[BMI_ELAN4_CONN_INFO_BYTES + HELLO];
    struct elan_packet p = {.kind = ELAN_HELLO,
                            .bytes = (uint16_t)(BMI_ELAN4_CONN_INFO_BYTES + length),
                            .to = target->generation,
                            .from = nic->vp};
    struct end *end = calloc(1, sizeof *end);

    *error = -ENOMEM;
    for (unsigned i = 0; end != NULL && i < ENDS && ends[++last_number % ENDS] != NULL; i++)
        ;
    if (end == NULL || ends[last_number % ENDS] != NULL || length > HELLO) {
        free(end);
        return NULL;
    }
    end->number = p.arg = last_number;
    end->vp = target->vp;
    end->last = &end->first;
    end->quiet = plan->deaf || plan->no_receives;
    ends[end->number % ENDS] = end;
    memcpy(body, &own, sizeof(own));
    memcpy(body + BMI_ELAN4_CONN_INFO_BYTES, hello, length);
    *error = send_packet(end->vp, target->queue, &p, body) != NULL ? 0 : -ETIMEDOUT;
    if (*error == 0)
        return end;
    drop(end, false);
    return NULL;
}

static int wait_up(struct end *end, uint8_t *hello, size_t size)
{
    uint64_t deadline = after_ms(STEP_MS);

    while (!end->up && !end->ended && !past(deadline)) {
        look_all();
        if (!end->up && !end->ended)
            breathe();
    }
    if (!end->up)
        return end->rejected ? -EACCES : end->ended ? -ECONNRESET : -ETIMEDOUT;
    if (end->hello_length < size)
        size = end->hello_length;
    memcpy(hello, end->hello, size);
    return (int)size;
}

/* ---- RDMA: addresses are the interface's, a key is added to its address ---- */

/* Runs one DMA. If the DMA does not complete in time its buffers are abandoned to it. */
static int rdma(unsigned vp, E4_Addr there, void *data, size_t length, bool read, bool wait)
{
    static uint8_t *memory;
    static E4_Event *event;
    volatile E4_uint64 *word;
    E4_DMA d = {.dma_typeSize = E4_DMA_TYPE_SIZE(length, DMA_DataTypeByte, 0, 16)};

    if (memory == NULL) {
        memory = bmi_elan4_main(nic, 64, LINK_MESSAGE + 64);
        event = bmi_elan4_sdram(nic, 64, sizeof(E4_Event32));
    }
    if (memory == NULL || event == NULL)
        return -ENOMEM;
    word = (volatile E4_uint64 *)(void *)(memory + LINK_MESSAGE);
    elan4_initevent_write(nic->ctx, event, word);
    elan4_primeevent_write(nic->ctx, event, 1);
    if (!read)
        memcpy(memory, data, length);
    MEMBAR_VISIBLE();
    if (read) {
        d.dma_vproc = nic->vp;
        d.dma_srcAddr = there;
        d.dma_dstAddr = bmi_elan4_at(nic, memory);
        d.dma_dstEvent = bmi_elan4_at(nic, event);
        compat_ask_dma(reads, nic->cookies, &d, vp, 0);
        reads->cmdq_flush(reads);
    } else {
        d.dma_cookie = compat_dma_cookie(nic->cookies, vp);
        d.dma_vproc = vp;
        d.dma_srcAddr = bmi_elan4_at(nic, memory);
        d.dma_dstAddr = there;
        d.dma_srcEvent = bmi_elan4_at(nic, event);
        elan4_run_dma_cmd(nic->tx, &d);
        bmi_elan4_flush(nic);
    }
    if (!wait || !elan4_pollevent_word(nic->ctx, word, STEP_MS * 1000)) {
        memory = NULL; /* abandoned to the DMA */
        event = NULL;
        return -EACCES;
    }
    if (read)
        memcpy(data, memory, length);
    return 0;
}

static int read_there(struct end *end, uint64_t address, uint64_t key, void *data,
                      size_t length)
{
    return end->ended ? -ENOTCONN : rdma(end->vp, address + key, data, length, true, true);
}

static int write_there(struct end *end, uint64_t address, uint64_t key, const void *data,
                       size_t length)
{
    uint8_t bytes[LINK_MESSAGE];

    memcpy(bytes, data, length);
    return end->ended ? -ENOTCONN : rdma(end->vp, address + key, bytes, length, false, true);
}

int elan4_poke(const struct target *target, uint64_t address, size_t length, bool read)
{
    uint8_t bytes[LINK_MESSAGE] = {0};

    return rdma(target->vp, address, bytes, length, read, false);
}

/* ---- Packets of no link ---- */

int elan4_card(const struct target *target, struct bmi_elan4_conn_info *card)
{
    *card = own;
    card->wanted = target->vp;
    return 0;
}

int elan4_tell(const struct target *target, const struct elan_packet *p, const void *body)
{
    struct elan_packet said = *p;

    if (said.from == 0)
        said.from = nic->vp;
    if (said.to == 0)
        said.to = target->generation;
    return send_packet(target->vp, target->queue, &said, body) != NULL ? 0 : -ETIMEDOUT;
}

const struct medium medium_elan4 = {.scheme = "elan4://",
                                    .parse = parse,
                                    .begin = begin,
                                    .wait_up = wait_up,
                                    .drop = drop,
                                    .room = room,
                                    .send = send_message,
                                    .send_imm = send_imm,
                                    .look = look,
                                    .look_for_end = look,
                                    .arrived = arrived,
                                    .take = take,
                                    .ended = has_ended,
                                    .read = read_there,
                                    .write = write_there};

/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Seeds for a whole engine: messages from post to end, in the steps of fuzz_peer.c. */
#include "config.h"

#include "fuzz.h"
#include "seeds.h"
#include "wire/wire.h"

#define UNEXP(size, tag)     0, 0, 0, size, tag, 0
#define SEND(size, tag)      0, 1, 0, size, tag, 1
#define RECV(size, tag)      0, 2, 0, size, tag, 2
#define ZONE_SEND(size, tag) 0, 1, 0x80, size, tag, 0
#define ZONE_RECV(size, tag) 0, 2, 0x80, size, tag, 0
#define RUN                  19
#define UP                   7, 0, 0, RUN
#define UP_FAST              7, 0, 2, RUN
#define REQUEST              6, 0, RUN, UP
#define FINISH               16, 0, RUN
#define CANCEL(op)           4, op, RUN
#define DOWN                 15, 0, RUN
/* link 0; flags; type; tag; to: the most recent handle; from 1; total; offset; status; shape;
 * load */
#define SAY(flags, type, tag, total, offset, status, load)                                     \
    9, 0, flags, (type)-1, tag, 0, 0, total, offset, status, 0, load
/* `seen`: number of messages seen; one segment */
#define INVITE(tag, seen, size)                                                                \
    9, 0, 0x50, RME_WIRE_CTS - 1, 0, tag, seen, 0, 0, 0, 0, size, 0, 0, 0, 0, 1, size
#define IMM 14, 0, 0, 0, RUN
/* CANCEL of the peer's send `from` by the peer, which knows no handle of ours */
#define CANCEL_FROM(flags, tag, from)                                                          \
    9, 0, 0x48 | (flags), RME_WIRE_CANCEL - 1, tag, 0, 0, 0, 0, (from)-1, 0, 0, 0, 0, 0
/* RTS without memory, of the peer's send `from` */
#define RTS_FROM(flags, tag, from, size)                                                       \
    9, 0, flags, RME_WIRE_RTS - 1, tag, 0, (from)-1, size, 0, 0, 0, 0, 0
/* for an operation that never existed */
#define NAMED(flags, type) 9, 0, 0x40 | (flags), (type)-1, 1, 9, 9, 9, 9, 0, 0, 0, 0, 0, 0
/* a message at a place of the peer's ring; the second with one wrong byte */
#define LENT(at, tag, size)       23, 0, 0, at, tag, size, RUN
#define LENT_WRONG(at, byte, was) 23, 0, 8, at, 1, B4096, byte, was, RUN
/* the peer grants a ring, withdraws it, releases ours */
#define GRANT(size)  SAY(RME_WIRE_F_GRANT, RME_WIRE_CREDIT, 0, 0, 0, 0, 0), 1, size, RUN
#define WITHDRAW     SAY(RME_WIRE_F_WITHDRAW, RME_WIRE_CREDIT, 0, 0, 0, 0, 0), RUN
#define RELEASE      9, 0, 0x10, RME_WIRE_CREDIT - 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, RUN
#define F_UNEXPECTED 0x02
#define LAZY(is)     20, is
#define PASS(n)      22, n     /* 1 ms, doubled n times */
#define NO_MEMORY(n) 21, (n)-1 /* the n-th allocation of a RUN fails */
/* the host sends to its peer, so that receives may send an invitation */
#define SPEAK UNEXP(B64, 2), UP
/* indices into fuzz_peer's sizes */
#define B0    0
#define B64   2
#define B1000 3
#define B4096 5
#define B5000 6
#define B16K  7
#define B70K  9
#define B150K 10
#define B250K 11

void lives(void)
{
    static const uint8_t eager_send[] = {SEND(B1000, 1), RUN, UP, RUN};
    /* connecting times out, then succeeds with a silent peer */
    static const uint8_t patience[] = {SEND(B1000, 1), RUN,      PASS(13), PASS(0),
                                       SEND(B150K, 1), RUN,      UP,       RUN,
                                       CANCEL(0),      PASS(15), RUN};
    static const uint8_t eager_recv[] = {RECV(B1000, 1), UP,
                                         SAY(0, RME_WIRE_EAGER, 1, 0, 0, 0, 0), B1000, RUN};
    static const uint8_t eager_early[] = {REQUEST,
                                          SAY(F_UNEXPECTED, RME_WIRE_EAGER, 2, 0, 0, 0, 0),
                                          B64,
                                          RUN,
                                          SAY(0, RME_WIRE_EAGER, 1, 0, 0, 0, 0),
                                          B1000,
                                          RUN,
                                          RECV(B1000, 1),
                                          RUN};
    static const uint8_t written[] = {SEND(B150K, 1),
                                      UP,
                                      RUN,
                                      SAY(0, RME_WIRE_CTS, 1, 0, 0, 0, 0),
                                      1,
                                      B150K,
                                      RUN,
                                      FINISH,
                                      FINISH,
                                      FINISH,
                                      FINISH};
/* the answer comes before the transfer is complete: deferred */
#define ANSWERED                                                                               \
    SEND(B16K, 1), RECV(B1000, 1), UP, RUN, SAY(0, RME_WIRE_CTS, 1, 0, 0, 0, 0), 1, B16K, RUN, \
        SAY(0, RME_WIRE_EAGER, 1, 0, 0, 0, 0), B1000, RUN
    static const uint8_t answered[] = {ANSWERED, FINISH, RUN};
    static const uint8_t answered_and_lost[] = {ANSWERED, DOWN};
    static const uint8_t written_in_windows[] = {SEND(B150K, 1),
                                                 UP,
                                                 RUN,
                                                 SAY(0, RME_WIRE_CTS, 1, 0, B0, 0, 0),
                                                 1,
                                                 B70K,
                                                 RUN,
                                                 SAY(0, RME_WIRE_CTS, 1, 0, B70K, 0, 0),
                                                 2,
                                                 B70K,
                                                 B70K,
                                                 RUN,
                                                 FINISH,
                                                 FINISH,
                                                 FINISH,
                                                 FINISH};
    static const uint8_t read_by_peer[] = {SEND(B150K, 1), UP, RUN,
                                           SAY(0, RME_WIRE_FIN, 1, 0, B150K, 0, 0), RUN};
    static const uint8_t read_by_us[] = {RECV(B150K, 1),
                                         UP,
                                         RUN,
                                         SAY(0, RME_WIRE_RTS, 1, B150K, 0, 0, 2),
                                         1,
                                         B150K,
                                         RUN,
                                         FINISH,
                                         FINISH,
                                         FINISH,
                                         FINISH};
    static const uint8_t offered_in_part[] = {
        RECV(B150K, 1), UP, RUN, SAY(0, RME_WIRE_RTS, 1, B150K, 0, 0, 2), 1, B70K, RUN};
    static const uint8_t peer_writes[] = {RECV(B150K, 1),
                                          UP,
                                          RUN,
                                          SAY(4, RME_WIRE_RTS, 1, B150K, 0, 0, 0),
                                          0,
                                          RUN,
                                          18,
                                          0,
                                          5,
                                          18,
                                          1,
                                          6,
                                          IMM,
                                          IMM,
                                          IMM,
                                          IMM,
                                          IMM};
    static const uint8_t early_rts[] = {REQUEST,
                                        SAY(F_UNEXPECTED, RME_WIRE_EAGER, 2, 0, 0, 0, 0),
                                        B64,
                                        RUN,
                                        SAY(4, RME_WIRE_RTS, 1, B150K, 0, 0, 2),
                                        1,
                                        B150K,
                                        RUN,
                                        RECV(B150K, 1),
                                        RUN,
                                        FINISH,
                                        FINISH};
    static const uint8_t pulled[] = {
        REQUEST, SAY(6, RME_WIRE_RTS, 2, B16K, 0, 0, 2), 1, B16K, RUN, FINISH, RUN, FINISH,
        RUN};
    static const uint8_t unexpected_sent[] = {UNEXP(B16K, 1), UP, RUN,
                                              SAY(0, RME_WIRE_FIN, 1, 0, B16K, 0, 0), RUN};
    static const uint8_t too_large[] = {RECV(B1000, 1),
                                        UP,
                                        RUN,
                                        SAY(4, RME_WIRE_RTS, 1, B150K, 0, 0, 2),
                                        1,
                                        B150K,
                                        RUN,
                                        SEND(B150K, 1),
                                        RUN,
                                        SAY(0, RME_WIRE_FIN, 1, 0, 0, 1, 0),
                                        RUN};
    static const uint8_t refused_by_us[] = {
        RECV(B64, 1), UP, RUN, SAY(0, RME_WIRE_EAGER, 1, 0, 0, 0, 0), B1000, RUN};
    /* the place is 1000 + 64 */
    static const uint8_t refused_by_peer[] = {SEND(B1000, 1),
                                              UP,
                                              9,
                                              0,
                                              0x42,
                                              RME_WIRE_FIN - 1,
                                              1,
                                              0x28,
                                              0x04,
                                              0,
                                              0,
                                              0,
                                              B1000,
                                              B64,
                                              1,
                                              0,
                                              0,
                                              RUN};
    static const uint8_t cancelled_recv[] = {RECV(B150K, 1),
                                             UP,
                                             RUN,
                                             SAY(4, RME_WIRE_RTS, 1, B150K, 0, 0, 0),
                                             0,
                                             RUN,
                                             CANCEL(0),
                                             SAY(0, RME_WIRE_FIN, 1, 0, 0, 2, 0),
                                             RUN};
    static const uint8_t cancelled_send[] = {
        SEND(B150K, 1), UP, RUN, CANCEL(0), SAY(0, RME_WIRE_FIN, 1, 0, 0, 2, 0), RUN};
    static const uint8_t cancelled_by_peer[] = {SEND(B150K, 1), UP, RUN,
                                                SAY(0, RME_WIRE_CANCEL, 1, 0, 0, 0, 0), RUN};
    static const uint8_t lost_while_moving[] = {SEND(B250K, 1),
                                                UP,
                                                RUN,
                                                SAY(0, RME_WIRE_CTS, 1, 0, 0, 0, 0),
                                                1,
                                                B250K,
                                                RUN,
                                                FINISH,
                                                DOWN,
                                                RUN,
                                                UP,
                                                RUN};
    static const uint8_t without_memory[] = {17,
                                             6,
                                             SEND(B150K, 1),
                                             RECV(B150K, 2),
                                             UP,
                                             RUN,
                                             SAY(0, RME_WIRE_CTS, 1, 0, 0, 0, 0),
                                             1,
                                             B150K,
                                             RUN,
                                             SAY(4, RME_WIRE_RTS, 2, B150K, 0, 0, 2),
                                             1,
                                             B150K,
                                             RUN,
                                             FINISH,
                                             FINISH};
    static const uint8_t without_buffers[] = {SEND(B1000, 1), UP,  17, 1, SEND(B1000, 1),
                                              SEND(B150K, 1), RUN, 17, 0, RUN};
    static const uint8_t freed[] = {SEND(B150K, 1),
                                    RECV(B1000, 2),
                                    UP,
                                    RUN,
                                    SAY(0, RME_WIRE_CTS, 1, 0, 0, 0, 0),
                                    1,
                                    B150K,
                                    RUN,
                                    5,
                                    0,
                                    RUN};
    static const uint8_t bye[] = {RECV(B1000, 1),
                                  UP,
                                  RUN,
                                  SAY(0, RME_WIRE_PING, 1, 0, 0, 0, 0),
                                  RUN,
                                  SAY(0, RME_WIRE_BYE, 1, 0, 0, 0, 0),
                                  RUN};

    static const uint8_t inviting[] = {SPEAK, ZONE_RECV(B150K, 1), RUN, IMM};
    static const uint8_t inviting_crossed[] = {
        SPEAK, ZONE_RECV(B150K, 1), RUN, SAY(0, RME_WIRE_RTS, 1, B150K, 0, 0, 0), 0, RUN, IMM};
    static const uint8_t inviting_cancelled[] = {SPEAK,
                                                 ZONE_RECV(B150K, 1),
                                                 RUN,
                                                 CANCEL(1),
                                                 SAY(0, RME_WIRE_RTS, 1, B150K, 0, 0, 0),
                                                 0,
                                                 RUN,
                                                 SAY(0, RME_WIRE_FIN, 1, 0, 0, 2, 0),
                                                 RUN};
    static const uint8_t inviting_eager[] = {
        SPEAK, ZONE_RECV(B150K, 1), RUN, SAY(0, RME_WIRE_EAGER, 1, 0, 0, 0, 0), B1000, RUN};
    static const uint8_t invited[] = {
        RECV(B64, 2), UP, INVITE(1, 0, B150K), RUN, ZONE_SEND(B150K, 1), RUN, FINISH};
    static const uint8_t invited_crossed[] = {ZONE_SEND(B150K, 1), UP,  RUN,
                                              INVITE(1, 0, B150K), RUN, FINISH};
    static const uint8_t invited_late[] = {
        SEND(B1000, 1), UP, RUN, INVITE(1, 0, B150K), RUN, ZONE_SEND(B150K, 1), RUN};
    static const uint8_t invited_taken_back[] = {RECV(B64, 2),
                                                 UP,
                                                 INVITE(1, 0, B150K),
                                                 RUN,
                                                 9,
                                                 0,
                                                 0x40,
                                                 RME_WIRE_CANCEL - 1,
                                                 1,
                                                 0,
                                                 0,
                                                 0,
                                                 0,
                                                 0,
                                                 0,
                                                 0,
                                                 0,
                                                 0,
                                                 0,
                                                 RUN,
                                                 ZONE_SEND(B150K, 1),
                                                 RUN};

    static const uint8_t cancelled_early[] = {REQUEST,
                                              RTS_FROM(0, 1, 1, B150K),
                                              RTS_FROM(0, 1, 2, B150K),
                                              RUN,
                                              CANCEL_FROM(0, 1, 2),
                                              CANCEL_FROM(0, 2, 1),
                                              CANCEL_FROM(0, 1, 5),
                                              RUN,
                                              CANCEL_FROM(0, 1, 1),
                                              RUN};
    static const uint8_t cancelled_unexpected[] = {REQUEST,
                                                   LAZY(1),
                                                   RTS_FROM(F_UNEXPECTED, 1, 1, B16K),
                                                   RTS_FROM(F_UNEXPECTED, 1, 2, B16K),
                                                   RTS_FROM(F_UNEXPECTED, 1, 3, B16K),
                                                   RTS_FROM(F_UNEXPECTED, 1, 4, B16K),
                                                   RTS_FROM(F_UNEXPECTED, 1, 5, B16K),
                                                   RTS_FROM(F_UNEXPECTED, 1, 6, B16K),
                                                   RUN,
                                                   CANCEL_FROM(F_UNEXPECTED, 1, 6),
                                                   CANCEL_FROM(F_UNEXPECTED, 1, 7),
                                                   CANCEL_FROM(F_UNEXPECTED, 1, 1),
                                                   RUN};
    static const uint8_t cancelled_matched[] = {
        REQUEST,
        SAY(F_UNEXPECTED, RME_WIRE_EAGER, 2, 0, 0, 0, 0),
        B64,
        RUN,
        RECV(B150K, 1),
        RTS_FROM(0, 1, 1, B150K),
        RUN,
        CANCEL_FROM(0, 1, 1),
        RUN};
    static const uint8_t without_credits[] = {/* our credits are used up: the answers wait */
                                              6,
                                              0x20,
                                              RUN,
                                              7,
                                              0,
                                              0x20,
                                              RUN,
                                              RTS_FROM(0, 1, 1, B150K),
                                              CANCEL_FROM(0, 1, 1),
                                              RTS_FROM(0, 1, 2, B150K),
                                              CANCEL_FROM(0, 1, 2),
                                              RUN,
                                              RTS_FROM(0, 1, 1, B150K),
                                              CANCEL_FROM(0, 1, 1),
                                              RTS_FROM(0, 1, 2, B150K),
                                              CANCEL_FROM(0, 1, 2),
                                              RUN,
                                              DOWN};
    static const uint8_t no_memory_eager[] = {REQUEST, SAY(0, RME_WIRE_EAGER, 1, 0, 0, 0, 0),
                                              B1000, NO_MEMORY(1), RUN};
    static const uint8_t no_memory_unexpected[] = {
        REQUEST, SAY(F_UNEXPECTED, RME_WIRE_EAGER, 1, 0, 0, 0, 0), B1000, NO_MEMORY(1), RUN};
    static const uint8_t no_memory_rts[] = {
        REQUEST, SAY(4, RME_WIRE_RTS, 1, B150K, 0, 0, 2), 1, B150K, NO_MEMORY(1), RUN};
    static const uint8_t no_memory_opening[] = {
        REQUEST, SAY(4, RME_WIRE_RTS, 1, B150K, 0, 0, 2), 1, B150K, NO_MEMORY(2), RUN};
    static const uint8_t no_memory_pull[] = {REQUEST, RTS_FROM(F_UNEXPECTED, 1, 1, B16K),
                                             NO_MEMORY(1), RUN};
    static const uint8_t no_memory_pull_later[] = {REQUEST, RTS_FROM(F_UNEXPECTED, 1, 1, B16K),
                                                   NO_MEMORY(3), RUN};
    static const uint8_t malformed[] = {REQUEST, 13, 0, 1, 7, RUN};
    static const uint8_t stalled[] = {REQUEST, SAY(1, RME_WIRE_PONG, 0, 0, 0, 0, 0), RUN};
    static const uint8_t unexpected_too_large[] = {REQUEST, RTS_FROM(F_UNEXPECTED, 1, 1, B70K),
                                                   RUN};
    static const uint8_t invited_wrongly[] = {SPEAK, INVITE(1, 100, B150K), RUN};
    static const uint8_t invited_twice[] = {SPEAK, INVITE(1, 0, B150K), INVITE(1, 0, B150K),
                                            RUN};
    static const uint8_t invited_no_memory[] = {SPEAK, RUN, INVITE(1, 0, B150K), NO_MEMORY(1),
                                                RUN};
    static const uint8_t cts_for_nothing[] = {REQUEST, NAMED(0, RME_WIRE_CTS), 1, B64, RUN};
    static const uint8_t fin_for_nothing[] = {REQUEST, NAMED(0, RME_WIRE_FIN), RUN};
    static const uint8_t imm_for_nothing[] = {REQUEST, 14, 0, 1, 9, 9, 9, 9, RUN};
    static const uint8_t refused_wrongly[] = {REQUEST, NAMED(RME_WIRE_F_EAGER, RME_WIRE_FIN),
                                              RUN};
    static const uint8_t two_cancel[] = {/* both sides cancel at once */
                                         RECV(B150K, 1),
                                         UP,
                                         RUN,
                                         SAY(4, RME_WIRE_RTS, 1, B150K, 0, 0, 0),
                                         0,
                                         RUN,
                                         CANCEL(0),
                                         CANCEL_FROM(0, 1, 1),
                                         RUN};
    static const uint8_t cancelled_queue[] = {
        SEND(B150K, 1), RECV(B150K, 1), CANCEL(0), CANCEL(1), RUN, UP, RUN};
    static const uint8_t too_large_large[] = {
        RECV(B70K, 1), UP, RUN, SAY(4, RME_WIRE_RTS, 1, B150K, 0, 0, 0), 1, B150K, RUN};
    static const uint8_t empty_rts[] = {RECV(B150K, 1), UP, RUN, RTS_FROM(0, 1, 1, B0), RUN};
    static const uint8_t no_memory_recv[] = {RECV(B150K, 1),           UP,           RUN,
                                             RTS_FROM(0, 1, 1, B150K), NO_MEMORY(2), RUN};
    static const uint8_t no_memory_send[] = {SEND(B150K, 1), UP, NO_MEMORY(1), RUN};

    static const uint8_t many_without_memory[] = {17,
                                                  6,
                                                  SEND(B150K, 1),
                                                  SEND(B150K, 1),
                                                  SEND(B150K, 1),
                                                  SEND(B150K, 1),
                                                  SEND(B150K, 1),
                                                  SEND(B150K, 1),
                                                  SEND(B70K, 1),
                                                  SEND(B70K, 1),
                                                  SEND(B70K, 1),
                                                  SEND(B70K, 1),
                                                  SEND(B70K, 1),
                                                  SEND(B70K, 1),
                                                  SEND(B70K, 1),
                                                  SEND(B70K, 1),
                                                  SEND(B70K, 1),
                                                  SEND(B70K, 1),
                                                  SEND(B70K, 1),
                                                  SEND(B70K, 1),
                                                  UP,
                                                  RUN};
    static const uint8_t invited_while_moving[] = {ZONE_SEND(B150K, 2),
                                                   UP,
                                                   RUN,
                                                   SAY(0, RME_WIRE_CTS, 1, 0, 0, 0, 0),
                                                   1,
                                                   B150K,
                                                   RUN,
                                                   INVITE(1, 1, B150K),
                                                   RUN,
                                                   ZONE_SEND(B150K, 1),
                                                   RUN,
                                                   FINISH,
                                                   FINISH,
                                                   FINISH};
    static const uint8_t invited_without_buffers[] = {
        SPEAK, RUN,   INVITE(1, 0, B150K), RUN, 17, 1, ZONE_SEND(B150K, 1), RUN, 17, 0,
        RUN,   FINISH};
    static const uint8_t invited_without_memory[] = {
        SPEAK, RUN, INVITE(1, 0, B150K), RUN, 17, 6, SEND(B150K, 1), RUN, FINISH};

#define SEED_LIFE(name) put("peer", #name, name, sizeof(name))
    SEED_LIFE(eager_send);
    SEED_LIFE(patience);
    SEED_LIFE(eager_recv);
    SEED_LIFE(eager_early);
    SEED_LIFE(written);
    SEED_LIFE(answered);
    SEED_LIFE(answered_and_lost);
    SEED_LIFE(written_in_windows);
    SEED_LIFE(read_by_peer);
    SEED_LIFE(read_by_us);
    SEED_LIFE(offered_in_part);
    SEED_LIFE(peer_writes);
    SEED_LIFE(early_rts);
    SEED_LIFE(pulled);
    SEED_LIFE(unexpected_sent);
    SEED_LIFE(too_large);
    SEED_LIFE(refused_by_us);
    SEED_LIFE(refused_by_peer);
    SEED_LIFE(cancelled_recv);
    SEED_LIFE(cancelled_send);
    SEED_LIFE(cancelled_by_peer);
    SEED_LIFE(lost_while_moving);
    SEED_LIFE(without_memory);
    SEED_LIFE(without_buffers);
    SEED_LIFE(freed);
    SEED_LIFE(bye);
    SEED_LIFE(inviting);
    SEED_LIFE(inviting_crossed);
    SEED_LIFE(inviting_cancelled);
    SEED_LIFE(inviting_eager);
    SEED_LIFE(invited);
    SEED_LIFE(invited_crossed);
    SEED_LIFE(invited_late);
    SEED_LIFE(invited_taken_back);
    SEED_LIFE(cancelled_early);
    SEED_LIFE(cancelled_unexpected);
    SEED_LIFE(cancelled_matched);
    SEED_LIFE(without_credits);
    SEED_LIFE(no_memory_eager);
    SEED_LIFE(no_memory_unexpected);
    SEED_LIFE(no_memory_rts);
    SEED_LIFE(no_memory_opening);
    SEED_LIFE(no_memory_pull);
    SEED_LIFE(no_memory_pull_later);
    SEED_LIFE(malformed);
    SEED_LIFE(stalled);
    SEED_LIFE(unexpected_too_large);
    SEED_LIFE(invited_wrongly);
    SEED_LIFE(invited_twice);
    SEED_LIFE(invited_no_memory);
    SEED_LIFE(cts_for_nothing);
    SEED_LIFE(fin_for_nothing);
    SEED_LIFE(imm_for_nothing);
    SEED_LIFE(refused_wrongly);
    SEED_LIFE(two_cancel);
    SEED_LIFE(cancelled_queue);
    SEED_LIFE(too_large_large);
    SEED_LIFE(empty_rts);
    SEED_LIFE(no_memory_recv);
    SEED_LIFE(no_memory_send);
    SEED_LIFE(many_without_memory);
    SEED_LIFE(invited_while_moving);
    SEED_LIFE(invited_without_buffers);
    SEED_LIFE(invited_without_memory);
#undef SEED_LIFE
}

/* Seeds for rings, of ours and of the peer's. */
void lent(void)
{
/* the second RTS that would fit into a ring is answered by GRANT */
#define LENDS                                                                                  \
    RECV(B16K, 1), UNEXP(B64, 2), UP_FAST, RTS_FROM(0, 1, 1, B16K), RUN,                       \
        RTS_FROM(0, 1, 2, B16K), RUN
#define BORROWS UNEXP(B64, 2), UP_FAST, GRANT(B150K)
    static const uint8_t lent_matched[] = {LENDS, RECV(B5000, 3), LENT(0, 3, B4096)};
    static const uint8_t lent_early[] = {
        LENDS, LENT(0, 3, B4096), LENT(80, 3, B16K), RECV(B5000, 3), RUN, RECV(B1000, 3), RUN};
    static const uint8_t lent_idle[] = {LENDS,    LENT(0, 3, B4096), PASS(15),
                                        PASS(15), RELEASE,           LENT(80, 3, B4096)};
    static const uint8_t lent_released[] = {
        LENDS, RELEASE, RTS_FROM(0, 1, 3, B16K), RUN, RTS_FROM(0, 1, 4, B16K), RUN};
    static const uint8_t lent_lost[] = {LENDS, LENT(0, 3, B4096), DOWN};
    static const uint8_t lent_cancelled[] = {LENDS, LENT(0, 3, B4096), RECV(B5000, 2),
                                             CANCEL(1)};
    static const uint8_t lent_wrong_type[] = {LENDS, LENT_WRONG(0, 0, 0x7f)};
    static const uint8_t lent_too_long[] = {LENDS, LENT_WRONG(0, 19, 0xff)};
    static const uint8_t lent_outside[] = {LENDS, 23, 0, 4, 0, 1, 0xff, 0xff, 0, 0, B5000, RUN};
    static const uint8_t lent_nothing[] = {UNEXP(B64, 2), UP_FAST, LENT(0, 3, B4096)};
    static const uint8_t borrowed[] = {BORROWS, SEND(B5000, 1), RUN, FINISH};
    static const uint8_t borrowed_full[] = {BORROWS,        SEND(B16K, 1),
                                            SEND(B16K, 1),  SEND(B16K, 1),
                                            SEND(B16K, 1),  SEND(B16K, 1),
                                            SEND(B16K, 1),  RUN,
                                            FINISH,         FINISH,
                                            SEND(B16K, 1),  CANCEL(6),
                                            SEND(B5000, 1), RUN};
    static const uint8_t borrowed_asked_for[] = {
        BORROWS, SEND(B5000, 1), RUN, WITHDRAW,       SEND(B5000, 1),
        RUN,     FINISH,         RUN, SEND(B5000, 1), RUN};
    static const uint8_t borrowed_lost[] = {BORROWS, SEND(B5000, 1), RUN, DOWN};
    static const uint8_t borrowed_twice[] = {BORROWS, GRANT(B70K)};
    static const uint8_t borrowed_nothing[] = {UNEXP(B64, 2), UP_FAST, GRANT(B0),
                                               SEND(B5000, 1), RUN};
    static const uint8_t asked_for_nothing[] = {UNEXP(B64, 2), UP_FAST, WITHDRAW};
    static const uint8_t released_nothing[] = {UNEXP(B64, 2), UP_FAST, RELEASE};
#define SEED_LENT(name) put("peer", #name, name, sizeof(name))
    SEED_LENT(lent_matched);
    SEED_LENT(lent_early);
    SEED_LENT(lent_idle);
    SEED_LENT(lent_released);
    SEED_LENT(lent_lost);
    SEED_LENT(lent_cancelled);
    SEED_LENT(lent_wrong_type);
    SEED_LENT(lent_too_long);
    SEED_LENT(lent_outside);
    SEED_LENT(lent_nothing);
    SEED_LENT(borrowed);
    SEED_LENT(borrowed_full);
    SEED_LENT(borrowed_asked_for);
    SEED_LENT(borrowed_lost);
    SEED_LENT(borrowed_twice);
    SEED_LENT(borrowed_nothing);
    SEED_LENT(asked_for_nothing);
    SEED_LENT(released_nothing);
#undef SEED_LENT
}

/* Writes a seed with a step that a peer repeats until it exceeds a limit. */
static void again(const char *name, const uint8_t *first, size_t first_size,
                  const uint8_t *step, size_t size, unsigned times)
{
    static uint8_t input[20000];
    size_t at = first_size;

    memcpy(input, first, first_size);
    for (; times > 0 && at + size < sizeof(input); times--, at += size)
        memcpy(input + at, step, size);
    input[at++] = RUN;
    put("peer", name, input, at);
}

void too_much(void)
{
    static const uint8_t first[] = {REQUEST, LAZY(1)};
    /* grants us 4 credits, and asks for more than one */
    static const uint8_t poor[] = {6,
                                   0x20,
                                   RUN,
                                   7,
                                   0,
                                   0x20,
                                   RUN,
                                   13,
                                   0,
                                   16,
                                   RME_WIRE_PONG,
                                   RME_WIRE_F_STALLED,
                                   0,
                                   0,
                                   0,
                                   0,
                                   0,
                                   0,
                                   0,
                                   0,
                                   0,
                                   0,
                                   0,
                                   0,
                                   0,
                                   0,
                                   RUN};
    static const uint8_t eager[] = {SAY(0, RME_WIRE_EAGER, 1, 0, 0, 0, 0), 4, RUN};
    static const uint8_t unexpected[] = {SAY(F_UNEXPECTED, RME_WIRE_EAGER, 1, 0, 0, 0, 0), 4,
                                         RUN};
    static const uint8_t rts[] = {RTS_FROM(0, 1, 1, B150K), RUN};
    static const uint8_t unexpected_rts[] = {RTS_FROM(F_UNEXPECTED, 1, 1, B16K), RUN};
    static const uint8_t empty[] = {SAY(0, RME_WIRE_EAGER, 1, 0, 0, 0, 0), B0, RUN};
    static const uint8_t pong[] = {
        13, 0, 16, RME_WIRE_PONG, 0, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, RUN};
    static const uint8_t unanswered[] = {
        13, 0, 16, RME_WIRE_PONG, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, RUN};
    static const uint8_t taken[] = {
        13, 0, 16, RME_WIRE_PONG, 0, 0, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, RUN};

    again("too_much_eager", first, sizeof(first), eager, sizeof(eager), 20);
    again("too_many_empty", first, sizeof(first), empty, sizeof(empty), 80);
    again("too_much_unexpected", first, sizeof(first), unexpected, sizeof(unexpected), 20);
    again("too_many_rts", first, sizeof(first), rts, sizeof(rts), 30);
    again("too_many_unexpected_rts", first, sizeof(first), unexpected_rts,
          sizeof(unexpected_rts), 40);
    again("too_many_credits", first, sizeof(first), pong, sizeof(pong), 20);
    again("more_than_its_credits", poor, sizeof(poor), unanswered, sizeof(unanswered), 40);
    again("stopped_at_its_credits", poor, sizeof(poor), unanswered, sizeof(unanswered), 20);
    again("taken_before_sent", first, sizeof(first), taken, sizeof(taken), 1);
}

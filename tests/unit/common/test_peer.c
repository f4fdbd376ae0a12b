/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* Transcripts of an engine with a peer (play.h): moments without credits, send buffers, windows
 * or memory, events that come late, early or twice, and order of sends. */
#include "play.h"

/* The second peer holds its quota of a small zone, and a send waits for CTS: only the reserve
 * block can move it. */
#define RESERVE "pool_bytes=768K,list_mode=pack,pack_threshold=1M,rndv=write"
#define SECOND_WAITS                                                                           \
    "keep; meet; 1:recv y 200000 90 list; 1:RTS tag=90 from=90 total=200000 > credit:0+1 "     \
    "cts:90=A+65536*2 open=2 links=2 advertised=9\n"                                           \
    "1:send x 40000 4 list > rts:4=B\n"

/* How credits of new links grow and shrink, and a side with one credit. */
#define SINGLE "rndv=write,early_cts=0"

/* From 512 KiB of messages on the only peer is throttled. */
#define GREEDY "early_cts=0,credits=64,eager_window=1M,rx_buffered_bytes=1M"

/* The engine grants a ring to a peer that would use it, or the peer to the engine. */
#define RINGS                                                                                  \
    "rndv=write,early_cts=0,credits=32,eager_ring_bytes=128K,eager_ring_pool=256K,"            \
    "pool_idle_ms=1000,fragment_bytes=1M,pack_threshold=0"
#define BORROWED                                                                               \
    "RTS tag=5 from=1 total=20000; RTS tag=5 from=2 total=20000 > grant:0+3 open=1\n"
#define GRANTED "CREDIT GRANT window=131072 >\n"

static const struct play plays[] = {
    /* ---- without a send buffer, or credits ---- */
    {"unannounced_handle_cannot_be_cancelled", "", "",
     "notx; send a 300000 3 >\n"
     "CANCEL to=1 from=9 >\n"
     "room > rts:3=A\n"
     "FIN to=A from=9 status=1 > a=too-large"},
    {"invitation_without_send_buffer_is_dropped", "", "",
     "notx; recv a 300000 3 zone >\n"
     "room; see invites_sent > invites_sent=0\n"
     "RTS tag=3 from=9 total=300000 > cts:9=A+300000 open=1\n"
     "imm A > a=300000 open=0"},
    {"last_cancelled_invitation_is_answered_later", "", "",
     "notx; CANCEL from=9; CANCEL from=10 >\n"
     "room > fin:10=canceled"},
    {"invited_send_waits_for_credits", "", "credits=4",
     "keep; send a 100 9; send a 100 2 > eager:9 a=100 eager:2 a=100\n"
     "CTS UNSOLICITED window=300000 tag=3 to=2 from=9 >\n"
     "send b 300000 3 zone >\n"
     "PONG credits=2 > moves=1\n"
     "done; see invites_taken > b=300000 invites_taken=1 moves=0"},
    {"send_of_two_transfers_declines_invitation", "rdma_inflight_bytes=256K", "",
     "CTS UNSOLICITED window=300000 tag=3 from=9 >\n"
     "send a 300000 3 zone; send b 100 3; see invites_taken > "
     "rts:3=A offer:300000 eager:3 b=100 invites_taken=0 open=1\n"
     "FIN to=A from=9 status=1 > a=too-large open=0"},
    {"message_within_limit_is_one_transfer", "rdma_inflight_bytes=512K,rndv=write", "",
     "send a 300000 3 zone; CTS window=300000 to=@ from=9 > rts:3=A moves=1\n"
     "done > a=300000 moves=0\n"
     "CTS UNSOLICITED window=300000 tag=3 to=1 from=9; send b 300000 3 zone > moves=1\n"
     "done > b=300000 moves=0"},
    {"invited_send_waits_for_owed_acknowledgement", "", "",
     "send a 300000 2 > rts:2=A\n"
     "notx; FIN to=A from=9 status=1 > a=too-large\n"
     "CTS UNSOLICITED window=300000 tag=3 to=1 from=9; send b 300000 3 zone >\n"
     "room > credit:0+2 moves=1\n"
     "done > b=300000 moves=0"},
    {"immediate_beyond_credits_ends_link", "", "",
     "notx; PONG; PONG; PONG; PONG; PONG; PONG; PONG >\n"
     "imm 5 > links=0 advertised=0 errors=1"},
    {"invited_send_declines_while_data_moves", "rdma_inflight_bytes=512K", "",
     "send a 300000 2 zone; CTS window=300000 to=@ from=9 > rts:2=A offer:300000 moves=1\n"
     "CTS UNSOLICITED window=300000 tag=3 to=1 from=10; send b 300000 3 zone > "
     "rts:3=B offer:300000 open=1\n"
     "see invites_taken; FIN to=B from=10 status=1 > invites_taken=0 b=too-large open=0\n"
     "done > a=300000 moves=0"},
    /* ---- beside other peers ---- */
    {"deaf_peer_leaves_one_transfer_to_others", "rndv=write", "",
     "slots 1; send a 300000 3 zone; CTS window=300000 to=@ from=9 > rts:3=A moves=1\n"
     "2*send b 300000 3 zone; CTS window=300000 to=@ from=10 > rts:3=C\n"
     "meet; 1:send c 300000 4 zone; 1:CTS window=300000 to=@ from=9; shares > "
     "credit:0+1 rts:4=A credit:0+1 0:1 1:1 moves=2 links=2 advertised=9\n"
     "1:send d 300000 5 zone; 1:CTS window=300000 to=@ from=10; shares > "
     "rts:5=B credit:0+1 0:1 1:1\n"
     "done > c=300000\n"
     "done > d=300000 moves=1\n"
     "1:CTS UNSOLICITED window=300000 tag=6 from=11 to=2; 1:send e 300000 6 zone; shares > "
     "credit:0+1 0:1 1:1 moves=2\n"
     "see invites_taken > invites_taken=1"},
    {"peer_alone_uses_all_transfers", "rndv=write,early_cts=0", "",
     "meet; slots 8 > credit:0+1 links=2 advertised=9\n"
     "2*1:send b 20000 3; 1:CTS window=20000 to=@ from=9; shares > "
     "rts:3=B credit:0+1 0:0 1:2 moves=2\n"
     "40*send a 20000 3; CTS window=20000 to=@ from=9; shares > rts:3=? 0:6 1:2 moves=8\n"
     "oldest; oldest; shares > b=20000*2 0:8 1:0"},
    {"cancelled_transfer_passes_its_turn_on", "rndv=write,early_cts=0", "",
     "meet; meet; slots 8 > credit:0+1*2 links=3 advertised=10\n"
     "40*send a 20000 3; CTS window=20000 to=@ from=9 > rts:3=? moves=8\n"
     "1:send b 20000 3; 1:CTS window=20000 to=@ from=9 > rts:3=A credit:0+1 moves=9\n"
     "1:send c 20000 3; 1:CTS window=20000 to=@ from=9 > rts:3=B credit:0+1\n"
     "2*2:send d 20000 3; 2:CTS window=20000 to=@ from=9; shares > "
     "rts:3=B credit:0+1 0:8 1:1 2:1 moves=10\n"
     "cancel c; oldest; oldest; oldest; shares > cancel:B a=20000*3 0:5 1:1 2:2 moves=8"},
    {"lost_link_passes_its_turn_on", "rndv=write,early_cts=0", "",
     "meet; meet; slots 8 > credit:0+1*2 links=3 advertised=10\n"
     "40*send a 20000 3; CTS window=20000 to=@ from=9 > rts:3=? moves=8\n"
     "2*1:send b 20000 3; 1:CTS window=20000 to=@ from=9 > rts:3=B credit:0+1 moves=9\n"
     "2*2:send d 20000 3; 2:CTS window=20000 to=@ from=9 > rts:3=B credit:0+1 moves=10\n"
     "1:down; oldest; oldest; shares > "
     "b=20000 b=reset a=20000*2 0:6 1:0 2:2 moves=8 links=2 advertised=9"},
    /* ---- cancelled sends and receives ---- */
    {"cancelled_transfer_without_end_ends_link", "connect_timeout_ms=1000", "",
     "send a 300000 3 zone; CTS window=300000 to=@ from=9; cancel a > "
     "rts:3=A offer:300000 moves=1\n"
     "wait 99 >\n"
     "wait 3; see link_failures > a=canceled link_failures=1 moves=0 links=0 advertised=0"},
    {"unanswered_cancel_has_own_timeout", "", "",
     "send a 300000 5; send b 300000 6; cancel a; wait 20000; cancel b; wait 20000 > "
     "rts:5=A rts:6=B cancel:A cancel:B\n"
     "FIN to=A status=2 > a=canceled\n"
     "wait 39990 >\n"
     "wait 11; see peers > b=canceled peers=0 links=0 advertised=0"},
    /* ---- limit of RTS ---- */
    {"invited_sends_keep_limit_of_rts", "", "rts_max=1",
     "send a 300000 2 zone; CTS window=300000 to=@ from=9 > rts:2=A offer:300000 moves=1\n"
     "send b 300000 4; CTS UNSOLICITED window=300000 tag=3 to=1 from=10 > rts:4=B\n"
     "send c 300000 3 zone >\n"
     "done > a=300000 moves=0\n"
     "FIN to=B from=9 status=1 > credit:0+1 b=too-large moves=1\n"
     "done > c=300000 moves=0"},
    {"cancelled_rts_leave_their_room", "eager_window=64K,early_cts=0", "",
     "8*RTS UNEXPECTED tag=1 from=1 total=16384 > open=3\n"
     "1100*RTS tag=1 from=9 total=16384; CANCEL FROM_SENDER from=9 > fin:9=canceled\n"
     "1100*RTS UNEXPECTED tag=1 from=8 total=16384; CANCEL FROM_SENDER UNEXPECTED from=8 > "
     "fin:8=canceled"},
    /* ---- transfers ---- */
    {"answer_before_other_completions_is_held", "rndv=write", "",
     "recv a 100 4; send b 300000 3; CTS window=300000 to=@ from=9 > rts:3=A moves=2\n"
     "done 1; done 1; done 1 >\n"
     "done; EAGER tag=4 > moves=1\n"
     "done > b=300000 a=0 moves=0"},
    {"early_cts_message_waits_for_completion", "rndv=write", "",
     "recv a 200000 9 zone > invite:9=A open=1\n"
     "send b 60000 1; CTS window=60000 to=@ from=5 > rts:1=B moves=1\n"
     "keep; imm A > a=200000 open=0\n"
     "done > b=60000 moves=0"},
    {"unread_offer_is_written_in_parts", "rndv=read,regcache_entries=64", "",
     "cached; send a 140000 3 > rts:3=A offer:140000 open=1\n"
     "CTS window=70000 to=A from=9; finish > open=0\n"
     "CTS window=70000 offset=70000 to=A from=9; finish; see bytes_copied > "
     "a=140000 bytes_copied=0"},
    {"unregistered_offer_is_written_in_parts", "rndv=read,regcache_entries=64", "",
     "cached; noregs; send a 140000 3 > rts:3=A\n"
     "regs; CTS window=70000 to=A from=9; finish >\n"
     "CTS window=70000 offset=70000 to=A from=9; finish; see bytes_copied > "
     "a=140000 bytes_copied=0"},
    {"packed_offers_have_a_limit", "rndv=read,pack_threshold=1M,list_mode=pack", "",
     "16*send a 100000 2 list > rts:2=P\n"
     "CTS UNSOLICITED window=100000 tag=3 to=16 from=9; send b 100000 3 list > rts:3=Q\n"
     "see invites_taken; FIN to=@ from=9 status=1 > invites_taken=0 b=too-large"},
    {"partly_written_offer_is_closed", "", "",
     "send a 300000 3 zone > rts:3=A offer:300000 open=1\n"
     "CTS window=65536 to=A from=9 > moves=1 open=0\n"
     "finish; CTS window=234464 offset=65536 to=A from=9; finish > a=300000 moves=0"},
    {"repeated_window_ends_link", "", "",
     "send a 300000 3; CTS window=65536 to=@ from=9 > rts:3=A moves=1\n"
     "CTS window=65536 to=A from=9 > a=protocol moves=0 links=0 advertised=0 errors=1"},
    {"window_beyond_message_ends_link", "", "",
     "send a 300000 3; CTS window=65536 to=@ from=9; CTS window=300000 offset=65536 to=@ > "
     "rts:3=A a=protocol links=0 advertised=0 errors=1"},
    {"offer_read_in_part_ends_link", "", "",
     "send a 300000 3 zone; FIN to=@ from=9 offset=65536 > "
     "rts:3=A offer:300000 a=protocol links=0 advertised=0 errors=1"},
    {"missing_offer_cannot_be_read", "", "",
     "send a 300000 3; FIN to=@ from=9 offset=300000 > "
     "rts:3=A a=protocol links=0 advertised=0 errors=1"},
    {"offer_in_part_ends_link", "", "",
     "recv a 300000 3; RTS tag=3 from=9 total=300000 window=65536 > "
     "a=protocol links=0 advertised=0 errors=1"},
    {"false_window_report_ends_link", "", "",
     "PONG consumed=1 > links=0 advertised=0 errors=1"},
    {"message_beyond_window_ends_link", GREEDY ",eager_window=64K", "",
     "16*EAGER tag=1 bytes=4000 >\n"
     "EAGER tag=1 bytes=4000 > links=0 advertised=0 errors=1"},
    {"endless_credits_end_link", "", "", "CREDIT tag=-1 > links=0 advertised=0 errors=1"},
    {"unspent_credits_end_link", "", "",
     "recv a 8 3; EAGER tag=3 credits=65535 > a=protocol links=0 advertised=0 errors=1"},
    /* ---- unmapped memory ---- */
    {"cancel_starts_no_write", "", "",
     "noregs; send a 300000 3 torn > rts:3=A\n"
     "CTS window=300000 to=A from=9 > cancel:A\n"
     "FIN status=2 to=A > a=fault"},
    {"fin_starts_no_read", "rndv=read", "",
     "noregs; recv a 300000 3 torn; RTS window=300000 from=9 tag=3 total=300000 > "
     "fin:9=broken a=fault"},
    {"fin_opens_no_window", "rndv=write", "",
     "noregs; recv a 300000 3 torn; notx; RTS from=9 tag=3 total=300000 >\n"
     "cut > a=fault links=0 advertised=0"},
    /* ---- memory runs out ---- */
    {"offer_without_memory_fails_before_rts", "rndv=read", "",
     "lack fragment; send a 300000 3 zone > a=no-memory"},
    {"invitation_without_memory_is_dropped", "", "",
     "lack fragment; recv a 300000 3 zone; lack nothing >\n"
     "RTS tag=3 from=9 total=300000; imm @ > cts:9=A+300000 a=300000"},
    {"invited_send_without_memory_fails", "", "",
     "CTS UNSOLICITED window=300000 tag=3 from=9; lack fragment; send a 300000 3 zone > "
     "a=no-memory"},
    {"invited_send_without_transfer_cancels_first", "list_mode=group", "credits=4",
     "keep; send c 100 9; send a 100 2 > eager:9 c=100 eager:2 a=100\n"
     "CTS UNSOLICITED window=200000 tag=3 to=2 from=9; send b 200000 3 zlist; send c 100 3 >\n"
     "lack transfer; CREDIT tag=8; see invites_taken > cancel:A eager:3 c=100 invites_taken=1\n"
     "lack nothing; FIN status=2 to=A from=9 > b=no-memory"},
    {"early_rts_without_memory_ends_link", "", "",
     "lack message; RTS tag=3 from=9 total=300000 > links=0 advertised=0"},
    {"early_message_without_memory_ends_link", "", "",
     "lack message; EAGER tag=3 > links=0 advertised=0"},
    {"cancel_is_answered_without_memory", "", "", "lack any; CANCEL from=9 > fin:9=canceled"},
    {"unexpected_offer_without_memory_ends_link", "", "",
     "lack offer; RTS UNEXPECTED tag=3 from=9 total=10000 window=10000 > links=0 advertised=0"},
    {"too_small_receive_refuses_without_memory", "", "",
     "recv a 10 3; lack any; EAGER tag=3 bytes=100 > fin-eager:100 a=too-large"},
    {"cancelled_refusal_is_not_sent", "", "",
     "notx; recv a 10 3; EAGER tag=3 bytes=100 >\n"
     "cancel a > a=too-large\n"
     "room; notx; recv b 10 3; EAGER tag=3 bytes=100 >\n"
     "room > fin-eager:100 b=too-large"},
    {"refusal_ends_with_link", "", "",
     "notx; recv a 10 3; EAGER tag=3 bytes=100 >\n"
     "cut > a=too-large links=0 advertised=0"},
    {"send_without_rendezvous_fails", "rndv=write", "",
     "64*send a 300000 2 > rts:2=?\n"
     "lack rendezvous; send b 300000 3; recv c 300000 4 zone; see invites_sent > "
     "b=no-memory invites_sent=0"},
    {"receive_without_rendezvous_ends_link", "rndv=write", "",
     "64*send a 300000 2 > rts:2=?\n"
     "RTS tag=3 from=9 total=300000; lack rendezvous; recv b 300000 3 > "
     "a=no-memory*64 b=no-memory links=0 advertised=0"},
    /* ---- windows run out ---- */
    {"cancel_does_not_wait_for_window", "rndv=write,early_cts=0,fragment_bytes=1M", "windows=1",
     "recv a 200000 1; RTS tag=1 from=1 total=200000 > cts:1=A+200000 open=1\n"
     "recv b 200000 2; RTS tag=2 from=2 total=200000 >\n"
     "cancel a > cancel:A\n"
     "FIN status=2 to=A > cts:2=B+200000 a=canceled\n"
     "imm B > b=200000 open=0"},
    {"cancel_is_answered_without_window", "rndv=write,early_cts=0,fragment_bytes=1M",
     "windows=1",
     "recv a 200000 1; RTS tag=1 from=1 total=200000 > cts:1=A+200000 open=1\n"
     "recv b 200000 2; RTS tag=2 from=2 total=200000 >\n"
     "RTS tag=3 from=3 total=200000; CANCEL FROM_SENDER from=3 > fin:3=canceled\n"
     "CANCEL FROM_SENDER to=A from=1 > fin:1=canceled cts:2=B+200000 a=canceled\n"
     "imm B > b=200000 open=0"},
    {"refusal_passes_window_of_send", "rndv=read,early_cts=0,fragment_bytes=1M", "windows=2",
     "send a 200000 9 zone; recv b 200000 8; RTS tag=8 from=8 total=200000 > "
     "rts:9=A offer:200000 cts:8=B+200000 open=2\n"
     "recv c 200000 1; RTS tag=1 from=1 total=200000 >\n"
     "recv d 200000 2; RTS tag=2 from=2 total=200000; cancel d > fin:2=canceled d=canceled\n"
     "down > a=reset b=reset c=reset open=0 links=0 advertised=0"},
    /* ---- the reserve block, for which two peers wait ---- */
    {"blocked_early_cts_send_passes_reserve", RESERVE, "",
     SECOND_WAITS "recv z 200000 90 list; RTS tag=90 from=90 total=200000; see pack_reserve > "
                  "cts:90=A+65536*2 pack_reserve=0 open=4\n"
                  "send a 300000 2; notx; FIN to=@ from=9 status=1 > rts:2=B a=too-large\n"
                  "CTS UNSOLICITED window=40000 tag=3 to=1 from=9; send b 40000 3 list >\n"
                  "1:CTS window=40000 to=B from=91; done > x=40000\n"
                  "room; see invites_taken > credit:0+2 credit:0+1 invites_taken=1 moves=1\n"
                  "done > b=40000 moves=0"},
    {"copy_waits_for_no_answer", "list_mode=pack,pack_threshold=1M,rndv=write", "",
     "send a 300000 2; notx; FIN to=@ from=9 status=1 > rts:2=A a=too-large\n"
     "CTS UNSOLICITED window=40000 tag=3 to=1 from=9; send b 40000 3 list; see pack_bytes > "
     "pack_bytes=65536\n"
     "CANCEL from=9; room; see invites_taken; see pack_bytes > "
     "fin:9=canceled rts:3=B invites_taken=0 pack_bytes=0\n"
     "CTS window=40000 to=@ from=10; done > b=40000"},
    {"reserve_waiter_blocks_no_other_peer", RESERVE, "",
     SECOND_WAITS
     "recv z 200000 90 list; RTS tag=90 from=90 total=200000; see pack_reserve > "
     "cts:90=A+65536*2 pack_reserve=0 open=4\n"
     "send a 40000 3 list; CTS window=40000 to=@ from=9 > rts:3=B moves=1\n"
     "1:CTS window=40000 to=B from=91; 1:send b 100000 5 list > credit:0+1 rts:5=C\n"
     "1:CTS window=100000 to=@ from=92 > credit:0+1\n"
     "1:send c 40000 6 zone; 1:CTS window=40000 to=@ from=93 > rts:6=D credit:0+1\n"
     "send d 39000 7 zone; CTS window=39000 to=@ from=10 > rts:7=C moves=2\n"
     "done > d=39000 moves=1\n"
     "done > a=40000\n"
     "done > x=40000\n"
     "done > moves=2\n"
     "done > c=40000 moves=1\n"
     "done > b=100000 moves=0"},
    {"blocked_send_keeps_its_turn", RESERVE, "credits=6",
     SECOND_WAITS "recv z 200000 90 list; RTS tag=90 from=90 total=200000; see pack_reserve > "
                  "cts:90=A+65536*2 pack_reserve=0 open=4\n"
                  "send a 40000 3 list; send b 39000 6 zone > rts:3=B rts:6=C\n"
                  "CANCEL from=50; CTS window=40000 to=B from=9 > fin:50=canceled\n"
                  "1:CTS window=40000 to=B from=91 > credit:0+1 moves=1\n"
                  "CTS window=39000 to=C from=10; PONG credits=1 >\n"
                  "done > x=40000\n"
                  "done > a=40000 moves=0\n"
                  "PONG credits=1; done > credit:0+4 b=39000"},
    {"first_waiter_gets_reserve_first", RESERVE, "",
     SECOND_WAITS "recv z 200000 90 list; RTS tag=90 from=90 total=200000; see pack_reserve > "
                  "cts:90=A+65536*2 pack_reserve=0 open=4\n"
                  "send a 40000 3 list; CTS window=40000 to=@ from=9 > rts:3=B moves=1\n"
                  "1:CTS window=40000 to=B from=91 > credit:0+1\n"
                  "send b 39000 5 list; CTS window=39000 to=@ from=10 > rts:5=C\n"
                  "done > a=40000\n"
                  "done > x=40000\n"
                  "done > b=39000 moves=0"},
    {"fragments_keep_their_order", RESERVE, "",
     SECOND_WAITS
     "recv z 200000 90 list; RTS tag=90 from=90 total=200000; see pack_reserve > "
     "cts:90=A+65536*2 pack_reserve=0 open=4\n"
     "send a 100000 3 list; 1:send b 40000 5 list; 1:CTS window=40000 to=@ from=91 > "
     "rts:3=B rts:5=C credit:0+1 moves=1\n"
     "CTS window=40000 to=B from=9 >\n"
     "imm A; imm A; imm A; imm A > cts:90=A+65536 cts:90=A+3392 z=200000 open=2\n"
     "CTS window=60000 offset=40000 to=B from=9 >\n"
     "done > b=40000 moves=2\n"
     "done; done > a=100000 moves=0"},
    /* ---- unexpected messages ---- */
    {"unexpected_behind_cancelled_one_is_fetched", "eager_window=256K", "",
     "RTS UNEXPECTED tag=0 from=9 total=16384; imm @ > cts:9=A+16384\n"
     "RTS UNEXPECTED tag=1 from=10 total=16384; imm @ > cts:10=B+16384\n"
     "RTS UNEXPECTED tag=2 from=11 total=16384; imm @ > cts:11=C+16384\n"
     "RTS UNEXPECTED tag=6 from=5 total=16384; EAGER UNEXPECTED tag=7 >\n"
     "CANCEL FROM_SENDER UNEXPECTED from=5 > fin:5=canceled\n"
     "fetch > got:0 got:1 got:2 got:7"},
    {"unexpected_behind_lost_one_is_fetched", "eager_window=256K", "",
     "3*RTS UNEXPECTED tag=0 from=9 total=16384; imm @ > cts:9=C+16384\n"
     "RTS UNEXPECTED tag=6 from=5 total=16384; EAGER UNEXPECTED tag=7 >\n"
     "cut; fetch > got:0*3 got:7 links=0 advertised=0"},
    /* ---- before the link is up ---- */
    {"window_opens_after_link_is_up", "rndv=write,fragment_bytes=1M", "own_rx",
     "again; eager UNEXPECTED; known; rts tag=1 from=5 total=200000 > advertised=8\n"
     "recv a 200000 1; recv b 200000 2 zone; see windows > windows=0\n"
     "up > cts:5=A+200000 open=1\n"
     "imm @; cancel b > a=200000 b=canceled open=0"},
    {"early_receives_end_with_link", "rndv=write,fragment_bytes=1M", "own_rx",
     "again; eager UNEXPECTED; known; rts tag=1 from=5 total=200000 > advertised=8\n"
     "recv a 200000 1; recv b 200000 2 zone; down > a=reset b=reset links=0 advertised=0"},
    {"early_rts_is_pulled", "", "own_rx",
     "again; eager UNEXPECTED; known; rts UNEXPECTED tag=1 from=5 total=10000 > advertised=8\n"
     "up > cts:5=A+10000 open=1\n"
     "imm A; fetch > got:1 open=0"},
    {"unanswered_request_ends_nothing_else", "", "",
     "recv a 100 1; unanswered >\n"
     "EAGER tag=1 > a=0"},
    /* ---- credits of idle peers ---- */
    {"idle_peer_returns_granted_credits", "keepalive_ms=2", "",
     "3*PONG STALLED > credit:32+1 advertised=64\n"
     "wait 80 > ping:63\n"
     "PONG tag=40; see credits_reduced > credits_reduced=40 advertised=24\n"
     "wait 60 > ping:23\n"
     "PONG tag=23 > credit:0+1 advertised=1\n"
     "wait 60 > ping:0\n"
     "6*PONG STALLED > advertised=64\n"
     "PONG tag=64 > links=0 advertised=0 errors=1"},
    {"granted_credits_are_returned", "", "",
     "CREDIT tag=100; PONG STALLED; PONG STALLED; PONG STALLED > "
     "credit:8+3 credit:16+1 credit:32+1 advertised=64\n"
     "PING tag=60 > pong:60\n"
     "PING tag=41 > pong:40\n"
     "PING tag=60 > pong:0\n"
     "PING tag=-2147483648 > pong:0"},
    {"silent_peer_without_credits_is_dead", "keepalive_ms=20,peer_timeout_ms=100", "credits=4",
     "keep; send a 8 1; send b 8 1; send c 8 1; send d 8 1 > eager:1 a=8 eager:1 b=8\n"
     "100*wait 1 >\n"
     "100*wait 1; see peers > peers=0 links=0 advertised=0"},
    /* ---- links that begin with one credit ---- */
    {"new_link_grows_from_one_credit", SINGLE, "modest",
     "PONG STALLED; see credits_lent > credit:7+1 credits_lent=7 advertised=8\n"
     "3*PONG STALLED > credit:32+1 advertised=64\n"
     "PONG tag=63; see credits_lent; see credits_reduced > "
     "credit:0+1 credits_lent=0 credits_reduced=63 advertised=1"},
    {"second_message_needs_second_credit", SINGLE, "modest",
     "notx; PONG >\n"
     "PONG > links=0 advertised=0 errors=1"},
    {"credit_pool_is_bounded", SINGLE ",credits_pool=40", "",
     "5*PONG STALLED > credit:0+2\n"
     "meet > credit:0+1 links=2 advertised=5\n"
     "1:down; see credits_lent > credits_lent=3 links=1 advertised=4"},
    {"own_buffers_come_out_of_pool", SINGLE ",credits_pool=56", "keeps_rx modest",
     "meet; see credits_lent > credits_lent=14 links=2 advertised=16\n"
     "meet; PONG STALLED > credit:0+1 links=3 advertised=17\n"
     "1:down; 2:down; see credits_lent > credits_lent=7 links=1 advertised=8"},
    {"own_buffers_stay_until_link_ends", SINGLE ",keepalive_ms=2", "keeps_rx modest",
     "3*PONG STALLED; see credits_lent > credit:32+1 credits_lent=63 advertised=64\n"
     "wait 80 > ping:0\n"
     "PONG; see credits_lent > credits_lent=63\n"
     "PONG tag=1; see credits_lent > credits_lent=0 links=0 advertised=0 errors=1"},
    {"hello_with_few_credits_refused", SINGLE, "",
     "arrive 0; arrive 3; see rejects > rejects=2\n"
     "arrive 4; see rejects > rejects=2 links=2 advertised=9"},
    {"last_credit_message_reports_stall", SINGLE, "connect credits=1",
     "send a 8 0; send b 8 1; send c 8 2 > eager:0! a=8\n"
     "CREDIT > eager:1! b=8\n"
     "CREDIT tag=7; have > eager:2! c=8 have=7"},
    {"answer_carries_single_credit", SINGLE ",credits_pool=0", "",
     "returned; EAGER UNEXPECTED; answer a 8 1; returned > "
     "returned=0 got:0 eager:1 a=8 returned=1"},
    {"idle_call_returns_single_credit", SINGLE ",credits_pool=0", "",
     "EAGER UNEXPECTED >\n"
     "fetch > got:0 credit:0+1"},
    {"sleeping_call_returns_single_credit", SINGLE ",credits_pool=0", "",
     "EAGER UNEXPECTED; doze > got:0 credit:0+1 sleeps"},
    {"busy_calls_return_single_credit", SINGLE ",credits_pool=0", "",
     "EAGER UNEXPECTED >\n"
     "wait 30 > credit:0+1"},
    {"pong_requests_no_credits", SINGLE, "connect credits=1", "PING; have > pong:0 have=0"},
    {"idle_link_returns_all_but_one", SINGLE, "connect credits=1",
     "CREDIT tag=7; PING tag=7; have > pong:7 have=0\n"
     "CREDIT; have; PING tag=7 > have=1 pong:0"},
    {"answer_without_credit_is_invalid", SINGLE, "connect credits=0", "see peers > peers=0"},
    {"active_side_advertises_minimum_at_first", SINGLE, "connect own_rx credits=8",
     "15*CREDIT tag=1 >\n"
     "CREDIT tag=1 > credit:4+2 advertised=8\n"
     "100*CREDIT tag=1 > credit:0+4"},
    {"link_gets_available_credits", SINGLE ",credits=200", "connect own_rx credits=8",
     "most_rx 119 >\n"
     "20*CREDIT STALLED tag=1 > advertised=119\n"
     "CREDIT STALLED tag=1 >"},
    {"probe_requests_no_credits", SINGLE ",keepalive_ms=2", "connect credits=1",
     "send a 8 1; recv b 8 2; have; wait 300 > eager:1! a=8 have=0\n"
     "PING > pong:0"},
    /* ---- a peer that holds more than its share gets no credits beyond its reserve ---- */
    {"greedy_peer_gets_credits_late", GREEDY, "",
     "280*EAGER tag=1 bytes=2000 >\n"
     "send a 8 1; returned; see rx_buffered_bytes > "
     "eager:1 a=8 returned=224 rx_buffered_bytes=627200\n"
     "4*EAGER tag=1 bytes=2000 >\n"
     "send a 8 1; returned > eager:1 a=8 returned=0\n"
     "60*recv b 2000 1 > b=2000\n"
     "returned; see rx_buffered_bytes > returned=61 rx_buffered_bytes=501760\n"
     "224*recv b 2000 1 > b=2000\n"
     "see rx_buffered_bytes; returned > rx_buffered_bytes=0 returned=0"},
    {"greedy_peer_keeps_its_reserve", GREEDY, "",
     "291*EAGER tag=1 bytes=2000 > credit:0+1\n"
     "returned; CREDIT; returned > returned=230 credit:0+1 returned=1\n"
     "CREDIT; returned > credit:0+1 returned=1\n"
     "99*CREDIT; returned > credit:0+1 returned=1"},
    {"silent_peer_with_credits_is_dead", GREEDY ",keepalive_ms=2,peer_timeout_ms=300", "",
     "260*EAGER tag=1 bytes=2000 >\n"
     "300*wait 3; see peers > peers=0 links=0 advertised=0"},
    {"kept_memory_counts_in_full", GREEDY, "",
     "EAGER tag=1 bytes=4000; see rx_buffered_bytes > rx_buffered_bytes=4240\n"
     "recv a 4000 1 > a=4000\n"
     "EAGER tag=1 bytes=2400; see rx_buffered_bytes > rx_buffered_bytes=4240\n"
     "recv b 4000 1; see rx_buffered_bytes > b=2400 rx_buffered_bytes=0"},
    {"throttled_peer_continues_when_another_releases", GREEDY, "",
     "meet; 1:PONG STALLED; 1:PONG STALLED; 1:PONG STALLED; 1:PONG STALLED > "
     "credit:0+1 credit:63+1 links=2 advertised=128\n"
     "110*1:EAGER tag=1 bytes=2000 >\n"
     "135*EAGER tag=1 bytes=2000; CREDIT; CREDIT; returned > returned=0\n"
     "60*1:recv b 2000 1 > b=2000\n"
     "returned; see rx_buffered_bytes > returned=54 rx_buffered_bytes=414400"},
    {"silent_peer_without_credits_stays", GREEDY ",keepalive_ms=2,peer_timeout_ms=300", "",
     "292*EAGER tag=1 bytes=2000 >\n"
     "900*wait 3; see peers > peers=1\n"
     "300*recv b 2000 1 >\n"
     "50*wait 3; see peers > peers=1\n"
     "900*wait 3; see peers > peers=0 links=0 advertised=0"},
    /* ---- order of sends ---- */
    {"data_leaves_credit_to_older_request", "rndv=read,early_cts=0",
     "credits=4 unexpected=65536",
     "send a 8 1; send b 8 1; ask f 8 5; send c 8 2; send d 20000 3; ask g 8 6; ask h 8 7 > "
     "eager:1 a=8 eager:1 b=8\n"
     "send e 8 4; ask i 8 8 >\n"
     "PONG > ask:5! eager:2 f=8 c=8\n"
     "ask j 8 9 >\n"
     "PONG > rts:3=A offer:20000 ask:6 g=8 open=1\n"
     "PONG > ask:7! eager:4 h=8 e=8\n"
     "PONG > ask:8! ask:9 i=8 j=8\n"
     "FIN status=2 to=A > d=canceled open=0"},
    {"request_without_room_blocks_no_data", "rndv=read,early_cts=0", "credits=4 unexpected=72",
     "ask d 8 5; ask e 8 6 > ask:5 d=8 rts:6=A offer:8 open=1\n"
     "ask f 8 7; send a 8 1; send b 8 2; send c 8 3 >\n"
     "PONG > rts:7=B offer:8 eager:1 a=8 open=2\n"
     "PONG > eager:2! eager:3 b=8 c=8\n"
     "FIN status=2 to=A; FIN status=2 to=B > e=canceled f=canceled open=0"},
    /* ---- the ring that the engine grants ---- */
    {"unknowing_peer_gets_no_ring", RINGS, "", "4*RTS tag=5 from=1 total=20000 >"},
    {"peer_of_other_sizes_gets_no_ring", RINGS, "ring",
     "4*RTS tag=5 from=1 total=100; RTS tag=5 from=2 total=66560; see eager_ring_bytes > "
     "eager_ring_bytes=0\n"
     "noregs >\n"
     "11*RTS tag=5 from=3 total=20000; see eager_ring_bytes > eager_ring_bytes=0\n"
     "regs; RTS tag=5 from=3 total=20000; RTS tag=5 from=3 total=20000 >\n"
     "RTS tag=5 from=3 total=20000 > grant:0+7 open=1"},
    {"freed_ring_window_serves_receives", RINGS, "ring windows=2",
     BORROWED "recv a 20000 5; recv b 20000 5 > cts:1=A+20000 open=2\n"
              "CREDIT RELEASE > cts:2=B+20000\n"
              "imm A; imm B > a=20000 b=20000 open=0"},
    {"unused_ring_is_granted_after_growing_pauses", RINGS, "ring",
     BORROWED
     "CREDIT RELEASE; RTS tag=5 from=3 total=20000; RTS tag=5 from=3 total=20000 > open=0\n"
     "RTS tag=5 from=3 total=20000 >\n"
     "RTS tag=5 from=3 total=20000 > grant:0+5 open=1\n"
     "CREDIT RELEASE > open=0\n"
     "7*RTS tag=5 from=3 total=20000 >\n"
     "RTS tag=5 from=3 total=20000 > grant:0+9 open=1\n"
     "ring 0 20000; CREDIT RELEASE; RTS tag=5 from=3 total=20000 > open=0\n"
     "RTS tag=5 from=3 total=20000 > grant:0+4 open=1"},
    {"ring_is_used_and_withdrawn", RINGS, "ring",
     BORROWED
     "recv a 20000 3; ring 640 20000; holds 20000; see recvs_eager_rdma > "
     "a=20000 recvs_eager_rdma=1\n"
     "ring 0 100; wait 1000 >\n"
     "ring 0 100; wait 1000 >\n"
     "RTS tag=5 from=50 total=66560; wait 1000; see eager_ring_bytes > "
     "withdraw:0+4 eager_ring_bytes=131072\n"
     "CREDIT RELEASE; see eager_ring_bytes > eager_ring_bytes=0 open=0\n"
     "RTS tag=5 from=51 total=20000; RTS tag=5 from=52 total=20000 > grant:0+3 open=1"},
    {"delayed_withdrawal_ends_with_its_ring", RINGS, "ring",
     BORROWED
     "notx; wait 1000; wait 1000; CREDIT RELEASE; see eager_ring_bytes > "
     "eager_ring_bytes=0 open=0\n"
     "4*RTS tag=5 from=3 total=20000; see eager_ring_bytes > eager_ring_bytes=131072 open=1\n"
     "room > grant:0+5"},
    {"ring_places_are_returned_by_halves", RINGS, "ring",
     BORROWED "recv a 20000 3; recv b 20000 3; recv c 20000 3; recv d 20000 3; PING > pong:0\n"
              "ring 0 20000; ring 0 20000; ring 0 20000 > a=20000 b=20000 c=20000\n"
              "ring 0 20000 > credit:0+4 d=20000"},
    {"early_messages_leave_ring", RINGS, "ring",
     BORROWED "PING; ring 0 20000; ring 20032 20000; ring 40064 20000; ring 60096 20000 > "
              "pong:0 credit:0+4\n"
              "CREDIT RELEASE; see eager_ring_bytes > eager_ring_bytes=0 open=0\n"
              "4*recv a 20000 3; holds 20000 > a=20000"},
    {"wrong_place_ends_link_and_ring", RINGS, "ring",
     BORROWED "ring 0 20000; imm 0xffff0800; see rx_buffered_bytes; see eager_ring_bytes > "
              "rx_buffered_bytes=0 eager_ring_bytes=0 open=0 links=0 advertised=0 errors=1"},
    {"too_long_message_in_ring_ends_link", RINGS, "ring",
     BORROWED "ring 126976 0 4096 > open=0 links=0 advertised=0 errors=1"},
    {"window_holds_in_ring", RINGS, "ring",
     BORROWED "20*ring 0 0 60000 > open=0 links=0 advertised=0 errors=1"},
    {"released_ring_cannot_be_used", RINGS, "ring",
     BORROWED "CREDIT RELEASE; imm 0xffff0000 > open=0 links=0 advertised=0 errors=1"},
    /* ---- the ring that the peer grants ---- */
    {"full_ring_makes_expected_sends_wait", RINGS, "ring",
     GRANTED "keep >\n"
             "6*send a 20000 1 > a=20000 moves=6\n"
             "send b 20000 1; finish > moves=0\n"
             "ask c 6400 1; see sends_eager_rdma > rts:1=A sends_eager_rdma=6\n"
             "return; PING > pong:0 b=20000 moves=1"},
    {"cancelled_wait_reserves_no_room", RINGS, "ring",
     GRANTED "keep >\n"
             "6*send a 20000 1 > a=20000 moves=6\n"
             "send b 20000 1; cancel b; finish > b=canceled moves=0\n"
             "return; PING; ask c 6400 1; see sends_eager_rdma > "
             "pong:0 c=6400 sends_eager_rdma=7 moves=1"},
    {"send_waits_for_nothing_uncertain", RINGS, "ring",
     GRANTED "keep >\n"
             "4*send a 20000 1 > a=20000 moves=4\n"
             "send b 60000 1; see eager_ring_full > rts:1=A eager_ring_full=0"},
    {"waiting_send_leaves_withdrawn_ring", RINGS, "ring",
     GRANTED "keep >\n"
             "6*send a 20000 1 > a=20000 moves=6\n"
             "send b 20000 1 >\n"
             "CREDIT WITHDRAW > release:0+1 rts:1=A moves=7"},
    {"ring_slot_waits_for_device", RINGS, "ring",
     GRANTED "6*send a 20000 1 > a=20000 moves=6\n"
             "PING; send b 20000 1 > pong:0\n"
             "finish > b=20000 moves=0"},
    {"withdrawn_ring_is_released_behind_message", RINGS, "ring",
     GRANTED "send a 20000 1; CREDIT WITHDRAW > a=20000 release:0+1 moves=2\n"
             "send b 20000 2; CREDIT WITHDRAW > rts:2=A\n"
             "CREDIT GRANT window=131072 > release:0+2\n"
             "finish; CREDIT GRANT window=131072; send c 20000 3; see sends_eager_rdma > "
             "c=20000 sends_eager_rdma=2 moves=1"},
    {"useless_ring_is_released", RINGS, "ring",
     "CREDIT GRANT window=10 > release:0+2\n"
     "noregs; CREDIT GRANT window=4194304 > release:0+1"},
    {"second_grant_ends_link", RINGS, "ring",
     GRANTED "CREDIT GRANT window=131072 > links=0 advertised=0 errors=1"},
    {"grant_without_memory_ends_link", RINGS, "ring",
     "CREDIT GRANT > links=0 advertised=0 errors=1"},
    {"few_unsignalled_writes_are_reported", RINGS, "ring unsignalled",
     GRANTED
     "16*send a 20000 1; send a 20000 1; send a 20000 1; send a 20000 1; PING consumed=80256 > "
     "a=20000*4 pong:0 moves=64\n"
     "quieted; see eager_ring_full > quieted=60 eager_ring_full=0"},
    {"unsignalled_writes_have_a_limit", RINGS, "ring unsignalled",
     GRANTED
     "32*send a 20000 1; send a 20000 1; send a 20000 1; send a 20000 1; PING consumed=80256 > "
     "a=20000*4 pong:0 moves=128\n"
     "send b 20000 1; see sends_eager_rdma > rts:1=A sends_eager_rdma=128\n"
     "finish; see sends_eager_rdma > sends_eager_rdma=128 moves=0"},
    {"ring_is_released_behind_unsignalled_writes", RINGS, "ring unsignalled",
     GRANTED "send a 20000 1; send b 20000 1; PING consumed=40128; CREDIT WITHDRAW; quieted > "
             "a=20000 b=20000 pong:0 release:0+1 quieted=2 moves=3\n"
             "CREDIT GRANT window=131072 > release:0+1\n"
             "finish; CREDIT GRANT window=131072; send c 20000 1; see sends_eager_rdma > "
             "c=20000 sends_eager_rdma=3 moves=1"},
};

int main(void)
{
    return play_all("peer", plays, sizeof(plays) / sizeof(plays[0]));
}

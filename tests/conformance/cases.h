/* SPDX-License-Identifier: LGPL-2.1-or-later */
/* The suite's tests, by file. Each is a cmocka test over the fixture (bed.h). */
#ifndef TESTS_CASES_H
#define TESTS_CASES_H

#include "bed.h"

/* Engines, addresses, contexts, ids: basic_test.c. */
#define BASIC_CASES(X)                                                                         \
    X(open_close_open)                                                                         \
    X(open_reports_errors)                                                                     \
    X(addresses_outlive_engines)                                                               \
    X(address_text_is_checked)                                                                 \
    X(passive_address)                                                                         \
    X(freed_address_ends_its_operations)                                                       \
    X(connect_without_listener_refused)                                                        \
    X(connect_to_listener_succeeds)                                                            \
    X(unreachable_hosts)                                                                       \
    X(second_address_is_tried)                                                                 \
    X(contexts_open_and_close)                                                                 \
    X(contexts_are_separate)                                                                   \
    X(closed_context_drops_its_operations)                                                     \
    X(test_by_id)                                                                              \
    X(stale_ids_are_harmless)                                                                  \
    X(bad_posts_are_refused)                                                                   \
    X(memory_handed_out)                                                                       \
    X(seeing_inside)

/* Sizes, lists, contents: message_test.c. */
#define MESSAGE_CASES(X)                                                                       \
    X(receive_before_connect)                                                                  \
    X(receive_without_server)                                                                  \
    X(unexpected_of_every_size)                                                                \
    X(unexpected_too_large_is_refused)                                                         \
    X(unexpected_outlives_its_peer)                                                            \
    X(unexpected_of_peers_in_turn)                                                             \
    X(unexpected_tags_are_their_own)                                                           \
    X(sizes_around_every_limit)                                                                \
    X(receive_larger_than_send)                                                                \
    X(send_larger_than_receive)                                                                \
    X(send_larger_leaves_canaries)                                                             \
    X(zero_length_everywhere)                                                                  \
    X(zero_length_beyond_the_window)                                                           \
    X(lists_of_64_by_64)                                                                       \
    X(lists_of_uneven_pieces)                                                                  \
    X(zone_memory_everywhere)                                                                  \
    X(sides_of_different_minds)                                                                \
    X(one_buffer_sent_many_times)

/* Matching: order_test.c. */
#define ORDER_CASES(X)                                                                         \
    X(fifo_receives_in_advance)                                                                \
    X(fifo_receives_one_at_a_time)                                                             \
    X(fifo_skips_cancelled_receives)                                                           \
    X(many_tags)                                                                               \
    X(other_tags_are_not_held_back)                                                            \
    X(extreme_tags)                                                                            \
    X(peers_do_not_mix)                                                                        \
    X(server_to_server)                                                                        \
    X(goodbye_comes_last)

/* Order of an answer and the completion of the data that it answers: answer_test.c. */
#define ANSWER_CASES(X)                                                                        \
    X(answer_comes_after_its_data)                                                             \
    X(answer_waits_for_the_device)                                                             \
    X(answer_to_something_else_does_not_wait)                                                  \
    X(answer_on_busy_link_is_immediate)                                                        \
    X(answer_by_invitation)                                                                    \
    X(answers_keep_their_order)                                                                \
    X(held_receives_end_in_order)                                                              \
    X(answer_whose_receive_is_cancelled)                                                       \
    X(answer_of_a_peer_that_goes)                                                              \
    X(answer_dropped_with_its_link)

/* Cancel: cancel_test.c. */
#define CANCEL_CASES(X)                                                                        \
    X(cancel_eager)                                                                            \
    X(cancel_rendezvous_write)                                                                 \
    X(cancel_rendezvous_read)                                                                  \
    X(cancel_rendezvous_of_units)                                                              \
    X(cancel_invited)                                                                          \
    X(cancel_unexpected)                                                                       \
    X(cancel_while_connecting)                                                                 \
    X(cancel_with_a_silent_peer)                                                               \
    X(cancel_forcefully)                                                                       \
    X(cancel_forcefully_a_sleeping_peer)                                                       \
    X(cancel_unexpected_that_waits)                                                            \
    X(cancel_while_data_moves)                                                                 \
    X(cancel_after_the_end)                                                                    \
    X(cancelled_ones_give_quotas_back)                                                         \
    X(cancel_many)                                                                             \
    X(failed_receive_follows_its_request)                                                      \
    X(cancelled_receive_passes_other_sends)

/* Receiver-first rendezvous: invite_test.c. */
#define INVITE_CASES(X)                                                                        \
    X(receiver_first_is_not_asked)                                                             \
    X(invitation_shares_a_doorbell)                                                            \
    X(sender_first_asks)                                                                       \
    X(invitation_crosses_rts)                                                                  \
    X(invitation_crosses_eager)                                                                \
    X(invitation_crosses_another_tag)                                                          \
    X(invitation_of_another_size)                                                              \
    X(invitation_declined)                                                                     \
    X(invited_message_is_not_overtaken)                                                        \
    X(invitation_taken_back)                                                                   \
    X(invitation_taken_back_too_late)                                                          \
    X(invitations_taken_back_in_a_row)                                                         \
    X(invitation_taken_back_by_force)                                                          \
    X(invitation_dies_with_its_link)                                                           \
    X(inviting_in_vain_is_noticed)                                                             \
    X(invitations_not_wanted)

/* Ring: ring_test.c. */
#define RING_CASES(X)                                                                          \
    X(fast_contents)                                                                           \
    X(fast_counts)                                                                             \
    X(fast_needs_no_invitation)                                                                \
    X(fast_sizes)                                                                              \
    X(fast_keeps_order)                                                                        \
    X(fast_runs_out)                                                                           \
    X(fast_beside_reports)                                                                     \
    X(fast_unexpected)                                                                         \
    X(fast_cancel)                                                                             \
    X(fast_cancel_while_waiting)                                                               \
    X(fast_larger_than_receive)                                                                \
    X(fast_not_wanted)                                                                         \
    X(fast_is_withdrawn)                                                                       \
    X(fast_is_withdrawn_in_use)                                                                \
    X(fast_ends_with_the_link)                                                                 \
    X(fast_server_restarts)                                                                    \
    X(single_credit_links_are_granted_rings)

/* Rings for many clients: crowd_rings_test.c. */
#define SHARE_CASES(X)                                                                         \
    X(fast_of_an_idle_one)                                                                     \
    X(fast_of_a_dead_one)                                                                      \
    X(fast_of_silent_ones)                                                                     \
    X(fast_of_a_greedy_host)                                                                   \
    X(fast_stages_of_dead_ones)                                                                \
    X(fast_of_who_falls_silent)

/* Quotas of bounce buffers: bounce_quota_test.c. */
#define BOUNCE_QUOTA_CASES(X)                                                                  \
    X(zones_of_a_greedy_one)                                                                   \
    X(zones_of_one)                                                                            \
    X(zones_of_many)                                                                           \
    X(zones_that_the_host_has)

/* On-demand paging: demand_test.c. */
#define DEMAND_CASES(X)                                                                        \
    X(demand_is_an_option)                                                                     \
    X(demand_pins_nothing)                                                                     \
    X(demand_follows_mappings)                                                                 \
    X(demand_is_looked_at)                                                                     \
    X(demand_is_lost_in_the_middle)

/* Overload: pressure_test.c. */
#define PRESSURE_CASES(X)                                                                      \
    X(rdma_in_flight_stays_below_limit)                                                        \
    X(eager_flood_unposted)                                                                    \
    X(rendezvous_flood_unposted)                                                               \
    X(unexpected_flood_unclaimed)                                                              \
    X(window_freed_ends_wait)                                                                  \
    X(greedy_hosts_wait_alone)                                                                 \
    X(greedy_link_ends_what_it_began)                                                          \
    X(unexpected_kept_by_the_host)                                                             \
    X(unexpected_ends_the_wait)                                                                \
    X(clients_200)                                                                             \
    X(clients_come_and_go)

/* Failures of links and engines: death_test.c. */
#define DEATH_CASES(X)                                                                         \
    X(silence_is_logged_once_with_work)                                                        \
    X(link_dies_at_each_message)                                                               \
    X(link_dies_at_each_message_reading)                                                       \
    X(link_dies_at_each_step)                                                                  \
    X(link_dies_at_each_step_reading)                                                          \
    X(each_call_fails_once)                                                                    \
    X(server_restarts_under_load)                                                              \
    X(client_goes_under_load)                                                                  \
    X(idle_client_goes_without_a_word)                                                         \
    X(client_gives_up_on_the_way)                                                              \
    X(close_with_operations_alive)                                                             \
    X(opening_fails_cleanly)

/* Lengths and registrations: limit_test.c. */
#define LIMIT_CASES(X)                                                                         \
    X(receive_of_5_gib)                                                                        \
    X(message_beyond_4_gib)                                                                    \
    X(lengths_beyond_4_gib)                                                                    \
    X(registration_refused)                                                                    \
    X(registration_refused_now_and_then)                                                       \
    X(send_from_read_only_memory)                                                              \
    X(memory_that_is_not_there)                                                                \
    X(memory_that_a_device_refuses)

/* Exact counts: count_test.c. */
#define COUNT_CASES(X)                                                                         \
    X(windows_close_with_their_operation)                                                      \
    X(cancelled_ones_are_shut)                                                                 \
    X(peer_registrations_end_with_their_operation)                                             \
    X(windows_of_greedy_ones)                                                                  \
    X(few_mws_suffice)                                                                         \
    X(answer_waits_until_shut)                                                                 \
    X(counts_of_a_large_write)                                                                 \
    X(counts_of_a_large_read)                                                                  \
    X(counts_of_written_lists)                                                                 \
    X(counts_of_read_lists)                                                                    \
    X(groups_at_receivers)                                                                     \
    X(many_large_ones_are_shared)                                                              \
    X(counts_of_a_small_message)                                                               \
    X(counts_of_one_way_traffic)                                                               \
    X(idle_engine_sleeps)                                                                      \
    X(idle_memory_goes_back)                                                                   \
    X(idle_server_of_100_clients)                                                              \
    X(pool_as_the_session_says)                                                                \
    X(session_attributes_hold)

/* rme_explain compared with the engine's decisions: plan_test.c. */
#define PLAN_CASES(X)                                                                          \
    X(engine_does_what_is_explained)                                                           \
    X(engine_uses_ring_as_explained)

/* Threads and sleeping: thread_test.c. */
#define THREAD_CASES(X)                                                                        \
    X(two_threads_post_one_tests)                                                              \
    X(message_wakes_sleeper)                                                                   \
    X(post_is_carried_by_the_sleeper)                                                          \
    X(cancel_wakes_sleeper)                                                                    \
    X(cancelled_sleeper_leaves_nothing_behind)                                                 \
    X(unmapped_memory_is_unpinned_by_sleeper)                                                  \
    X(sleepers_of_several_contexts)                                                            \
    X(threads_of_every_kind)

/* Receives that are too small, at the sender: refuse_test.c. */
#define REFUSE_CASES(X)                                                                        \
    X(send_larger_than_receive_stays_complete)                                                 \
    X(send_larger_than_receive_is_told_afterwards)                                             \
    X(send_larger_than_receive_many_times)                                                     \
    X(send_larger_than_receive_strict)                                                         \
    X(send_larger_than_receive_one_side_strict)

/* Processes: process_test.c. */
#define PROCESS_CASES(X)                                                                       \
    X(process_exchange)                                                                        \
    X(peer_killed_while_it_sends)                                                              \
    X(peer_killed_while_it_receives)                                                           \
    X(peer_killed_in_eager_traffic)                                                            \
    X(peer_killed_when_no_credit_is_left)                                                      \
    X(silent_peer_times_out)                                                                   \
    X(client_process_killed)                                                                   \
    X(clients_in_processes)                                                                    \
    X(client_outlives_its_device)                                                              \
    X(server_outlives_its_device)                                                              \
    X(failed_device_traffic_moves_to_other_rail) /* last: the device stays failed */

#define ALL_CASES(X)                                                                           \
    BASIC_CASES(X)                                                                             \
    MESSAGE_CASES(X)                                                                           \
    REFUSE_CASES(X)                                                                            \
    ORDER_CASES(X)                                                                             \
    ANSWER_CASES(X)                                                                            \
    CANCEL_CASES(X)                                                                            \
    INVITE_CASES(X)                                                                            \
    RING_CASES(X)                                                                              \
    BOUNCE_QUOTA_CASES(X)                                                                      \
    SHARE_CASES(X)                                                                             \
    PRESSURE_CASES(X)                                                                          \
    DEATH_CASES(X)                                                                             \
    LIMIT_CASES(X)                                                                             \
    COUNT_CASES(X)                                                                             \
    DEMAND_CASES(X)                                                                            \
    PLAN_CASES(X)                                                                              \
    THREAD_CASES(X)                                                                            \
    PROCESS_CASES(X)

#define CASE_DECLARE(name) void name(void **state);
ALL_CASES(CASE_DECLARE)
#undef CASE_DECLARE

int process_setup(void **state);
int process_teardown(void **state);
/* Roles of this program when a test starts it: a server under the test's control, a client that
 * is killed, one of many clients. */
int process_peer(const char *uri);
int process_guest(const char *uri);
int process_visitor(const char *uri); /* crowd_test.c */
void visitors_kill(void);

#endif

#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Runs test_names and test_events over the software HCA, and test_rails over one with two devices,
# each test in its own process, once for each kind of receive queue. Usage, in the top of the build:
# rails.sh; the variable EMUVERBS names another wrapper.
# shellcheck source=tests/lib/tap.sh
. "${srcdir:-$(dirname "$0")/../../..}/tests/lib/tap.sh"
emuverbs=${EMUVERBS:-./emul/verbs/emuverbs} program=./tests/unit/bmi_ib/test_rails
[ -x "$emuverbs" ] || skip_all "$emuverbs was not built"
is_chosen() {
    case " ${CASES_ONLY:-$1} " in *" $1 "*) ;; *) return 1 ;; esac
    case " ${CASES_NOT-} " in *" $1 "*) return 1 ;; esac
}
{
    for single in test_names test_events; do
        EMUVERBS_ETHERNET=1 EMUVERBS_CENSUS=1 "$emuverbs" ./tests/unit/bmi_ib/$single || echo "not ok 1 - $single: status $?"
    done
    for options in device=emu0+emu1 device=emu0+emu1,srq=on device=emu0+emu1,srq=off; do
        echo "== $options"
        for test in large_transfer_uses_both_rails event_of_either_rail_wakes device_list_is_checked rails_near_the_peer_get_links first_dies second_dies first_returns second_returns both_return rail_without_port_gets_no_links device_event_reaches_both_engines refused_link_leaves_both_rails link_end_on_polled_rail_ends_sleep registrations_meet_changes listener_returns address_moves; do
            is_chosen "$test" || continue
            { CASES_ONLY=$test EMUVERBS_DEVICES=2 EMUVERBS_ETHERNET=1 EMUVERBS_CENSUS=1 \
                EMUVERBS_RETRY_MAX_MS=200 "$emuverbs" "$program" "$options" || echo "not ok 1 - $test with $options: status $?"; } |
                awk -v name="$test" '{ print } /^(not )?ok/ { n++ } END { if (!n) print "not ok 1 - " name ": no case has this name" }'
        done
    done
} | tap_join

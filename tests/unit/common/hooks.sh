#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Runs the tests of the registration cache with userfaultfd forbidden, as RHEL 8 and the seccomp
# profile of containers do: hooks in the C library watch memory. Usage, in the top of the build:
# hooks.sh [PROGRAM]. Not on the build with sanitizers, whose allocators make their own system calls.
# shellcheck source=tests/lib/tap.sh
. "${srcdir:-$(dirname "$0")/../../..}/tests/lib/tap.sh"
only=$1
case $(uname -m) in
x86_64) userfaultfd=323 ;;
*) skip_all "there are hooks for x86-64 alone" ;;
esac
# Cases about userfaultfd itself.
events="buffer_replaced_unseen_is_registered_again others_hit_while_an_unmap_is_pending"
events="$events missed_change_concerns_all_engines ended_monitor_watches_nothing failed_monitor_watches_nothing"
events="$events monitor_without_descriptors_ends monitor_without_statx_stays_closed children_close_it"
lane() { # program, cases left out
    [ -z "$only" ] || [ "$only" = "$1" ] || return 0
    echo "== $1"
    CASES_NOT="$2" tests/lib/forbid $userfaultfd "tests/unit/common/$1" || echo "not ok 1 - $1: status $?"
}
{
    lane test_hooks ""
    lane test_stale ""
    lane test_mreg ""
    lane test_groups ""
    lane test_monitor "$events"
    [ -n "$only" ] || tests/lib/forbid $userfaultfd "${srcdir:-.}/tests/contract/over-emuverbs" tests/contract/test_loaded
} | tap_join

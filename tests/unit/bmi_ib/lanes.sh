#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Runs the verbs fabric's tests over the software HCA, once per lane: devices or options that take
# other paths. Usage, in the top of the build: lanes.sh [LANE]; the variable EMUVERBS names another
# wrapper.
# shellcheck source=tests/lib/tap.sh
. "${srcdir:-$(dirname "$0")/../../..}/tests/lib/tap.sh"
emuverbs=${EMUVERBS:-./emul/verbs/emuverbs} program=./tests/unit/bmi_ib/test_wire only=$1
[ -x "$emuverbs" ] || skip_all "$emuverbs was not built"
lane() { # name, options of the fabric, variables of the device…
    name=$1 options=$2
    shift 2
    [ -z "$only" ] || [ "$only" = "$name" ] || return 0
    echo "== $name"
    env EMUVERBS_CENSUS=1 CASES_NOT="${CASES_NOT-} link_beyond_the_cq_is_refused" "$@" "$emuverbs" "$program" "$options" || echo "not ok 1 - $name: status $?"
}
{
    lane usual ""
    lane shared-receives "srq=on"
    lane own-receives "srq=off"
    lane no-shared-receives "srq=on" EMUVERBS_SRQ=0
    lane one-segment "srq=off" EMUVERBS_MAX_SGE=1
    lane no-inline "max_inline=0"
    lane short-queues "sq_depth=8" EMUVERBS_MAX_INLINE=0
    lane late-reads "" EMUVERBS_READ_DELAY_US=300 EMUVERBS_READ_REVERSE=1
    lane one-read "" EMUVERBS_MAX_RD_ATOM=1
    lane each-signalled "signal_each=1" EMUVERBS_MTU=256
    lane full-queue "srq=off,sq_depth=50" EMUVERBS_MAX_CQE=500 CASES_ONLY=link_beyond_the_cq_is_refused
    program=./tests/unit/bmi_ib/test_queues
    lane queues "srq=off" EMUVERBS_READ_DELAY_US=300
    lane shared-queues "srq=on" EMUVERBS_MAX_INLINE=128 EMUVERBS_READ_DELAY_US=300
    lane queue-not-created "srq=on" EMUVERBS_FAIL=ibv_create_srq:3 CASES_ONLY=receives_go_back_with_links
    lane queue-not-destroyed "srq=on" EMUVERBS_FAIL=ibv_destroy_srq:1 CASES_ONLY=receives_go_back_with_links
} | tap_join

#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Makes each verbs and rdma_cm call of one exchange fail once, with receive queues per link and
# shared ones. Usage, in the top of the build: faults.sh [FIRST [LAST]]; the variable EMUVERBS names
# another wrapper.
# shellcheck source=tests/lib/tap.sh
. "${srcdir:-$(dirname "$0")/../../..}/tests/lib/tap.sh"
emuverbs=${EMUVERBS:-./emul/verbs/emuverbs} program=./tests/unit/bmi_ib/test_faults first=${1:-1} last=$2
[ -x "$emuverbs" ] || skip_all "$emuverbs was not built"
out=$(mktemp)
trap 'rm -f "$out"' EXIT
export EMUVERBS_CENSUS=1
for options in srq=off srq=on; do
    begin "each call fails once, $options"
    runs=0
    EMUVERBS_COUNT_CALLS=1 "$emuverbs" "$program" $options 2>"$out" || fail "without a fault: $(cat "$out")"
    calls=${last:-$(sed -n 's/.*: \([0-9]*\) calls$/\1/p' "$out" | tail -1)}
    k=$first
    while [ "$k" -le "$calls" ]; do
        EMUVERBS_FAIL=$k timeout 300 "$emuverbs" "$program" $options >"$out" 2>&1
        status=$?
        if [ $status -ne 0 ] || grep -q 'alive at exit' "$out"; then
            fail "EMUVERBS_FAIL=$k (status $status): $(cat "$out")"
        fi
        runs=$((runs + 1))
        k=$((k + 1))
    done
    echo "# $runs faults"
    [ $runs -gt 0 ] || fail "there was no call"
done
finish

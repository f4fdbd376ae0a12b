#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Lets each verbs and rdma_cm call of one exchange fail once, with own and with shared receives.
# Usage, in the top of the build: faults.sh [FIRST [LAST]]; the variable EMUVERBS names another wrapper.
emuverbs=${EMUVERBS:-./emul/verbs/emuverbs} program=./tests/unit/bmi_ib/test_faults first=${1:-1} last=$2
[ -x "$emuverbs" ] || { echo "skipped: $emuverbs was not built"; exit 77; }
out=$(mktemp)
trap 'rm -f "$out"' EXIT
export EMUVERBS_CENSUS=1
failed=0 runs=0
for options in srq=off srq=on; do
    EMUVERBS_COUNT_CALLS=1 "$emuverbs" "$program" $options 2>"$out" || { cat "$out"; echo "FAIL without a fault"; exit 1; }
    calls=${last:-$(sed -n 's/.*: \([0-9]*\) calls$/\1/p' "$out" | tail -1)}
    k=$first
    while [ "$k" -le "$calls" ]; do
        EMUVERBS_FAIL=$k timeout 30 "$emuverbs" "$program" $options >"$out" 2>&1
        status=$?
        if [ $status -ne 0 ] || grep -q 'alive at exit' "$out"; then
            echo "FAIL $options EMUVERBS_FAIL=$k (status $status)"
            cat "$out"
            failed=$((failed + 1))
        fi
        runs=$((runs + 1))
        k=$((k + 1))
    done
done
echo "$runs faults, $failed failed"
[ $failed -eq 0 ] && [ $runs -gt 0 ]

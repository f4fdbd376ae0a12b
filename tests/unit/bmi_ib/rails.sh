#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Runs test_rails over the software HCA with two devices, each test in a process of its own, once for each kind of receives.
# Usage, in the top of the build: rails.sh; the variable EMUVERBS names another wrapper.
emuverbs=${EMUVERBS:-./emul/verbs/emuverbs} program=./tests/unit/bmi_ib/test_rails
[ -x "$emuverbs" ] || { echo "skipped: $emuverbs was not built"; exit 77; }
for options in device=emu0+emu1 device=emu0+emu1,srq=on device=emu0+emu1,srq=off; do
    echo "== $options"
    for test in spread woken names first_dies second_dies; do
        EMUVERBS_DEVICES=2 EMUVERBS_ETHERNET=1 EMUVERBS_CENSUS=1 EMUVERBS_RETRY_MAX_MS=200 \
            "$emuverbs" "$program" "$options" "$test" || exit 1
    done
done

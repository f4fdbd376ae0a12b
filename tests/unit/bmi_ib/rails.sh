#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Runs test_rails over the software HCA with two devices, once for each way in which keys reach a peer.
# Usage, in the top of the build: rails.sh; the variable EMUVERBS names another wrapper.
emuverbs=${EMUVERBS:-./emul/verbs/emuverbs} program=./tests/unit/bmi_ib/test_rails
[ -x "$emuverbs" ] || { echo "skipped: $emuverbs was not built"; exit 77; }
for options in device=emu0+emu1 device=emu0+emu1,srq=on device=emu0+emu1,srq=off; do
    echo "== $options"
    EMUVERBS_DEVICES=2 EMUVERBS_ETHERNET=1 EMUVERBS_CENSUS=1 "$emuverbs" "$program" "$options" || exit 1
done

#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# OrangeFS's own programs with two devices in every process: copies are right.
set -u
# shellcheck source=tests/orangefs/lib.sh
. "${srcdir:-$(dirname "$0")/../..}/tests/orangefs/lib.sh"
needs_emuverbs "two devices are the software HCA's"
needs_options
export EMUVERBS_DEVICES=2 EMUVERBS_ETHERNET=1

make_files 1000003 40000003
opts=device=emu0+emu1

configure ib 1 && default_line "BMIOpts $opts" && bring_up && {
    tab "ib://$host:$base" "bmi_opts=\"$opts\""
    for size in 1000003 40000003; do
        for buffer in 65536 1048576 4194304; do
            check "$size bytes by $buffer there and back" there_and_back "$tmp/f$size" $buffer
        done
    done
}
end
finish

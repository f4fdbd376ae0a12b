#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# OrangeFS's own programs with two devices in every process: copies are right, and large transfers
# between one client and one server use both devices.
set -u
# shellcheck source=tests/orangefs/lib.sh
. "${srcdir:-$(dirname "$0")/../..}/tests/orangefs/lib.sh"
needs_emuverbs "two devices are the software HCA's"
needs_options
# With a link rate transfers take time, so that several are in flight.
export EMUVERBS_DEVICES=2 EMUVERBS_ETHERNET=1 EMUVERBS_LINK_MB_S=500

make_files 1000003 40000003
opts=device=emu0+emu1,stripe_bytes=65536

bytes_by() { # device, counters: bytes that the process moved on it; an unused device is not listed
    local n
    n=$(sed -n "s/.*\"$1\.1\": *{.*\"bytes\": *\([0-9]*\).*/\1/p" "$2")
    echo "${n:-0}"
}
less_of() { echo $(($1 < $2 ? $1 : $2)); }
# On whichever device a process has its connection: the device that moved less carries only striped
# data.
over_both() { # COMMAND...
    local dir=$tmp/counted c s
    rm -rf "$dir"
    mkdir "$dir"
    $wrap --show "${server[0]}" >"$tmp/before" && $wrap --counters-dir "$dir" "$@" && $wrap --show "${server[0]}" >"$tmp/after" || return 1
    cat "$dir"/*.json >"$tmp/client"
    c=$(less_of "$(bytes_by 0 "$tmp/client")" "$(bytes_by 1 "$tmp/client")")
    s=$(less_of $(($(bytes_by 0 "$tmp/after") - $(bytes_by 0 "$tmp/before"))) $(($(bytes_by 1 "$tmp/after") - $(bytes_by 1 "$tmp/before"))))
    echo "by the other device: the client $c bytes, the server $s"
    [ $((c + s)) -gt 4000000 ]
}

configure ib 1 && default_line "BMIOpts $opts" && bring_up && {
    tab "ib://$host:$base" "bmi_opts=\"$opts\""
    for size in 1000003 40000003; do
        for buffer in 65536 1048576 4194304; do
            check "$size bytes by $buffer there and back" there_and_back "$tmp/f$size" $buffer
        done
    done
    check "a copy in goes over both" over_both pvfs2-cp -b 4194304 "$tmp/f40000003" "$mnt/large"
    check "a copy out goes over both" over_both pvfs2-cp -b 4194304 "$mnt/large" "$tmp/back"
    check "it is whole" cmp "$tmp/f40000003" "$tmp/back"
}
end
finish

#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# OrangeFS's own programs with two devices in every process: what is copied is whole, and large transfers of one client with one
# server go over both.
set -u
# shellcheck source=tests/orangefs/lib.sh
. "${srcdir:-$(dirname "$0")/../..}/tests/orangefs/lib.sh"
if [ -z "$wrap" ]; then
    echo "skipped: EMUVERBS is empty; two devices are the software HCA's"
    exit 77
fi
if ! grep -q BMIOpts "$prefix/sbin/pvfs2-server"; then
    echo "skipped: this OrangeFS has no options for its networks (2.9.8 is the first that has)"
    exit 77
fi
# With a rate transfers take their time, so that there are several at a time.
export EMUVERBS_DEVICES=2 EMUVERBS_ETHERNET=1 EMUVERBS_LINK_MB_S=500

make_files 1000003 40000003
opts=device=emu0+emu1,stripe_bytes=65536

second() { sed -n 's/.*"1\.1": *{.*"bytes": *\([0-9]*\).*/\1/p' "$1"; } # bytes that a process moved by its second device
over_both() { # COMMAND...
    local dir=$tmp/counted before after
    rm -rf "$dir"
    mkdir "$dir"
    $wrap --show "${server[0]}" >"$tmp/before" && $wrap --counters-dir "$dir" "$@" && $wrap --show "${server[0]}" >"$tmp/after" || return 1
    before=$(second "$tmp/before") after=$(second "$tmp/after")
    cat "$dir"/*.json >"$tmp/client"
    echo "by the second device: the server $((after - before)) bytes, the client $(second "$tmp/client")"
    [ $((after - before + $(second "$tmp/client"))) -gt 4000000 ]
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

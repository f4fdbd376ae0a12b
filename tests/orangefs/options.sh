#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Options reach bmi_ib through OrangeFS: BMIOpts in the servers' configuration, bmi_opts in a
# client's tab file. The software HCA counts their effects.
set -u
# shellcheck source=tests/orangefs/lib.sh
. "${srcdir:-$(dirname "$0")/../..}/tests/orangefs/lib.sh"
needs_emuverbs "the effect of options is seen by the counters of the software HCA"
needs_options

make_files 1000003

number() { sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" "$2"; } # counter, file
is() { # counter, some or none: its value
    local n
    n=$(number "$1" "$tmp/counters")
    echo "$1: $n, expected $2"
    if [ "$2" = none ]; then [ "$n" = 0 ]; else [ "$n" -gt 0 ]; fi
}
server_counts() { # counter, some or none
    $wrap --show "${server[0]}" >"$tmp/counters" && is "$1" "$2"
}
client_counts() { # counter, some or none: of a pvfs2-cp
    local dir=$tmp/counted
    rm -rf "$dir"
    mkdir "$dir"
    copies=$((copies + 1))
    $wrap --counters-dir "$dir" pvfs2-cp "$tmp/f1000003" "$mnt/copy$copies" || return 1
    cat "$dir"/*.json >"$tmp/counters" && is "$1" "$2"
}

with_options() { # options of the server
    what="BMIOpts ${1:-none}"
    configure ib 1 || return 1
    { [ -z "$1" ] || default_line "BMIOpts $1"; } && bring_up
}
if with_options ""; then
    check "$what: receive buffers are shared" server_counts wr_srq_recv some
    uri=ib://$host:$base
    check "no bmi_opts: small messages travel inside work requests" client_counts wr_inline some
    for o in max_inline=0 colour=blue,max_inline=0 max_inline=0,colour=blue,signal_each=1; do
        tab "$uri" "bmi_opts=\"$o\""
        check "bmi_opts $o: none does" client_counts wr_inline none
    done
    tab "$uri" 'bmi_opts="rnr_retry=6"'
    check "bmi_opts rnr_retry=6: works" there_and_back "$tmp/f1000003" 65536
    for o in credits=1:credits:4:4096 poll_us=soon:poll_us:0:1000000; do
        IFS=: read -r o key least most <<<"$o"
        tab "$uri" "bmi_opts=\"$o\""
        run pvfs2-ls "$mnt" >"$tmp/out" 2>&1
        rc=$?
        cp "$tmp/out" "$tmp/log"
        if [ $rc = 0 ] || hung_or_died $rc; then fails "bmi_opts $o: status $rc"; else passes "bmi_opts $o: refused"; fi
        check "bmi_opts $o: the range is told" says "$key.*$least.*$most" "$tmp/out"
    done
fi
end
with_options srq=off && check "$what: receive buffers are not shared" server_counts wr_srq_recv none &&
    check "$what: works" there_and_back "$tmp/f1000003" 65536
end
with_options colour=blue,srq=off,sq_depth=8 && check "$what: known ones hold, the others are ignored" server_counts wr_srq_recv none
end

# A server with a wrong value prints the valid ones and ends.
for o in credits=1:credits:4:4096 rndv=sometimes:rndv:auto:read; do
    IFS=: read -r o key least most <<<"$o"
    what="BMIOpts $o"
    configure ib 1 || continue
    default_line "BMIOpts $o" || continue
    run pvfs2-server -f -a "${alias[0]}" "$tmp/fs.conf" >"$tmp/log" 2>&1 || fails "$what: mkfs"
    limit=30 run pvfs2-server -d -a "${alias[0]}" "$tmp/fs.conf" >"$tmp/server-0.out" 2>&1
    rc=$?
    if [ $rc = 0 ] || hung_or_died $rc; then fails "$what: the server's status is $rc"; else passes "$what: the server ends"; fi
    cat "$tmp"/server-0.out "$tmp"/server.log >"$tmp/said" 2>/dev/null
    check "$what: what is allowed is told" says "$key.*$least.*$most" "$tmp/said"
    server=()
done
finish

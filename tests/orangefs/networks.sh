#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Servers of two networks, bmi_tcp and bmi_ib in both orders: clients of either, in turn and at once,
# are served, also while a client of the other network is always busy. A program fails if it takes
# LIMIT seconds, far more than any client needs.
set -u
host=127.0.0.1
# shellcheck source=tests/orangefs/lib.sh
. "${srcdir:-$(dirname "$0")/../..}/tests/orangefs/lib.sh"
limit=${LIMIT:-15}
rounds=${ROUNDS:-3}
make_files 5000000

two_networks() { # value of BMIModules: configured, and the tab files of clients
    local i tcp ib both
    configure tcp 2 || return
    for i in 0 1; do
        tcp=tcp://$host:$((base + i)) ib=ib://$host:$((base + 5 + i))
        [ "$1" = bmi_tcp,bmi_ib ] && both=$tcp,$ib || both=$ib,$tcp
        sed -i "s#^\([ \t]*Alias [^ ]* \)$tcp\$#\1$both#" "$tmp/fs.conf"
        has_line "$both" || return
    done
    sed -i "s/^\([ \t]*BMIModules\).*/\1 $1/" "$tmp/fs.conf"
    for i in "tcp $base" "ib $((base + 5))"; do
        tab "${i% *}://$host:${i#* }"
        mv "$tmp/tab" "$tmp/${i% *}.tab"
    done
    PVFS2TAB_FILE=$tmp/tcp.tab
    has_line "BMIModules $1"
}
copy() { # name, file: there and back
    run pvfs2-cp -b 262144 "$2" "$mnt/$1" && run pvfs2-cp -b 262144 "$mnt/$1" "$tmp/back-$1" && cmp "$2" "$tmp/back-$1" && rm "$tmp/back-$1"
}
client() ( # network, name of its files: requests with little data, and a copy
    PVFS2TAB_FILE=$tmp/$1.tab
    for i in 1 2 3 4 5; do
        run pvfs2-touch "$mnt/$1-$2-$i" && run pvfs2-stat "$mnt/$1-$2-$i" && run pvfs2-ls "$mnt" >/dev/null || return
    done
    copy "$1-$2" "$tmp/f5000000"
)
in_turn() { client tcp "turn$1" && client ib "turn$1"; } # number
at_once() {
    local p rc=0
    client tcp "once$1" & p=$!
    client ib "once$1" || rc=$?
    wait $p && return $rc
}
repeat() { # command
    local i
    for ((i = 0; i < rounds; i++)); do "$@" $i || return; done
}
beside_a_busy_one() { # busy network, other network
    local p rc=0 i
    rm -f "$tmp/enough" "$tmp/busy"
    (
        PVFS2TAB_FILE=$tmp/$1.tab
        for ((i = 0; ; i++)); do
            [ ! -e "$tmp/enough" ] || exit 0
            copy "busy-$1-$i" "$tmp/big" || exit 1
            : >"$tmp/busy"
        done
    ) & p=$!
    until [ -e "$tmp/busy" ] || ! kill -0 $p; do sleep 0.05; done
    client "$2" "beside" || rc=$?
    : >"$tmp/enough"
    wait $p && return $rc
}
# A process of one network sleeps in that network, never between rounds over several.
no_pauses() { # network
    # shellcheck disable=SC2086
    PVFS2TAB_FILE=$tmp/$1.tab timeout 120 strace -f -o "$tmp/trace" -e trace=nanosleep,clock_nanosleep $wrap \
        pvfs2-cp -b 262144 "$tmp/f5000000" "$mnt/traced-$1" && ! grep 'nanosleep(' "$tmp/trace"
}

for what in bmi_tcp,bmi_ib bmi_ib,bmi_tcp; do
    if two_networks $what && bring_up; then
        for network in tcp ib; do
            if command -v strace >/dev/null; then
                check "$what: a client of $network alone makes no pause" no_pauses $network
            else
                skip "$what: a client of $network alone makes no pause" "strace is not installed"
            fi
        done
        check "$what: $rounds clients of each in turn" repeat in_turn
        check "$what: $rounds times one of each at once" repeat at_once
        check "$what: tcp, while ib is busy" beside_a_busy_one ib tcp
        check "$what: ib, while tcp is busy" beside_a_busy_one tcp ib
        check "$what: one of each in turn afterwards" in_turn -last
    fi
    end
done
finish

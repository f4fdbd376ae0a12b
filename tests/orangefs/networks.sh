#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Servers of two networks, bmi_tcp and bmi_ib in both orders: clients of either, in turn and at
# once, are served as by a server with their network only. Servers of one network run beside them
# and get the same clients in turn and at once, so that both times are printed. The target on an
# idle machine is 1.5 times; no ratio fails the test, because beside two busy loops of the same
# priority single ratios were 3. A program fails if it takes LIMIT seconds, far more than any client
# needs.
set -u
host=127.0.0.1
# shellcheck source=tests/orangefs/lib.sh
. "${srcdir:-$(dirname "$0")/../..}/tests/orangefs/lib.sh"
limit=${LIMIT:-15}
rounds=${ROUNDS:-3}
all=$store

make_files 5000000
file=$tmp/f5000000

# ---- File systems, all up at once ----

running=()
begin_system() { # name: later settings, up to keep, belong to this file system
    what=$1
    store=$all/$1
    mkdir -p "$store"
}
keep() { # name, base port of tcp, of ib: a running file system, and its clients' tab files
    local network
    mkdir -p "$tmp/$1-tcp" "$tmp/$1-ib"
    for network in "tcp $2" "ib $3"; do
        echo "${network% *}://$host:${network#* }/orangefs $mnt pvfs2 defaults,noauto 0 0" >"$tmp/$1-${network% *}/tab"
    done
    running+=("${server[@]}")
    server=()
}
two_networks() { # value of BMIModules
    local i tcp ib both
    configure tcp 2 || return 1
    for i in 0 1; do
        tcp=tcp://$host:$((base + i)) ib=ib://$host:$((base + 5 + i))
        [ "$1" = bmi_tcp,bmi_ib ] && both=$tcp,$ib || both=$ib,$tcp
        sed -i "s#^\([ \t]*Alias [^ ]* \)$tcp\$#\1$both#" "$tmp/fs.conf"
        has_line "$both" || return 1
    done
    sed -i "s/^\([ \t]*BMIModules\).*/\1 $1/" "$tmp/fs.conf"
    has_line "BMIModules $1"
}

# ---- Clients ----

small() { # name: requests with little data
    local i
    for i in 1 2 3 4 5; do
        run pvfs2-touch "$mnt/$1-$i" && run pvfs2-stat "$mnt/$1-$i" && run pvfs2-ls "$mnt" >/dev/null || return 1
    done
}
copy() { # name, file: there and back
    run pvfs2-cp -b 262144 "$2" "$mnt/$1" && run pvfs2-cp -b 262144 "$mnt/$1" "$tmp/back-$1" && cmp "$2" "$tmp/back-$1"
    set -- "$?" "$1"
    rm -f "$tmp/back-$2"
    return "$1"
}
timed() { # file for the milliseconds, command
    local to=$1 begin end rc
    shift
    begin=$(date +%s%N)
    "$@"
    rc=$?
    end=$(date +%s%N)
    echo $(((end - begin) / 1000000)) >>"$to"
    return $rc
}
serial=0
# Each client has a number, given by its caller, for the names of its files.
client() { # system, network, kind, number
    local times=$tmp/times-$1-$2-$3
    (
        export PVFS2TAB_FILE=$tmp/$1-$2/tab
        timed "$times-small" small "$2$4" && timed "$times-copy" copy "$2$4-copy" "$file"
    )
}
in_turn() { # pairs of system and network
    while [ $# -gt 0 ]; do
        serial=$((serial + 1))
        client "$1" "$2" turn $serial || return 1
        shift 2
    done
}
at_once() { # system of the client by tcp, of the one by ib
    local p q rc
    serial=$((serial + 2))
    client "$1" tcp once $serial & p=$!
    client "$2" ib once $((serial - 1)) & q=$!
    wait $p
    rc=$?
    wait $q && return $rc
}
# One network is always busy, the other one's client comes and goes.
beside_a_busy_one() { # system, busy network, other network
    local p rc i
    (
        export PVFS2TAB_FILE=$tmp/$1-$2/tab
        for ((i = 0; i < 1000; i++)); do
            [ ! -e "$tmp/enough" ] || exit 0
            copy "busy-$2-$i" "$tmp/big" || exit 1
        done
    ) & p=$!
    sleep 0.3
    serial=$((serial + 1))
    client "$1" "$3" busy $serial
    rc=$?
    : >"$tmp/enough"
    wait $p || rc=$?
    rm "$tmp/enough"
    return $rc
}
# A process of one network sleeps in that network, never between rounds over several.
no_pauses() { # system, network: counted in a copy there
    local n
    (
        export PVFS2TAB_FILE=$tmp/$1-$2/tab
        # shellcheck disable=SC2086
        timeout 120 strace -f -o "$tmp/trace" -e trace=nanosleep,clock_nanosleep $wrap pvfs2-cp -b 262144 "$file" "$mnt/traced-$2"
    ) || return 1
    n=$(grep -cE 'nanosleep\(' "$tmp/trace")
    echo "$n pauses"
    grep -E 'nanosleep\(' "$tmp/trace" | head -3
    [ "$n" = 0 ]
}
repeat() { # command
    local i
    for ((i = 0; i < rounds; i++)); do "$@" || return 1; done
}

median() { sort -n "$1" 2>/dev/null | awk '{ a[NR] = $1 } END { print NR ? a[int((NR + 1) / 2)] : "-" }'; }
ratio() { # system, network, how, kind: relative to the server with one network
    awk -v t="$(median "$tmp/times-$1-$2-$3-$4")" -v alone="$(median "$tmp/times-alone-$2-$2-$3-$4")" \
        'BEGIN { if (alone > 0) printf "%.2f", t / alone; else printf "-" }'
}

for network in tcp ib; do
    begin_system alone-$network
    configure $network 2 && bring_up && keep alone-$network "$base" "$base"
done
for modules in bmi_tcp,bmi_ib bmi_ib,bmi_tcp; do
    begin_system $modules
    two_networks $modules && bring_up && keep $modules "$base" $((base + 5))
done
if [ "${#running[@]}" = 8 ]; then
    for network in tcp ib; do
        if command -v strace >/dev/null; then
            check "a client of $network alone makes no pause" no_pauses alone-$network $network
        else
            skip "a client of $network alone makes no pause" "strace is not installed"
        fi
    done
    check "$rounds clients of each in turn" repeat in_turn alone-tcp tcp bmi_tcp,bmi_ib tcp bmi_ib,bmi_tcp tcp \
        alone-ib ib bmi_tcp,bmi_ib ib bmi_ib,bmi_tcp ib
    check "$rounds times one of each at once, of servers of their own" repeat at_once alone-tcp alone-ib
    for modules in bmi_tcp,bmi_ib bmi_ib,bmi_tcp; do
        what=$modules
        check "$what: $rounds times one of each at once" repeat at_once $modules $modules
        check "$what: tcp, while ib is busy" beside_a_busy_one $modules ib tcp
        check "$what: ib, while tcp is busy" beside_a_busy_one $modules tcp ib
        check "$what: one of each in turn afterwards" in_turn $modules tcp $modules ib
    done
fi
what=all
for i in "${!running[@]}"; do server[$i]=${running[$i]}; done
end
store=$all

echo "# milliseconds, median, and of what it takes alone: 15 small programs, 5 MB there and back"
line() { # name, system, network, how
    printf '# %-22s %-3s %6s %5s %6s %5s\n' "$1" "$3" "$(median "$tmp/times-$2-$3-$4-small")" "$(ratio "$2" "$3" "$4" small)" \
        "$(median "$tmp/times-$2-$3-$4-copy")" "$(ratio "$2" "$3" "$4" copy)"
}
for network in tcp ib; do
    for how in turn once; do line "alone-$how" alone-$network $network $how; done
    for system in bmi_tcp,bmi_ib bmi_ib,bmi_tcp; do
        for how in turn once busy; do line "$system-$how" $system $network $how; done
    done
done
finish

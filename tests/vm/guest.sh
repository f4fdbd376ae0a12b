# SPDX-License-Identifier: LGPL-2.1-or-later
# Functions of the suites in the guest.
#
# Two soft-RoCE devices, "one" at 10.7.0.1 and "two" at 10.7.0.2, over a veth pair. Both are in the
# first network namespace, because rxe of kernel 6.1 receives only there (its UDP sockets belong to
# init_net). To make packets cross the wire instead of being delivered locally, arriving packets are
# looked up as local first; outgoing ones first use a table that routes each address to the other
# end.
IP=/usr/bin/ip # not busybox's

# veth queues a packet on the CPU that sent it, and rxe sends from the CPU it runs on, so packets of
# one connection overtake each other, as on no real wire. rxe requests such a packet again, but
# ignores further errors during that repetition until the acknowledgement timeout (1 s), several
# times in a row: transfers stalled for more than 6 s. With one CPU for receiving, 125,000 packets
# arrived in order.
keep_order() { # ENDS
    for d in "$@"; do
        echo 1 >/sys/class/net/$d/queues/rx-0/rps_cpus
    done
}

# One CPU per device handles its packets: still in order, because each direction has one CPU.
a_cpu_each() { echo 2 >/sys/class/net/two/queues/rx-0/rps_cpus; }

add_devices() {
    rdma link add rxe1 type rxe netdev one
    rdma link add rxe2 type rxe netdev two
    i=0
    while [ "$(rdma link | grep -c 'state ACTIVE')" != 2 ] && [ $i -lt 50 ]; do
        sleep 0.1
        i=$((i + 1))
    done
}

# Adds a wire with ends at NET.1 and NET.2. Packets between them use the wire, see above.
add_wire() { # END END NET PREFERENCE
    $IP link add $1 mtu 4500 type veth peer name $2 mtu 4500 # room for an IB MTU of 4096
    for d in $1 $2; do
        echo 0 >/proc/sys/net/ipv4/conf/$d/rp_filter
        echo 1 >/proc/sys/net/ipv4/conf/$d/accept_local
        echo 1 >/proc/sys/net/ipv4/conf/$d/arp_ignore
        $IP rule add pref $4 iif $d lookup local
    done
    $IP addr add $3.1/32 dev $1
    $IP addr add $3.2/32 dev $2
    $IP link set $1 up
    $IP link set $2 up
    $IP route add $3.2/32 dev $1 src $3.1 table 7
    $IP route add $3.1/32 dev $2 src $3.2 table 7
    keep_order $1 $2
}

network() {
    $IP link set lo up
    echo 0 >/proc/sys/net/ipv4/conf/all/rp_filter
    echo 1 >/proc/sys/net/ipv4/conf/all/accept_local
    echo 1 >/proc/sys/net/ipv4/conf/all/arp_ignore
    # A busy host stops the CPU that receives. A full queue drops packets: rxe logs "Failed sending
    # ACK", repeats requests, and then delivers messages twice (doc/verbs-differences.md).
    echo 20000 >/proc/sys/net/core/netdev_max_backlog
    add_wire one two 10.7.0 5
    $IP rule add pref 10 lookup 7
    $IP rule add pref 20 lookup local
    $IP rule del pref 0
    add_devices
    note "$(uname -r), $(rdma link | grep -c 'state ACTIVE') devices"
    dmesg -c >/dev/null
    objects >/tmp/objects.begin
}

# Both ends at 10.7.0.1: packets stay within device one.
within_one_device() { $IP rule add pref 3 lookup local; }
over_the_wire() { $IP rule del pref 3; }

note() { echo "note $*"; }
pass() { echo "ok   $*"; }
fail() { echo "FAIL $*"; }

# Prints verbs objects of user programs; the kernel's own always exist.
objects() { rdma resource show 2>/dev/null | sed 's/ ctx [0-9]*//; s/^[0-9]*: //' | sort; }
counter() { cat /sys/class/infiniband/rxe1/ports/1/hw_counters/$1 /sys/class/infiniband/rxe2/ports/1/hw_counters/$1 2>/dev/null | awk '{s += $1} END {print s + 0}'; }

all_counters() { # of both devices, without zeros
    for c in /sys/class/infiniband/rxe1/ports/1/hw_counters/*; do
        n=$(counter ${c##*/})
        case ${c##*/} in lifespan) continue ;; esac
        [ "$n" = 0 ] || printf '%s %s, ' ${c##*/} $n
    done | sed 's/, $//'
}

# Waits until a file contains a pattern, like a server's ready message; while the process lives, for
# 60 s at most.
until_there() { # pattern, file, process
    i=0
    until grep -q "$1" "$2" 2>/dev/null; do
        i=$((i + 1))
        [ -d /proc/$3 ] && [ $i -lt 600 ] || return 1
        sleep 0.1
    done
}

# Checks that no objects are left, that there was no RNR (except in a suite with RNR=provoked), and
# that the kernel logged nothing.
RNR=
after() { # what
    i=0
    while objects >/tmp/objects.now; ! cmp -s /tmp/objects.begin /tmp/objects.now && [ $i -lt 50 ]; do
        sleep 0.1
        i=$((i + 1))
    done
    if cmp -s /tmp/objects.begin /tmp/objects.now; then pass "$1: no verbs object is left"; else
        fail "$1: verbs objects are left"
        diff /tmp/objects.begin /tmp/objects.now
    fi
    counted=$(all_counters)
    [ -z "$counted" ] || note "$1: $counted"
    for c in rcvd_rnr_err send_rnr_err retry_rnr_exceeded_err; do
        [ "$RNR" = provoked ] && continue
        n=$(counter $c)
        if [ "$n" = 0 ]; then pass "$1: $c is 0"; else fail "$1: $c is $n"; fi
    done
    dmesg -c >/tmp/dmesg.now
    if grep -E 'BUG|WARNING|Call Trace|Oops|rdma_rxe:.*(fail|error)|blocked for more' /tmp/dmesg.now >/tmp/dmesg.bad; then
        fail "$1: the kernel complains"
        head -20 /tmp/dmesg.bad
    else
        pass "$1: the kernel is content"
    fi
}

# Runs a command or function that must succeed. It counts as one check; its last lines are shown if
# it fails. The limit ends a hang: several times the time on an idle machine, because a busy host
# slows the guest.
check() { # seconds, name, command
    limit=$(($1 * 5))
    name=$2
    shift 2
    begin=$(cut -d' ' -f1 /proc/uptime)
    ("$@") >/tmp/check.log 2>&1 &
    job=$!
    (sleep "$limit"; kill -9 $job) 2>/dev/null &
    guard=$!
    wait $job
    status=$?
    kill $guard 2>/dev/null
    if [ $status = 0 ]; then
        pass "$name ($(echo "$begin $(cut -d' ' -f1 /proc/uptime)" | awk '{printf "%.1f", $2 - $1}') s)"
    else
        fail "$name: status $status"
        # a test program's passed cases would hide the failed one
        grep -v "OK \]\|RUN  " /tmp/check.log | tail -25
    fi
}

# Prints the index of the IPv4 RoCE v2 entry in a device's GID table.
gid_index() { # device
    for g in /sys/class/infiniband/$1/ports/1/gids/*; do
        i=${g##*/}
        case "$(cat $g) $(cat /sys/class/infiniband/$1/ports/1/gid_attrs/types/$i 2>/dev/null)" in
        0000:0000:0000:0000:0000:ffff:*"RoCE v2") echo $i; return ;;
        esac
    done
}

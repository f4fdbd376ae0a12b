#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Debian's verbs programs, unmodified, on the software HCA: each pair of client and server must end
# with status 0. Exit 77 if none of the programs is installed.
# shellcheck source=tests/emul/lib.sh
. "$(dirname "$0")/lib.sh"
missing=
trap 'test -n "$server" && kill "$server" 2>/dev/null; rm -rf "$tmp"' EXIT

have() {
    command -v "$1" >/dev/null 2>&1 && return 0
    case " $missing " in *" $1 "*) ;; *) missing="$missing $1" ;; esac
    return 1
}

# once SERVER-COMMAND -- CLIENT-COMMAND: both have to end with status 0; else $status has both.
once() {
    server_cmd=
    while [ "$1" != -- ]; do
        server_cmd="$server_cmd $1"
        shift
    done
    shift
    # shellcheck disable=SC2086 # a command and its arguments
    serve $server_cmd && client "$@"
    ended $?
    status=$?
    [ $status -eq 0 ] || keep_output $status
    return $status
}

# Returns whether a run failed by a race that the programs have on any device, and prints which. A
# server binds its rdma_cm address before it listens, and perftest's -R synchronizes its two sides
# before the server does either: a client that connects in between is rejected (and perftest's
# crashes then). rping finally destroys its event channel without stopping the thread that waits
# there (until rdma-core 58). If that thread is just returning from the last event it finds the
# channel closed, and ends the program with -1.
own_race() {
    if grep -qE 'REJECTED|refused|Unexpected CM event' "$tmp/client"; then
        echo "refused, once more: $name"
    elif grep -qx 'rdma_get_cm_event: Bad file descriptor' "$tmp/client" "$tmp/server"; then
        echo "closed before it was left, once more: $name"
    else
        return 1
    fi
}

# pair NAME, then like once. Repeats a run only after a race of the programs' own.
pair() {
    name=$1
    shift
    have "$1" || return 0
    for _ in 1 2 3 4 5; do
        once "$@" && break
        own_race || break
    done
    result "$name" $status
    port=$((port + 2))
}

single() {
    name=$1
    want=$2
    shift 2
    have "$1" || return 0
    : >"$tmp/server"
    client "$@"
    status=$?
    [ $status -eq 0 ] && { grep -q "$want" "$tmp/client" || status=90; }
    keep_output $status
    result "$name" $status
}

single ibv_devices emu0 ibv_devices
single ibv_devinfo PORT_ACTIVE ibv_devinfo -v
pair ibv_rc_pingpong ibv_rc_pingpong -p $port -- ibv_rc_pingpong -p $port 127.0.0.1
pair "ibv_rc_pingpong -e" ibv_rc_pingpong -e -p $port -- ibv_rc_pingpong -e -p $port 127.0.0.1
pair "ibv_rc_pingpong -g 0" ibv_rc_pingpong -g 0 -p $port -- ibv_rc_pingpong -g 0 -p $port 127.0.0.1
pair ibv_srq_pingpong ibv_srq_pingpong -p $port -- ibv_srq_pingpong -p $port 127.0.0.1
pair ibv_ud_pingpong ibv_ud_pingpong -n 200 -p $port -- ibv_ud_pingpong -n 200 -p $port 127.0.0.1
pair rping rping -s -a 127.0.0.1 -p $port -C 20 -V -- rping -c -a 127.0.0.1 -p $port -C 20 -V
pair "rping IPv6" rping -s -a ::1 -p $port -C 5 -S 4096 -V -- rping -c -a ::1 -p $port -C 5 -S 4096 -V
pair rdma_client rdma_server -p $port -- rdma_client -s 127.0.0.1 -p $port
# requests no inline data and sends some
export EMUVERBS_INLINE_STEP=64
pair rdma_xclient rdma_xserver -c r -p $port -- rdma_xclient -c r -s 127.0.0.1 -p $port
unset EMUVERBS_INLINE_STEP
pair ucmatose ucmatose -p $port -c 8 -- ucmatose -s 127.0.0.1 -p $port -c 8
# Other forms of perftest's programs than those in foreign.sh. perftest measures the processor's
# clock against the time of day. If the two do not fit, as on a busy machine, a side ends with 1
# instead of a report, and the other waits for it; with -F it continues.
pair "ib_send_bw all sizes" ib_send_bw -a -F -p $port -n 50 -- ib_send_bw -a -F -p $port -n 50 127.0.0.1
pair "ib_send_lat events" ib_send_lat -e -F -p $port -n 500 -- ib_send_lat -e -F -p $port -n 500 127.0.0.1
pair "ib_write_bw 8 QPs" ib_write_bw -q 8 -F -p $port -n 200 -- ib_write_bw -q 8 -F -p $port -n 200 127.0.0.1
if have qperf; then
    serve qperf -lp $port || result "qperf server" 1
    for test in rc_lat rc_bw rc_bi_bw rc_rdma_read_lat rc_rdma_read_bw rc_rdma_write_lat \
        rc_rdma_write_bw; do
        client qperf -lp $port -t 1 127.0.0.1 $test
        status=$?
        keep_output $status
        result "qperf $test" $status
    done
    timeout 10 qperf -lp $port 127.0.0.1 quit >/dev/null 2>&1
    wait "$server"
    server=
fi

[ -n "$missing" ] && echo "not installed, not run:$missing (Debian: ibverbs-utils rdmacm-utils perftest qperf)"
all_ended

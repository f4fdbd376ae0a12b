#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Usage: foreign.sh [ROUNDS]
# Programs that nobody here wrote, and that use the device in ways of their own, on the software HCA: perftest ROUNDS times
# (2) with and without rdma_cm, cmtime, udaddy, mckey, libfabric, Open MPI, fio, and pyverbs's own tests. Each says why, where it does not run.
# Exit 77 when none does. Run it by hand in the build directory, on a machine that is not busy; `quickstart packages foreign`
# installs what it needs. The programs of programs.sh are run there.
: "${EMUVERBS:=emul/verbs/emuverbs}"
if grep -q -- '-fsanitize=address' Makefile 2>/dev/null; then
    echo "skipped: this build has sanitizers, Debian's programs have none"
    exit 77
fi
[ -n "${FIRST_PORT-}" ] || exec ./with-ports "$0" "$@"
rounds=${1:-2}
port=$FIRST_PORT
here=$(cd "$(dirname "$0")" && pwd)
emuverbs=$(realpath "$EMUVERBS")
ran=0
failed=0
tmp=$(mktemp -d) || exit 99
server=
trap 'test -n "$server" && kill "$server" 2>/dev/null; rm -rf "$tmp"' EXIT

skip() { echo "SKIP: $1: $2"; }
have() { # program, package
    command -v "$1" >/dev/null 2>&1 && return 0
    skip "$1" "not installed (Debian: $2)"
    return 1
}

result() { # name status
    ran=$((ran + 1))
    if [ "$2" -eq 0 ]; then
        echo "PASS: $1"
    else
        failed=$((failed + 1))
        echo "FAIL: $1 (status $2)"
        tail -n 5 "$tmp/server" | sed 's/^/    server: /'
        tail -n 5 "$tmp/client" | sed 's/^/    client: /'
    fi
}

# A TCP port that is listened on, or an address of the software HCA that is bound, is there for all to see.
tcp_listens() { grep -qE ":$(printf %04X "$port") [0-9A-F]+:0000 0A " /proc/net/tcp /proc/net/tcp6 2>/dev/null; }
cm_bound() { grep -q "@emuverbs/cm/[^/]*/$port/" /proc/net/unix; }

# Starts a server and waits until it can be reached, for a minute at most.
serve() {
    timeout 300 "$EMUVERBS" "$@" >"$tmp/server" 2>&1 &
    server=$!
    : >"$tmp/client"
    for _ in $(seq 600); do
        if tcp_listens || cm_bound; then return 0; fi
        kill -0 "$server" 2>/dev/null || return 1
        sleep 0.1
    done
    return 1
}

client() { timeout 300 "$EMUVERBS" "$@" >"$tmp/client" 2>&1; }

# The server's status, which ends by itself if all is well.
ended() { # the client's status
    [ "$1" -eq 0 ] || kill "$server" 2>/dev/null
    wait "$server"
    set -- "$1" $?
    server=
    [ "$1" -ne 0 ] && return "$1"
    return "$2"
}

# A client comes when the server is reachable by TCP, as perftest has it: with -R its rdma_cm listener comes a little later.
perftest() { # program, options
    good=0
    name="$* $rounds times"
    for _ in $(seq "$rounds"); do
        serve "$@" -p "$port" -n 200 && client "$@" -p "$port" -n 200 127.0.0.1
        ended $? && good=$((good + 1))
    done
    [ $good -eq "$rounds" ]
    result "$name: $good" $?
    port=$((port + 1))
}
if have ib_write_lat perftest; then
    for test in ib_send_lat ib_write_lat ib_read_lat ib_send_bw ib_write_bw ib_read_bw ib_atomic_lat ib_atomic_bw; do
        perftest $test
        perftest $test -R
    done
    perftest ib_atomic_lat -A CMP_AND_SWAP
    for test in ib_send_lat ib_send_bw; do
        perftest $test -c UD
        perftest $test -c UD -R
    done
fi

if have cmtime rdmacm-utils; then
    serve cmtime -p "$port" && client cmtime -p "$port" -s 127.0.0.1 -c 50
    status=$?
    kill "$server" 2>/dev/null # it serves for ever
    wait "$server"
    server=
    result cmtime $status
    port=$((port + 1))
    ours=$port
    port=7174 # udaddy has no option for it
    serve udaddy -c 4 -C 50 && client udaddy -s 127.0.0.1 -c 4 -C 50
    ended $?
    result udaddy $?
    port=$ours
    # all members of one group send and receive: each is told when the other has joined by what it prints
    member() { timeout 300 "$EMUVERBS" mckey -m 239.9.8.7 -b 127.0.0.1 "$@"; }
    member -C 50 >"$tmp/server" 2>&1 &
    server=$!
    for _ in $(seq 600); do
        grep -q "emuverbs/mcast/" /proc/net/unix && break
        sleep 0.1
    done
    member -C 50 -s >"$tmp/client" 2>&1
    ended $?
    result mckey $?
    for p in udpong rstream riostream rcopy; do skip $p "the software HCA has no rsockets"; done
fi

if have fi_pingpong libfabric-bin; then
    # few rounds: where a receiver is late, the connection manager's RNR timer is 655 ms, as the kernel's is
    for form in "verbs msg" "verbs;ofi_rxm rdm"; do
        serve fi_pingpong -B "$port" -p "${form% *}" -e "${form#* }" -I 20 && client fi_pingpong -P "$port" -p "${form% *}" -e "${form#* }" -I 20 127.0.0.1
        ended $?
        result "fi_pingpong $form" $?
        port=$((port + 1))
    done
fi

if have mpirun openmpi-bin && have mpicc libopenmpi-dev; then
    : >"$tmp/server"
    root=
    [ "$(id -u)" -ne 0 ] || root=--allow-run-as-root
    mkdir -p "$tmp/counters"
    mpicc -O1 "$here/mpi_ring.c" -o "$tmp/mpi_ring" >"$tmp/client" 2>&1 &&
        client --counters-dir "$tmp/counters" mpirun $root --oversubscribe -np 2 --mca pml cm --mca mtl ofi --mca btl self \
            --mca mtl_ofi_provider_include "verbs;ofi_rxm" -x FI_PROVIDER="verbs;ofi_rxm" "$tmp/mpi_ring" &&
        grep -q '2 ranks, 0 wrong bytes' "$tmp/client" &&
        grep -h '"bytes_\(send\|write\|read\)": [0-9]\{7\}' "$tmp"/counters/*.json >/dev/null # all went this way
    result "Open MPI over libfabric" $?
fi

if have ucx_perftest ucx-utils; then
    skip ucx_perftest "UCX looks for devices in sysfs, where the software HCA is not"
fi

if have fio fio; then
    printf '[server]\nioengine=rdma\nport=%s\nrw=read\nbs=64k\nsize=16m\n' "$port" >"$tmp/server.fio"
    printf '[client]\nioengine=rdma\nhostname=127.0.0.1\nport=%s\nverb=write\nrw=write\nbs=64k\niodepth=4\nsize=16m\nverify=crc32c\n' "$port" >"$tmp/client.fio"
    (cd "$tmp" && mkdir s c)
    serve fio --aux-path="$tmp/s" "$tmp/server.fio" && client fio --aux-path="$tmp/c" "$tmp/client.fio"
    ended $?
    result fio $?
    port=$((port + 1))
fi

# pyverbs: what needs a vendor's device, or what is not here, skips itself.
tests=/usr/share/doc/rdma-core/tests
if ! python3=$(command -v /usr/bin/python3) || ! "$python3" -c 'import pyverbs' 2>/dev/null || [ ! -d $tests ]; then
    skip pyverbs "not installed (Debian: python3-pyverbs)"
else
    cp -r $tests "$tmp/tests"
    find "$tmp/tests" -name '*.gz' -exec gunzip {} +
    : >"$tmp/server"
    (cd "$tmp" && timeout 300 "$emuverbs" "$python3" tests/run_tests.py -v) >"$tmp/client" 2>&1
    status=$?
    result "pyverbs: $(grep -c '\.\.\. ok' "$tmp/client") tests, $(grep -c '\.\.\. skipped' "$tmp/client") skipped" $status
fi

echo "$ran run, $failed failed"
[ $ran -eq 0 ] && exit 77
[ $failed -eq 0 ]

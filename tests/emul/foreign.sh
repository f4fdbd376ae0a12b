#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# Usage: foreign.sh [ROUNDS]
# Runs programs of other projects on the software HCA, each ROUNDS times (FOREIGN_ROUNDS, or 2):
# perftest with and without rdma_cm, cmtime, udaddy, mckey, libfabric, Open MPI, UCX, iSER, fio; and
# once pyverbs's own tests, for which a few huge pages are reserved, where root may, and released
# afterwards. Programs that cannot run are skipped with a reason. FOREIGN_ONLY is a pattern of names (grep) to run. A program that takes longer than
# FOREIGN_LIMIT (300) seconds has failed. Exit 77 if none runs. To be run by hand in the build
# directory, on an idle machine; `quickstart packages foreign` installs the programs. programs.sh
# runs more programs.
unset CDPATH
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/emul/lib.sh
. "$here/lib.sh"
rounds=${1:-${FOREIGN_ROUNDS:-2}}
emuverbs=$(realpath "$EMUVERBS")
huge=/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages
huge_taken=
give_back() { [ -z "$huge_taken" ] || echo 0 >$huge; }
trap 'test -n "$server" && kill "$server" 2>/dev/null; give_back; rm -rf "$tmp"' EXIT
trap 'exit 1' INT TERM HUP

skip() { echo "SKIP: $1: $2"; }
have() { # program, package
    command -v "$1" >/dev/null 2>&1 && return 0
    skip "$1" "not installed (Debian: $2)"
    return 1
}

# Runs a command ROUNDS times. All runs must succeed; shows the output of the last failed one.
again() { # name, command...
    name=$1
    shift
    printf '%s\n' "$name" | grep -qE "${FOREIGN_ONLY:-.}" || return 0
    good=0
    for _ in $(seq "$rounds"); do
        : >"$tmp/server"
        : >"$tmp/client"
        "$@"
        status=$?
        if [ $status -eq 0 ]; then
            good=$((good + 1))
        else
            keep_output $status
        fi
    done
    [ $good -eq "$rounds" ]
    result "$name: $good of $rounds" $?
    port=$((port + 1))
}

# Starts the client when the server is reachable by TCP, as perftest expects: with -R its rdma_cm
# listener starts a little later. -F: continues when the processor's clock cannot be measured, as on
# a busy machine, instead of ending with 1.
perftest() { # program, options
    serve "$@" -F -p "$port" -n 200 && client "$@" -F -p "$port" -n 200 127.0.0.1
    ended $?
}
if have ib_write_lat perftest; then
    for test in ib_send_lat ib_write_lat ib_read_lat ib_send_bw ib_write_bw ib_read_bw ib_atomic_lat ib_atomic_bw; do
        again "$test" perftest $test
        again "$test -R" perftest $test -R
    done
    again "ib_atomic_lat -A CMP_AND_SWAP" perftest ib_atomic_lat -A CMP_AND_SWAP
    for test in ib_send_lat ib_send_bw; do
        again "$test -c UD" perftest $test -c UD
        again "$test -c UD -R" perftest $test -c UD -R
    done
fi

cmtime_once() {
    serve cmtime -p "$port" && client cmtime -p "$port" -s 127.0.0.1 -c 50
    status=$?
    kill "$server" 2>/dev/null # runs until killed
    wait "$server" 2>/dev/null
    server=
    return $status
}
udaddy_once() {
    ours=$port
    port=7174 # without an option for another
    serve udaddy -c 4 -C 50 && client udaddy -s 127.0.0.1 -c 4 -C 50
    ended $?
    status=$?
    port=$ours
    return $status
}
# All members of one group send and receive. A sender waits until the other has joined.
member() { timeout "${FOREIGN_LIMIT:-300}" "$EMUVERBS" mckey -m 239.9.8.7 -b 127.0.0.1 "$@"; }
mckey_once() {
    member -C 50 >"$tmp/server" 2>&1 &
    server=$!
    for _ in $(seq 600); do
        grep -q "emuverbs/mcast/" /proc/net/unix && break
        sleep 0.1
    done
    member -C 50 -s >"$tmp/client" 2>&1
    ended $?
}
if have cmtime rdmacm-utils; then
    again cmtime cmtime_once
    again udaddy udaddy_once
    again mckey mckey_once
    for p in udpong rstream riostream rcopy; do skip $p "the software HCA has no rsockets (doc/emuverbs.md says why)"; done
fi

# Few messages: for a late receiver the connection manager's RNR timer is 655 ms, like the kernel's.
fi_once() { # provider, kind of endpoint
    serve fi_pingpong -B "$port" -p "$1" -e "$2" -I 20 && client fi_pingpong -P "$port" -p "$1" -e "$2" -I 20 127.0.0.1
    ended $?
}
if have fi_pingpong libfabric-bin; then
    again "fi_pingpong verbs msg" fi_once verbs msg
    again "fi_pingpong verbs;ofi_rxm rdm" fi_once "verbs;ofi_rxm" rdm
fi

mpi_once() {
    root=
    [ "$(id -u)" -ne 0 ] || root=--allow-run-as-root
    mkdir -p "$tmp/counters"
    rm -f "$tmp"/counters/*
    client --counters-dir "$tmp/counters" mpirun $root --oversubscribe -np 2 --mca pml cm --mca mtl ofi --mca btl self \
        --mca mtl_ofi_provider_include "verbs;ofi_rxm" -x FI_PROVIDER="verbs;ofi_rxm" "$tmp/mpi_ring" &&
        grep -q '2 ranks, 0 wrong bytes' "$tmp/client" &&
        grep -h '"bytes_\(send\|write\|read\)": [0-9]\{7\}' "$tmp"/counters/*.json >/dev/null # proves that the data used this device
}
if have mpirun openmpi-bin && have mpicc libopenmpi-dev; then
    mpicc -O1 "$here/mpi_ring.c" -o "$tmp/mpi_ring" >/dev/null 2>&1
    again "Open MPI over libfabric" mpi_once
fi

# UCX looks for devices in sysfs. Its count of bytes proves that it did not use TCP.
ucx_once() { # transport
    mkdir -p "$tmp/counters"
    rm -f "$tmp"/counters/*
    (
        export UCX_TLS="$1,self" UCX_NET_DEVICES=emu0:1
        serve --sysfs --counters-dir "$tmp/counters" ucx_perftest -p "$port" &&
            client --sysfs ucx_perftest -p "$port" 127.0.0.1 -t tag_bw -n 200 -s 65536
        ended $?
    ) && grep -q 'Final:' "$tmp/client" && grep -h '"cqes": [1-9]' "$tmp"/counters/*.json >/dev/null
}
if have ucx_perftest ucx-utils; then
    if "$EMUVERBS" --sysfs true 2>/dev/null; then
        again "ucx_perftest tag_bw over rc" ucx_once rc
        again "ucx_perftest tag_bw over ud" ucx_once ud
    else
        skip ucx_perftest "UCX looks for devices in sysfs, and emuverbs --sysfs is not permitted"
    fi
fi

# iSER: one target for all logins, three a round. Its RDMA port is fixed; it needs both kinds of
# permission, by address and by name; SIGTERM does not end it while it has a target.
iser_once() {
    for _ in 1 2 3; do
        client iscsi-inq iser://127.0.0.1:3260/iqn.2026-11.emuverbs:disk/1 && grep -q 'DIRECT_ACCESS' "$tmp/client" || return 1
    done
}
adm() { timeout 10 tgtadm -C "$port" --lld iser "$@" >>"$tmp/adm" 2>&1; }
if have tgtd tgt && have iscsi-inq libiscsi-bin; then
    if [ "$(id -u)" -ne 0 ] || grep -q '@emuverbs/cm/[^/]*/3260/' /proc/net/unix; then
        skip "iSER" "tgtd needs root and port 3260"
    else
        mkdir -p /run/tgtd
        truncate -s 8M "$tmp/disk"
        "$EMUVERBS" tgtd -f -C "$port" --iscsi portal=127.0.0.1:"$port" >"$tmp/tgtd" 2>&1 &
        server=$!
        for _ in $(seq 600); do
            if adm --op show --mode target || ! kill -0 "$server" 2>/dev/null; then break; fi
            sleep 0.1
        done
        adm --op new --mode target --tid 1 -T iqn.2026-11.emuverbs:disk
        adm --op new --mode logicalunit --tid 1 --lun 1 -b "$tmp/disk"
        adm --op bind --mode target --tid 1 -I ALL
        adm --op bind --mode target --tid 1 -Q iqn.2007-10.com.github:sahlberg:libiscsi:iscsi-inq
        again "iSER logins, three at a time" iser_once
        kill -9 "$server"
        wait "$server" 2>/dev/null
        server=
    fi
fi

fio_once() {
    rm -rf "$tmp/s" "$tmp/c"
    mkdir "$tmp/s" "$tmp/c"
    printf '[server]\nioengine=rdma\nport=%s\nrw=read\nbs=64k\nsize=16m\n' "$port" >"$tmp/server.fio"
    printf '[client]\nioengine=rdma\nhostname=127.0.0.1\nport=%s\nverb=write\nrw=write\nbs=64k\niodepth=4\nsize=16m\nverify=crc32c\n' "$port" >"$tmp/client.fio"
    serve fio --aux-path="$tmp/s" "$tmp/server.fio" && client fio --aux-path="$tmp/c" "$tmp/client.fio"
    ended $?
}
if have fio fio; then
    again "fio with verify" fio_once
fi

# pyverbs: tests that need a vendor's device or a missing feature skip themselves.
tests=/usr/share/doc/rdma-core/tests
if ! python3=$(command -v /usr/bin/python3) || ! "$python3" -c 'import pyverbs' 2>/dev/null || [ ! -d $tests ]; then
    skip pyverbs "not installed (Debian: python3-pyverbs)"
elif printf 'pyverbs\n' | grep -qE "${FOREIGN_ONLY:-.}"; then
    if [ -w $huge ] && [ "$(cat $huge)" = 0 ]; then
        huge_taken=1
        echo 8 >$huge
    fi
    cp -r $tests "$tmp/tests"
    find "$tmp/tests" -name '*.gz' -exec gunzip {} +
    view= # its tests of rdma_cm look in sysfs for an interface with an address
    ! "$emuverbs" --sysfs true 2>/dev/null || view=--sysfs
    pyverbs() { # link layer, 1 when it is Ethernet
        # shellcheck disable=SC2086
        (cd "$tmp" && EMUVERBS_ETHERNET=$2 timeout 300 "$emuverbs" $view "$python3" tests/run_tests.py -v) >"$tmp/client" 2>&1
        status=$?
        tail -n 5 "$tmp/client" | sed 's/^/    /' >"$tmp/why"
        ran_tests=$(sed -n 's/^Ran \([0-9]*\) test.*/\1/p' "$tmp/client")
        skipped=$(grep -c '\.\.\. skipped' "$tmp/client")
        result "pyverbs, $1: $((${ran_tests:-0} - skipped)) tests, $skipped skipped" $status
    }
    pyverbs InfiniBand 0
    pyverbs Ethernet 1
    give_back
    huge_taken=
fi

all_ended

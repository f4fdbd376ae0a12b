#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Usage: sources.sh FOLDER
# Builds and runs projects of others on the software HCA, from sources in FOLDER (or
# $FOREIGN_SOURCES), one folder each: rpma (its tests), eRPC, infinity, the-geek-in-the-corner,
# RDMA-Tutorial, rdma-example. Fetches nothing and changes nothing there. What is missing is skipped
# by name. Runs in a network and mount namespace with the address 192.0.0.1, in the build folder.
# Exit 77 if none runs.
unset CDPATH
here=$(cd "$(dirname "$0")" && pwd)
export FOREIGN_SOURCES=${1:-${FOREIGN_SOURCES-}}
[ -d "$FOREIGN_SOURCES" ] || { echo "skipped: no folder with sources: sources.sh FOLDER"; exit 77; }
if [ -z "${IN_NAMESPACE-}" ]; then
    unshare -rnm true 2>/dev/null || { echo "skipped: unshare -rnm is not permitted here"; exit 77; }
    FOREIGN_SOURCES=$(cd "$FOREIGN_SOURCES" && pwd) IN_NAMESPACE=1 FIRST_PORT=20000 exec unshare -rnm "$here/${0##*/}"
fi
# shellcheck source=tests/emul/lib.sh
. "$here/lib.sh"
trap 'rm -rf "$tmp"' EXIT
EMUVERBS=$(realpath "$EMUVERBS")
address=192.0.0.1
ip link set lo up && ip addr add $address/32 dev lo || exit 99
export EMUVERBS_ADDRESSES=$address
limit=${FOREIGN_LIMIT:-300}
run() { timeout "$limit" "$EMUVERBS" "$@"; }

# Copies a project and builds it there; returns 1 if it is not there.
project() { # name, command
    [ -d "$FOREIGN_SOURCES/$1" ] || { echo "SKIP: $1: not in $FOREIGN_SOURCES"; return 1; }
    cp -r "$FOREIGN_SOURCES/$1" "$tmp/$1" && cd "$tmp/$1" || exit 99
    find . -name CMakeCache.txt -delete
    sh -c "$2" >"$tmp/why" 2>&1 && return 0
    echo "SKIP: $1: it does not build: $(grep -m 1 -iE 'error|not found' "$tmp/why")"
    return 1
}

# Starts a server, and waits until its output or /proc tells that it listens.
listening() { # words of its output, or cm PORT, or tcp PORT; command
    local words=$1 where=server
    shift
    run stdbuf -oL "$@" >"$tmp/server" 2>&1 &
    server=$!
    case $words in cm\ * | tcp\ *) port=${words#* } where=${words%% *} ;; esac
    while kill -0 $server 2>/dev/null; do
        case $where in
        cm) cm_bound ;;
        tcp) tcp_listens ;;
        *) grep -q "$words" "$tmp/server" ;;
        esac && return 0
        sleep 0.1
    done
    return 1
}
client() { run "$@" >"$tmp/client" 2>&1; }
# A result of a server that ends by itself, or of one that is ended here.
both() { # name, status of the client, status of the server or "endless"
    local status=$2
    if [ "${3-}" = endless ]; then
        kill $server 2>/dev/null
        wait $server
    else
        wait $server || status=$?
    fi
    [ "$status" = 0 ] || keep_output "$status"
    result "$1" "$status"
}

cmake_quiet="-DCMAKE_BUILD_TYPE=Debug -DBUILD_DOC=OFF"
if project rpma "mkdir -p b && cd b && RPMA_TESTING_IP=$address cmake .. $cmake_quiet -DTESTS_RDMA_CONNECTION=ON && make -j2"; then
    cd b || exit 99
    RPMA_TESTING_IP=$address run ctest -E 'memcheck|drd|helgrind' --timeout 120 >"$tmp/why" 2>&1
    status=$?
    result "rpma: $(grep 'tests passed' "$tmp/why")" $status
fi

# 2.4 GB of huge pages. multi_process_test is left out: the process that has its answers first ends,
# and no longer answers the others.
huge=/sys/kernel/mm/hugepages/hugepages-2048kB
if [ "$(cat $huge/free_hugepages 2>/dev/null || echo 0)" -lt 1200 ]; then
    echo "SKIP: eRPC: 1200 huge pages of 2 MiB are not free: echo 1200 > $huge/nr_hugepages"
elif tests="create_session_test small_msg_test large_msg_test packet_loss_test req_in_req_func_test" &&
    project eRPC "cmake . -DPERF=OFF -DTRANSPORT=infiniband && make -j2 $tests"; then
    for test in $tests; do
        run "build/$test" >"$tmp/why" 2>&1
        result "eRPC $test" $?
    done
fi

if project infinity "make all"; then
    for program in read-write-send send-performance; do
        listening "tcp 8011" "release/examples/$program" -s
        client "release/examples/$program"
        both "infinity $program" $?
    done
fi

port_said() { sed -n 's/^listening on port \([0-9]*\).*/\1/p' "$tmp/server"; }
if project the-geek-in-the-corner 'for d in 01* 02* 03*/*; do [ ! -f $d/Makefile ] || make -C $d || exit; done'; then
    cd 01_basic-client-server || exit 99
    listening "listening on port" ./server
    client ./client $address "$(port_said)"
    both "the-geek-in-the-corner 01" $? endless
    cd ../02_read-write || exit 99
    for mode in read write; do
        listening "listening on port" ./rdma-server $mode
        client ./rdma-client $mode $address "$(port_said)"
        both "the-geek-in-the-corner 02 $mode" $? endless
    done
    cd ../03_file-transfer/rdma-file-transfer && mkdir -p in || exit 99
    head -c 25000000 /dev/urandom >file
    cd in || exit 99
    listening "waiting for connections" ../server
    client ../client $address ../file && cmp file ../file
    both "the-geek-in-the-corner 03" $? endless
fi

# Takes its part from the host's name. A hundredth of its messages: both sides spin.
if project RDMA-Tutorial 'sed -i s|10000000|100000| ib.h; make CFLAGS="-O2 -w"'; then
    printf '127.0.0.1 localhost saguaro1 saguaro2\n' >hosts
    printf '%s\n' servers: 'saguaro1 .. saguaro1' clients: 'saguaro2 .. saguaro2' num_concurr_msgs: 64 msg_size: 8 >nodes
    mount --bind hosts /etc/hosts
    as() { unshare -u sh -c 'hostname "$1"; shift; exec "$@"' sh "$@"; } # name, command
    as saguaro1 timeout "$limit" "$EMUVERBS" ./rdma-tutorial nodes 8977 >"$tmp/server" 2>&1 &
    server=$!
    port=8977
    while kill -0 $server 2>/dev/null && ! tcp_listens; do sleep 0.1; done
    as saguaro2 timeout "$limit" "$EMUVERBS" ./rdma-tutorial nodes 8977 >"$tmp/client" 2>&1
    both "RDMA-Tutorial" $?
fi

# Its client uses the region's lkey for the server's access.
if project rdma-example "cmake . && make"; then
    export EMUVERBS_EQUAL_KEYS=1
    listening "cm 20886" bin/rdma_server -a $address
    client bin/rdma_client -a $address -s text && grep -q "SUCCESS" "$tmp/client"
    both "rdma-example, equal keys" $?
    unset EMUVERBS_EQUAL_KEYS
fi

all_ended

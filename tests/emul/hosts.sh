#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Two network namespaces as two hosts (EMUVERBS_NAMES): a server on the first, clients on both. Exit 77
# if such namespaces are not permitted.
here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/lib/tap.sh
. "$here/../lib/tap.sh"
: "${EMUVERBS:=emul/verbs/emuverbs}"
command -v ip >/dev/null || skip_all "ip is not installed (iproute2)"
unshare --net --mount --propagation private true 2>/dev/null || skip_all "no network namespaces for this user"
# a namespace for all: the hosts' interfaces end with it
[ -n "${HOSTS-}" ] || HOSTS=own exec unshare --net --mount --propagation private "$0" "$@"
tmp=$(mktemp -d) || exit 99
pids=()
trap 'kill "${pids[@]}" 2>/dev/null; rm -rf "$tmp"' EXIT

host() { # NUMBER: starts one, with address 10.98.7.NUMBER
    unshare --net sh -c 'echo > "$0"; exec sleep 100000' "$tmp/up$1" & pids[$1]=$!
    until [ -e "$tmp/up$1" ]; do :; done
    ip link set "veth$1" netns "${pids[$1]}" && on "$1" ip addr add "10.98.7.$1/24" dev "veth$1" && on "$1" ip link set "veth$1" up && on "$1" ip link set lo up
}
on() { # NUMBER COMMAND...
    local number=$1
    shift
    nsenter --net --target "${pids[$number]}" "$@"
}
export EMUVERBS_NAMES=$tmp/names
serve() { # NUMBER NAME ADDR: starts a server on the host, whose objects are in a folder of that name
    mkdir -p "$tmp/$2"
    : > "$tmp/$2.log"
    nsenter --net --target "${pids[$1]}" "$EMUVERBS" ./bmi-iod --listen "$3" --store "$tmp/$2" 2> "$tmp/$2.log" & pids+=($!)
    until grep -q 'listening' "$tmp/$2.log"; do kill -0 $! 2> /dev/null || { fail "$(cat "$tmp/$2.log")"; return; }; done
}
copied() { # NUMBER ADDR NAME: a file goes from the host to a server and comes back
    on "$1" "$EMUVERBS" ./bmi-cp --quiet "$tmp/file" "$2/$3" && on "$1" "$EMUVERBS" ./bmi-cp --quiet "$2/$3" "$tmp/back" && cmp "$tmp/file" "$tmp/back"
}

mkdir "$tmp/names"
head -c 3000000 /dev/urandom > "$tmp/file"
{ ip link add veth1 type veth peer name veth2 && host 1 && host 2; } 2> "$tmp/err" || skip_all "no network namespaces here: $(cat "$tmp/err")"

begin hosts_reach_a_server_by_its_address
serve 1 one ib://10.98.7.1:7000
copied 1 ib://10.98.7.1:7000 here || fail "the server's own host does not reach it"
copied 2 ib://10.98.7.1:7000 there || fail "the other host does not reach it"

begin server_that_died_leaves_its_address
kill -KILL "${pids[-1]}" && wait "${pids[-1]}" 2> /dev/null
serve 1 one ib://10.98.7.1:7000
copied 2 ib://10.98.7.1:7000 again || fail "the server that follows is not reached"

begin wildcards_of_two_hosts_stay_apart
serve 1 first ib://0.0.0.0:7001
serve 2 second ib://0.0.0.0:7001
copied 1 ib://10.98.7.2:7001 a && copied 2 ib://10.98.7.1:7001 b && copied 2 ib://127.0.0.1:7001 c || fail "no copy"
[ "$(cd "$tmp" && echo first/* second/*)" = "first/b second/a second/c" ] || fail "files are on the wrong hosts: $(cd "$tmp" && echo first/* second/*)"

begin address_without_server_is_refused
on 2 "$EMUVERBS" ./bmi-cp --quiet --timeout 5 "$tmp/file" ib://10.98.7.1:7002/x 2> "$tmp/err" && fail "it is reached"
grep -q '10.98.7.1:7002.*refused' "$tmp/err" || fail "$(cat "$tmp/err")"

begin host_without_the_folder_is_alone
EMUVERBS_NAMES='' on 2 "$EMUVERBS" ./bmi-cp --quiet --timeout 5 "$tmp/file" ib://10.98.7.1:7000/x 2> "$tmp/err" && fail "it reaches the other host"
[ -s "$tmp/err" ] || fail "no message"

begin folder_of_no_use_is_named
EMUVERBS_NAMES=$tmp/none "$EMUVERBS" ibv_devinfo > "$tmp/out" 2>&1 && fail "it is used"
grep -q "^emuverbs: EMUVERBS_NAMES=$tmp/none: No such file" "$tmp/out" || fail "$(cat "$tmp/out")"
EMUVERBS_NAMES=$tmp/$(printf '%060d' 0) "$EMUVERBS" ibv_devinfo > "$tmp/out" 2>&1 && fail "a long one is used"
grep -q "too long" "$tmp/out" || fail "$(cat "$tmp/out")"
finish

# SPDX-License-Identifier: LGPL-2.1-or-later
# Copies files in and out between a client on device two and two servers on device one, like a user;
# and checks the traffic class and the GID of their connections.
mkdir -p /tmp/s1 /tmp/s2
bmi-iod --listen ib://10.7.0.1:7000 --store /tmp/s1 >/tmp/iod1.log 2>&1 & one=$!
bmi-iod --listen ib://10.7.0.1:7001 --store /tmp/s2 >/tmp/iod2.log 2>&1 & two=$!
until_there listening /tmp/iod1.log $one
until_there listening /tmp/iod2.log $two
servers=ib://10.7.0.1:7000,ib://10.7.0.1:7001
head -c 20000003 /dev/urandom >/tmp/in

there_and_back() { # name, options
    name=$1
    shift
    rm -f /tmp/out
    bmi-cp --options device=rxe2 "$@" --servers $servers /tmp/in $name && bmi-cp --options device=rxe2 "$@" --servers $servers $name /tmp/out && cmp /tmp/in /tmp/out
}
sent=$(counter sent_pkts)
check 120 "striped over two servers" there_and_back ib://10.7.0.1:7000/striped
if [ "$(counter sent_pkts)" -gt $((sent + 10000)) ]; then pass "the data went over rxe"; else fail "the data went over rxe: $(counter sent_pkts) packets"; fi
check 30 "bmi-ls" bmi-ls --options device=rxe2 $servers
check 30 "bmi-rm" bmi-rm --options device=rxe2 --servers $servers ib://10.7.0.1:7000/striped
check 30 "what bmi-rm removed is not there" sh -c "! bmi-cp --options device=rxe2 --servers $servers ib://10.7.0.1:7000/striped /tmp/out2"
check 30 "no such object is an error" sh -c '! bmi-cp --options device=rxe2 ib://10.7.0.1:7000/nothing /tmp/out2'

# The QPs report the traffic class requested by the client's option: also on the server's side,
# which has no option.
class_arrives() {
    bmi-cp -q --options device=rxe2,traffic_class=104 --buffers 1 --buffer-size 4096 /tmp/in ib://10.7.0.1:7000/slow & slow=$!
    while [ -d /proc/$slow ] && ! grep "RoCE v2 ::ffff:10.7.0.1 (chosen by the peer), traffic class 104," /tmp/iod1.log; do
        kill -USR1 $one
        sleep 0.1
    done
    wait $slow && grep -q "(chosen by the peer), traffic class 104," /tmp/iod1.log
}
check 60 "the traffic class is that of both queue pairs" class_arrives
bmi-perf server ib://10.7.0.1:7002 >/tmp/perf.log 2>&1 & perf=$!
until_there listening /tmp/perf.log $perf
session() { bmi-perf --session ib://10.7.0.1:7002 --bmi-options device=rxe2,$1 | grep "by rxe2 port 1, .*path MTU 4096, GID [0-9]* RoCE v2 ::ffff:10.7.0.2 ($2), traffic class $3, service"; }
check 20 "the GID is that of the route" session traffic_class=32 "source address of the route to the peer" 32
check 20 "the GID is that of the option" session gid=10.7.0.2 "address of the option gid" 0
kill $perf
wait $perf && pass "bmi-perf's server ends with status 0" || fail "bmi-perf's server ends with status $?"
kill -9 $two
check 30 "a killed server is an error" sh -c "! bmi-cp --options device=rxe2 --servers $servers /tmp/in ib://10.7.0.1:7000/broken"
cat /tmp/iod1.log
kill $one
wait $one && pass "the server ends with status 0" || fail "the server ends with status $?"

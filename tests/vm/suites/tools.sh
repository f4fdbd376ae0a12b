# SPDX-License-Identifier: LGPL-2.1-or-later
# Files in and out between a client on device two and two servers on device one, as a user copies them.
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
check 120 "as lists of 64" there_and_back ib://10.7.0.1:7000/list --list 64
if [ "$(counter sent_pkts)" -gt $((sent + 10000)) ]; then pass "the data went over rxe"; else fail "the data went over rxe: $(counter sent_pkts) packets"; fi
check 30 "bmi-ls" bmi-ls --options device=rxe2 $servers
check 30 "no such object is an error" sh -c '! bmi-cp --options device=rxe2 ib://10.7.0.1:7000/nothing /tmp/out2'
kill -9 $two
check 30 "a killed server is an error" sh -c "! bmi-cp --options device=rxe2 --servers $servers /tmp/in ib://10.7.0.1:7000/broken"
cat /tmp/iod1.log
kill $one
wait $one && pass "the server ends with status 0" || fail "the server ends with status $?"

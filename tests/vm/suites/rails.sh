# SPDX-License-Identifier: LGPL-2.1-or-later
# Two rails: a server and its clients have two devices each, on two wires. The server's second
# device is removed during transfers, like a failing one.
second_wire() {
    add_wire three four 10.7.1 6
    # a rail is near to a peer if it has an address in the peer's network
    $IP addr add 10.7.0.1/24 dev one
    $IP addr add 10.7.0.2/24 dev two
    $IP addr add 10.7.1.1/24 dev three
    $IP addr add 10.7.1.2/24 dev four
    rdma link add rxe3 type rxe netdev three
    rdma link add rxe4 type rxe netdev four
    echo 'multi on' >/etc/host.conf
    printf '10.7.0.1 server\n10.7.1.1 server\n' >>/etc/hosts
}
sent_by() { cat /sys/class/infiniband/$1/ports/1/hw_counters/sent_pkts; }
at=ib://server:7000
copy() { # number: there and back, by two processes
    rm -f /tmp/out.$1
    bmi-cp -q --options device=rxe2+rxe4 /tmp/in $at/file$1 && bmi-cp -q --options device=rxe2+rxe4 $at/file$1 /tmp/out.$1 && cmp /tmp/in /tmp/out.$1
}
copies() { # how many, one after the other
    for k in $(seq $1); do
        [ $((k % 2)) = 0 ] || (:) # a process begins with the rail of its number, and a copy takes an even number of processes
        copy $k || return 1
    done
}

second_wire
mkdir -p /tmp/s1
head -c 4000003 /dev/urandom >/tmp/in
bmi-iod --listen $at --options device=rxe1+rxe3 --store /tmp/s1 >/tmp/iod.log 2>&1 & served=$!
until_there listening /tmp/iod.log $served
two=$(sent_by rxe2) four=$(sent_by rxe4)
check 60 "copies over either rail" copies 6
two=$(($(sent_by rxe2) - two)) four=$(($(sent_by rxe4) - four))
if [ $two -gt 1000 ] && [ $four -gt 1000 ]; then pass "both rails are used"; else fail "both rails are used: $two packets and $four"; fi

# Four clients copy all the time; each copy ends, with success or an error.
worker() {
    while [ ! -e /tmp/enough ]; do copy w$1 >>/tmp/worker.log 2>&1 && echo good || echo bad; done
}
for w in 1 2 3 4; do
    worker $w >/tmp/worker.$w &
    workers="$workers $!"
done
sleep 3
rdma link delete rxe3 & # returns when no process has it open
deleting=$!
sleep 8
touch /tmp/enough
ended() { for w in $workers; do while [ -d /proc/$w ]; do sleep 0.1; done; done; }
check 60 "each copy under way ends when a device is removed" ended
note "$(cat /tmp/worker.[1-4] | sort | uniq -c | tr '\n' ' ')"
grep -q "rxe3" /tmp/iod.log && pass "the server says which device is gone" || fail "the server says nothing of the device: $(tail -3 /tmp/iod.log)"
check 60 "copies over the rail that is left" copies 3
kill $served
wait $served && pass "the server ends with status 0" || fail "the server ends with status $?"
wait $deleting && pass "nobody has the removed device open any more" || fail "the device was not removed"
rdma link delete rxe4

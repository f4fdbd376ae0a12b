# SPDX-License-Identifier: LGPL-2.1-or-later
# The server's device is removed and added again under copies, several times; then packets are lost.
# Copies end, those that succeed are right, and nothing hangs.
mkdir -p /tmp/s1
head -c 4000003 /dev/urandom >/tmp/in
at=ib://10.7.0.1:7000
copy() { # name, options: there and back
    rm -f /tmp/out.$1
    bmi-cp -q --options device=rxe2$2 /tmp/in $at/file$1 && bmi-cp -q --options device=rxe2$2 $at/file$1 /tmp/out.$1 && cmp /tmp/in /tmp/out.$1
}
copies() { # how many, options
    for k in $(seq $1); do copy $k "$2" || return 1; done
}
serve() { # options: sets $served
    bmi-iod --listen $at --options device=rxe1$1 --store /tmp/s1 >/tmp/iod.log 2>&1 & served=$!
    until_there listening /tmp/iod.log $served
}
stop() {
    kill $served
    wait $served && pass "$1: the server ends with status 0" || fail "$1: the server ends with status $?"
}
said() { grep -c "$1" /tmp/iod.log; }
until_said() { # words, how often
    i=0
    while [ "$(said "$1")" -lt $2 ] && [ $i -lt 600 ]; do
        sleep 0.1
        i=$((i + 1))
    done
    [ "$(said "$1")" -ge $2 ]
}

# Copies all the time; each ends, with success or an error, and none has wrong contents.
worker() {
    while [ ! -e /tmp/enough ]; do
        rm -f /tmp/out.w$1
        if bmi-cp -q --options device=rxe2 /tmp/in $at/filew$1 && bmi-cp -q --options device=rxe2 $at/filew$1 /tmp/out.w$1; then
            cmp /tmp/in /tmp/out.w$1 && echo good || echo wrong
        else
            echo failed
        fi
    done 2>>/tmp/worker.log
}
good() { cat /tmp/worker.[1-4] | grep -c good; }
again() { # the how many-th time: the device goes, comes back, and copies succeed
    rdma link delete rxe1 || return 1 # returns when no process has it open
    rdma link add rxe1 type rxe netdev one || return 1
    until_said "in use again" $1 || return 1
    before=$(good)
    i=0
    while [ "$(good)" -lt $((before + 2)) ] && [ $i -lt 600 ]; do
        sleep 0.1
        i=$((i + 1))
    done
    [ "$(good)" -ge $((before + 2)) ]
}
serve
for w in 1 2 3 4; do
    worker $w >/tmp/worker.$w &
    workers="$workers $!"
done
for n in 1 2 3 4 5; do
    check 60 "device removed and added, $n" again $n
done
touch /tmp/enough
ended() { for w in $workers; do while [ -d /proc/$w ]; do sleep 0.1; done; done; }
check 60 "all clients end" ended
note "copies: $(cat /tmp/worker.[1-4] | sort | uniq -c | tr '\n' ' ')"
if grep -q wrong /tmp/worker.[1-4]; then fail "a copy has wrong contents"; else pass "no copy has wrong contents"; fi
stop "devices"
after "devices"

# Lost packets in both directions.
TC=/usr/bin/tc # not busybox's
for loss in 0.1 1; do
    for d in one two; do $TC qdisc replace dev $d root netem loss $loss%; done
    serve ,ack_timeout=15
    check 120 "copies with $loss % of all packets lost" copies 5 ,ack_timeout=15
    note "$loss %: $($TC -s qdisc show dev one | grep -o 'dropped [0-9]*') of $(cat /sys/class/net/one/statistics/tx_packets) packets"
    stop "loss of $loss %"
done
for d in one two; do $TC qdisc del dev $d root; done

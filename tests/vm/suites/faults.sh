# SPDX-License-Identifier: LGPL-2.1-or-later
# Resources that a machine may lack: IPv6 (and with it GID index 0), locked memory, any RDMA device.
# And servers that die in the middle, and foreign clients.
mkdir -p /tmp/s1 /tmp/s2
chmod 777 /tmp/s1 /tmp/s2
head -c 6000007 /dev/urandom >/tmp/in
chmod 644 /tmp/in

serve() { # store, port, wrapper: sets $served
    store=$1 at=ib://10.7.0.1:$2
    shift 2
    "$@" bmi-iod --listen $at --store $store >/tmp/iod.log 2>&1 & served=$!
    until_there listening /tmp/iod.log $served
}
stop() { kill $(pidof bmi-iod); wait $served; }
cp_two() { bmi-cp --options device=rxe2 "$@"; }
round_trip() { # name, wrapper
    name=$1
    shift
    rm -f /tmp/out
    "$@" bmi-cp --options device=rxe2 /tmp/in $at/$name && "$@" bmi-cp --options device=rxe2 $at/$name /tmp/out && cmp /tmp/in /tmp/out
}
# The command must fail with one line that contains the words, and not by a signal.
complains() { # words, command
    words=$1
    shift
    "$@" >/tmp/said 2>&1
    got=$?
    cat /tmp/said
    [ $got -gt 0 ] && [ $got -lt 126 ] && grep -q "$words" /tmp/said && [ "$(grep -c . /tmp/said)" = 1 ]
}

# GID index 0 is the link-local IPv6 address: without IPv6 it is unreachable, and only a program
# that takes the index from the route continues.
echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6
by_index() { # index
    timeout 30 ibv_rc_pingpong -d rxe1 -g $1 -n 100 >/dev/null 2>&1 & raw=$!
    until_there ':4853 00000000:0000 0A' /proc/net/tcp $raw # 18515, its port, is listening
    timeout 20 ibv_rc_pingpong -d rxe2 -g $1 -n 100 10.7.0.1
    got=$?
    kill $raw 2>/dev/null
    wait $raw # frees the port for the next one
    return $got
}
if by_index 0 >/tmp/pp0.log 2>&1; then fail "without IPv6, GID index 0 can be used after all"; else pass "without IPv6, GID index 0 cannot be used"; fi
check 30 "ibv_rc_pingpong by the index of the IPv4 address" by_index "$(gid_index rxe1)"
serve /tmp/s1 7000
check 60 "bmi-cp without IPv6" round_trip without-ipv6
# A foreign client uses rdma_cm, but not our protocol.
check 30 "a stranger is refused" sh -c '! timeout 20 rping -c -a 10.7.0.1 -p 7000 -C 1'
check 60 "nobody else notices" round_trip after-stranger
echo 0 >/proc/sys/net/ipv6/conf/all/disable_ipv6

# A server that dies in the middle of a transfer ends it soon.
head -c 200000000 /dev/zero >/tmp/large
cp_two /tmp/large $at/large >/tmp/cp.log 2>&1 & copy=$!
i=0
while [ $i -lt 100 ] && ! [ -n "$(find /tmp/s1 -size +1000k)" ]; do
    sleep 0.1
    i=$((i + 1))
done
kill -9 $served
begin=$(cut -d. -f1 /proc/uptime)
wait $copy
got=$?
took=$(($(cut -d. -f1 /proc/uptime) - begin))
if [ $got = 1 ] && [ $took -le 10 ]; then pass "a server killed in the middle: status 1 after $took s"; else fail "a server killed in the middle: status $got after $took s"; fi
tail -1 /tmp/cp.log
wait $served
rm -f /tmp/large
after "killed in the middle"

# An ordinary user with little locked memory.
chmod 666 /dev/infiniband/*
limited() { # KiB, command
    limit_kib=$1
    shift
    su nobody -s /bin/sh -c "ulimit -l $limit_kib; exec $*"
}
serve /tmp/s2 7000 limited 64
check 60 "memlock limit 64 KiB, on both sides" round_trip limited limited 64
stop
serve /tmp/s1 7000
check 60 "memlock limit 64 KiB of a client" round_trip limited limited 64
stop
after "memlock limits"

# No RDMA device at all.
rdma link delete rxe1
rdma link delete rxe2
check 30 "no RDMA device: a client says so" complains 'no RDMA device' bmi-cp /tmp/in ib://10.7.0.1:7000/none
check 30 "no RDMA device: a server says so" complains 'no RDMA device' bmi-iod --listen ib://10.7.0.1:7000 --store /tmp/s1
add_devices

# SPDX-License-Identifier: LGPL-2.1-or-later
# OrangeFS's own programs when a process dies or a resource is missing: servers and clients killed
# in the middle of writes, no IPv6 (GID index 0 is unreachable), no locked memory, no RDMA device.
. /pvfs/guest.sh
use new
head -c 67108864 /dev/urandom >/tmp/big
head -c 1000003 /tmp/big >/tmp/part
k=/mount

writing() { # path: in the background; returns in the middle of the write
    $wrap pvfs2-cp -b 65536 /tmp/big "$1" >/tmp/writer.log 2>&1 & writer=$!
    sleep "${2:-1}"
    kill -0 $writer
}
# Checks that it ended by itself, with success or an error: not by our timeout, a signal or an
# assertion.
ended_well() { # what, status
    tail -n 3 /tmp/writer.log
    if [ "$2" -ge 124 ] && [ "$2" -lt 160 ]; then fail "$1: status $2"; else pass "$1: status $2"; fi
}
wait_writer() { # seconds: status in $status
    (sleep "$1"; kill -9 $writer) 2>/dev/null &
    guard=$!
    wait $writer
    status=$?
    kill $guard 2>/dev/null
}
kill_server() {
    pid=$(server_pid $fs $server)
    kill -9 $pid
    wait $pid 2>/dev/null
    forget_server $fs $server
}
cores_gone() { # pid: until another client-core runs
    i=0
    while n=$(pidof pvfs2-client-core); [ -z "$n" ] || [ "$n" = "$1" ]; do
        i=$((i + 1))
        [ $i -lt 100 ] || { echo "client-core is still $n"; return 1; }
        sleep 0.2
    done
}

deaths() {
    writing $mnt/killed || fail "$fs: a writing client is there to be killed"
    kill -9 $writer
    wait $writer 2>/dev/null
    check 120 "$fs: after a client was killed in mid-write, another works" there_and_back /tmp/part 65536
    check 90 "$fs: and the server rests" at_rest

    writing $mnt/broken || fail "$fs: a client writes to a server"
    kill_server
    wait_writer 120
    ended_well "$fs: server killed in mid-write" $status
    start_server $fs $server
    check 60 "$fs: the server comes back" ready
    check 120 "$fs: and works" there_and_back /tmp/part 262144

    writing $mnt/outlived || fail "$fs: a client writes to a server"
    kill_server
    start_server $fs $server
    wait_writer 120
    ended_well "$fs: server restarted in mid-write" $status
    check 60 "$fs: ready again" ready
    check 120 "$fs: and works again" there_and_back /tmp/part 65536
}

# On the mount: the client daemon restarts its worker. The kernel may wait forever for pages that it
# was reading ahead or writing back when the worker died, over tcp as over ib
# (doc/orangefs-mount.md), so a process that waits for them is killed in the end.
mounted_deaths() {
    check 60 "$fs: mount" mount_fs "$fs_url" $k $options
    cp /tmp/big $k/worker
    for death in 1 2 3; do
        sync
        echo 3 >/proc/sys/vm/drop_caches
        cp $k/worker /tmp/worker & writer=$!
        sleep 0.3
        core=$(pidof pvfs2-client-core)
        kill -0 $writer && kill -9 $core
        wait_writer 20
        note "$fs: cp from the mount while client-core is killed: status $status"
        check 60 "$fs: client-core is started again, $death" cores_gone "$core"
        check 120 "$fs: the mount works after client-core was killed, $death" sh -c "cp /tmp/part $k/part$death && cmp /tmp/part $k/part$death"
    done

    cp /tmp/big $k/orphan >/tmp/writer.log 2>&1 & writer=$!
    sleep 1
    kill_server
    start_server $fs $server
    wait_writer 120
    note "$fs: cp on the mount while the server is restarted: status $status"
    check 60 "$fs: ready after the server's restart" ready
    check 120 "$fs: the mount works after the server's restart" sh -c "cp /tmp/part $k/after && cmp /tmp/part $k/after"
    check 60 "$fs: umount" unmount_fs $k
}

for fs in $(file_systems 1); do
    choose_options $fs
    server=$(aliases $fs)
    begin $fs && deaths && mounted_deaths
    stop_servers $fs
    after "$fs: deaths"
    rm -rf $store
done

fs=ib1
choose_options $fs
server=$(aliases $fs)
# Without IPv6 the first entry of the GID table, its link-local address, is unreachable.
rm -rf $store
rdma link delete rxe1
rdma link delete rxe2
echo 1 >/proc/sys/net/ipv6/conf/all/disable_ipv6
add_devices
dmesg -c >/dev/null
objects >/tmp/objects.begin
begin $fs
check 120 "no IPv6: there and back" there_and_back /tmp/part 65536
stop_servers $fs
after "no IPv6"
if [ -d /old ]; then
    use old
    client_options=
    fs=old1
    within_one_device # uses the first device only
    for a in $(aliases $fs); do
        pvfs2-server -f -a $a /pvfs/$fs.conf >/tmp/old.out 2>&1 && start_server $fs $a
    done
    echo "ib://one:3370/orangefs $mnt pvfs2 defaults,noauto 0 0" >/tmp/$fs.tab
    mkdir -p /m/$fs
    client $fs
    sleep 1
    timeout 20 pvfs2-ping -m $mnt >/tmp/ping.log 2>&1
    note "no IPv6, OrangeFS's own bmi_ib: pvfs2-ping ends with status $?: $(grep -ihE 'rtr|failed' /tmp/ping.log /tmp/$fs*.out | head -1)"
    kill -9 $(server_pid $fs "$(aliases $fs)")
    servers=
    over_the_wire
    use new
    client_options=device=rxe2
    sleep 1
fi
echo 0 >/proc/sys/net/ipv6/conf/all/disable_ipv6

# Server and client of a user who may lock 64 KiB (root may lock more, regardless of the limit):
# data is copied.
printf '#!/bin/sh\nexec su nobody -s /bin/sh -c "ulimit -l 64; exec $*"\n' >/bin/limited # so that its pid is the program's
chmod 755 /bin/limited
chmod 666 /dev/infiniband/*
chmod 777 /tmp
fs=ib1
rm -rf $store /tmp/$fs*
mkdir -m 777 $store
server_as=limited
begin $fs
server_as=
head -c 200000 /tmp/big >/tmp/small
limited_copy() {
    limited pvfs2-cp -b 65536 /tmp/small $mnt/limited && limited pvfs2-cp -b 65536 $mnt/limited /tmp/limited && same_sum /tmp/small /tmp/limited
}
check 120 "memlock limit of 64 KiB on both sides: there and back" limited_copy
check 120 "memlock limit of 64 KiB of the server: there and back" there_and_back /tmp/part 65536
stop_servers $fs
after "memlock limit"
rm -rf /tmp/$fs*

# No RDMA device: programs with another network use that.
rm -rf $store
rdma link delete rxe1
rdma link delete rxe2
client_options=
begin both1
check 60 "no RDMA device: there and back over tcp" there_and_back /tmp/part 65536
grep -h 'RDMA device' /tmp/both1*.out /tmp/both1.log* 2>/dev/null | sort | uniq -c
n=$(cat /tmp/both1*.out /tmp/both1.log* 2>/dev/null | grep -c 'no RDMA device')
if [ "$n" -ge 1 ]; then pass "no RDMA device: the server says so"; else fail "no RDMA device: the server says nothing"; fi
stop_servers both1
add_devices
dmesg -c >/dev/null

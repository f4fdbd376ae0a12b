# SPDX-License-Identifier: LGPL-2.1-or-later
# bmi-perf doctor on soft-RoCE: both devices, one that lacks an address, a file's permission, or its
# link, and a server on the other device.
doctor() { # STATUS ARGUMENTS...; its output is in /tmp/doctor.log
    want=$1
    shift
    bmi-perf doctor "$@" >/tmp/doctor.log 2>&1
    got=$?
    cat /tmp/doctor.log
    [ $got = $want ] || { echo "status $got"; return 1; }
}
row() { grep -q "^$1  $2 .*$3" /tmp/doctor.log || { echo "no row $1 of $2 with $3"; return 1; }; }
both() {
    doctor 0 && row PASS modules "can be opened" && row PASS "rxe1 port 1" "active, Ethernet" &&
        row PASS "rxe1 port 1" "GIDs: .*RoCE v2 ::ffff:10.7.0.1 of one" && row PASS "rxe1 port 1" "addresses: 10.7.0.1" &&
        row PASS "rxe2 port 1" "addresses: 10.7.0.2" && row WARN engine "opens; a key opens .* to every peer" && ! grep "^FAIL" /tmp/doctor.log
}
check 60 "both devices" both
chmod 600 /dev/infiniband/uverbs1
check 60 "a device file that this user cannot open" su nobody -s /bin/sh -c 'bmi-perf doctor | grep "FAIL  rxe2 .*/dev/infiniband/uverbs1: Permission denied"'
chmod 666 /dev/infiniband/uverbs1
bmi-perf server ib://10.7.0.1:7000 --bmi-options device=rxe1 >/tmp/perf.log 2>&1 & perf=$!
until_there listening /tmp/perf.log $perf
figures() {
    doctor 0 ib://10.7.0.1:7000 --bmi-options device=rxe2 --report /tmp/report && row PASS path "rxe2 port 1, .*RoCE v2" &&
        row PASS contents "messages are right: by eager, ring, write, write-copy; not used by these devices: read" && grep -q "raw write" /tmp/doctor.log &&
        ! grep "raw verbs  " /tmp/doctor.log && grep "^....  loss " /tmp/doctor.log && cmp /tmp/doctor.log /tmp/report
}
check 600 "a server on the other device" figures
sed 's/^/note /' /tmp/doctor.log
kill $perf
wait $perf
no_address() { doctor 0 && row WARN "rxe2 port 1" "no IP address but that of the link" && row PASS "rxe1 port 1" "addresses: 10.7.0.1"; }
$IP addr del 10.7.0.2/32 dev two
check 60 "a port with the address of its link alone" no_address
# Of a veth pair both ends lose the carrier.
down() { doctor 1 && row WARN "rxe2 port 1" "down, Ethernet" && grep -q "remedy: ip link set INTERFACE up" /tmp/doctor.log && row FAIL devices "no port is active"; }
$IP link set two down
check 60 "ports that are down" down

# SPDX-License-Identifier: LGPL-2.1-or-later
# Figures (notes): pvfs2-cp and dd on the kernel's mount over bmi_tcp, OrangeFS's own bmi_ib if
# there is one, and ours, in turn. The old bmi_ib uses the first device only, so everything stays
# within that one; tcp uses the loopback device. dd uses the page cache first, where the kernel
# gathers blocks into requests of its own size, and then bypasses it ("direct"): each block is a
# request, as for users with small blocks. only=small: direct blocks of 4 and 16 KiB, and small
# files, in operations a second. only=bare: the networks without OrangeFS, microseconds one way of a
# reply and of requests with 4 and 16 KiB, all asleep in between: sockets, plain verbs (ib_send_lat
# -e), and bmi-perf over ib.
. /pvfs/guest.sh
rounds=${rounds:-5} # these may come from the kernel's command line
mib=${mib:-16}
only=${only:-cp,dd}
within_one_device
head -c $((mib << 20)) /dev/urandom >/tmp/big
k=/mount
ways="tcp1 ib1"
[ ! -d /old ] || ways="tcp1 old1 ib1"
client_options=device=rxe1

programs() { case $1 in old1) use old ;; *) use new ;; esac; }
now() { awk '/^now at/ {printf "%.6f\n", $3 / 1e9; exit}' /proc/timer_list; }
broken() { # name of the figure; a failure of the old one is reported, not checked
    case $1 in *old1) note "$1: it fails" ;; *) fail "$1" ;; esac
    tail -n 5 /tmp/perf.log
}
rate() { # amount of work, in any unit; name of the figure, command: work per second
    amount=$1
    figure=$2
    shift 2
    begun=$(now)
    timeout 120 "$@" >/tmp/perf.log 2>&1 || { broken "$figure"; return; }
    ended=$(now)
    echo "figure $figure $(echo "$begun $ended $amount" | awk '{printf "%.2f", $3 / ($2 - $1)}')"
}
took() { # name of the figure, command that moves $mib: its MB/s
    rate "$(awk -v m="$mib" 'BEGIN {print m * 1.048576}')" "$@"
}
own_clock() { # name of the figure, arguments of pvfs2-cp: the MB/s that it prints, without its start-up
    figure=$1
    shift
    timeout 120 pvfs2-cp -t "$@" >/tmp/perf.log 2>&1 || { broken "$figure"; return; }
    echo "figure $figure $(awk '{for (i = 2; i <= NF; i++) if ($i ~ /^MB\/s/) {print $(i - 1); exit}}' /tmp/perf.log)"
}
medians() { # of all figures so far
    grep '^figure' /tmp/figures | sort -k2,2 -k3,3 -k4,4n -k5,5 -k6,6n | awk '
        function out() {if (n) printf "note median %s %.2f (%.2f to %.2f, n %d)\n", key, n % 2 ? v[(n + 1) / 2] : (v[n / 2] + v[n / 2 + 1]) / 2, v[1], v[n], n}
        {k = $2 " " $3 " " $4 " " $5; if (k != key) {out(); n = 0; key = k} v[++n] = $6}
        END {out()}'
}

start_all() {
    for w in $ways; do
        programs $w
        [ "$w" = ib1 ] || client_options=
        begin $w
        client_options=device=rxe1
    done
}

copies_of_programs() { # round
    for b in 65536 262144 1048576 4194304; do
        for w in $ways; do
            programs $w
            client $w
            own_clock "cp in $b $w" -b $b /tmp/big $mnt/f$b-$1
            own_clock "cp out $b $w" -b $b $mnt/f$b-$1 /tmp/back
            cmp -s /tmp/big /tmp/back || fail "$w: the copy differs"
            rm -f /tmp/back
        done
    done | tee -a /tmp/figures
}

# One mount at a time: the kernel has one client daemon.
copies_on_mount() {
    for w in $ways; do
        programs $w
        client $w
        o=
        [ "$w" != ib1 ] || o=--bmi-opts=device=rxe1
        mount_fs "$(awk '{print $1}' /tmp/$w.tab)" $k $o || { fail "$w: mount"; continue; }
        for b in 65536 131072 1048576 4194304; do
            took "dd write $b $w" dd if=/tmp/big of=$k/d bs=$b conv=fsync
            sync
            echo 3 >/proc/sys/vm/drop_caches
            took "dd read $b $w" dd if=$k/d of=/tmp/back bs=$b
            cmp -s /tmp/big /tmp/back || fail "$w: dd: the copy differs"
            rm -f $k/d
            took "dd-direct write $b $w" dd if=/tmp/big of=$k/d bs=$b oflag=direct
            took "dd-direct read $b $w" dd if=$k/d of=/tmp/back bs=$b iflag=direct
            cmp -s /tmp/big /tmp/back || fail "$w: direct dd: the copy differs"
            rm -f $k/d
        done
        unmount_fs $k || fail "$w: umount"
    done | tee -a /tmp/figures
}

# Many requests with little data. One shell makes the files, and one opens and reads them, so that
# no program's start-up is measured.
files=200
make_files='for f in $(seq $1); do echo $f >$0/$f || exit 1; done'
read_files='for f in $(seq $1); do read -r n <$0/$f && [ "$n" = $f ] || exit 1; done'
small_on_mount() {
    for w in $ways; do
        programs $w
        client $w
        o=
        [ "$w" != ib1 ] || o=--bmi-opts=device=rxe1
        mount_fs "$(awk '{print $1}' /tmp/$w.tab)" $k $o || { fail "$w: mount"; continue; }
        for b in 4096 16384; do
            head -c $((b * 400)) /tmp/big >/tmp/part
            rate 400 "requests write $b $w" dd if=/tmp/part of=$k/d bs=$b oflag=direct
            rate 400 "requests read $b $w" dd if=$k/d of=/tmp/back bs=$b iflag=direct
            cmp -s /tmp/part /tmp/back || fail "$w: direct dd: the copy differs"
            rm -f $k/d
        done
        mkdir $k/small
        rate $files "files create 1 $w" sh -c "$make_files" $k/small $files
        echo 3 >/proc/sys/vm/drop_caches
        rate $files "files read 1 $w" sh -c "$read_files" $k/small $files
        rate $files "files remove 1 $w" rm -r $k/small
        unmount_fs $k || fail "$w: umount"
    done | tee -a /tmp/figures
}

# bmi-perf's arguments of a server, of a client: microseconds one way
one_way() {
    bmi-perf $1 >/tmp/server.log 2>&1 & serving=$!
    until_there listening /tmp/server.log $serving
    bmi-perf $2 --sizes $b --count 500 --rounds 1 --json | sed -n 's/.*"median": \([0-9.]*\).*/\1/p'
    kill $serving
    wait $serving
}
plain_verbs() {
    lat="ib_send_lat -d rxe1 -x $(gid_index rxe1) -m 4096 -e -F -s $b -n 500"
    $lat >/tmp/server.log 2>&1 & serving=$!
    until $lat 10.7.0.1 >/tmp/perf.log 2>&1; do sleep 0.1; [ -d /proc/$serving ] || return; done
    wait $serving
    awk -v b=$b '$1 == b {print $6}' /tmp/perf.log
}
bare() {
    for b in 100 4300 16600; do
        echo "figure bare one-way $b tcp1 $(one_way "tcp-server 127.0.0.1:7100" "tcp-lat 127.0.0.1:7100")"
        echo "figure bare one-way $b verbs $(plain_verbs)"
        o="--bmi-options device=rxe1,poll_us=0"
        echo "figure bare one-way $b ib1 $(one_way "server ib://10.7.0.1:7200 $o" "lat ib://10.7.0.1:7200 $o")"
    done | tee -a /tmp/figures
}

for r in $(seq $rounds); do
    case $only in *bare*) bare ;; esac
done
start_all
for r in $(seq $rounds); do
    case $only in *cp*) copies_of_programs $r ;; esac
done
for r in $(seq $rounds); do
    case $only in *dd*) copies_on_mount ;; esac
done
for r in $(seq $rounds); do
    case $only in *small*) small_on_mount ;; esac
done
medians
for w in $ways; do
    case $w in
    old1) kill -9 $(server_pid $w "$(aliases $w)") ;;
    *) stop_servers $w ;;
    esac
done
# Remains of the old module in the counters do not count.
rdma link delete rxe1
rdma link delete rxe2
add_devices
objects >/tmp/objects.begin

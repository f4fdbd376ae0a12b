# SPDX-License-Identifier: LGPL-2.1-or-later
# The real programs of OrangeFS: one server, then four, and clients of each kind over ib://.
. /pvfs/guest.sh
use new
client_options=device=rxe2
head -c 16777216 /dev/urandom >/tmp/big
for s in 1 4095 65535 65536 65537 1000003 4194304; do head -c $s /tmp/big >/tmp/f$s; done

two_at_once() {
    pvfs2-cp -b 262144 /tmp/big "$mnt/one" & a=$!
    pvfs2-cp -b 1048576 /tmp/big "$mnt/two" & b=$!
    wait $a && wait $b && pvfs2-cp "$mnt/one" /tmp/back1 && pvfs2-cp "$mnt/two" /tmp/back2 && same_sum /tmp/big /tmp/back1 &&
        same_sum /tmp/big /tmp/back2
}
listed() { # size of the last copy
    size=$(pvfs2-ls -l "$mnt" | awk -v n="$(cat /tmp/copy)" '$NF == n {print $5}')
    [ "$size" = "$1" ] || { echo "listed: $size, expected $1"; return 1; }
}

# A write taken for stuck, cancelled and repeated shows only in a log: the contents are right in the
# end.
complaints() { cat /tmp/$fs.log* /tmp/$fs-*.out 2>/dev/null | grep -E '\[E|cancel called|[Rr]etrying'; }
nothing_new() { # beyond the lines of /tmp/complaints
    complaints | grep -vxFf /tmp/complaints >/tmp/new
    [ ! -s /tmp/new ] || { cat /tmp/new; return 1; }
}
writes() { # buffer, how many at once
    writing= bad=0
    for i in $(seq "$2"); do
        pvfs2-cp -b "$1" /tmp/f4194304 "$mnt/w$1-$2-$i" 2>>/tmp/$fs-clients.out & writing="$writing $!"
    done
    for i in $writing; do wait "$i" || bad=1; done
    rm -f /tmp/back
    pvfs2-cp "$mnt/w$1-$2-1" /tmp/back && same_sum /tmp/f4194304 /tmp/back && [ $bad = 0 ]
}

for fs in ib1 ib4; do
    sent=$(counter sent_pkts)
    begin $fs || continue
    for s in 1 4095 65535 65536 65537 1000003; do
        check 60 "$fs: $s bytes there and back" there_and_back /tmp/f$s 1048576
        check 30 "$fs: pvfs2-ls says $s" listed $s
    done
    for b in 65536 262144 1048576 4194304; do
        check 120 "$fs: 16 MiB with buffers of $b" there_and_back /tmp/big $b
    done
    check 30 "$fs: pvfs2-statfs" pvfs2-statfs -m $mnt
    check 30 "$fs: pvfs2-mkdir" pvfs2-mkdir $mnt/dir
    check 30 "$fs: pvfs2-touch" pvfs2-touch $mnt/dir/file
    check 30 "$fs: pvfs2-stat" pvfs2-stat $mnt/dir/file
    check 30 "$fs: pvfs2-chmod" pvfs2-chmod 600 $mnt/dir/file
    check 30 "$fs: pvfs2-viewdist" pvfs2-viewdist -f $mnt/$(cat /tmp/copy)
    check 30 "$fs: pvfs2-ln" pvfs2-ln -s $(cat /tmp/copy) $mnt/link
    check 30 "$fs: pvfs2-ls of the folder" pvfs2-ls $mnt/dir
    ! command -v pvfs2-rm >/dev/null || check 30 "$fs: pvfs2-rm" pvfs2-rm $mnt/dir/file
    check 120 "$fs: two copies at once" two_at_once
    { echo "none yet"; complaints; } >/tmp/complaints
    for b in 65536 262144 524288 1000003 2097152; do
        for n in 1 4; do
            check 120 "$fs: 4 MiB in writes of $b, $n at once" writes $b $n
        done
    done
    check 10 "$fs: no write was cancelled and done again" nothing_new
    if [ "$(counter sent_pkts)" -gt $((sent + 20000)) ]; then pass "$fs: the data went over rxe"; else fail "$fs: the data did not go over rxe"; fi
    check 90 "$fs: servers rest" at_rest
    stop_servers $fs
    after "$fs"
    rm -rf $store
done

# SPDX-License-Identifier: LGPL-2.1-or-later
# The real programs of OrangeFS: one server, then four, and clients of each kind over ib://.
. /pvfs/guest.sh
use new
client_options=device=rxe2
head -c 16777216 /dev/urandom >/tmp/big
for s in 1 4095 65535 65536 65537 1000003; do head -c $s /tmp/big >/tmp/f$s; done

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
    if [ "$(counter sent_pkts)" -gt $((sent + 20000)) ]; then pass "$fs: the data went over rxe"; else fail "$fs: the data did not go over rxe"; fi
    check 90 "$fs: servers rest" at_rest
    stop_servers $fs
    after "$fs"
    rm -rf $store
done

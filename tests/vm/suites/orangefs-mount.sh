# SPDX-License-Identifier: LGPL-2.1-or-later
# The kernel's orangefs.ko on a file system over each network: users' operations on a
# mounted folder.
. /pvfs/guest.sh
use new
head -c 16777216 /dev/urandom >/tmp/big
k=/mount

copy_in_and_out() {
    cp /tmp/big $k/copied && drop && cp $k/copied /tmp/back && same_sum /tmp/big /tmp/back
}
drop() { sync && echo 3 >/proc/sys/vm/drop_caches; } # what is read next comes from the servers
dd_in_and_out() { # block
    n=$((16777216 / $1))
    dd if=/tmp/big of=$k/dd$1 bs=$1 count=$n conv=fsync && drop && dd if=$k/dd$1 of=/tmp/back bs=$1 && same_sum /tmp/big /tmp/back
}
names() {
    mkdir $k/dir && for i in 1 2 3 4 5 6 7 8 9 10; do echo $i >$k/dir/f$i || return 1; done
    mv $k/dir/f1 $k/dir/g1 && rm $k/dir/f2 && mv $k/dir $k/moved || return 1
    [ "$(ls $k/moved | wc -l)" = 9 ] && [ "$(cat $k/moved/* | awk '{s += $1} END {print s}')" = 53 ] && rm -r $k/moved && [ ! -e $k/moved ]
}
tree() {
    mkdir $k/tree /tmp/tree && tar -C /tmp/tree -xf /pvfs/tree.tar && tar -C $k/tree -xf /pvfs/tree.tar && drop && diff -r /tmp/tree $k/tree &&
        tar -C $k/tree -cf - . | tar -tf - | wc -l
}
two_clients() { # the kernel and a separate program both write, and read the other's data
    $wrap pvfs2-cp -b 262144 /tmp/big $mnt/program & a=$!
    cp /tmp/big $k/kernel & b=$!
    wait $a && wait $b && drop || return 1
    $wrap pvfs2-cp $mnt/kernel /tmp/back & a=$!
    cp $k/program /tmp/back2 & b=$!
    wait $a && wait $b && same_sum /tmp/big /tmp/back && same_sum /tmp/big /tmp/back2
}
two_on_mount() {
    cp /tmp/big $k/two1 & a=$!
    dd if=/tmp/big of=$k/two2 bs=65536 2>/dev/null & b=$!
    wait $a && wait $b && drop && same_sum /tmp/big $k/two1 && same_sum /tmp/big $k/two2
}

# About the bytes that a network has moved: packets of rxe and segments of TCP hold 4 KiB; over
# elan4 the running servers and client-core count what they move.
moved_by() { # network
    case $1 in
    ib) echo $(($(counter sent_pkts) * 4096)) ;;
    tcp) awk '$1 == "Tcp:" {n = $11} END {printf "%.0f\n", n * 4096}' /proc/net/snmp ;;
    elan4)
        for p in $(pidof pvfs2-client-core pvfs2-server); do emuelan4 --show $p 2>/dev/null; done |
            sed -n 's/.*"dma_bytes": \([0-9]*\).*/\1/p' | awk '{s += $1} END {printf "%.0f\n", s}'
        ;;
    esac
}
moved() { for n in tcp ib elan4; do echo $n $(moved_by $n); done; }
# Checks that the network moved more than 80 MiB since, and no other did.
moved_alone() { # network, what was moved before
    moved >/tmp/moved
    echo "before: $2; now: $(cat /tmp/moved)"
    echo "$2" | awk -v net="$1" 'NR == FNR {was[$1] = $2; next} ($2 - was[$1] > 80 * 1048576) != ($1 == net) {bad++} END {exit bad > 0}' - /tmp/moved
}
kept() { drop && same_sum /tmp/big $k/copied; }

[ -f /pvfs/elan1.conf ] || note "elan4 is not tried: this OrangeFS has no bmi_elan4"
for fs in $(file_systems 1 4); do
    choose_options $fs
    begin $fs || continue
    before=$(moved)
    check 60 "$fs: mount" mount_fs "$fs_url" $k $options
    check 120 "$fs: cp in and out" copy_in_and_out
    for b in 65536 131072 1048576 4194304; do
        check 120 "$fs: dd with blocks of $b" dd_in_and_out $b
    done
    check 60 "$fs: sha256sum on the mount" same_sum /tmp/big $k/copied
    check 60 "$fs: mkdir, rename, rm" names
    check 300 "$fs: tar of a source tree" tree
    check 120 "$fs: two writers on the mount" two_on_mount
    check 120 "$fs: the mount and pvfs2-cp at once" two_clients
    check 10 "$fs: the data went over its network alone" moved_alone "$(network_of $fs)" "$before"
    check 90 "$fs: servers rest" at_rest
    check 60 "$fs: umount" unmount_fs $k
    check 60 "$fs: mount again" mount_fs "$fs_url" $k $options
    check 60 "$fs: the files are there" kept
    check 60 "$fs: umount again" unmount_fs $k
    stop_servers $fs
    after "$fs, mounted"
    rm -rf $store /tmp/tree
done

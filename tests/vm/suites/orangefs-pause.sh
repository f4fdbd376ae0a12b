# SPDX-License-Identifier: LGPL-2.1-or-later
# A server is stopped for 25 s (SIGSTOP) during direct writes of 4 KiB on the kernel's mount, over
# tcp and over ib: nothing is lost, and afterwards the writes are as fast as before. Each dd writes
# 50 blocks and is timed. As fast means: the median of ten times after the pause is at most three
# times the median before it. Waiting for a timer at each block exceeds that by far; a busy host
# does not reach it.
. /pvfs/guest.sh
use new
pause=${pause:-25} # from the kernel's command line
k=/mount
head -c 204800 /dev/urandom >/tmp/blocks

now() { awk '/^now at/ {printf "%.3f\n", $3 / 1e9; exit}' /proc/timer_list; }
write_on() { # until /tmp/enough exists: a line for each 50 blocks, begin and seconds
    n=0
    while [ ! -e /tmp/enough ]; do
        begun=$(now)
        dd if=/tmp/blocks of=$k/paused bs=4096 count=50 seek=$((n * 50)) oflag=direct conv=notrunc 2>/tmp/dd.log ||
            { cat /tmp/dd.log; return 1; }
        echo "$begun $(now)" | awk '{printf "%.3f %.3f\n", $1, $2 - $1}' >>/tmp/times
        n=$((n + 1))
    done
    echo $n >/tmp/written
}
lines() { awk 'END {print NR + 0}' /tmp/times; }
until_lines() { # number of lines, within that many seconds
    end=$(now | awk -v s="$2" '{print int($1 + s)}')
    until [ "$(lines)" -ge "$1" ]; do
        [ "$(now | cut -d. -f1)" -lt "$end" ] || { echo "$(lines) lines, $1 wanted"; return 1; }
        sleep 0.3
    done
}
median_of() { # first line, last line
    sed -n "$1,$2p" /tmp/times | sort -k2,2n | awk '{v[NR] = $2} END {print NR ? v[int((NR + 1) / 2)] : "none"}'
}
all_there() { # blocks written 50 at a time
    n=$(cat /tmp/written)
    i=0
    : >/tmp/should
    while [ $i -lt "$n" ]; do
        cat /tmp/blocks >>/tmp/should
        i=$((i + 1))
    done
    cmp /tmp/should $k/paused
}
under_pause() { # file system
    rm -f /tmp/enough /tmp/times /tmp/written
    : >/tmp/times
    write_on >/tmp/writer.log 2>&1 & writer=$!
    if until_lines 20 120; then
        pid=$(server_pid "$1" "$(aliases "$1" | head -1)")
        before=$(lines)
        kill -STOP "$pid"
        sleep "$pause"
        kill -CONT "$pid"
        continued=$(now)
        check 180 "$1: writes go on after $pause s" until_lines $((before + 12)) 170
        slow=$(awk '$2 > m {m = $2} END {print m}' /tmp/times)
        at=$(awk -v c="$continued" '$1 > c {printf "%.1f", $1 - c; exit}' /tmp/times)
        note "$1: 50 blocks before $(median_of 5 "$before") s, after $(median_of $((before + 3)) $((before + 12))) s;" \
            "the longest took $slow s, and ended ${at:-never} s after the server went on"
        if awk -v a="$(median_of $((before + 3)) $((before + 12)))" -v b="$(median_of 5 "$before")" 'BEGIN {exit !(a + 0 > 0 && a <= 3 * b)}'; then
            pass "$1: as fast as before"
        else
            fail "$1: slower after the pause"
            tail -n 20 /tmp/times
        fi
    else
        fail "$1: nothing is written"
    fi
    : >/tmp/enough
    wait $writer || { fail "$1: a write failed"; cat /tmp/writer.log; }
    check 60 "$1: every block is there" all_there
    rm -f $k/paused
    grep -hE 'E [0-9]|cancel|retry' /tmp/client.log | tail -n 5
}

for fs in tcp1 ib1; do
    choose_options $fs
    begin $fs || continue
    check 60 "$fs: mount" mount_fs "$fs_url" $k $options
    under_pause $fs
    check 60 "$fs: umount" unmount_fs $k
    stop_servers $fs
    rm -rf $store
done
after "pauses"

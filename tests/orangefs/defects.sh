#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# OrangeFS's own defects that patches/orangefs/fixes mend, over tcp: an OrangeFS without the fixes
# fails here. Those that need chance are in patches/orangefs/fixes/README.md.
set -u
# shellcheck source=tests/orangefs/lib.sh
. "${srcdir:-$(dirname "$0")/../..}/tests/orangefs/lib.sh"
here=${srcdir:-$(dirname "$0")/../..}/tests/orangefs
wrap=
what=programs
check "reread compiles" compile io "$here/io.c" "$(pvfs2-config --cflags)"
[ "$failed_cases" = 0 ] || finish
make_files 1000003 4194304 6000000

# A client reads a block after each restart of a server.
restart() { # signal, number
    kill -"$1" "${server[$2]}" && { wait "${server[$2]}" 2>/dev/null; start_server "$2"; server_ready "$2"; }
}
next_block() {
    local line
    echo next >&"${COPROC[1]}"
    read -r -t "$limit" line <&"${COPROC[0]}" || { echo "no block within $limit s"; return 1; }
    echo "$line"
    [[ $line = equal:* ]]
}
block_after() { restart "$1" "$2" && next_block; }

what="tcp, 4 servers"
if configure tcp 4 && bring_up; then
    check "$what: a file is copied in" run pvfs2-cp "$tmp/f1000003" "$mnt/f"
    coproc "$tmp/io" "$mnt/f" blocks "$tmp/f1000003" 2>"$tmp/reread.out"
    check "$what: a block is read" next_block
    for signal in TERM KILL; do
        for i in 0 1 2 3; do
            check "$what: the block after server $i ended by $signal" block_after $signal $i
        done
    done
    kill "$COPROC_PID"
fi
end

# Each of the servers sends two buffers, and may have read the second one first.
tiles() {
    local i
    for ((i = 0; i < 32; i++)); do echo tiles; done | run "$tmp/io" "$mnt/tiles" blocks "$tmp/f4194304" >"$tmp/tiles" &&
        ! grep WRONG "$tmp/tiles"
}
what="tcp, 4 servers, tiles"
if configure tcp 4 && bring_up; then
    check "$what: a file is copied in" run pvfs2-cp "$tmp/f4194304" "$mnt/tiles"
    check "$what: all reads end" tiles
fi
end

# A server's files are in a file system that a copy fills.
full() {
    run pvfs2-cp -b "$1" "$tmp/big" "$mnt/big$1" && { echo "no error"; return 1; }
    says "No space left on device" "$tmp/log"
}
what="tcp, full disk"
disk=$tmp/disk
mkdir "$disk"
if ! mount -t tmpfs -o size=24m none "$disk" 2>"$tmp/log"; then
    skip "$what" "mount is refused: $(tail -n 1 "$tmp/log")"
    finish
fi
trap 'umount -l "$disk"; cleanup' EXIT
if configure tcp 1 && sed -i "s|\(DataStorageSpace\).*|\1 $disk/data|" "$tmp/fs.conf" &&
    has_line "DataStorageSpace $disk/data" && bring_up; then
    check "$what: a small file has room" there_and_back "$tmp/f6000000" 1048576
    for size in 1048576 65536 4096; do
        check "$what: writes of $size bytes end with the error" full $size
    done
    check "$what: what was there is unharmed" run pvfs2-cp "$mnt/$copy" "$tmp/back2"
    check "$what: its contents" cmp "$tmp/back2" "$tmp/f6000000"
fi
end
finish

#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# A mount by pvfs2fuse, in the foreground, where every network works, and as a daemon, without -f:
# it forks after connecting, which tcp survives and RDMA does not. Users of the mount then get an
# error at once, and the log gives the reason.
set -u
# shellcheck source=tests/orangefs/lib.sh
. "${srcdir:-$(dirname "$0")/../..}/tests/orangefs/lib.sh"
command -v pvfs2fuse >/dev/null || skip_all "$prefix has no pvfs2fuse; it is made by configure --enable-fuse"
command -v fusermount >/dev/null || skip_all "there is no fusermount (apt-get install fuse)"
(: <>/dev/fuse) 2>/dev/null || skip_all "/dev/fuse cannot be opened"

folder=$tmp/fuse
mkdir "$folder"
trap 'fusermount -uz "$folder" 2>/dev/null; cleanup' EXIT
make_files 1 1000003
export PVFS2_DEBUGFILE=$tmp/fuse.log # a daemon has no stderr

mounted() { grep -q " $folder fuse" /proc/mounts; }
until_mounted() { # or not: a command
    local i
    for i in $(seq 100); do
        "$@" && return 0
        sleep 0.1
    done
    return 1
}
unmounted() { ! mounted && ! pgrep -f "pvfs2fuse.* $folder" >/dev/null; }
unmount() { fusermount -u "$folder" && until_mounted unmounted; }
in_front() {
    # shellcheck disable=SC2086
    $wrap pvfs2fuse -f -o "fs_spec=$url" "$folder" >"$tmp/fuse.out" 2>&1 &
    until_mounted mounted || { cat "$tmp/fuse.out"; return 1; }
}
used() {
    timeout 20 cp "$tmp/f1000003" "$folder/$1" && timeout 20 cmp "$tmp/f1000003" "$folder/$1" &&
        timeout 20 mkdir "$folder/$1.d" && timeout 20 mv "$folder/$1" "$folder/$1.d/moved" &&
        [ "$(timeout 20 stat -c %s "$folder/$1.d/moved")" = 1000003 ] && timeout 20 rm -r "$folder/$1.d" && [ ! -e "$folder/$1" ]
}
refused() { # command: not timeout's own status, nor a success
    local rc
    timeout 5 "$@"
    rc=$?
    echo "status $rc"
    [ $rc = 1 ] || [ $rc = 2 ]
}
explained() { says 'a fork of the one that initialized BMI.*in the foreground, -f' "$PVFS2_DEBUGFILE"; }

protos="tcp ib"
has_elan4 && protos+=" elan4"
for proto in ${PROTOS:-$protos}; do
    what=$proto
    if configure "$proto" 1 && bring_up; then
        url=$(awk '{print $1}' "$tmp/tab")
        check "$what: pvfs2fuse -f mounts" in_front
        check "$what: files there" used front
        check "$what: umount" unmount
        check "$what: pvfs2fuse mounts" run pvfs2fuse -o "fs_spec=$url" "$folder"
        if [ "$proto" = tcp ]; then
            check "$what: files there, of the daemon" used behind
        else
            check "$what: the daemon refuses a listing" refused ls "$folder"
            check "$what: and a copy" refused cp "$tmp/f1" "$folder/behind"
            check "$what: the log says why, and what helps" explained
        fi
        check "$what: umount of the daemon" unmount
        check "$what: the server goes on" there_and_back "$tmp/f1000003" 65536
    fi
    end
done
finish

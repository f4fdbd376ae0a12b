#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Writes of several sizes, 1, 5 and 16 at once, to 1 and to 4 servers: their contents are right, and the programs say nothing
# in their logs over ib that they do not say over tcp.  A host whose messages overtake each other notices: it cancels its
# transfer, does it again, and all is well in the end but for a line in a log.
#
# WRITES, 2000 by default, is how many there are over ib:// in all.  EMUVERBS_SEND_LATE_US, 100 by default, has the software HCA
# report a message to its sender that much later than to its receiver: so that answers can overtake.
set -u
# shellcheck source=tests/orangefs/lib.sh
. "${srcdir:-$(dirname "$0")/../..}/tests/orangefs/lib.sh"
writes=${WRITES:-2000}
export EMUVERBS_SEND_LATE_US=${EMUVERBS_SEND_LATE_US-100}
sizes="65536 262144 1000003 2097152"
at_once="1 5 16"
each=$(((writes + 23) / 24)) # sizes, at once, numbers of servers
what=programs
check "writes compiles" compile writes "${srcdir:-$(dirname "$0")/../..}/tests/orangefs/writes.c" "$(pvfs2-config --cflags)"
[ $failed = 0 ] || { finish; exit; }
make_files 1000003

write_all() {
    local s a
    for a in $at_once; do
        for s in $sizes; do
            run pvfs2-touch "$mnt/w$a-$s"
            check "$what: $each writes of $s bytes, $a at once" run "$tmp/writes" "$mnt/w$a-$s" "$s" "$each" "$a"
        done
    done
    for s in 262144 524288 1000003 4194304; do
        check "$what: 64 MiB in buffers of $s" there_and_back "$tmp/big" "$s"
    done
}

for n in ${SERVERS:-1 4}; do
    for proto in tcp ib; do
        what="$proto, $n servers"
        [ $proto = ib ] || saved=$wrap wrap=
        if configure $proto "$n" && bring_up; then
            write_all
            no_new_complaints $proto
        fi
        end
        [ $proto = ib ] || wrap=$saved
    done
done
finish

#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Writes of several sizes, 1, 5 and 16 at once, to 1 and to 4 servers: their contents are right, and the programs say nothing
# in their logs over ib that they do not say over tcp.  A host whose messages overtake each other notices: it cancels its
# transfer, does it again, and all is well in the end but for a line in a log.
#
# WRITES, 240 by default and 2000 if TIMED is set, is how many there are over ib:// in all.  If TIMED is set the software HCA reports
# a message to its sender 100 microseconds later than to its receiver, so that more answers overtake.
set -u
# shellcheck source=tests/orangefs/lib.sh
. "${srcdir:-$(dirname "$0")/../..}/tests/orangefs/lib.sh"
writes=${WRITES:-240}
if [ -n "${TIMED-}" ]; then
    writes=${WRITES:-2000}
    export EMUVERBS_SEND_LATE_US=${EMUVERBS_SEND_LATE_US-100}
fi
sizes="65536 262144 1000003 2097152"
at_once="1 5 16"
each=$(((writes + 23) / 24)) # sizes, at once, numbers of servers
what=programs
check "writes compiles" compile writes "${srcdir:-$(dirname "$0")/../..}/tests/orangefs/writes.c" "$(pvfs2-config --cflags)"
[ "$failed_cases" = 0 ] || finish
make_files 1000003

written() { # bytes, at once
    run pvfs2-touch "$mnt/w$2-$1" && run "$tmp/writes" "$mnt/w$2-$1" "$1" "$each" "$2"
}
write_all() {
    local s a
    for a in $at_once; do
        for s in $sizes; do
            check "$what: writes of $s bytes, $a at once" written "$s" "$a"
        done
    done
    for s in 524288 1000003; do # others are in pvfs2.sh
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

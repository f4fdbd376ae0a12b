#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Writes of several sizes, 1, 5 and 16 at once, to 1 and to 4 servers: contents are right, and over
# ib the programs log no complaints that tcp's lack. A host whose messages overtake each other
# cancels its transfer and repeats it, which shows only in a log.
#
# WRITES, 240 by default and 2000 with TIMED, is the number of writes over ib:// in all. With TIMED
# the software HCA completes a message 100 microseconds later at its sender than at its receiver, so
# that more answers overtake.
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
check "writes compiles" compile io "${srcdir:-$(dirname "$0")/../..}/tests/orangefs/io.c" "$(pvfs2-config --cflags)"
[ "$failed_cases" = 0 ] || finish
make_files 1000003

written() { # bytes, at once
    run pvfs2-touch "$mnt/w$2-$1" && run "$tmp/io" "$mnt/w$2-$1" writes "$1" "$each" "$2"
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

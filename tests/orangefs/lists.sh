#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Pieces of memory to and from pieces of a file (lists.c), over each network, with 1 and with 4 servers: their contents
# are right, what lies between them is as it was, and over ib and elan4 the logs have no complaint that they have not over tcp.
#
# CASES    some, or all: that of the long suite
# SERVERS  numbers of servers
# PROTOS   tcp ib elan4
set -u
# shellcheck source=tests/orangefs/lib.sh
. "${srcdir:-$(dirname "$0")/../..}/tests/orangefs/lib.sh"
CASES=${CASES:-some}
[ "$CASES" = some ] || limit=$((limit * 5))
what=programs
check "lists compiles" compile lists "${srcdir:-$(dirname "$0")/../..}/tests/orangefs/lists.c" "$(pvfs2-config --cflags)"
[ "$failed_cases" = 0 ] || finish

lists() {
    local line
    run pvfs2-touch "$mnt/lists" >"$tmp/log" 2>&1 || { fails "$what: a file"; return 1; }
    run "$tmp/lists" "$mnt/lists" "$CASES" "$n" >"$tmp/lists.out" 2>"$tmp/log"
    echo $? >"$tmp/status"
    while read -r line; do
        case $line in
        'ok - '*) passes "$what: ${line#ok - }" ;;
        'not ok - '*) end_case; begin "$what: ${line#not ok - }"; case_fails=1 ;;
        '#'*) echo "$line" ;;
        esac
    done <"$tmp/lists.out"
    end_case
    check "$what: to its end" is_over
}
is_over() {
    cat "$tmp/log"
    [ "$(cat "$tmp/status")" = 0 ]
}

protos="tcp ib"
has_elan4 && protos+=" elan4"
for proto in ${PROTOS:-$protos}; do # tcp first: the others complain about nothing else
    for n in ${SERVERS:-1 4}; do
        what="$proto, $n servers"
        if configure "$proto" "$n" && bring_up; then
            lists
            no_new_complaints "$proto"
        fi
        end
    done
done
finish

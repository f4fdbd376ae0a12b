#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# OrangeFS's own BMI test programs over our bmi_ib: pingpong both ways with checksums, test-bmi-*.
#
# ORANGEFS_TREE names the configured and built source tree of ORANGEFS_PREFIX: the programs are
# compiled here, because test/configure of the known releases fails with autoconf 2.70 and later.
# SCHEME, ib by default, may be tcp for comparison; PROGRAMS, a bash pattern, selects programs.
set -u
# shellcheck source=tests/orangefs/lib.sh
. "${srcdir:-$(dirname "$0")/../..}/tests/orangefs/lib.sh"
if [ ! -f "$tree/test/io/bmi/pingpong.c" ]; then
    skip_all "ORANGEFS_TREE is not set to a source tree of OrangeFS; its BMI test programs are there"
fi
scheme=${SCHEME:-ib}
what=$scheme
[ "$scheme" = ib ] || wrap=

build() { # program
    local c=$tmp/$1.c
    sed "s/bmi_tcp/bmi_$scheme/" "$tree/test/io/bmi/$1.c" >"$c"
    compile "$1" "$c" -std=gnu89
}
# Succeeds once a process of PROGRAM listens.
listens() { # program
    local pid
    for pid in $(pgrep -f -- "^$1( |\$)"); do
        case $scheme in
        ib) $wrap --show "$pid" 2>/dev/null | grep -q '"rdma_listen": [1-9]' && return 0 ;;
        *) ss -ltnpH | grep -q "pid=$pid," && return 0 ;;
        esac
    done
    return 1
}
# Both ends must succeed.
pair() { # server command -- client command
    local first=() p rc
    while [ "$1" != -- ]; do first+=("$1"); shift; done
    shift
    limit=100 run "${first[@]}" >"$tmp/first.out" 2>&1 & p=$!
    until listens "${first[0]}" || ! kill -0 $p; do sleep 0.1; done
    limit=100 run "$@"
    rc=$?
    wait $p
    set -- $? # of the first
    [ $rc = 0 ] && [ "$1" = 0 ] && return 0
    echo "status $rc, of the first $1"
    tail -n 5 "$tmp/first.out"
    return 1
}
checked() { # words that the output must not have, then like pair
    local bad=$1
    shift
    pair "$@" >"$tmp/out" 2>&1 || { tail -n 5 "$tmp/out"; return 1; }
    ! grep -iE "$bad" "$tmp/out" "$tmp/first.out"
}
next() { base=$((base + 1)); uri=$scheme://localhost:$base; } # a new address for each
wanted() { # shellcheck disable=SC2053
    [[ $1 == ${PROGRAMS:-*} ]]
}

: >"$tmp/pvfs2-test-config.h"
wanted pingpong && check "$what: pingpong compiles" build pingpong
for mode in "" -u; do
    wanted pingpong || break
    next
    check "$what: pingpong -r $mode" checked "error|fail|mismatch" "$tmp/pingpong" -h "$uri" -s -r $mode -- \
        "$tmp/pingpong" -h "$uri" -c -r $mode
    [ -z "${SHOW-}" ] || cat "$tmp/out"
done
for kind in "" -list -eagerbug; do
    wanted "test-bmi$kind" || continue
    check "$what: test-bmi-server$kind compiles" build test-bmi-server$kind
    check "$what: test-bmi-client$kind compiles" build test-bmi-client$kind
    for size in 32000 100000 1000000; do # 15000 bytes are sent for any size
        [ "$kind" != -list ] || size=
        next
        check "$what: test-bmi$kind${size:+ with $size bytes}" checked "fail|error" "$tmp/test-bmi-server$kind" -h "$uri" -- \
            "$tmp/test-bmi-client$kind" -h "$uri" ${size:+-s $size}
        [ -n "$size" ] || break
    done
done
finish

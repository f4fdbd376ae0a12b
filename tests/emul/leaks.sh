#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# valgrind's leak check of programs on the software HCA, which hold one another's segments: no
# error, nothing lost, and little of the segments (1 GiB each) in memory afterwards. Exit 77
# without valgrind.
: "${EMUVERBS:=emul/verbs/emuverbs}"
if grep -q -- '-fsanitize=address' Makefile 2>/dev/null; then
    echo "skipped: valgrind does not run what is built with sanitizers"
    exit 77
fi
command -v valgrind >/dev/null 2>&1 || { echo "skipped: valgrind is not installed (Debian: valgrind)"; exit 77; }
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
mkfifo "$tmp/go" "$tmp/ready" || exit 99
"$EMUVERBS" ./libtool --mode=execute valgrind -q --leak-check=full --error-exitcode=99 \
    tests/emul/held <"$tmp/go" >"$tmp/ready" 2>"$tmp/log" &
program=$!
exec 5>"$tmp/go" 3<"$tmp/ready"
segments=
for _ in 1 2; do
    read -r word pid <&3
    if [ "$word" != ready ]; then
        echo "FAIL: a process has not become ready"
        cat "$tmp/log"
        exit 1
    fi
    for fd in /proc/"$pid"/fd/*; do
        case $(readlink "$fd") in /memfd:emuverbs-*) segments="$segments $fd" ;; esac
    done
done
# shellcheck disable=SC2086 # two names
set -- $segments
[ $# -eq 2 ] || { echo "FAIL: segments of two processes: $*"; exit 1; }
exec 6<"$1" 7<"$2" 5>&-
wait $program || { echo "FAIL: valgrind found errors"; cat "$tmp/log"; exit 1; }
for fd in 6 7; do
    kib=$(($(stat -L -c %b /dev/fd/$fd) / 2))
    echo "segment: $kib KiB in memory after the leak check"
    [ $kib -lt 16384 ] || exit 1
done

# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash
# What the tests of programs expect of commands.
failures=0

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

expect() { # STATUS COMMAND...: what it says is in $out
    local want=$1 got=0
    shift
    out=$(timeout 120 "$@" 2>&1 < /dev/null) || got=$?
    [ "$got" = "$want" ] || fail "status $got instead of $want, '$(tail -n 1 <<< "$out")', of $*: $out"
}

# The command fails with this status and one line that has this text.
complains() { # STATUS TEXT COMMAND...
    local status=$1 text=$2
    shift 2
    expect "$status" "$@"
    [ "$(wc -l <<< "$out")" = 1 ] || fail "$*: should say one line: $out"
    [[ $out == *"$text"* ]] || fail "$*: should say '$text': $out"
}

# Ends the test.
finish() {
    echo "$failures failures"
    [ "$failures" = 0 ]
    exit
}

# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash
# Expectations of commands in tests of programs. Results are cases in TAP: begin, fail and finish
# are those of tests/lib/tap.sh.
# shellcheck source=tests/lib/tap.sh
. "${BASH_SOURCE[0]%/*}/../lib/tap.sh"

expect() { # STATUS COMMAND...: its output is in $out
    local want=$1 got=0
    shift
    out=$(timeout 600 "$@" 2>&1 < /dev/null) || got=$?
    [ "$got" = "$want" ] || fail "status $got instead of $want, '$(tail -n 1 <<< "$out")', of $*: $out"
}

# The command must fail with this status and one line that has this text.
complains() { # STATUS TEXT COMMAND...
    local status=$1 text=$2
    shift 2
    expect "$status" "$@"
    [ "$(wc -l <<< "$out")" = 1 ] || fail "$*: should say one line: $out"
    [[ $out == *"$text"* ]] || fail "$*: should say '$text': $out"
}

# Waits for a state, without a limit.
until_so() { # COMMAND...
    local i
    for ((i = 0; i < 6000; i++)); do
        "$@" && return
        sleep 0.1
    done
    fail "not after 10 minutes: $*"
    return 1
}

#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# A device of one of 2 servers is removed and comes back, 20 times, while 8 clients copy files in
# and out: all copies have right contents, no client hangs or crashes, the servers live, and no
# process is left. Also with two devices, of which the other one carries on. Each step waits for a
# line of the server's log or for copies, not for a time.
set -u
# shellcheck source=tests/orangefs/lib.sh
. "${srcdir:-$(dirname "$0")/../..}/tests/orangefs/lib.sh"
# shellcheck source=tests/orangefs/clients.sh
. "${srcdir:-$(dirname "$0")/../..}/tests/orangefs/clients.sh"
needs_emuverbs "a device that is removed is the software HCA's"
needs_options
ROUNDS=${ROUNDS:-20}
RANDOM=${SEED:=$((BASHPID % 32768))}
echo "# SEED=$SEED"
make_files
# a client learns of the loss by requests that time out
export EMUVERBS_RETRY_MAX_MS=500

lines_of() { # words: the number of such lines in the servers' logs
    cat "$tmp"/server.log* "$tmp"/server-*.out 2>/dev/null | grep -c -- "$1"
}
copied() { cat "$tmp"/copies-* 2>/dev/null | grep -c '^out'; }
until_more() { # number, command that prints a number: until it exceeds that
    local number=$1 begun=$SECONDS
    shift
    until [ "$("$@")" -gt "$number" ]; do
        [ $((SECONDS - begun)) -le "$limit" ] || { echo "no more than $number after $limit s: $*"; return 1; }
        sleep 0.05
    done
}
reset_once() { # server, device
    local gone back copies
    gone=$(lines_of "waiting for the device") back=$(lines_of "in use again")
    "$wrap" --device "${server[$1]}" "$2" removed && until_more "$gone" lines_of "waiting for the device" || return
    copies=$(copied)
    [ -z "$others" ] || until_more $((copies + 3)) copied || return # the other device carries on
    "$wrap" --device "${server[$1]}" "$2" added && until_more "$back" lines_of "in use again" || return
    copies=$(copied)
    until_more $((copies + 7)) copied
}
resetting() { # devices
    local i devices=("$@")
    for ((i = 0; i < ROUNDS; i++)); do
        reset_once $((RANDOM % 2)) "${devices[RANDOM % ${#devices[@]}]}" || return
    done
}
nothing_left() { ! pgrep -f "$tmp/"; }

# Gives each server an address on each device.
two_addresses() {
    sed -i -E 's#ib://localhost:([0-9]+)#ib://127.0.0.1:\1,ib://127.0.0.2:\1#' "$tmp/fs.conf"
    has_line ",ib://127.0.0.2:$base"
}

one_network() { # options of a fabric, devices
    local opts=$1 from=ib://$host
    shift
    if configure ib 2 && default_line "BMIOpts $opts"; then
        [ -z "$others" ] || { two_addresses && from=ib://127.0.0.1:$base/orangefs,ib://127.0.0.2; }
        tab "$from:$base" "bmi_opts=\"$opts\""
        bring_up || return
        clients_start
        check "$what: devices come back" resetting "$@"
        clients_end "$ROUNDS devices removed and added"
    fi
    end
    check "$what: no process is left" nothing_left
}

others=
what="one device"
[ -n "${ONLY_TWO-}" ] || one_network keepalive_ms=500 emu0
others=yes
what="two devices"
export EMUVERBS_DEVICES=2 EMUVERBS_ETHERNET=1
# half of it for an address that does not answer
one_network device=emu0+emu1,keepalive_ms=500,connect_timeout_ms=4000 emu0 emu1
finish

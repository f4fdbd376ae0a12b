# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash disable=SC2034
# For the scripts of bench/, which source it after setting `build`: temporary folder, servers, the device.  Everything
# started here is ended, and the folder removed, when the script ends.
: "${build:?}"
# The script again, with 64 ports of its own, from FIRST_PORT on.
[ -n "${FIRST_PORT-}" ] || exec "$build/with-ports" "$0" "$@"
me=${0##*/}
work=   # see make_work
host= device= wrapper=() # see choose_device
pids=() # of servers

say() { printf '%s\n' "$me: $*"; }
die() { printf '%s\n' "$me: $*" >&2; exit 1; }

# shellcheck disable=SC2317
cleanup() {
    local pid
    for pid in "${pids[@]}"; do kill "$pid" 2> /dev/null; done
    for pid in "${pids[@]}"; do wait "$pid" 2> /dev/null; done
    [ -n "$work" ] && rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

# Makes $work, a folder with that many MiB of room: in memory if possible, so that the network is what is measured.
make_work() { # MIB
    local base
    for base in /dev/shm "${TMPDIR:-/tmp}" "$build"; do
        [ -w "$base" ] || continue
        [ "$(df -Pm "$base" | awk 'NR == 2 { print $4 }')" -gt "$1" ] || continue
        work=$(mktemp -d "$base/bmi.XXXXXX") && return
    done
    die "no folder has $1 MiB of room; set TMPDIR to one that has"
}

# An IPv4 address of a network device that belongs to an RDMA device; nothing if there is none.
hca_address() {
    local file dev
    for file in /sys/class/infiniband/*/ports/*/gid_attrs/ndevs/*; do
        dev=$(cat "$file" 2> /dev/null) || continue
        ip -o -4 addr show dev "$dev" up 2> /dev/null | awk '{ sub("/.*", "", $4); print $4; exit }'
    done | head -n 1
}

# Sets host, device (for people), and wrapper (what runs a verbs program).
choose_device() {
    host=$(hca_address)
    wrapper=()
    if [ -n "$host" ]; then
        device="the RDMA device of $host"
    else
        host=127.0.0.1
        device="the software HCA (no real one is here)"
        wrapper=("$build/emul/verbs/emuverbs")
    fi
}

# Starts a server, waits until it says that it listens.
start() { # LOG COMMAND...
    local log=$work/$1 i
    shift
    : > "$log"
    "$@" >> "$log" 2>&1 < /dev/null &
    pids+=($!)
    for ((i = 0; i < 200; i++)); do
        grep -q listening "$log" && return 0
        kill -0 "${pids[-1]}" 2> /dev/null || break
        sleep 0.05
    done
    cat "$log" >&2
    return 1
}

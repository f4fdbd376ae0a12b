# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash disable=SC2034
# For the scripts of bench/, which source this file after setting `build`: temporary folder, servers, the device, perftest.  At the end
# of the script, all processes started here are ended, and the folder is removed.
: "${build:?}"
# Figures have a decimal point in any locale, here and in child processes.
export LC_ALL=C
unset CDPATH # else cd may select another folder, and prints its name
# The script again, with 64 ports of its own, from FIRST_PORT on.
[ -n "${FIRST_PORT-}" ] || exec "$build/with-ports" "$0" "$@"
[ -z "${RNR_COUNTERS-}" ] || export EMUVERBS_COUNTERS_DIR=$RNR_COUNTERS # see tests/long/rnr
me=${0##*/}
work=   # see make_work
network=ib
host= device= wrapper=() # see choose_device, choose_elan4
serving=() # see server_wrapper
pids=() # of servers

say() { printf '%s\n' "$me: $*"; }
die() { printf '%s\n' "$me: $*" >&2; exit 1; }

# Refuses values other than positive whole numbers.
need_number() { # NAME VALUE
    [[ $2 =~ ^[1-9][0-9]*$ ]] || die "$1 must be a whole number of at least 1, not '$2'"
}

# Ends those of these processes that this shell has started and that still run, and waits for all of them.  The number of an ended
# process may belong to another process already.
end_running() { # PID...
    local pid running
    running=" $(jobs -pr | tr '\n' ' ')"
    for pid in "$@"; do [[ $running == *" $pid "* ]] && kill "$pid" 2> /dev/null; done
    for pid in "$@"; do wait "$pid" 2> /dev/null; done
}

# shellcheck disable=SC2317
cleanup() {
    end_running "${pids[@]}"
    [ -n "$work" ] && rm -rf "$work"
}
trap cleanup EXIT
trap 'exit 130' INT TERM HUP

# Prints the commit of the source, and whether files that are measured differ from it; nothing where the source is no repository.
measured_commit() {
    local tree
    tree=$(cd "${0%/*}/.." && pwd)
    [ -e "$tree/.git" ] || return 0
    echo "commit $(git -C "$tree" rev-parse --short HEAD)" \
        "$([ -z "$(git -C "$tree" status --porcelain common bmi_ib bmi_elan4 embedded emul bench)" ] || echo with changes)" | sed 's/ *$//'
}

# Makes $work, a folder with that many MiB of room: in memory if possible, so that no disk is measured.
make_work() { # MIB
    local base
    for base in /dev/shm "${TMPDIR:-/tmp}" "$build"; do
        [ -w "$base" ] || continue
        [ "$(df -Pm "$base" | awk 'NR == 2 { print $4 }')" -gt "$1" ] || continue
        work=$(mktemp -d "$base/bmi.XXXXXX") && return
    done
    die "no folder has $1 MiB of free space; set TMPDIR to a folder that has"
}

# Prints an IPv4 address of a network device that belongs to an RDMA device; nothing without such a device.
hca_address() {
    local file dev found
    for file in /sys/class/infiniband/*/ports/*/gid_attrs/ndevs/*; do
        { read -r dev < "$file"; } 2> /dev/null || continue
        found=$(ip -o -4 addr show dev "$dev" up 2> /dev/null | awk '{ sub("/.*", "", $4); print $4; exit }')
        [ -z "$found" ] || { echo "$found"; return; }
    done
}

# Sets host, device (its description), and wrapper (the command before a verbs program).
choose_device() {
    host=$(hca_address)
    wrapper=()
    if [ -n "$host" ]; then
        device="the RDMA device of $host"
    else
        host=127.0.0.1
        device="the software HCA (no RDMA device found)"
        wrapper=("$build/emul/verbs/emuverbs")
    fi
}

# Likewise for the software Elan4, in $work: servers on nodes 0 to 15, in their first contexts; clients, and wrapper, on node 16.
choose_elan4() {
    local n table=
    [ -x "$build/emul/elan4/emuelan4" ] || die "emuelan4 was not built"
    network=elan4 host=0
    device="the software Elan4"
    for n in {0..15}; do table+=,$n=127.0.0.1:$((FIRST_PORT + 32 + n)); done
    export EMUELAN4_DIR=$work/elan4 BMI_ELAN4_LOG=$work/elan4.log BMI_ELAN4_SERVER_ADDR=${table#,}
    wrapper=("$build/emul/elan4/emuelan4" --dir "$EMUELAN4_DIR" --node 16)
}

# The address of server N, and the command before its program.
address() { # N
    if [ "$network" = elan4 ]; then echo "elan4://$1:2"; else echo "ib://$host:$((FIRST_PORT + $1))"; fi
}
server_wrapper() { # N: sets serving
    serving=("${wrapper[@]}")
    [ "$network" = ib ] || serving[-1]=$1
}

# Starts a server and waits for its notification (NOTIFY_SOCKET, see its manual), whose text is in $ready.  Status 1, and its log on
# standard error, if the server ends instead.
ready=
start() { # LOG COMMAND...
    local log=$work/$1 fifo=$work/ready.$BASHPID
    shift
    [ -x "$build/with-ready" ] || die "$build/with-ready not found; run make"
    : > "$log"
    mkfifo "$fifo" || die "cannot make $fifo"
    "$build/with-ready" "$fifo" "$@" >> "$log" 2>&1 < /dev/null &
    pids+=($!)
    ready=$(< "$fifo")
    rm -f "$fifo"
    [ -z "$ready" ] || return 0
    cat "$log" >&2
    return 1
}
# The port of the server that was started last, also when port 0 was given.
ready_port() { echo "${ready##*, port }"; }

# Prints the first number of that name in $work/json.  Status 1 if missing.
field() {
    local value
    value=$(sed -n "s/.*\"$1\": \[\{0,1\}\([0-9.]*\).*/\1/p" "$work/json" | head -n 1)
    [ -n "$value" ] && echo "$value"
}
# Prints the output of a command, figures in one line.  Status 1 if the command fails or prints nothing.
figure() { # COMMAND...
    local value
    value=$("$@") && [ -n "$value" ] && echo "$value"
}

# Prints the series in the order of a round: forwards in the first, backwards in the second, and so on.
in_turn() { # ROUND SERIES...
    local round=$1
    shift
    printf '%s\n' "$@" | if ((round % 2)); then tac; else cat; fi
}
# Measures each series once in each round: FUNCTION SERIES ARGUMENTS... prints figures, which are added to $work/POINT.SERIES.  The
# script ends when one fails or prints nothing.
run_rounds() { # ROUNDS POINT FUNCTION "SERIES..." [ARGUMENTS...]
    local rounds=$1 point=$2 function=$3 series=$4 round one
    shift 4
    for ((round = 0; round < rounds; round++)); do
        # shellcheck disable=SC2086
        for one in $(in_turn "$round" $series); do
            figure "$function" "$one" "$@" >> "$work/$point.$one" || die "the measurement failed: $one, $point"
        done
    done
}
# Prints first quartile, median and third quartile of a file of figures, or of its ratios to another one's, round by round.  Status 1 if
# a round has no figure.
quartiles() { # FILE [BASELINE]
    paste "$@" | awk -v n=$# 'NF != n || (n == 2 && $2 <= 0) { print "no figure"; next } { print n == 2 ? $1 / $2 : $1 }' | sort -n | awk '
        function at(p,    i) { i = 1 + p * (NR - 1); return v[int(i)] + (i - int(i)) * (v[int(i + 0.999999)] - v[int(i)]) }
        { v[NR] = $1; bad += !/^[0-9]/ }
        END { if (!NR || bad) exit 1; print at(0.25), at(0.5), at(0.75) }'
}
median() { quartiles "$@" | { read -r _ value _ && echo "$value"; }; } # FILE [BASELINE]
spread() { quartiles "$@" | { read -r low value high && printf '%.2f (%.2f to %.2f)\n' "$value" "$low" "$high"; }; } # FILE [BASELINE]
# Compares a median, or one of ratios, with a limit.
below() { awk -v got="$(median "${@:2}")" -v limit="$1" 'BEGIN { exit !(got < limit) }'; } # LIMIT FILE [BASELINE]

# One run of a perftest program between two local processes, on port FIRST_PORT + PORT: prints MB/s (10^6 bytes; perftest reports units
# of 2^20 bytes) for programs of bandwidth, microseconds one way (typical time) for programs of latency.
perftest() { # PROGRAM SIZE COUNT [PORT]
    local server i port=$((FIRST_PORT + ${4:-1})) rc=1
    # shellcheck disable=SC2086
    "${wrapper[@]}" "$1" ${PERFTEST_OPTIONS-} -s "$2" -n "$3" -p "$port" -F > "$work/perftest.server" 2>&1 < /dev/null &
    server=$!
    pids+=("$server")
    for ((i = 0; i < 100; i++)); do
        # shellcheck disable=SC2086
        "${wrapper[@]}" "$1" ${PERFTEST_OPTIONS-} -s "$2" -n "$3" -p "$port" -F "$host" > "$work/perftest" 2>&1 < /dev/null && { rc=0; break; }
        grep -qi "couldn't connect" "$work/perftest" || break
        sleep 0.05
    done
    [ "$rc" = 0 ] || kill "$server" 2> /dev/null
    wait "$server"
    unset 'pids[-1]'
    [ "$rc" = 0 ] || { cat "$work/perftest" "$work/perftest.server" >&2; return 1; }
    awk -v s="$2" -v p="$1" '$1 == s && p ~ /_bw$/ && NF >= 4 { printf "%.1f\n", $4 * 1.048576; found = 1 }
        $1 == s && p ~ /_lat$/ && NF >= 5 { print $5; found = 1 }
        END { exit !found }' "$work/perftest"
}

# Uses that many MiB of the folder's memory and frees them.  In a virtual machine the host provides unused memory on first use, which
# takes several times as long as a copy.
touch_memory() { # MIB
    head -c $(($1 << 20)) /dev/zero > "$work/touched"
    rm -f "$work/touched"
}

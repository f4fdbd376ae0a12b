# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash disable=SC2034,SC2154
# For the tests of bmi-iod, bmi-cp and bmi-ls, which source it in the build folder: servers that can
# be killed, copies that must be equal and can be stopped at a place, error messages that must be
# one line. Results are cases in TAP: begin and fail are those of tests/lib/tap.sh.
set -u
build=$PWD
# shellcheck source=bench/lib.sh
. "${srcdir:-.}/bench/lib.sh"
# shellcheck source=tests/lib/tap.sh
. "${srcdir:-.}/tests/lib/tap.sh"
checks=0
patience=600 # seconds until a hang is assumed
addr=()  # of each server: ib://host:port, elan4://node:context
iod=()   # its process

# Sets the network: $NETWORK, else ib.
choose_network() {
    if [ "${NETWORK:-ib}" = elan4 ]; then choose_elan4; else choose_device; fi
}

pass() { checks=$((checks + 1)); }

# Ends the test.
verdict() {
    [ "$checks" -gt 0 ] || fail "nothing was checked"
    finish
}

# Starts server N (0, 1, …) with its folder $work/sN; at the same address if started before.
server() { # N [OPTION]...
    local n=$1
    shift
    mkdir -p "$work/s$n"
    addr[n]=$(address "$n")
    server_wrapper "$n"
    start "s$n.log" "${serving[@]}" ./bmi-iod --listen "${addr[n]}" --store "$work/s$n" "$@" || { fail "server $n does not start"; verdict; }
    iod[n]=${pids[-1]}
}

# Ends server N by a signal and waits for it; its exit status is in $ended.
end_server() { # N SIGNAL
    kill "-$2" "${iod[$1]}"
    wait "${iod[$1]}" 2> /dev/null
    ended=$?
}

all_servers() { # COUNT: the first so many, with commas
    local IFS=,
    echo "${addr[*]:0:$1}"
}

# A command that works gets all the time that it needs: a server may be slow.
cp_() { timeout -k 5 $patience "${wrapper[@]}" ./bmi-cp --timeout 60 "$@" < /dev/null; }
ls_() { timeout -k 5 $patience "${wrapper[@]}" ./bmi-ls --timeout 60 "$@" < /dev/null; }
rm_() { timeout -k 5 $patience "${wrapper[@]}" ./bmi-rm --timeout 60 "$@" < /dev/null; }

# ---- programs that stop at a certain call (tests/tools/diskstop.c) ----

stopper=$PWD/tests/tools/.libs/diskstop.so
[ -e "$stopper" ] || die "no $stopper; make tests/tools/diskstop.la"
gate= # file that exists while a program is stopped
trap 'release; kill -CONT $(jobs -pr) 2> /dev/null; cleanup' EXIT

# Sets the array `stopping`: the wrapper of a program that stops at a call, like pwrite:3:before.
stopping=()
stop_at() { # PLACE
    gate=$work/gate
    release
    stopping=(env LD_PRELOAD="$stopper" ASAN_OPTIONS="${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0" DISKSTOP="$1:$gate")
}

# Starts server N, which stops there.
stopping_server() { # N PLACE [OPTION]...
    local n=$1
    stop_at "$2"
    shift 2
    preloaded "${stopping[3]}" server "$n" "$@"
}

# Runs a function or a program with diskstop.so and this variable.
preloaded() { # VARIABLE=VALUE COMMAND...
    local -x LD_PRELOAD=$stopper ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}verify_asan_link_order=0 "$1"
    "${@:2}"
}

# Starts bmi-cp, with messages of 4 KiB, one at a time, and waits until it is stopped in the middle:
# at its 25th piece of the file read, or written. Its process is $copy, its output is in out.txt and
# err.txt.
begin_copy() { # preadv|pwritev ARGUMENT...
    stop_at "$1:25:before"
    shift
    : > "$work/out.txt"
    : > "$work/err.txt"
    "${stopping[@]}" "${wrapper[@]}" ./bmi-cp --timeout 60 --buffers 1 --buffer-size 4096 "$@" \
        > "$work/out.txt" 2> "$work/err.txt" < /dev/null &
    copy=$!
    pids+=("$copy")
    stands "$copy" || fail "the copy ended too early: $(cat "$work/err.txt")"
}

# Waits until one of these processes is stopped at its gate. Status 1: one has ended instead.
stands() { # PID...
    until [ -e "$gate" ]; do
        kill -0 "$@" 2> /dev/null || return 1
        sleep 0.02
    done
}

# Lets the stopped program continue.
release() { [ -z "$gate" ] || rm -f "$gate"; }

# The copy must end with status 1 and one line with TEXT.
end_copy() { # TEXT WHAT
    local status
    release
    wait "$copy"
    status=$?
    mv "$work/out.txt" "$work/out_"
    mv "$work/err.txt" "$work/err"
    check_complaint "$status" "$1" "$2" "$work/out_"
}

random_file() { # FILE BYTES
    head -c "$2" /dev/urandom > "$1"
}

# Copies FILE in and out again, and compares.
there_and_back() { # FILE NAME [OPTION]...
    local file=$1 name=$2
    shift 2
    rm -f "$work/back"
    if ! cp_ -q "$@" "$file" "${addr[0]}/$name"; then
        fail "copy in of $name, $*"
    elif ! cp_ -q "$@" "${addr[0]}/$name" "$work/back"; then
        fail "copy out of $name, $*"
    elif [ "$(sha256sum < "$file")" != "$(sha256sum < "$work/back")" ]; then
        fail "$name differs, $*"
    else
        pass
    fi
}

# The command must end with status 1 and one line with TEXT on standard error, and print nothing
# else.
complains() { # TEXT COMMAND...
    local text=$1
    shift
    timeout -k 5 $patience "$@" > "$work/out_" 2> "$work/err" < /dev/null
    check_complaint "$?" "$text" "$*" "$work/out_"
}

# For a command that has ended; its standard error is in $work/err.
check_complaint() { # STATUS TEXT COMMAND OUTPUT
    local line
    line=$(cat "$work/err")
    echo "# $line"
    if [ "$1" != 1 ]; then
        fail "status $1 instead of 1: $3"
    elif [ "$(wc -l < "$work/err")" != 1 ] || [[ $line != *"$2"* ]]; then
        fail "should say '$2' in one line: $3"
    elif [ -s "$4" ]; then
        fail "printed more than its complaint: $3: $(cat "$4")"
    else
        pass
    fi
}

cp_complains() { # TEXT ARGUMENT...
    local text=$1
    shift
    complains "$text" "${wrapper[@]}" ./bmi-cp --timeout 60 "$@"
}

# Waits for a state, without a limit.
eventually() { # COMMAND...
    local begin=$SECONDS
    until "$@"; do
        [ $((SECONDS - begin)) -lt $patience ] || { fail "not in $patience s: $*"; return 1; }
        sleep 0.05
    done
}

# Prints server N's report, on request.
report() { # N
    local before
    before=$(wc -l < "$work/s$1.log")
    kill -USR1 "${iod[$1]}"
    eventually reported "$1" "$before"
    tail -n +$((before + 1)) "$work/s$1.log"
}
reported() { tail -n +$(($2 + 1)) "$work/s$1.log" | grep 'total: requests' > /dev/null; } # N LINES: in the lines behind these

no_uploads() { # N: server N has no unfinished files
    [ -z "$(find "$work/s$1" -name '.upload-*')" ]
}

no_leftovers() { # FOLDER: no temporary file of bmi-cp
    [ -z "$(find "$1" -name '.bmi-cp.*')" ]
}

no_sanitizer() { # no sanitizer report
    grep -ai "sanitizer\|runtime error" "$work"/*.log && fail "sanitizers complain" || pass
}

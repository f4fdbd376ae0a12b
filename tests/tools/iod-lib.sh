# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash disable=SC2034,SC2154
# For the tests of bmi-iod, bmi-cp and bmi-ls, which source it in the build folder: servers that can be killed, copies
# that must be equal, complaints that must be one line.
set -u
build=$PWD
# shellcheck source=bench/lib.sh
. "${srcdir:-.}/bench/lib.sh"
failures=0
checks=0
addr=()  # of each server: ib://host:port, elan4://node:context
iod=()   # its process

# Sets the network: that of $NETWORK, else ib.
hosts= # where servers are
choose_network() {
    if [ "${NETWORK:-ib}" = elan4 ]; then choose_elan4; hosts=0,1,2,3; else choose_device; hosts=$host; fi
}

fail() {
    echo "FAILED: $*"
    failures=$((failures + 1))
}

pass() { checks=$((checks + 1)); }

# Ends the test.
verdict() {
    echo "$checks checks passed, $failures failed"
    [ "$failures" = 0 ] && [ "$checks" -gt 0 ]
    exit
}

# Starts server N (0, 1, …) with its folder $work/sN; again at the same address when it was started before.
server() { # N [OPTION]...
    local n=$1 try
    shift
    mkdir -p "$work/s$n"
    addr[n]=$(address "$n")
    server_wrapper "$n"
    for try in 1 2 3 4 5; do
        if start "s$n.log" "${serving[@]}" ./bmi-iod --listen "${addr[n]}" --store "$work/s$n" "$@"; then
            iod[n]=${pids[-1]}
            return
        fi
        sleep 0.5 # the old one's port may still be in use
    done
    fail "server $n does not start"
    verdict
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

cp_() { timeout -k 5 60 "${wrapper[@]}" ./bmi-cp --allow "$hosts" "$@" < /dev/null; }
ls_() { timeout -k 5 60 "${wrapper[@]}" ./bmi-ls "$@" < /dev/null; }

random_file() { # FILE BYTES
    head -c "$2" /dev/urandom > "$1"
}

# Copies FILE in and out again, checks that it is the same.
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

# The command must end with status 1 and one line on standard error that has TEXT, and print nothing else.  Runs up to
# LIMIT seconds; what it took is printed.
complains() { # LIMIT TEXT COMMAND...
    local limit=$1 text=$2 status begin
    shift 2
    begin=$(date +%s%N)
    timeout -k 5 "$limit" "$@" > "$work/out_" 2> "$work/err" < /dev/null
    status=$?
    check_complaint "$status" "$text" "$((($(date +%s%N) - begin) / 1000000))" "$*" "$work/out_"
}

# For a command that has ended; its standard error is in $work/err.
check_complaint() { # STATUS TEXT MILLISECONDS COMMAND OUTPUT
    local line
    line=$(cat "$work/err")
    printf '%5d ms: %s\n' "$3" "$line"
    if [ "$1" != 1 ]; then
        fail "status $1 instead of 1: $4"
    elif [ "$(wc -l < "$work/err")" != 1 ] || [[ $line != *"$2"* ]]; then
        fail "should say '$2' in one line: $4"
    elif [ -s "$5" ]; then
        fail "printed more than its complaint: $4: $(cat "$5")"
    else
        pass
    fi
}

cp_complains() { # TEXT ARGUMENT...: within 60 s
    local text=$1
    shift
    complains 60 "$text" "${wrapper[@]}" ./bmi-cp "$@"
}

# Waits until a command succeeds, for up to 60 s.
eventually() { # COMMAND...
    local i
    for ((i = 0; i < 600; i++)); do
        "$@" && return
        sleep 0.1
    done
    fail "not in time: $*"
    return 1
}

no_uploads() { # N: server N keeps nothing unfinished
    [ -z "$(find "$work/s$1" -name '.upload-*')" ]
}

no_leftovers() { # FOLDER: no temporary file of bmi-cp
    [ -z "$(find "$1" -name '.bmi-cp.*')" ]
}

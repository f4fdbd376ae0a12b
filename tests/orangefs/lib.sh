# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash disable=SC2034
# For the scripts of this folder that run real OrangeFS programs. Sourcing it skips the test if
# there is no OrangeFS.
#
#   ORANGEFS_PREFIX  an installed OrangeFS with our bmi_ib (patches/orangefs/README.md)
#   ORANGEFS_TREE    its source tree, configured and built; for programs that are compiled here
#   EMUVERBS         the wrapper of the software HCA; empty: the machine's own devices
#   SHOW             non-empty: print each check's output, also if it passed
#   TIMED            non-empty: check durations, too; for the long suite, on an idle machine
#
# Each check is a case in TAP. A check waits for states of processes and for lines of logs; the only
# limits in seconds detect hangs (LIMIT).
# shellcheck source=tests/lib/tap.sh
. "${srcdir:-$(dirname "$0")/../..}/tests/lib/tap.sh"
bail() { echo "Bail out! $*"; exit 99; }
prefix=${ORANGEFS_PREFIX-}
[ -n "$prefix" ] || skip_all "ORANGEFS_PREFIX is not set; set it to an installed OrangeFS that has bmi_ib"
for p in sbin/pvfs2-server bin/pvfs2-genconfig bin/pvfs2-ping bin/pvfs2-cp bin/pvfs2-ls; do
    [ -x "$prefix/$p" ] || bail "ORANGEFS_PREFIX=$prefix: there is no $prefix/$p"
done
prefix=$(cd "$prefix" && pwd)
# By hand, from any folder: built programs are here, or in the source folder's build/.
builddir=${builddir:-.}
[ -x "$builddir/with-ports" ] || builddir=$(dirname "$0")/../../build
[ -x "$builddir/with-ports" ] || bail "with-ports is not built: run make first, and this where that was"
[ -n "${FIRST_PORT-}" ] || exec "$builddir/with-ports" "$0" "$@"
tree=${ORANGEFS_TREE-}
wrap=${EMUVERBS-$(cd "$builddir" && pwd)/emul/verbs/emuverbs}
server_wrap=() # for elan4's servers, see choose_wrap
limit=${LIMIT:-180} # seconds until a hang is assumed
base=$FIRST_PORT
systems=0 # configured so far
export PATH="$prefix/bin:$prefix/sbin:$PATH"
export LD_LIBRARY_PATH="$prefix/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

tmp=$(mktemp -d) || bail "no temporary folder"
store=$(mktemp -d /dev/shm/bmi-test.XXXXXX) || bail "no temporary folder in /dev/shm"
host=${host:-localhost}
declare -A server # pid of each server
alias=()          # name of each server
what=             # description of the tested file system
declare -A said   # bytes logged by earlier servers of each number

cleanup() { # kills everything that still runs, including servers that did not come up
    # shellcheck disable=SC2046
    kill -9 $(jobs -pr) 2>/dev/null
    rm -rf "$tmp" "$store"
}
trap cleanup EXIT

show() { sed 's/^/#    /' "$tmp/log"; }
# Runs a case in this shell, because many commands set variables.
check() { # NAME COMMAND...
    begin "$1"
    shift
    local rc=0
    "$@" >"$tmp/log" 2>&1 || rc=$?
    [ $rc = 0 ] || { fail "status $rc: $*"; tail -n 15 "$tmp/log" | sed 's/^/#    /'; }
    [ -z "${SHOW-}" ] || show
    end_case
    [ $rc != 124 ] || { echo "# A program hung for $limit s: the rest is not tried."; finish; }
}
# A case with a known result; $tmp/log has the output.
passes() { # NAME
    begin "$*"
    [ -z "${SHOW-}" ] || show
    end_case
}
fails() { # NAME
    begin "$*"
    fail "see what was said last:"
    [ ! -s "$tmp/log" ] || tail -n 15 "$tmp/log" | sed 's/^/#    /'
    end_case
}
says() { # words, file: the file contains them
    grep -qE -- "$1" "$2" && return 0
    echo "not found in $(basename "$2"): $1"
    tail -n 5 "$2"
    return 1
}
run() { # a program of OrangeFS; its output is also appended to clients.log
    local err=$tmp/err.$BASHPID rc
    # shellcheck disable=SC2086
    timeout "$limit" $wrap "$@" 2>"$err"
    rc=$?
    cat "$err" >&2
    cat "$err" >>"$tmp/clients.log"
    rm -f "$err"
    return $rc
}
# Compiles a program of OrangeFS that its own build leaves out.
compile() { # program, source, options
    local out=$tmp/$1 source=$2
    shift 2
    # shellcheck disable=SC2046
    ${CC:-gcc} "$@" -g -O2 -w -D_GNU_SOURCE -D_LARGEFILE64_SOURCE -D_FILE_OFFSET_BITS=64 -D__GEN_POSIX_LOCKING__ \
        -I"$tmp" -I"$tree" -I"$tree/include" -I"$tree/test/io/bmi" -I"$tree/src/io/bmi" -I"$tree"/src/common/misc \
        -I"$tree/src/common/gossip" -I"$tree/src/common/quicklist" -I"$tree/src/common/quickhash" \
        -I"$tree/src/common/id-generator" -I"$tree/src/common/gen-locks" -I"$tree/src/io/trove" -I"$tree/src/io/flow" \
        -I"$tree/src/proto" -o "$out" "$source" $("$prefix/bin/pvfs2-config" --libs) -lpthread -ldl
}

has_elan4() { pvfs2-config --libs | grep -q bmi_elan4 && [ -x "$builddir/emul/elan4/emuelan4" ]; }

# Sets the wrappers of a network's clients and servers. Over elan4 server i is on node i + 2 of a
# software network, and clients are on node 1.
choose_wrap() { # proto
    local i
    if [ "$1" != elan4 ]; then
        [ ${#server_wrap[@]} = 0 ] || wrap=$verbs_wrap
        server_wrap=()
        return
    fi
    [ ${#server_wrap[@]} != 0 ] || verbs_wrap=$wrap
    wrap="$(cd "$builddir" && pwd)/emul/elan4/emuelan4 --dir $tmp/elan4 --node"
    for i in 0 1 2 3 4 5 6 7; do server_wrap[i]="$wrap $((i + 2))"; done
    wrap="$wrap 1"
    BMI_ELAN4_SERVER_ADDR=$(for i in 0 1 2 3 4 5 6 7; do echo "$((i + 2))=127.0.0.1:$((base + i))"; done | paste -sd,)
    export BMI_ELAN4_SERVER_ADDR BMI_ELAN4_LOG=$tmp/elan4.log
}

# With blockstop (tests/orangefs/blockstop.c) if built: stop_at sets where it stops.
start_server() { # number
    local stop=()
    [ ! -e "$tmp/blockstop.so" ] || stop=(env "LD_PRELOAD=$tmp/blockstop.so" "BLOCKSTOP=$tmp/stop-$1")
    said[$1]=$(stat -c %s "$tmp/server-$1.out" 2>/dev/null || echo 0)
    # shellcheck disable=SC2086
    "${stop[@]}" ${server_wrap[$1]:-$wrap} pvfs2-server -d -a "${alias[$1]}" "$tmp/fs.conf" >>"$tmp/server-$1.out" 2>&1 </dev/null &
    server[$1]=$!
}
# Waits until the server has logged since its start that it serves; fails if it has ended.
server_ready() { # number
    local begun=$SECONDS
    until tail -c "+$((${said[$1]} + 1))" "$tmp/server-$1.out" 2>/dev/null | grep -q "PVFS2 Server ready"; do
        kill -0 "${server[$1]}" 2>/dev/null || { echo "server $1 has ended:"; tail -n 5 "$tmp/server-$1.out"; return 1; }
        [ $((SECONDS - begun)) -le "$limit" ] || { echo "server $1 hangs before it is ready"; return 1; }
        sleep 0.1
    done
}
# Waits until all servers serve and the root folder exists. The server that makes the root folder
# logs that it is ready before it has asked the others, and reports the end to nobody: over tcp one
# of 40 starts had none yet. Any other failure of pvfs2-ping ends the wait.
wait_ready() {
    local i begun=$SECONDS
    for i in "${!server[@]}"; do server_ready "$i" || return; done
    until run pvfs2-ping -m "$mnt" >"$tmp/ping" 2>&1; do
        grep -qE "not all servers accepted fsid|check root handle failed" "$tmp/ping" && [ $((SECONDS - begun)) -le "$limit" ] ||
            { cat "$tmp/ping"; return 1; }
        sleep 0.1
    done
}
stop_server() { # number
    kill "${server[$1]}" 2>/dev/null
    wait "${server[$1]}" 2>/dev/null
}

needs_emuverbs() { # why
    [ -n "$wrap" ] || skip_all "EMUVERBS is empty; $1"
}
needs_options() {
    grep -q BMIOpts "$prefix/sbin/pvfs2-server" ||
        skip_all "this OrangeFS has no options for its networks (2.9.8 is the first that has)"
}

# Writes the configuration of n servers to $tmp/fs.conf, and a tab file.
configure() { # proto n
    local proto=$1 n=$2 spec
    base=$((FIRST_PORT + systems++ % 6 * 10))
    spec="$proto://$host:$base"
    [ "$n" -gt 1 ] && spec="$proto://$host:{$base-$((base + n - 1))}"
    choose_wrap "$proto"
    [ "$proto" != elan4 ] || spec=$(seq -f "elan4://%.0f:2" -s, 2 $((n + 1)))
    mnt=$tmp/mnt
    mkdir -p "$mnt"
    rm -rf "${store:?}"/*
    : >"$tmp/clients.log"
    forgotten=()
    pvfs2-genconfig --quiet --iospec="$spec" --metaspec="$spec" --storage="$store/data" --logfile="$tmp/server.log" \
        --client-job-timeout 100 --server-job-timeout 100 "$tmp/fs.conf" >"$tmp/log" 2>&1 ||
        { fails "$proto: pvfs2-genconfig"; return 1; }
    # Short retries: dead servers are part of the tests.
    sed -i -e 's/^[ \t]*ClientRetryDelayMilliSecs.*/\tClientRetryDelayMilliSecs 500/' "$tmp/fs.conf"
    # Small databases with LMDB (the version 2.9.7 is the first that supports this): the storage is
    # in memory.
    if printf '2.9.7\n%s\n' "$(pvfs2-server --version 2>&1 | tail -n 1)" | sort -VC; then
        default_line "DBMaxSize 67108864"
    fi
    mapfile -t alias < <(awk '$1 == "Alias" {print $2}' "$tmp/fs.conf")
    if [ "$proto" = elan4 ]; then tab elan4://2:2; else tab "$proto://$host:$base"; fi
}
tab() { # URI, options
    echo "$1/orangefs $mnt pvfs2 defaults,noauto${2:+,$2} 0 0" >"$tmp/tab"
    export PVFS2TAB_FILE=$tmp/tab
}
default_line() { # line: one more of the servers' defaults
    sed -i "s|^[ \t]*BMIModules.*|&\n\t$1|" "$tmp/fs.conf"
    has_line "$1"
}
file_system_lines() { # lines with \n: more of the file system's section
    sed -i "0,/^[ \t]*ID [0-9]*/s||&\n$1|" "$tmp/fs.conf"
    has_line "${1##*\n}"
}
has_line() { grep -qF -- "$(printf '%b' "$1")" "$tmp/fs.conf" || { fails "$what: \"$1\" did not get into the configuration"; return 1; }; }

# Makes and starts the configured file system.
bring_up() {
    local i n=${#alias[@]} failures=$failed_cases
    server=()
    for ((i = 0; i < n; i++)); do
        run pvfs2-server -f -a "${alias[$i]}" "$tmp/fs.conf" >"$tmp/log" 2>&1 || { fails "$what: mkfs of server $i"; return 1; }
    done
    # The first server makes the root folder, which needs all others.
    for ((i = n - 1; i >= 0; i--)); do
        start_server $i
        server_ready $i >"$tmp/log" 2>&1 || { fails "$what: server $i starts"; return 1; }
    done
    check "$what: ready" wait_ready
    forget_complaints # of clients that came too early
    [ "$failures" = "$failed_cases" ]
}

# Checks that the servers live and logged no crashes, and stops them.
end() {
    local i
    for i in "${!server[@]}"; do
        check "$what: server $i is alive at the end" kill -0 "${server[$i]}"
        stop_server "$i"
    done
    if grep -ihE 'assert|segmentation|signal 11|signal 6' "$tmp"/server.log* "$tmp"/server-*.out >"$tmp/log" 2>/dev/null; then
        fails "$what: no crash in the servers' logs"
    else
        passes "$what: no crash in the servers' logs"
    fi
    rm -f "$tmp"/server.log* "$tmp"/server-*.out
    server=()
}

# Prints complaints of clients and servers since the file system was ready: each line once, without
# times, numbers and names. Silence of a peer, which a busy machine causes, is left out.
complaints() {
    local f
    for f in "$tmp"/clients.log "$tmp"/server.log* "$tmp"/server-*.out; do
        [ ! -e "$f" ] || tail -c "+$((${forgotten[$f]:-0} + 1))" "$f"
    done | grep -E '\[E|cancel called|[Rr]etrying' |
        grep -vE ': (no answer for [0-9]+ ms, and operations wait|answers again after [0-9]+ ms)' |
        sed -E 's/^.*\[E [^]]*\] *//; s#(tcp|ib|elan4)://[^ ,]*[^ ,:]#ADDRESS#g; s/0x[0-9a-f]+/N/g; s/[0-9]+/N/g' | sort -u
}
declare -A forgotten # bytes of each log to ignore
forget_complaints() {
    local f
    for f in "$tmp"/clients.log "$tmp"/server.log* "$tmp"/server-*.out; do
        [ ! -e "$f" ] || forgotten[$f]=$(stat -c %s "$f")
    done
}
# Records tcp's complaints; any other network must have no others.
no_new_complaints() { # network, phase: without one, or "after deaths"
    local usual=$tmp/usual${2:+-deaths} lines=complaints
    [ -z "${2-}" ] || lines=complaints_of_deaths
    if [ "$1" = tcp ]; then
        $lines >>"$usual"
        return
    fi
    [ -e "$usual" ] || { echo "# $what: what it complains about is not compared, tcp was not tried before"; return; }
    check "$what: no complaint that tcp does not have${2:+, $2}" nothing_unusual "$lines" "$usual"
}
nothing_unusual() { # command that prints the complaints, what is usual
    $1 | grep -vxFf "$2" >"$tmp/unusual"
    [ ! -s "$tmp/unusual" ] && return 0
    cat "$tmp/unusual"
    echo "flows cancelled: $(grep -c 'flow proto cancel called' "$tmp/clients.log")"
    return 1
}
# Removes lines that depend on chance when a peer dies: the flow concerned, its first error, the
# callback that gets the error, and requests repeated to a dead metadata server. tcp logs each of
# them.
complaints_of_deaths() {
    complaints | sed -E 's/(mem_to_bmi|bmi_to_mem|bmi_recv|bmi_send|trove_read|trove_write)_callback_fn/FLOW/
        s/Broken pipe|Connection (reset by peer|refused|timed out)/DEAD/g
        s/^bmi_(ib|elanN): N similar lines suppressed; the last one: /bmi_\1: /' |
        grep -vE -e '^(FLOW: I/O error occurred|Receive immediately failed: DEAD .*)$' \
            -e '^handle_io_error: flow proto (N canceled N|(N )?error cleanup) ' \
            -e '^io_datafile_complete_operations: flow failed, retrying from msgpair$' \
            -e '^Warning: msgpair failed to ADDRESS, will retry: DEAD$' -e '^\*\*\* Out of retries\.$' \
            -e '^\*\*\* msgpairarray_completion_fn: msgpair to server ADDRESS failed: DEAD$' \
            -e '^getattr_object_getattr_failure : DEAD ' |
        sort -u
}

copies=0
copy=
there_and_back() { # file buffer-size
    rm -f "$tmp/back"
    copies=$((copies + 1)) # pvfs2-cp does not overwrite
    copy=copy$copies
    run pvfs2-cp -b "$2" "$1" "$mnt/$copy" && run pvfs2-cp -b "$2" "$mnt/$copy" "$tmp/back" &&
        [ "$(sha256sum <"$1")" = "$(sha256sum <"$tmp/back")" ]
}
two_at_once() {
    local a b
    copies=$((copies + 1))
    run pvfs2-cp -b 262144 "$tmp/big" "$mnt/one$copies" & a=$!
    run pvfs2-cp -b 1048576 "$tmp/big" "$mnt/two$copies" & b=$!
    wait $a && wait $b && run pvfs2-cp "$mnt/one$copies" "$tmp/back1" && run pvfs2-cp "$mnt/two$copies" "$tmp/back2" &&
        cmp "$tmp/big" "$tmp/back1" && cmp "$tmp/big" "$tmp/back2"
}
listed() { run pvfs2-ls -l "$mnt" | awk -v n="$1" '$NF == n'; } # name: its line of pvfs2-ls

hung_or_died() { # status: timeout's own, or SIGABRT, SIGKILL, SIGSEGV … (pvfs2-cp fails with 255)
    [ "$1" -ge 124 ] && [ "$1" -lt 160 ]
}

# Makes files of these sizes from one.
make_files() {
    local s
    head -c $((64 << 20)) /dev/urandom >"$tmp/big"
    for s in "$@"; do head -c "$s" "$tmp/big" >"$tmp/f$s"; done
}

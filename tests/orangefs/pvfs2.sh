#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# The real programs of OrangeFS over ib://: servers, copies, listings, deaths and restarts, with tcp:// beside them.
#
# ORANGEFS_PREFIX names an installed OrangeFS that has our bmi_ib (patches/orangefs/README.md).  Without it there is nothing
# to run and the test says so.  EMUVERBS names the wrapper of the software HCA; empty: the machine's own devices.
# One line for each check; the last line is "N passed, N failed".
set -u
prefix=${ORANGEFS_PREFIX-}
if [ -z "$prefix" ]; then
    echo "skipped: ORANGEFS_PREFIX is not set; set it to an installed OrangeFS that has bmi_ib"
    exit 77
fi
for p in sbin/pvfs2-server bin/pvfs2-genconfig bin/pvfs2-ping bin/pvfs2-cp bin/pvfs2-ls; do
    [ -x "$prefix/$p" ] || { echo "ORANGEFS_PREFIX=$prefix: there is no $prefix/$p" >&2; exit 99; }
done
wrap=${EMUVERBS-${builddir:-.}/emul/verbs/emuverbs}
[ -n "${FIRST_PORT-}" ] || exec "${builddir:-.}/with-ports" "$0" "$@"
base=$FIRST_PORT
export PATH="$prefix/bin:$prefix/sbin:$PATH"
export LD_LIBRARY_PATH="$prefix/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"

tmp=$(mktemp -d) || exit 99
store=$(mktemp -d /dev/shm/bmi-test.XXXXXX) || exit 99
declare -A server # pid of each server
passed=0
failed=0

cleanup() {
    for p in "${server[@]}"; do kill -9 "$p" 2>/dev/null; done
    rm -rf "$tmp" "$store"
}
trap cleanup EXIT

pass() { passed=$((passed + 1)); echo "ok   $*"; }
fail() { failed=$((failed + 1)); echo "FAIL $*"; [ -s "$tmp/log" ] && tail -5 "$tmp/log" | sed 's/^/       /'; }
check() { # name, command
    local name=$1
    shift
    if "$@" >"$tmp/log" 2>&1; then pass "$name"; else fail "$name (status $?)"; fi
}
run() { timeout "${LIMIT:-60}" $wrap "$@"; }

start_server() { # number
    $wrap pvfs2-server -d -a "${alias[$1]}" "$tmp/fs.conf" >>"$tmp/server-$1.out" 2>&1 &
    server[$1]=$!
}
wait_ready() { # until the file system answers
    local i
    for i in $(seq 60); do
        run pvfs2-ping -m "$mnt" >"$tmp/log" 2>&1 && return 0
        sleep 0.5
    done
    return 1
}
stop_server() { # number
    kill "${server[$1]}" 2>/dev/null
    wait "${server[$1]}" 2>/dev/null
}

# A file system of n servers over a protocol.
begin() { # proto n
    local proto=$1 n=$2 i spec
    base=$((base + 10))
    spec="$proto://localhost:$base"
    [ "$n" -gt 1 ] && spec="$proto://localhost:{$base-$((base + n - 1))}"
    mnt=$tmp/mnt
    mkdir -p "$mnt"
    rm -rf "${store:?}"/*
    pvfs2-genconfig --quiet --iospec="$spec" --metaspec="$spec" --storage="$store/data" --logfile="$tmp/server.log" \
        --client-job-timeout 20 "$tmp/fs.conf" >/dev/null 2>&1 || { fail "$proto: pvfs2-genconfig"; return 1; }
    # Small databases and quick retries: the storage is memory, and dead servers are part of the test.
    sed -i -e 's/^\( *\|\t*\)ClientRetryDelayMilliSecs.*/\tClientRetryDelayMilliSecs 500/' \
        -e "s/^\( *\|\t*\)BMIModules.*/&\n\tDBMaxSize 67108864/" "$tmp/fs.conf"
    mapfile -t alias < <(awk '$1 == "Alias" {print $2}' "$tmp/fs.conf")
    echo "$proto://localhost:$base/orangefs $mnt pvfs2 defaults,noauto 0 0" >"$tmp/tab"
    export PVFS2TAB_FILE=$tmp/tab
    server=()
    for ((i = 0; i < n; i++)); do
        run pvfs2-server -f -a "${alias[$i]}" "$tmp/fs.conf" >"$tmp/log" 2>&1 || { fail "$proto: mkfs of server $i"; return 1; }
        start_server $i
    done
    check "$proto, $n servers: ready" wait_ready
}

end() {
    local i
    for i in "${!server[@]}"; do
        check "$what: server $i is alive at the end" kill -0 "${server[$i]}"
        stop_server "$i"
    done
    if grep -ihE 'assert|segmentation|signal 11|signal 6' "$tmp"/server.log* "$tmp"/server-*.out >"$tmp/log" 2>/dev/null; then
        fail "$what: the servers' logs"
    else
        pass "$what: no crash in the servers' logs"
    fi
    rm -f "$tmp"/server.log* "$tmp"/server-*.out
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
listed_size() { run pvfs2-ls -l "$mnt" | awk -v n="$1" '$NF == n {print $5}'; }
same_size() { [ "$(listed_size $copy)" = "$1" ] || { echo "listed: $(listed_size $copy), expected $1"; return 1; }; }

head -c $((64 << 20)) /dev/urandom >"$tmp/big"
for s in 1 4095 65535 65536 65537 1000003; do head -c $s "$tmp/big" >"$tmp/f$s"; done

tools() {
    local s b
    for s in 1 4095 65535 65536 65537 1000003; do
        check "$what: $s bytes there and back" there_and_back "$tmp/f$s" 1048576
        check "$what: pvfs2-ls says $s" same_size $s
    done
    for b in 65536 262144 1048576 4194304; do
        check "$what: 64 MiB with buffers of $b" there_and_back "$tmp/big" $b
    done
    check "$what: pvfs2-statfs" run pvfs2-statfs -m "$mnt"
    check "$what: pvfs2-mkdir" run pvfs2-mkdir "$mnt/dir"
    check "$what: pvfs2-touch" run pvfs2-touch "$mnt/dir/file"
    check "$what: pvfs2-stat" run pvfs2-stat "$mnt/dir/file"
    check "$what: pvfs2-chmod" run pvfs2-chmod 600 "$mnt/dir/file"
    check "$what: pvfs2-viewdist" run pvfs2-viewdist -f "$mnt/$copy"
    check "$what: pvfs2-ln" run pvfs2-ln -s $copy "$mnt/link"
    [ ! -x "$prefix/bin/pvfs2-rm" ] || check "$what: pvfs2-rm" run pvfs2-rm "$mnt/dir/file"
    check "$what: pvfs2-ls of the folder" run pvfs2-ls "$mnt/dir"
    check "$what: two copies at once" two_at_once
}
two_at_once() {
    local a b
    run pvfs2-cp -b 262144 "$tmp/big" "$mnt/one" & a=$!
    run pvfs2-cp -b 1048576 "$tmp/big" "$mnt/two" & b=$!
    wait $a && wait $b && run pvfs2-cp "$mnt/one" "$tmp/back1" && run pvfs2-cp "$mnt/two" "$tmp/back2" &&
        cmp "$tmp/big" "$tmp/back1" && cmp "$tmp/big" "$tmp/back2"
}

hung_or_died() { # status: by timeout's own signal, or by SIGABRT, SIGKILL, SIGSEGV … (255 is how pvfs2-cp fails)
    [ "$1" -ge 124 ] && [ "$1" -lt 160 ]
}

# A client killed in the middle of writing, then a server.
deaths() {
    local p rc begun
    run pvfs2-cp -b 65536 "$tmp/big" "$mnt/killed" >/dev/null 2>&1 & p=$!
    sleep 0.15
    pkill -9 -P $p 2>/dev/null
    wait $p 2>/dev/null
    check "$what: after a client was killed, another works" there_and_back "$tmp/f1000003" 65536

    begun=$SECONDS
    LIMIT=100 run pvfs2-cp -b 65536 "$tmp/big" "$mnt/broken" >"$tmp/log" 2>&1 & p=$!
    sleep 0.15
    kill -9 "${server[0]}"
    wait $p
    rc=$?
    if hung_or_died $rc; then
        fail "$what: server killed under a writing client: status $rc after $((SECONDS - begun)) s (abort or hang)"
    else
        pass "$what: server killed under a writing client: status $rc after $((SECONDS - begun)) s"
    fi
    wait "${server[0]}" 2>/dev/null
    start_server 0
    check "$what: the server comes back" wait_ready
    check "$what: and works" there_and_back "$tmp/f1000003" 262144

    LIMIT=100 run pvfs2-cp -b 65536 "$tmp/big" "$mnt/outlived" >"$tmp/log" 2>&1 & p=$!
    sleep 0.15
    kill -9 "${server[0]}"
    wait "${server[0]}" 2>/dev/null
    start_server 0
    wait $p
    rc=$?
    if hung_or_died $rc; then
        fail "$what: server restarted under a writing client: status $rc"
    else
        pass "$what: server restarted under a writing client: status $rc"
    fi
    check "$what: ready again" wait_ready
    check "$what: copies again" there_and_back "$tmp/f65537" 65536
}

idle() { # no server uses the processor when nothing happens
    local i a b
    sleep 1
    a=$(for i in "${server[@]}"; do awk '{print $14 + $15}' "/proc/$i/stat"; done | paste -sd+ | bc)
    sleep 3
    b=$(for i in "${server[@]}"; do awk '{print $14 + $15}' "/proc/$i/stat"; done | paste -sd+ | bc)
    echo "ticks in 3 s: $((b - a))"
    [ $((b - a)) -le $((30 * ${#server[@]})) ]
}

for proto in ${PROTOS:-ib tcp}; do
    for n in ${SERVERS:-1 4}; do
        what="$proto, $n servers"
        begin "$proto" "$n" || { end; continue; }
        tools
        check "$what: servers rest" idle
        [ "$proto" = tcp ] || deaths
        end
    done
done
echo "$passed passed, $failed failed"
[ $failed = 0 ]

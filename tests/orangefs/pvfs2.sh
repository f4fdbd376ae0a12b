#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# The real programs of OrangeFS over tcp://, ib://, and elan4:// if built: servers, copies,
# listings, deaths and restarts.
set -u
# shellcheck source=tests/orangefs/lib.sh
. "${srcdir:-$(dirname "$0")/../..}/tests/orangefs/lib.sh"

same_size() {
    local size
    size=$(listed "$copy" | awk '{print $5}')
    [ "$size" = "$1" ] || { echo "listed: $size, expected $1"; return 1; }
}

make_files 1 4095 65535 65536 65537 1000003
check "blockstop compiles" "${CC:-gcc}" -shared -fPIC -O2 -o "$tmp/blockstop.so" "${srcdir:-$(dirname "$0")/../..}/tests/orangefs/blockstop.c" -ldl -lpthread
[ "$failed_cases" = 0 ] || finish

mode_is() { listed "$1" | grep -q "^ *$2" || { echo "expected $2:"; listed "$1"; return 1; }; }
gone() { ! run pvfs2-stat "$1"; }

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
    check "$what: pvfs2-ping" run pvfs2-ping -m "$mnt"
    check "$what: pvfs2-mkdir" run pvfs2-mkdir "$mnt/dir"
    check "$what: pvfs2-touch" run pvfs2-touch "$mnt/dir/file"
    check "$what: pvfs2-stat" run pvfs2-stat "$mnt/dir/file"
    check "$what: pvfs2-chmod" run pvfs2-chmod 640 "$mnt/$copy"
    check "$what: and pvfs2-ls shows it" mode_is "$copy" -rw-r-----
    check "$what: pvfs2-chown" run pvfs2-chown "$(id -un)" "$(id -gn)" "$mnt/$copy"
    check "$what: pvfs2-viewdist" run pvfs2-viewdist -f "$mnt/$copy"
    check "$what: pvfs2-ln" run pvfs2-ln -s "$copy" "$mnt/link"
    check "$what: pvfs2-ls of the folder" run pvfs2-ls "$mnt/dir"
    if command -v pvfs2-rm >/dev/null; then
        check "$what: pvfs2-rm" run pvfs2-rm "$mnt/dir/file"
        check "$what: the file is gone" gone "$mnt/dir/file"
        check "$what: a folder of 200 files, made, listed, removed" many_files
    else
        echo "# pvfs2-rm is not tried, this OrangeFS has none (since 2.9 it is part of --enable-usrint)"
    fi
    check "$what: two copies at once" two_at_once
    check "$what: twenty clients at once, in and out" twenty_at_once
}
twenty_at_once() {
    local i p pids=() rc=0
    for i in {1..20}; do run pvfs2-cp -b 262144 "$tmp/f1000003" "$mnt/client$i" & pids+=($!); done
    for p in "${pids[@]}"; do wait "$p" || rc=$?; done
    pids=()
    for i in {1..20}; do run pvfs2-cp -b 262144 "$mnt/client$i" "$tmp/back$i" & pids+=($!); done
    for p in "${pids[@]}"; do wait "$p" || rc=$?; done
    for i in {1..20}; do cmp "$tmp/f1000003" "$tmp/back$i" || rc=1; done
    rm -f "$tmp"/back?*
    return $rc
}
many_files() {
    local names before
    before=$(run pvfs2-ls "$mnt/dir" | wc -l)
    names=$(seq -f "$mnt/dir/n%g" 200)
    # shellcheck disable=SC2086
    run pvfs2-touch $names && [ "$(run pvfs2-ls "$mnt/dir" | wc -l)" = $((before + 200)) ] && run pvfs2-rm $names &&
        [ "$(run pvfs2-ls "$mnt/dir" | wc -l)" = "$before" ]
}

# A client of the software HCA that reports writes as done after writing only each message's head.
lied_to() {
    yes "a line of somebody else" | head -c 8388608 >"$tmp/honest"
    yes "a line of a liar" | head -c 8388608 >"$tmp/lie"
    rm -f "$tmp/back"
    run pvfs2-cp -b 4194304 "$tmp/honest" "$mnt/honest" &&
        EMUVERBS_STILL_FROM=4096 run pvfs2-cp -b 4194304 "$tmp/lie" "$mnt/lie" && run pvfs2-cp "$mnt/lie" "$tmp/back" || return
    ! cmp -s "$tmp/lie" "$tmp/back" || { echo "the client has written it all"; return 1; }
    [ "$(stat -c %s "$tmp/back")" = 8388608 ] && ! grep -aq "somebody else" "$tmp/back"
}

# ---- Deaths ----

# Server 0 stops before the 8th block written, or read, from now on.
stop_at_block() { echo "$1 8" >"$tmp/stop.new" && mv "$tmp/stop.new" "$tmp/stop-0"; } # write or read

is_stopped() { # pid: all threads are stopped
    local states
    states=$(sed -n 's/^State:[ \t]*\(.\).*/\1/p' "/proc/$1/task"/*/status 2>/dev/null | sort -u)
    [ "$states" = T ]
}
stopped() { # pid, and that of its client: waits until all threads of the first are stopped
    local begun=$SECONDS
    until is_stopped "$1"; do
        kill -0 "$1" && kill -0 "$2" && [ $((SECONDS - begun)) -le "$limit" ] || return
        sleep 0.05
    done
}

# Starts a client that writes 64 MiB, 16 MiB at a time, and returns when server 0 has stopped in the
# middle of the first write.
client=
begin_write() { # name
    stop_at_block write
    # shellcheck disable=SC2086
    $wrap pvfs2-cp -b 16777216 "$tmp/big" "$mnt/$1" >"$tmp/client.out" 2>&1 & client=$!
    stopped "${server[0]}" "$client" 2>/dev/null && return
    cp "$tmp/client.out" "$tmp/log"
    fails "$what: the client writes"
    return 1
}
kill_server() {
    kill -9 "${server[0]}"
    wait "${server[0]}" 2>/dev/null
}

# Waits for that client like a user. The client may fail or succeed, but must end by itself, not by
# a signal, and after success all data must be there.
client_outcome() { # name, what happened
    local begun=$SECONDS rc watch
    sleep "$limit" & watch=$!
    wait -n "$client" "$watch"
    rc=$?
    kill "$watch" 2>/dev/null || { kill -9 "$client"; rc=124; }
    wait "$watch" "$client" 2>/dev/null
    cp "$tmp/client.out" "$tmp/log"
    cat "$tmp/client.out" >>"$tmp/clients.log"
    echo "# $what: $2: the client's status is $rc after $((SECONDS - begun)) s"
    if hung_or_died $rc; then
        fails "$what: $2: the client ends by itself"
        return
    fi
    passes "$what: $2: the client ends by itself"
    as_over_tcp "$1" "$2" $rc $((SECONDS - begun))
    [ $rc != 0 ] || check "$what: $2: its file is whole" same_contents "$1"
}
# Records tcp's result; any other network must have the same one. With TIMED the end is at most two
# job timeouts later (configure): of the write and of setting the file's attributes.
declare -A usual_ends longest
as_over_tcp() { # name, what happened, status, seconds
    local ends=well
    [ "$3" = 0 ] || ends=badly
    if [[ $what == tcp,* ]]; then
        usual_ends[$1]+=" $ends"
        [ "$4" -le "${longest[$1]:-0}" ] || longest[$1]=$4
    elif [ -n "${usual_ends[$1]-}" ]; then
        check "$what: $2: it ends as over tcp" ends_as "$ends" "${usual_ends[$1]}"
        [ -z "${TIMED-}" ] || check "$what: $2: it ends as soon as over tcp" [ "$4" -le $((${longest[$1]:-0} + 200)) ]
    fi
}
ends_as() { # result, permitted results
    echo "it ends $1, over tcp$2"
    [[ "$2 " == *" $1 "* ]]
}
same_contents() {
    wait_ready && run pvfs2-cp "$mnt/$1" "$tmp/back" && cmp "$tmp/big" "$tmp/back"
}

deaths() {
    local happened
    if begin_write killed; then
        kill -9 "$client" 2>/dev/null
        wait "$client" 2>/dev/null
        check "$what: a client was killed while it wrote" [ $? = 137 ]
        kill -CONT "${server[0]}"
    fi
    check "$what: after that another works" there_and_back "$tmp/f1000003" 65536

    happened="a server killed under a writing client"
    if begin_write broken; then
        kill_server
        client_outcome broken "$happened"
        start_server 0
    fi
    check "$what: the server comes back" wait_ready
    check "$what: and works" there_and_back "$tmp/f1000003" 262144

    # The client notices nothing before the new server serves.
    happened="a server restarted under a writing client"
    if begin_write outlived; then
        kill -STOP "$client"
        check "$what: $happened: the client is stopped" stopped "$client" "$client"
        kill_server
        start_server 0
        check "$what: $happened: the server serves" server_ready 0
        kill -CONT "$client"
        client_outcome outlived "$happened"
    fi
    check "$what: ready again" wait_ready
    check "$what: copies again" there_and_back "$tmp/f65537" 65536

    check "$what: a file is written to be read" run pvfs2-cp -b 4194304 "$tmp/big" "$mnt/whole"
    check "$what: a file read while its server is killed" read_under_death
    start_server 0
    check "$what: ready after that" wait_ready
}
# Fails by itself. pvfs2-cp's status is 0 after a failed read, so its output must have the error.
read_under_death() {
    local reader rc
    rm -f "$tmp/back"
    stop_at_block read
    run pvfs2-cp -b 16777216 "$mnt/whole" "$tmp/back" >"$tmp/client.out" 2>&1 & reader=$!
    stopped "${server[0]}" $reader || { cat "$tmp/client.out"; echo "the reader has ended"; kill_server; return 1; }
    kill_server
    wait $reader
    rc=$?
    echo "status $rc"
    cat "$tmp/client.out"
    hung_or_died $rc && return 1
    grep -q PVFS_sys_read "$tmp/client.out"
}

idle() { # idle servers use no processor time
    local i a b files=()
    for i in "${server[@]}"; do files+=("/proc/$i/stat"); done
    sleep 1
    a=$(cat "${files[@]}" | awk '{ n += $14 + $15 } END { print n }')
    sleep 3
    b=$(cat "${files[@]}" | awk '{ n += $14 + $15 } END { print n }')
    echo "ticks of 10 ms in 3 s, all servers: $((b - a))"
    [ $((b - a)) -le $((30 * ${#server[@]})) ]
}

protos="tcp ib"
has_elan4 && protos+=" elan4"
for proto in ${PROTOS:-$protos}; do # tcp first: other networks must not complain about more
    for n in ${SERVERS:-1 4}; do
        what="$proto, $n servers"
        if configure "$proto" "$n" && bring_up; then
            tools
            [ "$proto" != ib ] || [ -z "$wrap" ] || check "$what: a liar's file has nothing of others in it" lied_to
            no_new_complaints "$proto"
            [ -z "${TIMED-}" ] || check "$what: servers rest" idle
            forget_complaints
            deaths
            no_new_complaints "$proto" "after deaths"
        fi
        end
    done
done
finish

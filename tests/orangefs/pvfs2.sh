#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# The real programs of OrangeFS over tcp://, ib://, and elan4:// where it has that: servers, copies, listings, deaths and restarts.
set -u
# shellcheck source=tests/orangefs/lib.sh
. "${srcdir:-$(dirname "$0")/../..}/tests/orangefs/lib.sh"

same_size() {
    local size
    size=$(listed "$copy" | awk '{print $5}')
    [ "$size" = "$1" ] || { echo "listed: $size, expected $1"; return 1; }
}

make_files 1 4095 65535 65536 65537 1000003

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
        echo "note: pvfs2-rm is not tried, this OrangeFS has none (since 2.9 it is part of --enable-usrint)"
    fi
    check "$what: two copies at once" two_at_once
}
many_files() {
    local names before
    before=$(run pvfs2-ls "$mnt/dir" | wc -l)
    names=$(seq -f "$mnt/dir/n%g" 200)
    # shellcheck disable=SC2086
    run pvfs2-touch $names && [ "$(run pvfs2-ls "$mnt/dir" | wc -l)" = $((before + 200)) ] && run pvfs2-rm $names &&
        [ "$(run pvfs2-ls "$mnt/dir" | wc -l)" = "$before" ]
}

# ---- Deaths ----

stored() { du -sk "$store" | cut -f1; } # KiB

# Starts a client that writes $long from 64 KiB buffers and returns when some of it has arrived.
client=
begin_long_write() { # name
    local before i
    before=$(stored)
    $wrap pvfs2-cp -b 65536 "$long" "$mnt/$1" >"$tmp/client.out" 2>&1 & client=$!
    others=("$client")
    for ((i = 0; i < 3000; i++)); do
        [ $(($(stored) - before)) -ge 4096 ] && return 0
        kill -0 "$client" 2>/dev/null || break
        sleep 0.01
    done
    cp "$tmp/client.out" "$tmp/log"
    fail "$what: the client did not write"
}

# Waits for that client as a user would.  It may fail or succeed, but must end by itself, not by a signal, and if it says
# that all is well then all is there.
client_outcome() { # name, what happened
    local begun=$SECONDS rc watch
    (sleep 110; kill -9 "$client") 2>/dev/null & watch=$!
    wait "$client"
    rc=$?
    others=()
    pkill -P $watch 2>/dev/null
    kill $watch 2>/dev/null
    wait $watch 2>/dev/null
    cp "$tmp/client.out" "$tmp/log"
    cat "$tmp/client.out" >>"$tmp/clients.log"
    if hung_or_died $rc; then
        fail "$what: $2: the client's status is $rc after $((SECONDS - begun)) s"
        return
    fi
    pass "$what: $2: the client's status is $rc after $((SECONDS - begun)) s"
    as_over_tcp "$1" $rc $((SECONDS - begun))
    LIMIT=20
    [ $rc != 0 ] || check "$what: and its file is whole" same_contents "$1"
    unset LIMIT
}
# What tcp does is noted; any other network ends in the same way, and no later than two more time-outs of a job (configure): of the
# write and of what sets the file's attributes.
declare -A usual_ends longest
as_over_tcp() { # name, status, seconds
    local ends=well
    [ "$2" = 0 ] || ends=badly
    if [[ $what == tcp,* ]]; then
        usual_ends[$1]+=" $ends"
        [ "$3" -le "${longest[$1]:-0}" ] || longest[$1]=$3
    elif [ -n "${usual_ends[$1]-}" ]; then
        check "$what: it ends $ends after $3 s, over tcp${usual_ends[$1]} after ${longest[$1]:-0} s at most" \
            ends_as "$ends" "${usual_ends[$1]}" "$3" $((${longest[$1]:-0} + 40))
    fi
}
ends_as() { [[ "$2 " == *" $1 "* ]] && [ "$3" -le "$4" ]; } # how, how it may, seconds, most
same_contents() {
    wait_ready && run pvfs2-cp "$mnt/$1" "$tmp/back" && cmp "$long" "$tmp/back"
}

deaths() {
    begin_long_write killed
    kill -9 "$client" 2>/dev/null
    wait "$client" 2>/dev/null
    check "$what: a client was killed while it wrote" [ $? = 137 ]
    check "$what: after that another works" there_and_back "$tmp/f1000003" 65536

    begin_long_write broken
    kill -9 "${server[0]}"
    wait "${server[0]}" 2>/dev/null
    client_outcome broken "a server killed under a writing client"
    start_server 0
    check "$what: the server comes back" wait_ready
    check "$what: and works" there_and_back "$tmp/f1000003" 262144

    begin_long_write outlived
    kill -9 "${server[0]}"
    wait "${server[0]}" 2>/dev/null
    start_server 0
    client_outcome outlived "a server restarted under a writing client"
    check "$what: ready again" wait_ready
    check "$what: copies again" there_and_back "$tmp/f65537" 65536
    check "$what: a file read while its server is killed" read_under_death
    start_server 0
    check "$what: ready after that" wait_ready
}
# Fails in time, or is whole.  pvfs2-cp's status is 0 after a failed read, so the error must be in what it says.
read_under_death() {
    local p rc
    rm -f "$tmp/back"
    run pvfs2-cp -b 4194304 "$long" "$mnt/whole" || return 1
    LIMIT=110 run pvfs2-cp -b 65536 "$mnt/whole" "$tmp/back" >"$tmp/client.out" 2>&1 & p=$!
    while [ ! -s "$tmp/back" ] && kill -0 $p 2>/dev/null; do sleep 0.01; done
    kill -9 "${server[0]}"
    wait "${server[0]}" 2>/dev/null
    wait $p
    rc=$?
    echo "status $rc"
    cat "$tmp/client.out"
    hung_or_died $rc && return 1
    cmp "$long" "$tmp/back" || grep -q PVFS_sys_read "$tmp/client.out"
}

idle() { # no server uses the processor when nothing happens
    local i a b files=()
    for i in "${server[@]}"; do files+=("/proc/$i/stat"); done
    sleep 1
    a=$(cat "${files[@]}" | awk '{ n += $14 + $15 } END { print n }')
    sleep 3
    b=$(cat "${files[@]}" | awk '{ n += $14 + $15 } END { print n }')
    echo "ticks of 10 ms in 3 s, all servers: $((b - a))"
    [ $((b - a)) -le $((30 * ${#server[@]})) ]
}

long=$tmp/long
head -c $((512 << 20)) /dev/urandom >"$long" # what is misplaced shows
protos="tcp ib"
has_elan4 && protos+=" elan4"
for proto in ${PROTOS:-$protos}; do # tcp first: the other one complains about nothing else
    for n in ${SERVERS:-1 4}; do
        what="$proto, $n servers"
        if configure "$proto" "$n" && bring_up; then
            tools
            no_new_complaints "$proto"
            check "$what: servers rest" idle
            forget_complaints
            deaths
            no_new_complaints "$proto" "after deaths"
        fi
        end
    done
done
finish

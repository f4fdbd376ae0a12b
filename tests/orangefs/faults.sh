#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Faults that must not stop a file system: silent clients, idle connections, a low limit of locked
# memory. pvfs2.sh tests deaths.
set -u
host=127.0.0.1
# shellcheck source=tests/orangefs/lib.sh
. "${srcdir:-$(dirname "$0")/../..}/tests/orangefs/lib.sh"

make_files 1000003
others=() # pids of hanging clients and connections

silent_tcp() { # a TCP connection to the server's port that sends nothing, if that port is open
    (exec 3<>"/dev/tcp/$host/$base" && sleep 60) 2>/dev/null & others+=($!)
}
silent_cm() { # a client that abandons its half-open connection
    EMUVERBS_SILENT=1 $wrap pvfs2-ls "$mnt" >/dev/null 2>&1 & others+=($!)
}
stopped_client() { # a client that is stopped in the middle of a write
    local i p
    $wrap pvfs2-cp -b 65536 "$tmp/long" "$mnt/stopped" >/dev/null 2>&1 & p=$!
    others+=("$p")
    for ((i = 0; i < 1000; i++)); do
        [ "$(du -sk "$store" | cut -f1)" -gt 16384 ] && break
        sleep 0.01
    done
    kill -STOP $p
}
nobody_notices() {
    there_and_back "$tmp/f1000003" 65536 && there_and_back "$tmp/big" 1048576 && run pvfs2-ls "$mnt"
}

what="silent ones"
head -c $((256 << 20)) /dev/zero >"$tmp/long"
if configure ib 1 && bring_up; then
    silent_tcp
    check "$what: nobody notices a silent TCP connection" nobody_notices
    if [ -n "$wrap" ]; then
        silent_cm
        sleep 1
        check "$what: nobody notices a silent connection request" nobody_notices
    fi
    stopped_client
    check "$what: nobody notices a client stopped in mid-write" nobody_notices
    for p in "${others[@]}"; do kill -9 "$p" 2>/dev/null; done
    wait "${others[@]}" 2>/dev/null
    others=()
    check "$what: nor their ends" nobody_notices
fi
end

# 64 KiB of locked memory, as a user who may not lock more; the software HCA refuses the rest. All
# processes run as that user, who may then access their memory.
what="64 KiB of locked memory"
limited() { # function: runs with that limit
    local everybody=$wrap rc
    chmod 777 "$tmp"
    chown 65534 "$store"
    wrap="prlimit --memlock=65536:65536 setpriv --reuid 65534 --clear-groups --inh-caps=-all --bounding-set=-all $wrap"
    EMUVERBS_MEMLOCK=65536 "$@"
    rc=$?
    wrap=$everybody
    return $rc
}
little_memory() {
    bring_up || return
    check "$what: 1000003 bytes there and back" there_and_back "$tmp/f1000003" 65536
    check "$what: 64 MiB there and back" there_and_back "$tmp/big" 1048576
    check "$what: two clients at once" two_at_once
    cat "$tmp"/server.log "$tmp"/server-0.out >"$tmp/said" 2>/dev/null
    check "$what: the server says what to do" says "memlock limit.*raise the limit" "$tmp/said"
}
if [ -z "$wrap" ] || [ "$(id -u)" != 0 ]; then
    echo "# $what is tried by root over the software HCA only"
else
    configure ib 1 && limited little_memory
    end
fi

# A server that is stopped for several job timeouts and continued: the client's retries leave queued
# requests behind, and the client ends.
outlives_silence() {
    local pid=${server[0]} begun=$SECONDS client rc
    run pvfs2-cp -b 65536 "$tmp/long" "$mnt/silent" >"$tmp/client.out" 2>&1 & client=$!
    until [ "$(du -sk "$store" | cut -f1)" -gt 16384 ]; do kill -0 $client || return; sleep 0.01; done
    kill -STOP "$pid"
    until [ "$(cat "$tmp"/err.* 2>/dev/null | grep -c 'cancelling bmi')" -ge 4 ]; do
        kill -0 $client 2>/dev/null && [ $((SECONDS - begun)) -le "$limit" ] || break
        sleep 0.1
    done
    kill -CONT "$pid"
    wait $client
    rc=$?
    echo "status $rc"
    ! hung_or_died $rc
}
for proto in tcp ib elan4; do
    what="a silent server over $proto"
    [ $proto != elan4 ] || has_elan4 || continue
    configure $proto 1 && sed -i 's/\(Server\|Client\)Job\(BMI\|Flow\)TimeoutSecs.*/\1Job\2TimeoutSecs 4/' "$tmp/fs.conf" && bring_up &&
        check "$what: its client ends" outlives_silence
    end
done
finish

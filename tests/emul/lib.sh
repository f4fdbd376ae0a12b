# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=sh
# Read by foreign.sh and programs.sh: a program of others on the software HCA as server and client.
: "${EMUVERBS:=emul/verbs/emuverbs}"
if grep -q -- '-fsanitize=address' Makefile 2>/dev/null; then
    echo "skipped: this build has sanitizers, Debian's programs have none"
    exit 77
fi
[ -n "${FIRST_PORT-}" ] || exec ./with-ports "$0" "$@"
port=$FIRST_PORT
ran=0
failed=0
server=
tmp=$(mktemp -d) || exit 99

result() { # name status
    ran=$((ran + 1))
    if [ "$2" -eq 0 ]; then
        echo "PASS: $1"
    else
        failed=$((failed + 1))
        echo "FAIL: $1 (status $2)"
        cat "$tmp/why"
    fi
}

# Keeps the output of both sides of a failed run, error output first, because standard output is
# buffered until the end.
keep_output() { # status
    {
        echo "    status $1"
        for side in server client; do
            grep -v '^[- ]*$' "$tmp/$side" | head -n 20 | sed "s/^/    $side: /"
        done
    } >"$tmp/why"
}

# Listening TCP ports, and bound addresses of the software HCA, are visible in /proc.
tcp_listens() { grep -qE ":$(printf %04X "$port") [0-9A-F]+:0000 0A " /proc/net/tcp /proc/net/tcp6 2>/dev/null; }
cm_bound() { grep -q "@emuverbs/cm/[^/]*/$port/" /proc/net/unix; }

# Starts a server and waits until it is reachable, for a minute at most.
serve() {
    timeout "${FOREIGN_LIMIT:-300}" "$EMUVERBS" "$@" >"$tmp/server" 2>&1 &
    server=$!
    : >"$tmp/client"
    for _ in $(seq 600); do
        if tcp_listens || cm_bound; then return 0; fi
        kill -0 "$server" 2>/dev/null || return 1
        sleep 0.1
    done
    echo "nobody listens on port $port after a minute" >>"$tmp/server"
    return 1
}

client() { timeout "${FOREIGN_LIMIT:-300}" "$EMUVERBS" "$@" >"$tmp/client" 2>&1; }

# Returns the client's status, or that of the server, which ends by itself if all is well.
ended() { # the client's status
    [ "$1" -eq 0 ] || kill "$server" 2>/dev/null
    wait "$server"
    set -- "$1" $?
    server=
    [ "$1" -ne 0 ] && return "$1"
    return "$2"
}

# Exit 77 if no program has run.
all_ended() {
    echo "$ran run, $failed failed"
    [ $ran -ne 0 ] || exit 77
    [ $failed -eq 0 ]
}

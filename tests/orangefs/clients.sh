# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash disable=SC2034,SC2154
# For scripts in which servers suffer while 8 clients copy files in and out: a copy that succeeds
# has right contents, and no client hangs or crashes. Needs lib.sh, SEED and make_files.
sizes=(1 4096 65537 262144 1000003 2000003)

# Prints how a command ended that runs for a client.
result() { # COMMAND...
    local rc=0
    run "$@" >/dev/null 2>&1 || rc=$?
    if [ $rc = 124 ]; then echo hung; elif hung_or_died $rc; then echo "died-$rc"; elif [ $rc = 0 ]; then echo ended; else echo failed; fi
}
# Copies out what has been copied in.
compared() { # SOURCE NAME OUT
    local got
    rm -f "$3"
    got=$(result pvfs2-cp "$2" "$3")
    if [ "$got" != ended ]; then echo "$got"; elif cmp -s "$1" "$3"; then echo right; else echo wrong; fi
}
# Prints where a wrong copy differs, and whether another one does, too.
differences() { # SOURCE NAME OUT
    cmp -l "$1" "$3" 2>&1 | awk 'NR == 1 { first = $1 } { last = $1; n++ } END { print "# " n " bytes, " first " to " last ", last line: " $0 }'
    echo "# copied again: $(compared "$1" "$2" "$3")"
}
# Copies until the end; what could not be copied out is left for the end.
client() { # NUMBER
    local n=0 source name got
    RANDOM=$((SEED + $1))
    while [ ! -e "$tmp/over" ]; do
        n=$((n + 1)) source=$tmp/source-$1-$n name=c$1-$n
        tail -c "+$((RANDOM * 1000))" "$tmp/big" 2>/dev/null | head -c "${sizes[RANDOM % ${#sizes[@]}]}" >"$source"
        got=$(result pvfs2-cp -b $((4096 << RANDOM % 9)) "$source" "$mnt/$name")
        echo "in $name $got"
        if [ "$got" = ended ]; then
            got=$(compared "$source" "$mnt/$name" "$tmp/out-$1")
            echo "out $name $got"
            [ "$got" != wrong ] || differences "$source" "$mnt/$name" "$tmp/out-$1"
            case $got in failed | hung | died*) continue ;; esac
        fi
        rm -f "$source"
    done >"$tmp/copies-$1"
}
left_ones() {
    local line name
    cat "$tmp"/copies-* | grep -E '^out .* (failed|hung|died)' >"$tmp/left"
    while read -r line; do
        name=${line#out } name=${name%% *}
        echo "again $name $(compared "$tmp/source-${name#c}" "$mnt/$name" "$tmp/out")"
    done <"$tmp/left" >"$tmp/copies-again"
}
none() { ! grep -hE -A 2 -- "$1" "$tmp"/copies-*; }
some_right() { grep -q '^out .* right' "$tmp"/copies-*; }

clients_start() {
    local i
    rm -f "$tmp"/over "$tmp"/copies-*
    clients=()
    for i in 0 1 2 3 4 5 6 7; do client $i & clients+=($!); done
}
clients_end() { # what has been done meanwhile
    : >"$tmp/over"
    wait "${clients[@]}"
    check "$what: all serve at the end" wait_ready
    left_ones
    echo "# $what: $1; $(cat "$tmp"/copies-* | awk '!/^#/ { n[$1 " " $3]++ } END { for (k in n) printf "%s%s %d", s, k, n[k], s = ", " }')"
    check "$what: copies arrive" some_right
    check "$what: no copy has wrong contents" none ' wrong$'
    check "$what: what was copied in is there at the end" none '^again .* (failed|wrong)'
    check "$what: no client hangs or crashes" none ' (hung|died.*)$'
}

#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# Pieces of memory to and from pieces of a file (io.c), over each network, with 1 and with 4
# servers: contents are right, bytes in between unchanged, and over ib and elan4 the logs have no
# complaints that tcp's lack. With list_mode=group it gathers and scatters lists in
# place. With SHOW set, prints the posts of OrangeFS and the engine's counters
# (posts.c).
#
#   CASES    some, or all: that of the long suite
#   SERVERS  numbers of servers
#   PROTOS   tcp ib elan4
set -u
# shellcheck source=tests/orangefs/lib.sh
. "${srcdir:-$(dirname "$0")/../..}/tests/orangefs/lib.sh"
CASES=${CASES:-some}
[ "$CASES" = some ] || limit=$((limit * 5))
what=programs
sources=${srcdir:-$(dirname "$0")/../..}/tests/orangefs
# shellcheck disable=SC2046
check "lists compiles" compile io "$sources/io.c" "$sources/posts.c" $(pvfs2-config --cflags) -I"$prefix/include/bmi-rdma" \
    -Wl,--wrap=BMI_post_send_list,--wrap=BMI_post_recv_list,--wrap=BMI_finalize,--wrap=rme_open
[ "$failed_cases" = 0 ] || finish

lists() {
    local line
    run pvfs2-touch "$mnt/lists" >"$tmp/log" 2>&1 || { fails "$what: a file"; return 1; }
    POSTS=$tmp/posts run "$tmp/io" "$mnt/lists" lists "$CASES" "$n" >"$tmp/lists.out" 2>"$tmp/log"
    echo $? >"$tmp/status"
    [ -z "${SHOW-}" ] || sed 's/^/# /' "$tmp/posts"
    while read -r line; do
        case $line in
        'ok - '*) passes "$what: ${line#ok - }" ;;
        'not ok - '*) end_case; begin "$what: ${line#not ok - }"; case_fails=1 ;;
        '#'*) echo "$line" ;;
        esac
    done <"$tmp/lists.out"
    end_case
    check "$what: to its end" is_over
}
is_over() {
    cat "$tmp/log"
    [ "$(cat "$tmp/status")" = 0 ]
}

# Prints the bytes that the engine has copied, and those in lists of more than 64 KiB, with these
# options.
copies() { # options
    tab "$(awk '{ sub("/orangefs$", "", $1); print $1 }' "$tmp/tab")" "bmi_opts=\"$1\""
    POSTS=$tmp/posts run "$tmp/io" "$mnt/lists" lists some "$n" >"$tmp/lists.out" || return
    copied=$(awk '$1 == "counter" && $2 == "bytes_copied" { print $3 }' "$tmp/posts")
    listed=$(awk '$1 == "posts" && $3 == "memory" && $4 > 1 && $5 + 0 > 65536 { n += $8 } END { print n + 0 }' "$tmp/posts")
    echo "$copied bytes copied, $listed in lists"
}
gathers() { copies list_mode=group && [ "$listed" -gt 0 ] && [ "$copied" -lt $((listed / 2)) ]; }
packs() { copies list_mode=pack && [ "$copied" -ge "$listed" ]; }

protos="tcp ib"
has_elan4 && protos+=" elan4"
for proto in ${PROTOS:-$protos}; do # tcp first: other networks must not complain about more
    for n in ${SERVERS:-1 4}; do
        what="$proto, $n servers"
        if configure "$proto" "$n" && bring_up; then
            lists
            no_new_complaints "$proto"
            if [ "$proto" != tcp ] && grep -q BMIOpts "$prefix/sbin/pvfs2-server"; then
                check "$what: list_mode=group: lists are gathered and scattered" gathers
                check "$what: list_mode=pack: they are copied" packs
            fi
        fi
        end
    done
done
finish

#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# emuverbs --sysfs: a program finds the devices in /sys/class and /dev, all other entries stay, and
# nothing outside of the program's own mount namespace changes. Exit 77 if such a namespace is not
# permitted.
: "${EMUVERBS:=emul/verbs/emuverbs}"
if grep -qE -- '-fsanitize=(address|thread)' Makefile 2>/dev/null; then
    echo "skipped: this build has sanitizers, Debian's programs have none"
    exit 77
fi
command -v unshare >/dev/null 2>&1 || { echo "skipped: unshare is not installed (util-linux)"; exit 77; }
unshare --mount --propagation private true 2>/dev/null || { echo "skipped: no mount namespaces for this user, or in this root folder"; exit 77; }
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
failed=0
check() { # name of the check, command
    what=$1
    shift
    "$@" && return 0
    echo "FAIL: $what"
    failed=$((failed + 1))
}
shown() { EMUVERBS_DEVICES=2 EMUVERBS_PORTS=2 "$EMUVERBS" --sysfs "$@"; }
away() { EMUVERBS_ADDRESSES=192.0.2.1 "$EMUVERBS" --sysfs "$@"; } # an address for documentation
same() { [ "$1" = "$2" ] || { echo "'$1' is not '$2'"; return 1; }; }

mounts() { grep -E ' /(dev|sys)[/ ]' /proc/self/mountinfo; }
names() { # COMMAND...
    "$@" find /sys/class/ -mindepth 1 -maxdepth 1 2>/dev/null | sort
    "$@" find /dev/null /dev/pts /dev/shm /dev/tty /dev/infiniband -maxdepth 0 -printf '%p %y\n' 2>/dev/null
}
# A misspelt variable is reported, a known one is not.
said() { EMUVERBS_MAX_QPS=3 EMUVERBS_MAX_QP=3 "$EMUVERBS" ibv_devinfo 2>&1 >/dev/null | grep EMUVERBS_; }
check "unknown variable" same "$(said)" "emuverbs: unknown variable EMUVERBS_MAX_QPS ignored; emuverbs --help lists all variables"
before=$(mounts)
names env >"$tmp/names"
check "devices" same "$(shown ls /sys/class/infiniband | xargs)" "emu0 emu1"
check "device files" same "$(shown ls /dev/infiniband | xargs)" "uverbs0 uverbs1"
check "uverbs1 is that of emu1" same "$(shown cat /sys/class/infiniband_verbs/uverbs1/ibdev)" emu1
check "a file of /dev is a device" shown test -c /dev/infiniband/uverbs1
if [ -e /sys/class/net/lo ]; then
    check "interface" same "$(shown ls /sys/class/infiniband/emu0/device/net)" lo
    check "no interface has the address" away test ! -e /sys/class/infiniband/emu0/device/net
fi
check "a third port" shown test ! -e /sys/class/infiniband/emu0/ports/3
check "link layer" same "$(shown cat /sys/class/infiniband/emu0/ports/1/link_layer)" InfiniBand
check "GID types on Ethernet" same "$(EMUVERBS_ETHERNET=1 shown cat /sys/class/infiniband/emu1/ports/2/gid_attrs/types/0)" "RoCE v2"
check "LIDs differ" test "$(shown cat /sys/class/infiniband/emu0/ports/1/lid)" != "$(shown cat /sys/class/infiniband/emu1/ports/1/lid)"
if command -v ibv_devinfo >/dev/null 2>&1; then
    # the files agree with the results of calls
    shown ibv_devinfo -v >"$tmp/devinfo" 2>&1
    top=/sys/class/infiniband
    said() { sed -n "s/.*$1[^:]*:[[:space:]]*\([0-9a-f:]*\).*/\1/p" "$tmp/devinfo"; }
    check "GUIDs" same "$(shown cat $top/emu0/node_guid $top/emu1/node_guid)" "$(said node_guid)"
    for i in emu0/ports/1 emu0/ports/2 emu1/ports/1 emu1/ports/2; do
        shown cat $top/$i/gids/0 >>"$tmp/gids"
        echo $(($(shown cat $top/$i/lid))) >>"$tmp/lids"
    done
    check "GIDs" same "$(cat "$tmp/gids")" "$(said 'GID\[')"
    check "LIDs" same "$(cat "$tmp/lids")" "$(said port_lid)"
fi
# All other entries are unchanged.
names shown | grep -v infiniband >"$tmp/shown"
grep -v infiniband "$tmp/names" >"$tmp/others"
check "the other classes and devices" diff "$tmp/others" "$tmp/shown"
[ ! -e /sys/class/net/lo ] || check "a class that was there" same "$(shown cat /sys/class/net/lo/address)" "$(cat /sys/class/net/lo/address)"
check "writing to a device" shown sh -c 'echo lost >/dev/null && head -c 8 /dev/zero | wc -c | grep -q 8'
# shellcheck disable=SC2016
check "a program's own status" sh -c '"$1" --sysfs sh -c "exit 5"; [ $? -eq 5 ]' - "$EMUVERBS"
check "mounts outside" same "$(mounts)" "$before"
names env >"$tmp/after"
check "files outside" diff "$tmp/names" "$tmp/after"
# shellcheck disable=SC2016
check "mounts outside that would spread" unshare --mount --propagation shared sh -c '"$1" --sysfs true && [ ! -e /dev/infiniband/uverbs0 ]' - "$EMUVERBS"
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null 2>&1; then
    setpriv --bounding-set=-sys_admin "$EMUVERBS" --sysfs touch "$tmp/ran" 2>"$tmp/refused"
    check "status without permission" same $? 2
    check "what is said without permission" grep -q 'cannot make a mount namespace: .*; run as root' "$tmp/refused"
    check "no program without permission" test ! -e "$tmp/ran"
fi
[ $failed -eq 0 ] && echo "all as it should be"
[ $failed -eq 0 ]

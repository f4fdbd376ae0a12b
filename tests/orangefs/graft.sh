#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# graft as an administrator uses it.  A small tree of our own stands in for OrangeFS; where ORANGEFS_TREES names unpacked
# OrangeFS source trees, copies of them are grafted too.  The changed pvfs2-genconfig of those, and of the OrangeFS in
# ORANGEFS_PREFIX, is run.
set -u
unset CDPATH
src=$(cd "${srcdir:-$(dirname "$0")/../..}" && pwd)
# shellcheck source=tests/lib/tap.sh
. "$src/tests/lib/tap.sh"
tmp=$(mktemp -d) || { echo "Bail out! no temporary folder"; exit 99; }
trap 'chmod -R u+w "$tmp"; rm -rf "$tmp"' EXIT
refused() { # words of the message, then a command that must fail and say so
    words=$1
    shift
    if "$@" >"$tmp/out" 2>&1; then
        cat "$tmp/out"
        echo "was not refused"
        return 1
    fi
    cat "$tmp/out"
    grep -q -- "$words" "$tmp/out"
}

addresses() { # pvfs2-genconfig, protocol, hosts, the addresses that must come of them
    rm -f "$tmp/conf"
    perl "$1" --quiet --protocol "$2" --ioservers "$3" --metaservers "$3" --storage /x --logfile /y "$tmp/conf" || return
    [ "$(awk '$1 == "Alias" { print $3 }' "$tmp/conf" | paste -sd ' ')" = "$4" ] || { cat "$tmp/conf"; return 1; }
}
genconfig() { # name, pvfs2-genconfig
    check "$1: nodes in braces" addresses "$2" elan4 '{2,4-5}, 7' "elan4://2:2 elan4://4:2 elan4://5:2 elan4://7:2"
    check "$1: hosts in braces" addresses "$2" tcp 'a{1,3-4}.x, b' "tcp://a1.x:3334 tcp://a3.x:3334 tcp://a4.x:3334 tcp://b:3334"
    check "$1: a host that is no node is refused" refused "host 2-5 is not" addresses "$2" elan4 2-5 ""
    check "$1: the refused configuration is empty" sh -c "! test -s '$tmp/conf'"
}

same() { diff -r "$1" "$2"; }

# A release of our own: a few files, their checksums, a zero-context patch.
cp -R "$src/patches" "$tmp/"
cp -R "$src/common" "$src/bmi_ib" "$tmp/"
chmod -R u+w "$tmp"
mkdir -p "$tmp/new/src/io/bmi/bmi_ib" "$tmp/patches/orangefs/releases/small"
printf 'one\ntwo\nthree\n' >"$tmp/new/configure.ac"
printf 'alpha\nbeta\n' >"$tmp/new/src/io/bmi/bmi.c"
printf 'old module\n' >"$tmp/new/src/io/bmi/bmi_ib/module.mk.in"
printf 'old\n' >"$tmp/new/src/io/bmi/bmi_ib/ib.c"
chmod 755 "$tmp/new/configure.ac"
(cd "$tmp/new" && sha256sum configure.ac src/io/bmi/bmi.c) >"$tmp/patches/orangefs/releases/small/sums"
cat >"$tmp/patches/orangefs/releases/small/patch" <<'P'
--- a/configure.ac
+++ b/configure.ac
@@ -2,0 +3 @@
+AX_BMI_EXT
--- a/src/io/bmi/bmi.c
+++ b/src/io/bmi/bmi.c
@@ -1 +1 @@
-alpha
+gamma
P
graft=$tmp/patches/orangefs/graft
t=$tmp/tree

cp -a "$tmp/new" "$t"
check "a known tree is grafted, and recognised" sh -c "'$graft' '$t' | grep 'is OrangeFS small'"
check "configure.ac is changed in its place" sh -c "sed -n 3p '$t/configure.ac' | grep -q AX_BMI_EXT"
check "the shim is there" test -f "$t/src/io/bmi/bmi_ib_ext/shim.c"
check "--check sees it" sh -c "'$graft' --check '$t' | grep -q 'methods are in it'"
cp -a "$t" "$tmp/once"
check "again: no difference" sh -c "'$graft' '$t' && diff -r '$tmp/once' '$t'"
touch "$t/src/io/bmi/bmi_ib_ext/module.mk" "$t/src/io/bmi/bmi_ib_ext/shim.o" "$t/src/io/bmi/bmi_ib_ext/shim.d" # as configure and make do
check "undo" "$graft" --undo "$t"
check "undo restores every byte" same "$tmp/new" "$t"
check "undo restores modes" test -x "$t/configure.ac"
check "undo of an untouched tree is refused" refused "nothing to undo" "$graft" --undo "$t"

check "overlay" "$graft" --overlay "$t"
check "overlay brings our sources" test -f "$t/src/io/bmi/bmi_ib/common/engine/engine.c"
check "overlay leaves no old file" sh -c "! test -e '$t/src/io/bmi/bmi_ib/ib.c'"
check "from overlay to graft" "$graft" "$t"
check "the old module is back" test -f "$t/src/io/bmi/bmi_ib/ib.c"
check "undo after both" sh -c "'$graft' --undo '$t' && diff -r '$tmp/new' '$t'"

echo changed >>"$t/src/io/bmi/bmi.c"
cp -a "$t" "$tmp/changed"
check "an unknown tree is refused with the file's name" refused "src/io/bmi/bmi.c" "$graft" "$t"
check "a refused tree is untouched" same "$tmp/changed" "$t"
check "a folder that is no tree is refused" refused "is no OrangeFS source tree" "$graft" "$tmp/common"
check "a missing folder is refused" refused "no such directory" "$graft" "$tmp/nowhere"
check "no argument: usage" refused "usage" "$graft"

rm -rf "$t" && cp -a "$tmp/new" "$t" && "$graft" "$t" >/dev/null
echo "changed later" >>"$t/configure.ac"
sed -i 's/gamma/delta/' "$t/src/io/bmi/bmi.c"
check "undo over later changes is refused" refused "have been changed since" "$graft" --undo "$t"
check "and loses nothing" grep -q "changed later" "$t/configure.ac"

rm -rf "$t" && cp -a "$tmp/new" "$t" && mkdir -p "$t/src/io/bmi/bmi_ib_ext" && echo mine >"$t/src/io/bmi/bmi_ib_ext/shim.c"
check "a file in the way is not overwritten" refused "in the way" "$graft" "$t"
check "it is still there" grep -q mine "$t/src/io/bmi/bmi_ib_ext/shim.c"

for real in ${ORANGEFS_TREES-}; do
    rm -rf "$t" && cp -a "$real" "$t"
    check "$real: graft" "$src/patches/orangefs/graft" "$t"
    genconfig "$real" "$t/src/apps/admin/pvfs2-genconfig"
    check "$real: undo" sh -c "'$src/patches/orangefs/graft' --undo '$t' && diff -r '$real' '$t'"
done
[ -n "${ORANGEFS_TREES-}" ] || echo "# real trees: not tried, ORANGEFS_TREES names none"
[ -z "${ORANGEFS_PREFIX-}" ] || genconfig "installed pvfs2-genconfig" "$ORANGEFS_PREFIX/bin/pvfs2-genconfig"
finish

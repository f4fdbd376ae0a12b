#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# graft as used by an administrator. A small tree stands in for OrangeFS; if ORANGEFS_TREES names
# unpacked OrangeFS source trees, copies of them are grafted, too. The changed pvfs2-genconfig of
# these, and of the OrangeFS in ORANGEFS_PREFIX, is run.
set -u
unset CDPATH
src=$(cd "${srcdir:-$(dirname "$0")/../..}" && pwd)
# shellcheck source=tests/lib/tap.sh
. "$src/tests/lib/tap.sh"
tmp=$(mktemp -d) || { echo "Bail out! no temporary folder"; exit 99; }
trap 'chmod -R u+w "$tmp"; rm -rf "$tmp"' EXIT
refused() { # words of the message, then a command that must fail with it
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

addresses() { # pvfs2-genconfig, protocol, hosts, the expected addresses
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

# A release for the tests: a few files, their checksums, a zero-context patch.
cp -R "$src/patches" "$tmp/"
cp -R "$src/common" "$src/bmi_ib" "$tmp/"
chmod -R u+w "$tmp"
mkdir -p "$tmp/new/src/io/bmi/bmi_ib"
printf 'one\ntwo\nthree\n' >"$tmp/new/configure.ac"
seq 30 | sed 's/^/line /' >"$tmp/new/src/io/bmi/bmi.c"
printf 'old module\n' >"$tmp/new/src/io/bmi/bmi_ib/module.mk.in"
printf 'old\n' >"$tmp/new/src/io/bmi/bmi_ib/ib.c"
chmod 755 "$tmp/new/configure.ac"
cat >"$tmp/patch" <<'P'
--- a/configure.ac
+++ b/configure.ac
@@ -2,0 +3 @@
+AX_BMI_EXT
--- a/src/io/bmi/bmi.c
+++ b/src/io/bmi/bmi.c
@@ -10,0 +11 @@
+inserted
@@ -20 +22 @@
-line 20
+gamma
P
graft=$tmp/patches/orangefs/graft
t=$tmp/tree
learn() { # name of a release, which $t becomes
    mkdir "$tmp/patches/orangefs/releases/$1"
    (cd "$t" && sha256sum configure.ac src/io/bmi/bmi.c) >"$tmp/patches/orangefs/releases/$1/sums"
    (cd "$t" && LC_ALL=C awk -v learn=1 -f "$src/patches/orangefs/place.awk" "$tmp/patch") \
        >"$tmp/patches/orangefs/releases/$1/patch" 2>/dev/null
}

cp -a "$tmp/new" "$t"
learn small
check "a known tree is grafted, and recognised" sh -c "'$graft' '$t' | grep 'is OrangeFS small'"
check "configure.ac is changed in its place" sh -c "sed -n 3p '$t/configure.ac' | grep -q AX_BMI_EXT"
check "the shim is there" test -f "$t/src/io/bmi/bmi_ib_ext/shim.c"
check "--check sees it" sh -c "'$graft' --check '$t' | grep -q 'methods are in it'"
cp -a "$t" "$tmp/once"
check "again: no difference" sh -c "'$graft' '$t' && diff -r '$tmp/once' '$t'"
touch "$t/src/io/bmi/bmi_ib_ext/module.mk" "$t/src/io/bmi/bmi_ib_ext/shim.o" "$t/src/io/bmi/bmi_ib_ext/shim.d" # like configure and make
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

# Trees of an unknown release: which parts of the patch fit, and where.
fresh() { rm -rf "$t" && cp -a "$tmp/new" "$t"; }
refused_whole() { # words of the message; the tree must be unchanged
    rm -rf "$tmp/was" && cp -a "$t" "$tmp/was"
    refused "$1" "$graft" "$t" && diff -r --no-dereference "$tmp/was" "$t"
}
grafted_as() { # words of the output, the expected bmi.c; --undo must restore the tree
    rm -rf "$tmp/was" && cp -a "$t" "$tmp/was"
    "$graft" "$t" >"$tmp/out" && grep -- "$1" "$tmp/out" && diff "$2" "$t/src/io/bmi/bmi.c" &&
        [ "$(sed -n 3p "$t/configure.ac")" = AX_BMI_EXT ] && "$graft" --undo "$t" && diff -r "$tmp/was" "$t"
}
bmi=$t/src/io/bmi/bmi.c
with_patch() { sed 's/^line 10$/&\ninserted/; s/^line 20$/gamma/' "$1" >"$tmp/wanted"; }

fresh && sed -i '1s/^/a\nb\n/; 15s/^/c\n/' "$bmi" && with_patch "$bmi"
check "lines that moved are found" grafted_as "changed  src/io/bmi/bmi.c, moved by up to 3 lines" "$tmp/wanted"
check "--check says how it differs" sh -c "'$graft' --check '$t' | grep 'OrangeFS small (modified), methods are not in it'"
fresh && sed -i 's/^line 7$/else/; s/^line 14$/else/' "$bmi" && with_patch "$bmi"
check "the fourth line from a hunk may differ" grafted_as "is OrangeFS small (modified)" "$tmp/wanted"
fresh && chmod 444 "$bmi" "$t/configure.ac" && sed -i 1d "$bmi" && with_patch "$bmi"
check "files without write permission are patched" grafted_as "moved by up to 1 lines" "$tmp/wanted"
for l in 8 11 13; do
    fresh && sed -i "s/^line $l\$/else/" "$bmi"
    check "line $l beside a hunk differs: refused, untouched" refused_whole "src/io/bmi/bmi.c: hunk 1 (line 10 of small)"
done
fresh && sed -i 's/^line 20$/line 20 /' "$bmi"
check "a line to be removed differs: refused, untouched" refused_whole "src/io/bmi/bmi.c: hunk 2 (line 20 of small)"
fresh && sed 's/^line 3$/else/' "$tmp/new/src/io/bmi/bmi.c" >>"$bmi"
check "a hunk fits twice: refused, untouched" refused_whole "hunk 1 (line 10 of small) fits in 2 places"
fresh && { sed -n '16,30p' "$bmi"; sed -n '1,15p' "$bmi"; } >"$tmp/turned" && cp "$tmp/turned" "$bmi"
check "hunks in another order: refused, untouched" refused_whole "hunk 2 (line 20 of small) fits only before"
fresh && rm "$t/configure.ac"
check "a file is missing: refused, untouched" refused_whole "configure.ac: no such file"
fresh && sed -i 's/$/\r/' "$bmi"
check "lines end in CR LF: refused, untouched" refused_whole "src/io/bmi/bmi.c: lines end in CR LF"
fresh && mv "$t/configure.ac" "$t/real.ac" && ln -s real.ac "$t/configure.ac"
check "a file is a symbolic link: refused, untouched" refused_whole "configure.ac is not a regular file"
fresh && "$graft" "$t" >/dev/null && rm -r "$t/.bmi-graft" "$t/maint" "$t/src/io/bmi/bmi_ib_ext" "$t/src/io/bmi/bmi_elan4"
check "files that have the patch already: refused, untouched" refused_whole "configure.ac: hunk 1"

# Fixes: those that fit are applied, in order; the others are named.
rm "$tmp"/patches/orangefs/fixes/*
fresh
fix() { # name, file: what has become of the file is one more fix
    {
        printf 'Subject: %s\n\n' "$1"
        diff -U0 --label "a/$2" --label "b/$2" "$tmp/fixed/$2" "$t/$2"
    } >"$tmp/fix"
    (cd "$tmp/fixed" && LC_ALL=C awk -v learn=1 -f "$src/patches/orangefs/place.awk" "$tmp/fix") \
        >"$tmp/patches/orangefs/fixes/$1.patch" 2>/dev/null
    cp "$t/$2" "$tmp/fixed/$2"
}
seq 20 >"$tmp/new/src/job.c" && fresh && cp -a "$tmp/new" "$tmp/fixed"
sed -i 's/^8$/eight/' "$t/src/job.c" && fix 1-first src/job.c
sed -i 's/^11$/&\nmore/' "$t/src/job.c" && fix 2-second src/job.c
sed -i '/^18$/d' "$t/src/job.c" && fix 3-third src/job.c
fixed() { # words of the output, the expected job.c; --check and --undo agree
    rm -rf "$tmp/was" && cp -a "$t" "$tmp/was"
    "$graft" --fixes "$t" >"$tmp/out" && grep -- "$1" "$tmp/out" && diff "$2" "$t/src/job.c" || return
    grep '^  fix ' "$tmp/out" >"$tmp/in"
    "$graft" --check "$t" | sed 1d | diff "$tmp/in" - && "$graft" --undo "$t" && diff -r "$tmp/was" "$t"
}
fresh
check "--fixes applies all that fit" fixed "fix      3-third" "$tmp/fixed/src/job.c"
check "--check of an untouched tree names fixes that fit" sh -c "'$graft' --check '$t' | grep 'fix fits  2-second'"
check "without --fixes none is applied" sh -c "'$graft' '$t' && diff '$tmp/new/src/job.c' '$t/src/job.c' && '$graft' --undo '$t'"
sed -i 's/^17$/else/' "$t/src/job.c" && sed '/^18$/d' "$tmp/fixed/src/job.c" >"$tmp/wanted" &&
    sed -i 's/^17$/else\n18/' "$tmp/wanted"
check "a fix that does not fit is named and left out" fixed "left out 3-third: src/job.c: hunk 1" "$tmp/wanted"
check "--check names a fix that does not fit" sh -c "'$graft' --check '$t' | grep 'fix does not fit  3-third: src/job.c: hunk 1'"
cp "$tmp/fixed/src/job.c" "$t/src/job.c"
check "a tree that has the fixes is left as it is" fixed "left out 1-first" "$tmp/fixed/src/job.c"
rm "$t/src/job.c"
left_out() { "$graft" --fixes "$t" | grep 'left out 2-second: src/job.c: no such file' && "$graft" --undo "$t"; }
check "a file of a fix is missing: left out" left_out
fresh && "$graft" --fixes "$t" >/dev/null && echo 21 >>"$t/src/job.c"
check "undo keeps later changes outside a fix" sh -c "'$graft' --undo '$t' | grep 'which are kept: src/job.c'"
sed -i '$d' "$t/src/job.c"
check "and takes the fixes out" same "$tmp/new" "$t"
check "--fixes with --overlay: usage" refused usage "$graft" --fixes --overlay "$t"

# A second release, and a tree with a file of each.
fresh && sed -i 's/one/1/' "$t/configure.ac" && sed -i 's/^line 12$/other/' "$bmi"
learn small2
cp "$tmp/new/configure.ac" "$t" && with_patch "$bmi"
check "each file gets the patch that fits it" grafted_as "changed  src/io/bmi/bmi.c, by the patch of small2" "$tmp/wanted"

# Patching stops after the first file: with an error, or killed.
mkdir "$tmp/bin"
cat >"$tmp/bin/patch" <<P
#!/bin/sh
case "\$*" in *--dry-run* | *-R*) exec $(command -v patch) "\$@" ;; esac
sed '/^--- a.src/,\$d' | $(command -v patch) "\$@"
eval "\$ENDING"
P
chmod +x "$tmp/bin/patch"
fresh
path=$PATH
PATH=$tmp/bin:$PATH
export ENDING=false TMPDIR="$tmp"
check "patching fails: refused, untouched" refused_whole "patching failed; the tree is as it was"
ENDING='kill -9 $PPID'
"$graft" "$t" >/dev/null 2>&1
PATH=$path
check "patching was killed: some files have the patch" grep -q AX_BMI_EXT "$t/configure.ac"
check "--undo after that restores every byte" sh -c "'$graft' --undo '$t' && diff -r '$tmp/new' '$t'"

# Killed before the first change: with its folder just made, and with a part of the old folder kept.
cat >"$tmp/bin/mkdir" <<P
#!/bin/sh
$(command -v mkdir) "\$@" || exit
case "\$*" in */.bmi-graft) kill -9 \$PPID ;; esac
P
cat >"$tmp/bin/tar" <<'P'
#!/bin/sh
echo part >"$4"
kill -9 $PPID
P
chmod +x "$tmp/bin/mkdir" "$tmp/bin/tar"
undone_after_kill() { # option of the killed run
    fresh
    PATH=$tmp/bin:$PATH "$graft" "$1" "$t" >/dev/null 2>&1
    ls "$t/.bmi-graft" && "$graft" --check "$t" | grep 'methods are not in it' && "$graft" --undo "$t" && diff -r "$tmp/new" "$t"
}
grafted_after_kill() {
    fresh
    PATH=$tmp/bin:$PATH "$graft" "$t" >/dev/null 2>&1
    ls "$t/.bmi-graft" && "$graft" "$t" && "$graft" --undo "$t" && diff -r "$tmp/new" "$t"
}
check "killed before the first change: another run grafts, --undo restores every byte" grafted_after_kill
check "--overlay killed with its folder just made: --undo restores every byte" undone_after_kill --overlay
rm "$tmp/bin/mkdir"
check "--overlay killed while the old folder is kept: --undo restores every byte" undone_after_kill --overlay

# Without the right of root to write everywhere.
mortal=
[ "$(id -u)" != 0 ] || mortal='setpriv --bounding-set=-dac_override --inh-caps=-dac_override'
fresh && chmod a-w "$t" "$t/src/io/bmi"
if [ -z "$mortal" ] || $mortal true 2>/dev/null; then
    # shellcheck disable=SC2086
    check "--check of a tree that may not be written" sh -c "$mortal '$graft' --check '$t' | grep 'methods are not in it'"
    # shellcheck disable=SC2086
    check "grafting a tree that may not be written is refused, untouched" refused "may not be written" $mortal "$graft" "$t"
else
    skip "a tree that may not be written" "setpriv cannot drop capabilities"
fi
chmod u+w "$t" "$t/src/io/bmi"

check "a folder that is no tree is refused" refused "is no OrangeFS source tree" "$graft" "$tmp/common"
check "a missing folder is refused" refused "no such directory" "$graft" "$tmp/nowhere"
check "no argument: usage" refused "usage" "$graft"

rm -rf "$t" && cp -a "$tmp/new" "$t" && "$graft" "$t" >/dev/null
echo "changed later" >>"$t/configure.ac"
sed -i 's/gamma/delta/' "$t/src/io/bmi/bmi.c"
check "undo over later changes is refused" refused "have been changed since" "$graft" --undo "$t"
check "and loses nothing" grep -q "changed later" "$t/configure.ac"
fresh && "$graft" "$t" >/dev/null && echo "changed later" >>"$bmi"
check "again over later changes outside the patch" sh -c "'$graft' '$t' && grep 'changed later' '$bmi'"
sed -i '$d' "$bmi"
check "undo names the changed file" sh -c "'$graft' --undo '$t' | grep 'which are kept: src/io/bmi/bmi.c'"
check "and takes out the rest" same "$tmp/new" "$t"

rm -rf "$t" && cp -a "$tmp/new" "$t" && mkdir -p "$t/src/io/bmi/bmi_ib_ext" && echo mine >"$t/src/io/bmi/bmi_ib_ext/shim.c"
check "a file in the way is not overwritten" refused "in the way" "$graft" "$t"
check "it is still there" grep -q mine "$t/src/io/bmi/bmi_ib_ext/shim.c"

# build removes only what an earlier run has unpacked.
mkdir -p "$tmp/tools" "$tmp/prefix/lib/pkgconfig" "$tmp/unpacked/orangefs"
for tool in autoconf aclocal autoheader bison flex perl make gcc; do ln -s /bin/true "$tmp/tools/$tool"; done
touch "$tmp/prefix/lib/pkgconfig/bmi_ib.pc"
echo mine >"$tmp/unpacked/orangefs/file"
tar -C "$tmp" -cf "$tmp/new.tar" new
built() { # WORDS
    refused "$1" env PATH="$tmp/tools:$PATH" "$tmp/patches/orangefs/build" "$tmp/new.tar" "$tmp/prefix" --work "$tmp/unpacked"
}
check "build: a folder orangefs of the user is refused" built "orangefs: exists, and was not unpacked by this program"
check "build: and is left alone" grep -q mine "$tmp/unpacked/orangefs/file"
rm -r "$tmp/unpacked/orangefs"
check "build: without it the tarball is unpacked" built "prepare failed" # it has no prepare
echo old >"$tmp/unpacked/orangefs/file"
check "build: again" built "prepare failed"
check "build: what was unpacked before is replaced" sh -c "! test -e '$tmp/unpacked/orangefs/file'"

for real in ${ORANGEFS_TREES-}; do
    rm -rf "$t" && cp -a "$real" "$t"
    check "$real: graft" "$src/patches/orangefs/graft" "$t"
    genconfig "$real" "$t/src/apps/admin/pvfs2-genconfig"
    check "$real: undo" sh -c "'$src/patches/orangefs/graft' --undo '$t' && diff -r '$real' '$t'"
    check "$real: graft --fixes" "$src/patches/orangefs/graft" --fixes "$t"
    check "$real: undo of the fixes" sh -c "'$src/patches/orangefs/graft' --undo '$t' && diff -r '$real' '$t'"
    sed -i '1s/^/\n/' "$t/Makefile.in" "$t/src/io/bmi/bmi.c"
    check "$real with lines moved: graft" sh -c "'$src/patches/orangefs/graft' '$t' | grep 'bmi.c, moved by up to 1 lines'"
done
[ -n "${ORANGEFS_TREES-}" ] || echo "# real trees: not tried, ORANGEFS_TREES names none"
[ -z "${ORANGEFS_PREFIX-}" ] || genconfig "installed pvfs2-genconfig" "$ORANGEFS_PREFIX/bin/pvfs2-genconfig"
finish

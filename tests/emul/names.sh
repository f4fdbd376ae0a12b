#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# The software HCA in place of libraries that a program loads by name, and programs into which it
# cannot be loaded.
here=$(dirname "$0")
# shellcheck source=tests/lib/tap.sh
. "$here/../lib/tap.sh"
emuverbs=emul/verbs/emuverbs
library=$PWD/emul/verbs/.libs/libemuverbs.so
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT

installed() { ldconfig -p | awk -v n="$1" '$1 == n { print $NF; exit }'; }
exports() { nm -D --defined-only --with-symbol-versions "$1" | awk '$2 != "A" { print $NF }' | grep -E '@@' | sort; }
refused() { # PATTERN COMMAND...
    local pattern=$1
    shift
    "$@" >"$tmp/out" 2>&1
    case $?:$(cat "$tmp/out") in "2:emuverbs: "*$pattern*) ;; *) fail "$*: $(cat "$tmp/out")" ;; esac
}

check local_handles_reach_one_instance "$emuverbs" tests/emul/by_name
check ctypes_reaches_the_emulator "$emuverbs" python3 -c '
import ctypes
v = ctypes.CDLL("libibverbs.so.1")
v.ibv_get_device_list.restype = ctypes.POINTER(ctypes.c_void_p)
v.ibv_get_device_name.restype = ctypes.c_char_p
assert v.ibv_get_device_name(ctypes.c_void_p(v.ibv_get_device_list(None)[0])) == b"emu0"'

# Each function of the installed libraries, in its version node, or a provider would not load.
exports "$library" >"$tmp/own"
for name in libibverbs.so.1 librdmacm.so.1; do
    real=$(installed $name)
    [ -n "$real" ] || { skip "${name}_has_every_version" "$name is not installed"; continue; }
    begin "${name}_has_every_version"
    exports "$real" | sed 's/@@IBVERBS_PRIVATE/@IBVERBS_PRIVATE/' >"$tmp/real"
    missing=$(sed 's/@@IBVERBS_PRIVATE/@IBVERBS_PRIVATE/' "$tmp/own" | sort - \
        <(nm -D --defined-only --with-symbol-versions "$library" | awk '{ print $NF }' | grep '[^@]@IBVERBS_PRIVATE') | comm -13 - <(sort "$tmp/real"))
    [ -s "$tmp/real" ] || fail "$real exports nothing"
    [ -z "$missing" ] || fail "missing: $missing"
done

real=$(installed libibverbs.so.1)
if [ -n "$real" ]; then
    check names_equal_those_of_rdma_core "$emuverbs" python3 -c '
import ctypes, sys
for own, real, texts, numbers in (
        ("libibverbs.so.1", sys.argv[1], "ibv_wc_status_str ibv_node_type_str ibv_port_state_str ibv_event_type_str",
         "ibv_rate_to_mbps ibv_rate_to_mult mbps_to_ibv_rate mult_to_ibv_rate"),
        ("librdmacm.so.1", sys.argv[2], "rdma_event_str", "")):
    own, real = ctypes.CDLL(own), ctypes.CDLL(real)
    for f in texts.split() + numbers.split():
        for n in [*range(-2, 500), 2500, 10000, 14062, 103125, 1275000]:
            a, b = (getattr(lib, f) for lib in (own, real))
            a.restype = b.restype = ctypes.c_char_p if f in texts.split() else ctypes.c_int
            assert a(n) == b(n), (f, n, a(n), b(n))
    assert own._handle != real._handle' "$real" "$(installed librdmacm.so.1)"
else
    skip names_equal_those_of_rdma_core "libibverbs.so.1 is not installed"
fi
for provider in libmlx5.so.1 libefa.so.1; do
    if [ -n "$(installed $provider)" ]; then
        check "${provider}_is_loaded" "$emuverbs" python3 -c 'import ctypes, os, sys; ctypes.CDLL(sys.argv[1], os.RTLD_NOW)' $provider
    else
        skip "${provider}_is_loaded" "$provider is not installed"
    fi
done

begin library_without_names_is_reported
cp "$library" "$tmp/"
err=$(EMUVERBS_LIBRARY=$tmp/libemuverbs.so "$emuverbs" true 2>&1) || fail "true fails"
case $err in *"$tmp/emuverbs-libs: cannot be a folder of LD_LIBRARY_PATH: No such file"*) ;; *) fail "$err" ;; esac

echo 'int main(void) { return 0; }' >"$tmp/main.c"
for how in -static -static-pie; do
    if ${CC:-cc} "$how" -o "$tmp/main$how" "$tmp/main.c" 2>/dev/null; then
        begin "static_program_refused $how"
        refused "main$how: would not use emuverbs: statically linked" "$emuverbs" "$tmp/main$how"
        PATH=$tmp:$PATH refused "main$how: would not use emuverbs: statically linked" "$emuverbs" "main$how"
        "$emuverbs" env "$tmp/main$how" || fail "not run by another program"
    else
        skip "static_program_refused $how" "no static libc is here"
    fi
done

# Rights of another user: only root makes such programs, and the kernel must regard them here.
cp "$(type -P true)" "$tmp/true" && chmod 755 "$tmp"
if [ "$(id -u)" = 0 ] && ! findmnt -no OPTIONS -T "$tmp" | grep -qw nosuid; then
    begin set_id_program_refused
    chown 65534:65534 "$tmp/true"
    chmod 4755 "$tmp/true"
    refused "with set-user-ID" "$emuverbs" "$tmp/true"
    chmod 2755 "$tmp/true"
    refused "with set-group-ID" "$emuverbs" "$tmp/true"
    chmod 755 "$tmp/true"
    "$emuverbs" "$tmp/true" || fail "refused without rights"
    cp "$emuverbs" "$tmp/"
    if setcap cap_net_raw=ep "$tmp/true" 2>/dev/null; then
        begin program_with_capabilities_refused
        "$emuverbs" "$tmp/true" || fail "refused to root, who gains nothing"
        refused "with file capabilities" setpriv --reuid=65534 --regid=65534 --clear-groups "$tmp/emuverbs" "$tmp/true"
    else
        skip program_with_capabilities_refused "setcap does not work here"
    fi
else
    skip set_id_program_refused "needs root, and a file system with set-user-ID"
    skip program_with_capabilities_refused "needs root, and a file system with set-user-ID"
fi
finish

#!/bin/sh
# SPDX-License-Identifier: LGPL-2.1-or-later
# The software HCA has every function of libibverbs and librdmacm that a program may call with an
# object of its device: a missing one would enter the real library, which would misinterpret the
# object. Exit 77 without nm or the libraries.
: "${LIBRARY:=emul/verbs/.libs/libemuverbs.so}"
command -v nm >/dev/null 2>&1 || { echo "skipped: nm is not installed (binutils)"; exit 77; }
functions() { nm -D --defined-only "$1" | awk '$2 ~ /[TWi]/ {sub(/@.*/, "", $3); print $3}' | sort -u; }
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
functions "$LIBRARY" >"$tmp/own" || exit 99
missing=0
for name in libibverbs.so.1 librdmacm.so.1; do
    lib=$(ldconfig -p 2>/dev/null | awk -v n=$name '$1 == n {print $NF; exit}')
    [ -n "$lib" ] || { echo "skipped: $name is not installed"; exit 77; }
    functions "$lib" | comm -23 - "$tmp/own" |
        # Excluded: functions for drivers; conversions of numbers to text or numbers; functions on
        # sysfs's text or the kernel's structures; marking of pages; all of rsockets except
        # rsocket(), without which there is no rsocket.
        grep -vE '^(ibv_cmd_|verbs_|_verbs_|__verbs_log|ibv_register_driver|__ioctl_|execute_ioctl)' |
        grep -vE '^(ibv_[a-z]+_[a-z]+_str|rdma_event_str|ibv_rate_to_|mbps_to_|mult_to_)' |
        grep -vE '^(ibv_copy_.*_kern|ibv_get_sysfs_path|ibv_read_ibdev_sysfs_file|ibv_do(nt)?fork_range|_init|_fini)' |
        grep -vE '^r(accept|bind|close|connect|fcntl|getpeername|getsockname|getsockopt|iomap|iounmap|iowrite|listen|poll)$' |
        grep -vE '^r(read|readv|recv|recvfrom|recvmsg|select|send|sendmsg|sendto|setsockopt|shutdown|write|writev)$' >"$tmp/missing"
    sed "s/^/FAIL: $name has, the software HCA has not: /" "$tmp/missing"
    missing=$((missing + $(wc -l <"$tmp/missing")))
    echo "$name: $(functions "$lib" | wc -l) functions"
done
[ $missing -eq 0 ]

# SPDX-License-Identifier: LGPL-2.1-or-later
# Small messages by sends and by writes into rings (bench/rings.c), both ends on one device. The
# figures are recorded, not checked. With VM_ICOUNT=1 time is counted in instructions of the guest,
# including the kernel, so that the host's load does not matter.
: "${rounds:=3}" "${count:=50}"
within_one_device
if rings time $rounds $count >/tmp/rings; then
    while read -r line; do
        note "$line"
    done </tmp/rings
    pass "$(grep -c . /tmp/rings) lines"
else
    fail "rings failed"
fi

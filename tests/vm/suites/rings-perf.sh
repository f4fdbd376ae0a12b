# SPDX-License-Identifier: LGPL-2.1-or-later
# Small messages by sends and by writes into rings (bench/rings.c), both ends on one device.  Nothing is judged: the figures are noted.
# With VM_ICOUNT=1 time is counted in instructions of the guest, kernel and all, so that it does not matter how busy the host is.
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

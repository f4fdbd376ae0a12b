# SPDX-License-Identifier: LGPL-2.1-or-later
# Cost of keys that open the bytes of one operation only, on a device without usable windows:
# bandwidth with rkey_scope=operation and with rkey_scope=region, in turn, medians of their ratios. Each
# device has its own CPU, like in perf.sh. Bar: at least 0.95 with messages of 1 MiB; those of 64
# KiB are recorded. No ring (eager_ring_bytes=0), which keys per operation do not open.
: "${rounds:=9}"
a_cpu_each

for mode in operation region; do
    port=7000
    [ $mode = operation ] || port=7001
    taskset 1 bmi-perf server ib://10.7.0.1:$port --bmi-options rkey_scope=$mode,eager_ring_bytes=0,poll_us=100000 >/tmp/$mode.log 2>&1 &
    until_there listening /tmp/$mode.log $!
    note "$mode: $(bmi-perf --session ib://10.7.0.1:$port --bmi-options device=rxe2,rkey_scope=$mode,eager_ring_bytes=0 | grep "a key opens")"
done

bw() { # mode, direction, bytes, count: MB/s
    port=7000
    [ $1 = operation ] || port=7001
    taskset 2 bmi-perf bw ib://10.7.0.1:$port --json --rounds 1 --direction $2 --sizes $3 --count $4 \
        --bmi-options device=rxe2,rkey_scope=$1,eager_ring_bytes=0,poll_us=100000 | sed -n 's/.*"median": \([0-9.]*\).*/\1/p'
}
median() { sort -n "$1" | awk '{v[NR] = $1} END {print (v[int((NR + 1) / 2)] + v[int((NR + 2) / 2)]) / 2}'; }

round=0
while [ $round -lt $rounds ]; do
    round=$((round + 1))
    for direction in put get; do
        for size in 65536 1048576; do
            for mode in operation region; do
                bw $mode $direction $size $((20971520 / size)) >>/tmp/$mode.$direction.$size
            done
        done
    done
done
for size in 65536 1048576; do
    for direction in put get; do
        paste /tmp/operation.$direction.$size /tmp/region.$direction.$size | awk '{print $1 / $2}' >/tmp/ratios
        said="$size bytes, $direction: operation $(median /tmp/operation.$direction.$size) MB/s, region $(median /tmp/region.$direction.$size) MB/s, median of the ratios $(median /tmp/ratios)"
        if [ $size = 65536 ]; then
            note "$said"
        elif median /tmp/ratios | awk '{exit !($1 >= 0.95)}'; then
            pass "$said"
        else
            fail "$said"
        fi
    done
done
for server in $(jobs -p); do
    kill $server
    wait $server
done

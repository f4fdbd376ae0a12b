# SPDX-License-Identifier: LGPL-2.1-or-later
# Figures beside ibv_rc_pingpong on the same two devices: rounds in turn, medians.
# ibv_rc_pingpong runs both ways, polling and by events (-e): on two emulated CPUs those that poll keep the kernel's own work
# waiting.  The faster one counts.  Bars: 8 bytes one way at most 1.25 times as long; 1 MiB at least 97 % as fast, forth and back as ibv_rc_pingpong does
# it, and in one direction.
rounds=5
server=ib://10.7.0.1:7000
bmi-perf server $server >/tmp/server.log 2>&1 & job=$!
until grep -q 'ib://' /tmp/server.log; do sleep 0.1; done
perf() { bmi-perf "$@" --bmi-options device=rxe2; }

pingpong() { # bytes, count, -e: microseconds of a round trip
    ibv_rc_pingpong -d rxe1 -g "$(gid_index rxe1)" -m 4096 -s "$1" -n "$2" $3 >/tmp/raw.server 2>&1 & raw=$!
    i=0
    until ibv_rc_pingpong -d rxe2 -g "$(gid_index rxe2)" -m 4096 -s "$1" -n "$2" $3 10.7.0.1 >/tmp/raw 2>&1; do
        i=$((i + 1))
        [ $i -lt 50 ] || { kill $raw; cat /tmp/raw; return 1; }
        sleep 0.1
    done
    wait $raw
    sed -n 's/.* = \([0-9.]*\) usec.iter.*/\1/p' /tmp/raw
}
bmi() { perf "$@" --rounds 1 --json | sed -n 's/.*"median": \([0-9.]*\).*/\1/p'; }
median() { sort -n "$1" | awk '{v[NR] = $1} END {print (v[int((NR + 1) / 2)] + v[int((NR + 2) / 2)]) / 2}'; }

round=0
while [ $round -lt $rounds ]; do
    round=$((round + 1))
    pingpong 8 1000 >>/tmp/raw.8
    pingpong 8 1000 -e >>/tmp/raw.8e
    bmi lat $server --sizes 8 --count 1000 >>/tmp/bmi.8
    pingpong 1048576 10 >>/tmp/raw.1m
    pingpong 1048576 10 -e >>/tmp/raw.1me
    bmi lat $server --sizes 1M --count 10 >>/tmp/bmi.1m
    bmi bw $server --sizes 1M --count 20 >>/tmp/bmi.bw
done
kill $job
wait $job
note "ibv_rc_pingpong, 8 bytes, us one way: $(awk '{printf "%s ", $1 / 2}' /tmp/raw.8)"
note "ibv_rc_pingpong -e, 8 bytes, us one way: $(awk '{printf "%s ", $1 / 2}' /tmp/raw.8e)"
note "bmi-perf lat, 8 bytes, us one way: $(tr '\n' ' ' </tmp/bmi.8)"
note "ibv_rc_pingpong, 1 MiB, us one way: $(awk '{printf "%s ", $1 / 2}' /tmp/raw.1m)"
note "ibv_rc_pingpong -e, 1 MiB, us one way: $(awk '{printf "%s ", $1 / 2}' /tmp/raw.1me)"
note "bmi-perf lat, 1 MiB, us one way: $(tr '\n' ' ' </tmp/bmi.1m)"
note "bmi-perf bw, 1 MiB, MB/s: $(tr '\n' ' ' </tmp/bmi.bw)"

judged() { # name, ours, theirs, worst ratio, or least when it begins with a minus
    if echo "$2 $3 $4" | awk '{r = $1 / $2; print r; exit !($1 > 0 && ($3 < 0 ? r >= -$3 : r <= $3))}' >/tmp/ratio; then
        pass "$1: ratio $(cat /tmp/ratio)"
    else
        fail "$1: ratio $(cat /tmp/ratio), the bar is ${4#-}"
    fi
}
faster() { { median $1; median $2; } | sort -n | head -1; }
raw_us=$(faster /tmp/raw.8 /tmp/raw.8e | awk '{print $1 / 2}')
raw_mbs=$(faster /tmp/raw.1m /tmp/raw.1me | awk '{print 2 * 1048576 / $1}')
judged "8 bytes one way, of ibv_rc_pingpong's time" "$(median /tmp/bmi.8)" "$raw_us" 1.25
judged "1 MiB forth and back, of ibv_rc_pingpong's MB/s ($raw_mbs)" "$(median /tmp/bmi.1m | awk '{print 1048576 / $1}')" "$raw_mbs" -0.97
judged "1 MiB in one direction, of ibv_rc_pingpong's MB/s" "$(median /tmp/bmi.bw)" "$raw_mbs" -0.97

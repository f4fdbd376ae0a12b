# SPDX-License-Identifier: LGPL-2.1-or-later
# Figures beside ibv_rc_pingpong, and ib_write_bw in one direction: rounds in turn, medians of their
# ratios. Each device has its own CPU, which handles its packets and runs its programs, like two
# hosts. Without that CPU 0 handles all packets, of both devices, and a program's share depends on
# the CPU that the scheduler chose; pinned=no shows this.
#
# Both are compared polling without end, like ibv_rc_pingpong by default (poll_us=$spin: on emulated
# CPUs an answer takes longer than the usual 200 us), and sleeping (ibv_rc_pingpong -e, poll_us=0).
# Bars, polling: 8 bytes one way at most 1.25 times as long; 1 MiB forth and back, like
# ibv_rc_pingpong, at least 97 % as fast; 1 MiB in one direction at least 97 % of ib_write_bw.
# Sleeping, the ratios are only recorded.
#
# Every measurement has its own processes, on both sides: the speed of code on an emulated CPU
# varies by a quarter with the place chosen by the loader.
: "${rounds:=15}"
spin=100000
server=ib://10.7.0.1:7000
here="taskset 1"
there="taskset 2"
if [ "${pinned-}" = no ]; then
    here=
    there=
else
    a_cpu_each
fi

# The client's output is in /tmp/raw.
raw() { # program, arguments
    program=$1
    shift
    $here $program -d rxe1 "$@" >/tmp/raw.server 2>&1 & raw=$!
    i=0
    until $there $program -d rxe2 "$@" 10.7.0.1 >/tmp/raw 2>&1; do
        i=$((i + 1))
        [ $i -lt 50 ] || { kill $raw; cat /tmp/raw; return 1; }
        sleep 0.1
    done
    wait $raw
}
pingpong() { # bytes, count, -e: microseconds of a round trip
    raw ibv_rc_pingpong -g "$(gid_index rxe1)" -m 4096 -s "$1" -n "$2" $3
    sed -n 's/.* = \([0-9.]*\) usec.iter.*/\1/p' /tmp/raw
}
write_bw() { # bytes, count: MB/s
    raw ib_write_bw -x "$(gid_index rxe1)" -m 4096 -s "$1" -n "$2" -F
    awk -v size="$1" '$1 == size {print $4 * 1.048576}' /tmp/raw
}
bmi() { # how long to poll, test, bytes, count: the figure
    $here bmi-perf server $server --bmi-options poll_us=$1 >/tmp/server.log 2>&1 & serving=$!
    until_there ib:// /tmp/server.log $serving
    $there bmi-perf $2 $server --sizes $3 --count $4 --bmi-options device=rxe2,poll_us=$1 --rounds 1 --json | sed -n 's/.*"median": \([0-9.]*\).*/\1/p'
    kill $serving
    wait $serving
}
median() { sort -n "$1" | awk '{v[NR] = $1} END {print (v[int((NR + 1) / 2)] + v[int((NR + 2) / 2)]) / 2}'; }

round=0
while [ $round -lt $rounds ]; do
    round=$((round + 1))
    pingpong 8 1000 >>/tmp/raw.8
    bmi $spin lat 8 1000 >>/tmp/bmi.8
    pingpong 8 1000 -e >>/tmp/raw.8.asleep
    bmi 0 lat 8 1000 >>/tmp/bmi.8.asleep
    pingpong 1048576 30 >>/tmp/raw.1m
    bmi $spin lat 1M 30 >>/tmp/bmi.1m
    bmi $spin bw 1M 20 >>/tmp/bmi.bw
    write_bw 1048576 20 >>/tmp/raw.bw
    pingpong 1048576 30 -e >>/tmp/raw.1m.asleep
    bmi 0 lat 1M 30 >>/tmp/bmi.1m.asleep
    bmi 0 bw 1M 20 >>/tmp/bmi.bw.asleep
done
for way in "" .asleep; do
    note "ibv_rc_pingpong, 8 bytes, us one way${way:+, asleep}: $(awk '{printf "%s ", $1 / 2}' /tmp/raw.8$way)"
    note "bmi-perf lat, 8 bytes, us one way${way:+, asleep}: $(tr '\n' ' ' </tmp/bmi.8$way)"
    note "ibv_rc_pingpong, 1 MiB, us one way${way:+, asleep}: $(awk '{printf "%s ", $1 / 2}' /tmp/raw.1m$way)"
    note "bmi-perf lat, 1 MiB, us one way${way:+, asleep}: $(tr '\n' ' ' </tmp/bmi.1m$way)"
    note "bmi-perf bw, 1 MiB, MB/s${way:+, asleep}: $(tr '\n' ' ' </tmp/bmi.bw$way)"
done
note "ib_write_bw, 1 MiB, MB/s: $(tr '\n' ' ' </tmp/raw.bw)"

# Compares neighbours, not medians of all: the host's speed changes from one moment to the next, by
# a quarter at times.
ratio() { # file, file, factor: the median of what they have line by line, first by second
    paste "$1" "$2" | awk -v factor="$3" '{print $1 / $2 * factor}' >/tmp/ratios
    median /tmp/ratios
}
judged() { # name, ratio, bar: the ratio may be at most that, or at least when the bar begins with a minus
    if echo "$2 $3" | awk '{exit !($1 > 0 && ($2 < 0 ? $1 >= -$2 : $1 <= $2))}'; then
        pass "$1: ratio $2"
    elif [ -n "$way" ]; then
        note "$1: ratio $2, beyond ${3#-}"
    else
        fail "$1: ratio $2, the bar is ${3#-}"
    fi
}
for way in "" .asleep; do
    asleep=${way:+, asleep}
    judged "8 bytes one way$asleep, of ibv_rc_pingpong's time ($(median /tmp/bmi.8$way) us, median of rounds)" \
        "$(ratio /tmp/bmi.8$way /tmp/raw.8$way 2)" 1.25
    judged "1 MiB forth and back$asleep, of ibv_rc_pingpong's MB/s ($(median /tmp/raw.1m$way | awk '{print 2 * 1048576 / $1}'))" \
        "$(ratio /tmp/raw.1m$way /tmp/bmi.1m$way 0.5)" -0.97
done
way=
judged "1 MiB in one direction, of ib_write_bw's MB/s ($(median /tmp/raw.bw))" "$(ratio /tmp/bmi.bw /tmp/raw.bw 1)" -0.97

# SPDX-License-Identifier: LGPL-2.1-or-later
# Correctness under bmi-perf's loads, and figures beside ibv_rc_pingpong (notes; rounds in turn, medians by bmi-perf).
bmi-perf server ib://10.7.0.1:7000 >/tmp/server.log 2>&1 & server=$!
sleep 1
for direction in put get; do
    check 200 "bw, verified, $direction" bmi-perf bw ib://10.7.0.1:7000 --sizes 4K,64K,1M --count 32 --rounds 1 --direction $direction --verify
done
check 200 "list, verified" bmi-perf list ib://10.7.0.1:7000 --count 8 --rounds 1 --verify
check 100 "lat, verified" bmi-perf lat ib://10.7.0.1:7000 --sizes 8,1K --count 200 --rounds 1 --verify
for round in 1 2 3; do
    bmi-perf lat ib://10.7.0.1:7000 --sizes 8 --count 1000 --rounds 1 2>/dev/null | grep '^lat' | sed 's/^/note /'
    bmi-perf bw ib://10.7.0.1:7000 --sizes 1M --count 64 --rounds 1 --window 1 2>/dev/null | grep '^bw' | sed 's/^/note /'
    ibv_rc_pingpong -d rxe1 -g 1 -m 4096 -s 8 -n 1000 >/dev/null 2>&1 & raw=$!
    sleep 1
    ibv_rc_pingpong -d rxe2 -g 1 -m 4096 -s 8 -n 1000 10.7.0.1 2>&1 | grep usec | sed 's/^/note raw 8 B: /'
    wait $raw
    ibv_rc_pingpong -d rxe1 -g 1 -m 4096 -s 1048576 -n 30 >/dev/null 2>&1 & raw=$!
    sleep 1
    ibv_rc_pingpong -d rxe2 -g 1 -m 4096 -s 1048576 -n 30 10.7.0.1 2>&1 | grep Mbit | sed 's/^/note raw 1 MiB: /'
    wait $raw
done
kill $server
wait $server

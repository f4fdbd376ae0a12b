# SPDX-License-Identifier: LGPL-2.1-or-later
# Data sent by bmi-perf arrives unchanged: loads of all kinds, every byte checked.
server=ib://10.7.0.1:7000
bmi-perf server $server >/tmp/server.log 2>&1 & serving=$!
until_there ib:// /tmp/server.log $serving
perf() { bmi-perf "$@" --bmi-options device=rxe2; }
for direction in put get; do
    check 200 "bw, verified, $direction" perf bw $server --sizes 4K,64K,1M --count 32 --rounds 1 --direction $direction --verify
done
check 200 "list, verified" perf list $server --count 8 --rounds 1 --verify
check 100 "lat, verified" perf lat $server --sizes 8,1K --count 200 --rounds 1 --verify
kill $serving
wait $serving

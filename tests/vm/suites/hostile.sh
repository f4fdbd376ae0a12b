# SPDX-License-Identifier: LGPL-2.1-or-later
# Hostile clients (tests/hostile), on real verbs: a bmi-iod and a bmi-perf server violate no rule,
# others' copies succeed, and the servers free the memory used by the attack.
RNR=provoked # by attackers without receives
mkdir -p /tmp/store
bmi-iod --listen ib://10.7.0.1:7000 --store /tmp/store >/tmp/iod.log 2>&1 & iod=$!
bmi-perf server ib://10.7.0.1:7001 >/tmp/perf.log 2>&1 & perf=$!
until_there listening /tmp/iod.log $iod
until_there listening /tmp/perf.log $perf
head -c 1000003 /dev/urandom >/tmp/in

copy() {
    rm -f /tmp/out
    timeout 60 bmi-cp -q --options device=rxe2 /tmp/in ib://10.7.0.1:7000/good && timeout 60 bmi-cp -q --options device=rxe2 ib://10.7.0.1:7000/good /tmp/out && cmp /tmp/in /tmp/out
}
memory() { awk '/^(RssAnon|RssShmem|VmPin):/ { s += $2 } END { print s + 0 }' /proc/$1/status; } # KiB

# Copies while the attackers live.
attack() { # name
    one= two= copies=0 bad=0 seconds=4
    [ $1 != shared-keys ] || seconds=8
    hostile $1 iod ib://10.7.0.1:7000 $seconds >/tmp/hostile.iod 2>&1 & one=$!
    hostile $1 perf ib://10.7.0.1:7001 $seconds >/tmp/hostile.perf 2>&1 & two=$!
    while [ -d /proc/$one ] || [ -d /proc/$two ] || [ $copies = 0 ]; do
        copy || bad=$((bad + 1))
        copies=$((copies + 1))
    done
    wait $one || { bad=$((bad + 1)); cat /tmp/hostile.iod; }
    wait $two || { bad=$((bad + 1)); cat /tmp/hostile.perf; }
    tail -n 1 /tmp/hostile.iod /tmp/hostile.perf
    [ $bad = 0 ]
}

# Returns whether the servers' memory is within 16 MiB of before.
settled() { # before iod, before perf
    i=0
    while [ $(($(memory $iod) - $1)) -gt 16384 ] || [ $(($(memory $perf) - $2)) -gt 16384 ]; do
        i=$((i + 1))
        [ $i -lt 50 ] || { echo "$1 and $2 KiB before, now $(memory $iod) and $(memory $perf)"; return 1; }
        sleep 0.2
    done
}

check 30 "a copy before" copy
opens() { bmi-perf --session ib://10.7.0.1:7001 --bmi-options device=rxe2,$1 | grep "a key opens *$2"; }
check 20 "by default a key opens one operation" opens poll_us=50 "the bytes of one operation, to every peer"
check 20 "by option it opens a registration" opens rkey_scope=region "all of a registration"
for kind in malformed hellos credits deaf cancels rts empty silent storm shared-keys; do
    before_iod=$(memory $iod) before_perf=$(memory $perf)
    check 120 "attacked: $kind" attack $kind
    for victim in iod perf; do note "$(tail -n 1 /tmp/hostile.$victim)"; done
    check 20 "memory after $kind" settled $before_iod $before_perf
done
for victim in iod perf; do # of the last one, with keys
    check 5 "$victim: keys were kept, and opened nothing" grep -q " [1-9][0-9]* keys, 0 bytes stolen, 0 failures" /tmp/hostile.$victim
done
check 30 "a copy after" copy
for server in $iod $perf; do
    kill $server
    wait $server && pass "a server ends with status 0" || fail "a server ends with status $?"
done

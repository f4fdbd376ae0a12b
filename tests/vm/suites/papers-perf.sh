# SPDX-License-Identifier: LGPL-2.1-or-later
# Items of bench/papers, run here as on a host; `bench/papers BUILD --rxe` starts this and takes the
# figures from the console. Both ends are on one device.
: "${items:=003-fig7}" "${rounds:=1}" "${bytes:=1M}" "${count:=20}"
within_one_device
export IN_VM=yes OUT=/tmp/papers FIRST_PORT=7000 ROUNDS=$rounds BYTES=$bytes COUNT=$count
export PERFTEST_OPTIONS="-d rxe1 -x $(gid_index rxe1) -m 4096"
if /src/bench/papers /x --rxe $(echo "$items" | tr , ' ') >/tmp/papers.log 2>&1; then
    pass "bench/papers: $items"
else
    fail "bench/papers: $(tail -n 5 /tmp/papers.log)"
fi
for file in /tmp/papers/raw/*.tsv; do
    name=${file##*/}
    tr '\t' '|' <"$file" | sed "s/^/note raw ${name%.tsv} /"
done

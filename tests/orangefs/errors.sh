#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# A client's errors, reported at once: no server, no such host, no such port, no device; servers
# without a device. OrangeFS gives up a server with a known address only after several retries, each
# of which it reports.
set -u
host=127.0.0.1
# shellcheck source=tests/orangefs/lib.sh
. "${srcdir:-$(dirname "$0")/../..}/tests/orangefs/lib.sh"
mnt=$tmp/mnt
mkdir -p "$mnt"
make_files 1000003

fails_saying() { # words: number of lines of a client's output with them; the client must end by itself, without a retry
    local n=$1 words=$2 rc
    run pvfs2-ls "$mnt" >"$tmp/out" 2>&1
    rc=$?
    cat "$tmp/out"
    [ $rc != 0 ] && ! hung_or_died $rc || { echo "status $rc"; return 1; }
    [ "$(grep -cE -- "$words" "$tmp/out")" -ge 1 ] || { echo "nobody says: $words"; return 1; }
    ! grep -qiE 'msgpair failed|out of retries' "$tmp/out" || { echo "it was tried again"; return 1; }
    [ "$n" = any ] || [ "$(grep -cE -- "$words" "$tmp/out")" = "$n" ]
}

tab "ib://$host:$base"
check "no server: said at once, and once" fails_saying 1 "cannot connect: Connection refused; no server listens there by RDMA"
tab "ib://no-such-host.invalid:$base"
check "no such host: said at once, in words that fit" fails_saying any "no-such-host.invalid.*cannot resolve the host name: (Name or service not known|Temporary failure in name resolution|No address)"
for port in 65536 99999 "" x; do
    tab "ib://$host:$port"
    check "port \"$port\": what is right is told" fails_saying any "ib://$host:$port.*from 1 to 65535"
done
tab "ib://$host:0"
check "port \"0\": what it is for is told" fails_saying any "ib://$host:0.*0 is any free port to listen on"
if [ -n "$wrap" ]; then
    saved=$wrap
    wrap="env EMUVERBS_DEVICES=0 $wrap"
    tab "ib://$host:$base"
    check "no RDMA device: said once" fails_saying 1 "no RDMA device"
    wrap=$saved
fi

# The next address of the tab file is used if the first one's network is missing.
what="tcp alone"
if configure tcp 1 && bring_up; then
    tab "ib://$host:$base"
    check "$what: a server of another network at the port: said once" fails_saying 1 "ib://.*Connection refused; no server listens there by RDMA.*use the server.s method"
    tcp=tcp://$host:$base ib=ib://$host:$((base + 5))
    for first in "$ib/orangefs,$tcp" "$tcp/orangefs,$ib" "ib://no-such-host.invalid:$base/orangefs,$tcp"; do
        tab "$first"
        check "$what: a client that is given $first" there_and_back "$tmp/f1000003" 65536
    done
fi
end

# A machine without RDMA: one line, and its other network works.
for order in tcp-ib ib-tcp; do
    what="no RDMA device, $order"
    configure tcp 1 || continue
    case $order in
    tcp-ib) modules=bmi_tcp,bmi_ib addresses="tcp://$host:$base,ib://$host:$((base + 5))" ;;
    *) modules=bmi_ib,bmi_tcp addresses="ib://$host:$((base + 5)),tcp://$host:$base" ;;
    esac
    sed -i -e "s#^\([ \t]*Alias [^ ]* \)tcp://$host:$base#\1$addresses#" -e "s/^\([ \t]*BMIModules\).*/\1 $modules/" "$tmp/fs.conf"
    if ! has_line "$addresses" || ! has_line "BMIModules $modules"; then continue; fi
    saved=$wrap
    [ -z "$wrap" ] || wrap="env EMUVERBS_DEVICES=0 $wrap"
    if bring_up; then
        check "$what: clients copy over tcp" there_and_back "$tmp/f1000003" 65536
        cat "$tmp"/server.log* "$tmp"/server-0.out >"$tmp/said" 2>/dev/null
        check "$what: the server says why it has no ib" says "no RDMA device" "$tmp/said"
        check "$what: once" [ "$(grep -c "no RDMA device" "$tmp/said")" = 1 ]
        ib=ib://$host:$((base + 5)) tcp=tcp://$host:$base
        for first in "$ib/orangefs,$tcp" "$tcp/orangefs,$ib"; do
            tab "$first"
            check "$what: a client that is given ${first%%:*} first" there_and_back "$tmp/f1000003" 65536
        done
        tab "$ib"
        run pvfs2-ls "$mnt" >"$tmp/out" 2>&1
        rc=$?
        cp "$tmp/out" "$tmp/log"
        if [ $rc = 0 ] || hung_or_died $rc; then fails "$what: a client of ib: status $rc"; else passes "$what: a client of ib fails"; fi
        check "$what: and says why" says "no RDMA device" "$tmp/out"
    fi
    end
    wrap=$saved
done
what="no RDMA device, no other network"
if configure ib 1; then
    run pvfs2-server -f -a "${alias[0]}" "$tmp/fs.conf" >"$tmp/log" 2>&1 || fails "$what: mkfs"
    EMUVERBS_DEVICES=0 limit=30 run pvfs2-server -d -a "${alias[0]}" "$tmp/fs.conf" >"$tmp/server-0.out" 2>&1
    rc=$?
    if [ $rc = 0 ] || hung_or_died $rc; then fails "$what: the server's status is $rc"; else passes "$what: the server ends"; fi
    cat "$tmp"/server-0.out "$tmp"/server.log >"$tmp/said" 2>/dev/null
    check "$what: and says why" says "no RDMA device" "$tmp/said"
fi
finish

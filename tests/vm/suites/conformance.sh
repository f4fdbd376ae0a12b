# SPDX-License-Identifier: LGPL-2.1-or-later
# The suite for every fabric, from device two to device one.
#
# Prints the last lines of each test that failed or did not end.
failed_tests() { # log
    awk '/^\[ RUN / { n = 0; open = 1 }
         open { line[n++] = $0 }
         /^\[ .*(OK|FAILED|SKIPPED) / { if (open && /FAILED/) show(); open = 0 }
         END { if (open) show() }
         function show(i) { for (i = n > 12 ? n - 12 : 0; i < n; i++) print substr(line[i], 1, 200) }' "$1"
}
suite() { # seconds, name, port, program and its options
    limit=$1 name=$2 port=$3
    shift 3
    check $limit "$name" "$@" --fabric ib --addr ib://10.7.0.1:$port --client-options device=rxe2
    [ $status = 0 ] || failed_tests /tmp/check.log | sed "s/^/note $name: /"
    after "$name"
}
# Prints slow tests while they run.
timed() {
    { "$@" 2>&1; echo $? >/tmp/timed.status; } | awk '
        /^\[ RUN / { begin = systime(); test = $NF }
        { print }
        /^\[ .*(OK|FAILED) / { if (systime() - begin > 4) print "note slow: " test ": " systime() - begin " s" >"/dev/console" }'
    return "$(cat /tmp/timed.status)"
}
export SLOW_READS=yes # rxe's reads are slow, which the engine has to know
# Processes of clients_in_processes: with 64 of them on emulated processors rxe cannot send
# (send_err) and its retries run out, so that links are lost.
export CROWD=12
suite 200 "fabric conformance" 7000 fabric-conformance
suite 200 "fabric conformance, shared receives" 7200 fabric-conformance --options srq=on
suite 200 "invitations, with keys of registrations" 7300 conformance --options rkey_scope=region --only 'invit*,receiver_first*,counts_of_a_large*'
suite 900 "engine conformance" 7400 timed conformance --only '!server_to_server'
# Servers that connect to each other at the same address.
within_one_device
check 100 "engine conformance, servers at one address" conformance --fabric ib --addr ib://10.7.0.1:7600 \
    --only 'server_to_server'
over_the_wire
after "servers at one address"

# SPDX-License-Identifier: LGPL-2.1-or-later
# The suite that every fabric passes, from device two to device one.
check 300 "fabric conformance" fabric-conformance --fabric ib --addr ib://10.7.0.1:7000
after "fabric conformance"
check 300 "fabric conformance, own receive queues" fabric-conformance --fabric ib --addr ib://10.7.0.1:7200 --options srq=0
after "fabric conformance, own receive queues"
check 800 "engine conformance" conformance --fabric ib --addr ib://10.7.0.1:7400
after "engine conformance"

# SPDX-License-Identifier: LGPL-2.1-or-later
# Requirements of the registration cache on this kernel: userfaultfd answers as common/memory/monitor.c
# expects. A test that was skipped (hugetlbfs has no pages here) counts; if the cache is off nearly
# all are skipped, which is a failure.
watched() { test_monitor 2>&1 && [ "$(grep -c "       OK " /tmp/check.log)" -ge 14 ]; }
check 300 "watched memory" watched

# Use of stale registrations: a short random test, with io_uring as a device that pins
# (tests/unit/common/test_stale.c).
torture() { test_stale 4000 2>&1 && grep -q "(pinned).* [1-9][0-9]* hits" /tmp/check.log; }
check 120 "random changes of memory under transfers" torture
note "$(grep " steps, " /tmp/check.log)"

# SPDX-License-Identifier: LGPL-2.1-or-later
# What the registration cache relies on, on this kernel: userfaultfd answers as common/memory/uffd.c has it.  A test that was skipped
# (hugetlbfs has no pages here) counts; a cache that is off skips nearly all, which is a failure.
watched() { test_monitor 2>&1 && [ "$(grep -c "       OK " /tmp/check.log)" -ge 14 ]; }
check 300 "watched memory" watched

# And whether a stale registration is ever used: a short torture, with io_uring for a device that pins (tests/unit/common/test_stale.c).
torture() { test_stale 4000 2>&1 && grep -q "(pinned).* [1-9][0-9]* hits" /tmp/check.log; }
check 120 "random changes of memory under transfers" torture
note "$(grep " steps, " /tmp/check.log)"

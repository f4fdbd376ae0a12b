# SPDX-License-Identifier: LGPL-2.1-or-later
# What the registration cache relies on, on this kernel: userfaultfd answers as common/uffd.c has it.  A test that was skipped
# (hugetlbfs has no pages here) counts; a cache that is off skips nearly all, which is a failure.
watched() { test_monitor 2>&1 && [ "$(grep -c "       OK " /tmp/check.log)" -ge 12 ]; }
check 300 "watched memory" watched

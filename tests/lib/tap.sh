# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=sh
# Reports the cases of a test script in TAP.  A script sources this file, and ends with finish.
#
#   begin NAME           starts a case; the case before it ends
#   fail TEXT            the case fails; without a case the script is one
#   check NAME COMMAND…  a case: passes when the command succeeds; shows what the command printed when not
#   skip NAME WHY        a case that does not run here
#   skip_all WHY         no case runs here; ends the script
#   finish               ends the last case and the script
cases=0 failed_cases=0 case_name='' case_fails=0

tap_result() { # ok|"not ok" NAME
    cases=$((cases + 1))
    [ "$1" = ok ] || failed_cases=$((failed_cases + 1))
    echo "$1 $cases - $2"
}

end_case() {
    [ -n "$case_name" ] || { [ "$case_fails" = 0 ] && return; case_name=${0##*/}; }
    if [ "$case_fails" = 0 ]; then tap_result ok "$case_name"; else tap_result "not ok" "$case_name"; fi
    case_name='' case_fails=0
}

begin() {
    end_case
    case_name=$*
}

fail() {
    echo "# FAILED: $*" | sed '2,$s/^/# /'
    case_fails=$((case_fails + 1))
}

check() {
    begin "$1"
    shift
    check_out=$("$@" 2>&1) || fail "status $?: $*: $check_out"
    end_case
}

skip() {
    end_case
    cases=$((cases + 1))
    echo "ok $cases - $1 # SKIP $2"
}

skip_all() {
    echo "1..0 # SKIP $*"
    exit 0
}

finish() {
    [ "$cases" != 0 ] || [ -n "$case_name" ] || case_name=${0##*/}
    end_case
    echo "1..$cases"
    [ "$failed_cases" = 0 ]
    exit
}

# Joins the TAP streams of several programs, in order, with their case names. Writes whole lines,
# because standard error may go to the same file. Returns 0 if there are results and none is "not
# ok".
tap_join() {
    awk '
        /^(not )?ok [0-9]+/ { bad += /^not/; sub(/ok [0-9]+/, "ok " ++n) }
        /^1\.\.[0-9]/ { next }
        { print; fflush() }
        END { print "1.." n + 0; exit !n || bad > 0 }'
}

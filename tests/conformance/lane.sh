# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=sh
# Runs TAP programs as lanes of one script: a case is named LANE/CASE.
#
#   lane NAME COMMAND…   prints the command's report; a lane that crashes is a failed case
#
# CASES_ONLY and CASES_NOT may contain LANE/CASE, for that lane, and CASE, for each lane.

# Prints the names of a list that apply to a lane.
lane_cases() { # LANE NAMES
    for lane_case in $2; do
        case $lane_case in
        "$1"/*) printf '%s ' "${lane_case#*/}" ;;
        */*) ;;
        *) printf '%s ' "$lane_case" ;;
        esac
    done
}

lane() { # NAME COMMAND…
    lane_name=$1
    shift
    lane_only=$(lane_cases "$lane_name" "${CASES_ONLY-}")
    [ -z "${CASES_ONLY-}" ] || [ -n "$lane_only" ] || return 0
    lane_out=$(mktemp) || exit 1
    lane_err=$(mktemp) || exit 1
    lane_begun=$(date +%s)
    CASES_ONLY=$lane_only CASES_NOT=$(lane_cases "$lane_name" "${CASES_NOT-}") "$@" >"$lane_out" 2>"$lane_err"
    lane_status=$?
    sed 's/^\(ok\|not ok\|[0-9]*\.\.\|Bail out\)/# &/' "$lane_err"
    sed 's|^\(not \)\{0,1\}ok \([0-9]*\) - |&'"$lane_name"'/|' "$lane_out"
    if [ "$lane_status" = 77 ]; then
        echo "ok 1 - $lane_name # SKIP $(tail -n 1 "$lane_out")"
    elif [ "$lane_status" != 0 ] && ! grep -q '^not ok' "$lane_out"; then
        echo "not ok 1 - $lane_name/ended # status $lane_status: $*"
    elif ! grep -q '^1\.\.[0-9]' "$lane_out"; then
        echo "not ok 1 - $lane_name/ended # no plan, status $lane_status: $*"
    fi
    echo "# $lane_name: $(($(date +%s) - lane_begun)) s"
    rm -f "$lane_out" "$lane_err"
}

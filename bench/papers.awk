# SPDX-License-Identifier: LGPL-2.1-or-later
# For bench/papers: prints parts of the page from bench/papers.ratios and an item's raw data.  Variables: what (table: medians with
# minimum and maximum; ratios: beside the paper's; control: the series that was measured twice; data: for gnuplot), item, xs, series,
# x_label, unit, control, emulated (if set, causes of papers.ratios are printed).
BEGIN { nx = split(xs, x, " "); ns = split(series, name, " ") }
FNR == NR {
    if (/^#/ || !NF) next
    split($0, f, /[ \t]*\|[ \t]*/)
    if (f[1] == item) { rows++; for (i = 2; i <= 8; i++) row[rows, i] = f[i] }
    next
}
/^#/ { next }
{ # round series x value
    if ($4 == "none") next
    k = $2 SUBSEP $3
    value[k, $1] = $4
    count[k]++
    if ($1 > rounds) rounds = $1
}

# Sets n and sorted from the values of a series at an x.
function collect(s, at,    r, k) {
    k = s SUBSEP at
    n = 0
    for (r = 1; r <= rounds; r++) if ((k, r) in value) insert(value[k, r])
}
# Likewise from the ratios of two series, round by round.  A series may name its point, as in series@x; the divisor 1 is no series.
function collect_ratio(a, b, at,    r, k, l) {
    k = a ~ /@/ ? place(a) : a SUBSEP at
    l = b ~ /@/ ? place(b) : b SUBSEP at
    n = 0
    for (r = 1; r <= rounds; r++)
        if (((k, r) in value) && (b == 1 || ((l, r) in value) && value[l, r] > 0)) insert(value[k, r] / (b == 1 ? 1 : value[l, r]))
}
function place(s) { return substr(s, 1, index(s, "@") - 1) SUBSEP substr(s, index(s, "@") + 1) }
function insert(v,    i) {
    for (i = ++n; i > 1 && sorted[i - 1] > v; i--) sorted[i] = sorted[i - 1]
    sorted[i] = v + 0
}
function median() { return n ? (sorted[int((n + 1) / 2)] + sorted[int(n / 2) + 1]) / 2 : 0 }
function show(v) { return v >= 1000 ? sprintf("%.0f", v) : sprintf("%.3g", v) }
function cell(s, at) {
    collect(s, at)
    return n ? show(median()) " (" show(sorted[1]) " to " show(sorted[n]) ")" : "-"
}

function table(    i, j, line) {
    line = "| " x_label
    for (j = 1; j <= ns; j++) line = line " | " name[j]
    print line " |"
    line = "|---"
    for (j = 1; j <= ns; j++) line = line "|---"
    print line "|"
    for (i = 1; i <= nx; i++) {
        line = "| " x[i]
        for (j = 1; j <= ns; j++) line = line " | " cell(name[j], x[i])
        print line " |"
    }
    print "\nMedians of " rounds " rounds (minimum to maximum)" (unit == "" ? "." : ", " unit ".")
}

# "max" and "min" take the x whose median of the ratio is largest, or smallest.
function pick(a, b, at,    i, best, m) {
    if (at != "max" && at != "min") return at
    best = ""
    for (i = 1; i <= nx; i++) {
        collect_ratio(a, b, x[i])
        if (n && (best == "" || (at == "max") == (median() > m))) { best = x[i]; m = median() }
    }
    return best
}

# The cause, where the ratio is worse than the number in the paper's column: below it, and above it for times and for "below 1".
function cause(i,    paper, most) {
    paper = row[i, 3]
    if (emulated == "" || row[i, 8] == "" || !match(paper, /[0-9][0-9.]*/)) return ""
    most = substr(paper, RSTART, RLENGTH) + 0
    if (paper ~ /^below/ || row[i, 2] ~ /latency|time of/) return median() > most ? "; higher, cause: " row[i, 8] : ""
    return median() < most ? "; lower, cause: " row[i, 8] : ""
}

function ratios(    i, at) {
    if (!rows) return
    print "| ratio | paper | source | measured |"
    print "|---|---|---|---|"
    for (i = 1; i <= rows; i++) {
        at = pick(row[i, 5], row[i, 6], row[i, 7])
        collect_ratio(row[i, 5], row[i, 6], at)
        printf "| %s | %s | %s | ", row[i, 2], row[i, 3], row[i, 4]
        if (n) printf "%s (%s to %s), %s / %s%s%s |\n", show(median()), show(sorted[1]), show(sorted[n]), row[i, 5], row[i, 6],
            at == "-" ? "" : " at " at, cause(i)
        else print "not measured |"
    }
    print ""
}

function check_control(    i, a, b, d, worst, where) {
    worst = -1
    for (i = 1; i <= nx; i++) {
        collect(control, x[i]); if (!n) continue; a = median()
        collect("control", x[i]); if (!n) continue; b = median()
        d = a > 0 ? (b > a ? b / a : a / b) - 1 : 0
        if (d > worst) { worst = d; where = x[i] }
    }
    if (worst < 0) print "- Control: not measured."
    else if (worst > 0.10)
        printf "- **Control: %s measured twice differs by %.0f %% at %s, more than 10 %%: the machine was not quiet enough, do not rely on these figures.**\n",
            control, 100 * worst, where
    else printf "- Control: %s measured twice differs by at most %.0f %%.\n", control, 100 * worst
}

function data(    i, j, line) {
    for (i = 1; i <= nx; i++) {
        line = i - 1 " " x[i]
        for (j = 1; j <= ns; j++) {
            collect(name[j], x[i])
            line = line (n ? " " median() " " sorted[1] " " sorted[n] : " - - -")
        }
        print line
    }
}

END {
    if (what == "table") table()
    else if (what == "ratios") ratios()
    else if (what == "control") check_control()
    else data()
}

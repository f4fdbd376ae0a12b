# SPDX-License-Identifier: LGPL-2.1-or-later
# For bench/run-romio: tables of its results, after bench/romio/ratios.  Variables: ways, methods, programs, processes.
FNR == NR {
    if (/^#/ || !NF) next
    split($0, part, / *\| */)
    ratios++
    for (i = 1; i <= 6; i++) ratio[ratios, i] = part[i]
    next
}
function add(k, bytes, time, calls, sent) {
    speed[k, ++count[k]] = in_round[k, rounds] = bytes / time / 1e6
    seconds[k, count[k]] = time
    requests[k] = calls
    messages[k] = sent
}
{ # ROUND PROGRAM METHOD WAY write|read BYTES SECONDS REQUESTS MESSAGES
    if ($1 != round) { round = $1; rounds++ }
    add($2 " " $5 " " $3 " " $4, $6, $7, $8, $9)
    if ($5 == "write") { bytes = $6; time = $7; calls = $8; sent = $9 }
    else add($2 " both " $3 " " $4, bytes + $6, time + $7, calls + $8, sent + $9)
}
# Of the values list[1] to list[n], which are sorted by it.
function median(n,   i, j, one) {
    for (i = 2; i <= n; i++)
        for (j = i; j > 1 && list[j - 1] > list[j]; j--) { one = list[j]; list[j] = list[j - 1]; list[j - 1] = one }
    return (list[int((n + 1) / 2)] + list[int(n / 2) + 1]) / 2
}
function typical(values, k,   i) {
    for (i = 1; i <= count[k]; i++) list[i] = values[k, i]
    return median(count[k])
}
# "1.23 (1.20 to 1.40)" of the rounds that both have; "-" when there is none.
function over(a, b,   i, n) {
    for (i = 1; i <= rounds; i++) if ((a, i) in in_round && (b, i) in in_round) list[++n] = in_round[a, i] / in_round[b, i]
    if (!n) return "-"
    i = median(n)
    return sprintf("%.2f (%.2f to %.2f)", i, list[1], list[n])
}
END {
    np = split(programs, program, " "); nm = split(methods, method, " "); nw = split(ways, way, " ")
    split("write read both", direction, " ")
    for (p = 1; p <= np; p++) {
        bt = program[p] ~ /^bt-/
        printf "\n%s, %s; requests of a process to OrangeFS, and messages of these to servers\n", program[p],
            bt ? "seconds of all dumps" : "MB/s of all processes"
        printf "%-17s", ""
        for (w = 1; w <= nw; w++) printf "%10s", way[w]
        for (w = 2; w <= nw; w++) printf "%26s", way[w] " over " way[1]
        printf "%10s%10s\n", "requests", "messages"
        for (d = 1; d <= (bt ? 3 : 2); d++) for (m = 1; m <= nm; m++) {
            any = ""
            for (w = 1; w <= nw; w++) if (count[program[p] " " direction[d] " " method[m] " " way[w]]) any = way[w]
            if (any == "") continue
            base = program[p] " " direction[d] " " method[m] " "
            printf "%-6s%-11s", direction[d], method[m]
            for (w = 1; w <= nw; w++)
                if (!count[base way[w]]) printf "%10s", "-"
                else printf bt ? "%10.3f" : "%10.1f", bt ? typical(seconds, base way[w]) : typical(speed, base way[w])
            for (w = 2; w <= nw; w++)
                printf "%26s", over(base way[w], program[p] " " direction[d] " " (method[m] == "pack" ? "list" : method[m]) " " way[1])
            printf "%10.0f%10.0f\n", requests[base any] / processes, messages[base any] / processes
        }
    }
    printf "\n%-22s %-6s %-14s %-14s %-22s %8s\n", "program", "", "speed of", "over that of", "here", "paper's"
    for (p = 1; p <= np; p++) for (r = 1; r <= ratios; r++) {
        if (program[p] != ratio[r, 1] && program[p] !~ "^" ratio[r, 1] "-") continue
        a = program[p] " " ratio[r, 2] " " ratio[r, 3]
        b = program[p] " " ratio[r, 2] " " ratio[r, 4]
        if (count[a] && count[b])
            printf "%-22s %-6s %-14s %-14s %-22s %8s  %s\n", program[p], ratio[r, 2], ratio[r, 3], ratio[r, 4], over(a, b), ratio[r, 5], ratio[r, 6]
    }
}

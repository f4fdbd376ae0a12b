# SPDX-License-Identifier: LGPL-2.1-or-later
# Usage: awk -f bench/ours.awk bench/papers.ratios bench/romio/ratios doc/results/{papers,papers-004,romio}.md doc/papers.md
# Prints doc/papers.md with the figures of the pages.  A figure follows a comment that names its row of bench/papers.ratios,
# <!-- ITEM: RATIO -->, or of bench/romio/ratios, <!-- romio: PROGRAM ACCESS METHOD NETWORK / METHOD NETWORK -->.  Status 1 for a name
# that neither has.
BEGIN { figure = "[0-9.]+ [(][0-9.]+ to [0-9.]+(; noisy)?[)]"; key = "<!-- (romio|00[0-9]-[a-z0-9-]+): [^>]* -->" }
FNR == 1 { file++; item = "" }
file < 5 { split($0, f, / *[|] */) }
file == 1 && /^0/ { value[f[1] ": " f[2]] = "not measured" }
file == 2 && !/^#/ { program["^romio: " f[1] "(-[^ ]*)? " f[2] " " f[3] " / " f[4] "$"] }
file == 3 || file == 4 {
    if (/^- 00[0-9]-[a-z0-9-]+ over /) item = $2
    if (/^- [*][*]Control: /) noisy[item] = 1
    if ((item ": " f[2]) in value && match(f[5], "^" figure)) value[item ": " f[2]] = substr(f[5], 1, RLENGTH)
}
file == 5 && $2 ~ /^(write|read|both)$/ && match($0, figure " +[0-9.-]+  ") {
    match($0, figure)
    value["romio: " $1 " " $2 " " $3 " " $4 " / " $5 " " $6] = substr($0, RSTART, RLENGTH)
}
file < 6 { next }

# Returns the figure of a name.
function ours(name,    text, one) {
    text = value[name]
    if (text == "") for (one in program) if (name ~ one) text = "not measured"
    if (text == "") { print FILENAME ": no ratio has the name " name > "/dev/stderr"; bad = 1 }
    one = name
    sub(/:.*/, "", one)
    if (one in noisy) sub(/[)]$/, "; noisy)", text)
    return text
}
{
    line = ""
    while (match($0, key "(" figure "|not measured)")) {
        line = line substr($0, 1, RSTART - 1)
        found = substr($0, RSTART, RLENGTH)
        $0 = substr($0, RSTART + RLENGTH)
        match(found, key)
        line = line substr(found, 1, RLENGTH) ours(substr(found, 6, RLENGTH - 9))
    }
    print line $0
}
END { exit bad }

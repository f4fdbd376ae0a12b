# SPDX-License-Identifier: LGPL-2.1-or-later
#
# Moves the hunks of zero-context patches to where they belong in the tree of the current folder:
#
#     awk -f place.awk releases/*/patch >MOVED 2>REPORT
#     awk -v learn=1 -f place.awk releases/NAME/patch    # writes this tree's anchors into the patch
#
# A hunk's header ends with its anchors, the hashes of the three lines before it and of the three
# after it.  The hunk fits if both anchors and its removed lines are at exactly one place of the
# file, and the hunks are in order.  The nearest release has the fewest misfits, and of several the
# fewest lines between old and new places.  A file that its patch does not fit gets another
# release's that does.
#
# REPORT begins with "release NAME", the nearest.  Lines "changed FILE…" name files whose patch
# fits, lines "misfit FILE: …" the hunks that do not fit.
function hash(s,  h, i) {
    h = 1
    for (i = 1; i <= length(s); i++) {
        h = (h * 263 + code[substr(s, i, 1)]) % 17592186044399 # exact: below 2^53
    }
    return sprintf("%.0f", h)
}

function read_file(  status, n, i) {
    n = 0
    while ((status = getline text[file, n + 1] <file) > 0) {
        n++
    }
    close(file)
    for (i = 0; i < 3; i++) {
        text[file, -i] = text[file, n + 1 + i] = "\n" # unlike any line
    }
    for (i = -2; i <= n + 1; i++) {
        anchor[file, i] = hash(text[file, i] "\n" text[file, i + 1] "\n" text[file, i + 2])
    }
    lines[file] = n
    defect[file] = status < 0 ? "no such file" : text[file, 1] ~ /\r$/ ? "lines end in CR LF" : ""
    files[++nfiles] = file
}

function fits(at,  k) {
    for (k = 1; k <= removed && text[file, at + k - 1] == old[k]; k++) {}
    return k > removed && anchor[file, at - 3] == before && anchor[file, at + removed] == after
}

function misfit(why) {
    score[release, file] += 1000000
    misfits[release, file] = misfits[release, file] "misfit " file ": " why "\n"
}

function place_hunk(  was, at, i, places, by, distance) {
    was = from + (removed == 0) # an insertion is numbered by the line before it
    if (learn) {
        before = anchor[file, was - 3]
        after = anchor[file, was + removed]
    }
    places = 0
    for (i = 1; i + removed <= lines[file] + 1; i++) {
        if (fits(i)) {
            places++
            at = i
        }
    }
    if (places != 1 || at < end) {
        misfit("hunk " hunk " (line " from " of " release ") " \
            (places > 1 ? "fits in " places " places" : places ? "fits only before another hunk" : \
            "does not fit: its lines, or the three before or after it, differ"))
        return
    }
    end = at + removed
    by = at - was
    distance = by < 0 ? -by : by
    score[release, file] += distance
    if (distance > far[release, file]) {
        far[release, file] = distance
    }
    section[release, file] = section[release, file] "@@ -" from + by "," removed " +" to + by \
        "," added " @@" (learn ? " " before " " after : "") "\n" body
}

BEGIN {
    for (i = 1; i < 256; i++) {
        code[sprintf("%c", i)] = i
    }
}
FNR == 1 {
    n = split(FILENAME, path, "/")
    release = releases[++nreleases] = path[n - 1]
}
todo > 0 { # in a hunk
    body = body $0 "\n"
    if (/^-/) {
        old[++nold] = substr($0, 2)
    }
    if (--todo == 0 && defect[file] == "") {
        place_hunk()
    }
    next
}
/^@@ / {
    split(substr($2, 2) ",1", minus, ",")
    split(substr($3, 2) ",1", plus, ",")
    from = minus[1]; removed = minus[2]; to = plus[1]; added = plus[2]
    before = $5; after = $6
    todo = removed + added; nold = 0; body = ""
    hunk++
}
/^\+\+\+ b\// {
    file = substr($0, 7)
    if (!(file in lines)) {
        read_file()
    }
    if (defect[file] != "") {
        misfit(defect[file])
    }
    has[release, file]
    hunk = 0; end = 1
}
END {
    for (r = 1; r <= nreleases; r++) {
        total = 0
        for (f = 1; f <= nfiles; f++) {
            total += score[releases[r], files[f]]
        }
        if (r == 1 || total < least) {
            least = total
            nearest = releases[r]
        }
    }
    print "release " nearest >"/dev/stderr"
    for (f = 1; f <= nfiles; f++) {
        file = files[f]
        best = nearest
        for (r = 1; r <= nreleases && misfits[nearest, file] != ""; r++) {
            if ((releases[r], file) in has && score[releases[r], file] < score[best, file]) {
                best = releases[r]
            }
        }
        if (misfits[best, file] != "") {
            printf "%s", misfits[best, file] >"/dev/stderr"
        } else if ((best, file) in has) {
            print "changed " file (best == nearest ? "" : ", by the patch of " best) \
                (far[best, file] ? ", moved by up to " far[best, file] " lines" : "") >"/dev/stderr"
            printf "--- a/%s\n+++ b/%s\n%s", file, file, section[best, file]
        }
    }
}

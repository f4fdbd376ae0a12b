# SPDX-License-Identifier: LGPL-2.1-or-later
# Reads Prometheus' text exposition format (0.0.4) as strictly as its parser does, and more so: names and labels are well formed;
# HELP, then TYPE, then the samples of a metric, all together and once; no sample twice; numbers are numbers, those of counters not
# negative; counters end in _total.
# Prints what is wrong; exit status 1 then.  At the end "N metrics, M samples" where all is well.
function wrong(what) { print FILENAME ":" NR ": " what ": " $0; bad++ }

# The labels of a sample in `label`.  False: malformed.
function labels_of(text,    name, value, n) {
    delete label
    while (text != "") {
        if (!match(text, /^[a-zA-Z_][a-zA-Z0-9_]*="/)) return 0
        name = substr(text, 1, RLENGTH - 2)
        text = substr(text, RLENGTH + 1)
        if (!match(text, /^([^"\\]|\\["\\n])*"/)) return 0
        value = substr(text, 1, RLENGTH - 1)
        text = substr(text, RLENGTH + 1)
        if (name in label) return 0
        label[name] = value
        n++
        if (text == "") return n > 0
        if (text !~ /^,/) return 0
        text = substr(text, 2)
        if (text == "") return 0
    }
    return 1
}

function is_number(text) { return text ~ /^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$/ }

/^# HELP / {
    if (!match($0, /^# HELP [a-zA-Z_:][a-zA-Z0-9_:]* [^ ]/)) wrong("HELP")
    if ($3 in seen) wrong("metric twice")
    seen[$3] = 1; metric = $3; type = ""; metrics++
    rest = $0
    gsub(/\\[\\n]/, "", rest)
    if (rest ~ /\\/) wrong("escape in HELP")
    next
}
/^# TYPE / {
    if (NF != 4 || $3 != metric || type != "") wrong("TYPE")
    type = $4
    if (type != "counter" && type != "gauge") wrong("type")
    if ((type == "counter") != (metric ~ /_total$/)) wrong("_total is for counters")
    next
}
/^#/ || /^$/ { wrong("line"); next }
{
    if (!match($0, /^[a-zA-Z_:][a-zA-Z0-9_:]*/)) { wrong("name"); next }
    name = substr($0, 1, RLENGTH)
    rest = substr($0, RLENGTH + 1)
    text = ""
    if (rest ~ /^\{/) {
        if (!match(rest, /^\{([^"}]|"([^"\\]|\\.)*")*\}/)) { wrong("braces"); next }
        text = substr(rest, 2, RLENGTH - 2)
        rest = substr(rest, RLENGTH + 1)
    }
    if (!labels_of(text)) { wrong("labels"); next }
    if (rest !~ /^ [^ ]+$/ || !is_number(substr(rest, 2))) { wrong("value"); next }
    value = substr(rest, 2)
    if (name text in samples) wrong("sample twice")
    samples[name text] = 1; count++
    if (name != metric || type == "") {
        wrong("sample of another metric")
    } else if (type == "counter" && value + 0 < 0) {
        wrong("negative")
    }
}
END {
    if (count == 0) { print "no samples"; bad++ }
    if (bad) exit 1
    print metrics " metrics, " count " samples"
}

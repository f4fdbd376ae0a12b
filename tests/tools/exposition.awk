# SPDX-License-Identifier: LGPL-2.1-or-later
# Reads Prometheus' text exposition format (0.0.4) as strictly as its parser does, and more so: names and labels are well formed;
# HELP, then TYPE, then the samples of a metric, all together and once; no sample twice; numbers are numbers, those of counters not
# negative; counters end in _total; a histogram's buckets rise, in bound and in count, and end in +Inf, which is _count.
# Prints what is wrong; exit status 1 then.  At the end "N metrics, M samples" where all is well.
function wrong(what) { print FILENAME ":" NR ": " what ": " $0; bad++ }

# Ends the histogram's series at hand.
function series_end() {
    if (series != "" && last_bound != "+Inf") wrong("series without +Inf: " series)
    series = ""
}

# The labels of a sample in `label`, their text without le in `key`.  False: malformed.
function labels_of(text,    name, value, n) {
    delete label
    key = ""
    while (text != "") {
        if (!match(text, /^[a-zA-Z_][a-zA-Z0-9_]*="/)) return 0
        name = substr(text, 1, RLENGTH - 2)
        text = substr(text, RLENGTH + 1)
        if (!match(text, /^([^"\\]|\\["\\n])*"/)) return 0
        value = substr(text, 1, RLENGTH - 1)
        text = substr(text, RLENGTH + 1)
        if (name in label) return 0
        label[name] = value
        if (name != "le") key = key name "=" value ","
        n++
        if (text == "") return n > 0
        if (text !~ /^,/) return 0
        text = substr(text, 2)
        if (text == "") return 0
    }
    return 1
}

function is_number(text) { return text ~ /^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?$/ }

function histogram(suffix, value) {
    if (suffix == "_bucket") {
        if (!("le" in label)) { wrong("bucket without le"); return }
        if (key != series) {
            series_end()
            series = key; last_bound = ""; last_value = -1
        }
        if (last_bound == "+Inf") wrong("bucket behind +Inf")
        if (label["le"] != "+Inf" && !is_number(label["le"])) wrong("bound")
        if (last_bound != "" && label["le"] != "+Inf" && label["le"] + 0 <= last_bound + 0) wrong("bounds do not rise")
        if (value + 0 < last_value) wrong("buckets are not cumulative")
        last_bound = label["le"]; last_value = value + 0
        return
    }
    if ("le" in label) wrong("le outside of a bucket")
    if (key != series) wrong("series of its own")
    else if (suffix == "_count" && value + 0 != last_value) wrong("_count is not +Inf's")
    parts[key suffix]++
}

/^# HELP / {
    series_end()
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
    if (type != "counter" && type != "gauge" && type != "histogram") wrong("type")
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
    if (type == "histogram") {
        suffix = substr(name, length(metric) + 1)
        if (index(name, metric) != 1 || (suffix != "_bucket" && suffix != "_sum" && suffix != "_count")) wrong("sample of another metric")
        else histogram(suffix, value)
    } else if (name != metric || type == "") {
        wrong("sample of another metric")
    } else if (type == "counter" && value + 0 < 0) {
        wrong("negative")
    }
}
END {
    series_end()
    if (count == 0) { print "no samples"; bad++ }
    if (bad) exit 1
    print metrics " metrics, " count " samples"
}

# SPDX-License-Identifier: LGPL-2.1-or-later
# Makes of the table `exports` the version script (-v make=map), or the C source of the functions
# that are not supported (-v make=c).
/^#/ || !NF { next }
/^numbers/ { count = split(substr($0, 8), number); next }
{
    first = 1
    if ($0 !~ /^ /) { node = $1; answer = $2; first = 3 }
    for (i = first; i <= NF; i++) {
        private = node ~ /_N$/
        if (make == "map" && !(node in of))
            nodes[++known] = node
        if (make == "map")
            of[node] = of[node] (private ? "" : " " $i ";")
        else if (private)
            for (n = 1; n <= count; n++) {
                name = $i
                sub(/_N$/, "_" number[n], name)
                printf "PRIVATE(%s, %s, %s, \"%s\")\n", answer, name, number[n], n == count || $i ~ /_N$/ ? "@@" : "@"
            }
        else if (answer != "own")
            printf "PUBLIC(%s, %s)\n", answer, $i
    }
}
BEGIN { if (make == "c") print "#include \"emul/verbs/device/answers.h\"" }
END {
    if (make != "map")
        exit
    print "EMUVERBS { global: emuverbs_*; local: *; };"
    for (k = 1; k <= known; k++) {
        node = nodes[k]
        if (node !~ /_N$/)
            print node " { global:" of[node] " };"
        else
            for (n = 1; n <= count; n++)
                print substr(node, 1, length(node) - 1) number[n] " { };"
    }
}

#!/bin/bash
# SPDX-License-Identifier: LGPL-2.1-or-later
# A server's export rules apply to clients over ib://: root squash with exceptions, all squash,
# read-only. SCHEME, ib by default, may be tcp for comparison.
set -u
host=127.0.0.1
# shellcheck source=tests/orangefs/lib.sh
. "${srcdir:-$(dirname "$0")/../..}/tests/orangefs/lib.sh"
if [ "$(id -u)" != 0 ]; then
    skip_all "root squash can only be seen by root"
fi
scheme=${SCHEME:-ib}
[ "$scheme" = ib ] || wrap=
anonymous=4321

make_files 1000003

rules() { # lines: the export options of the file system
    local lines='' r
    for r in "$@"; do lines+="\t\t$r\n"; done
    file_system_lines "\t<ExportOptions>\n$lines\t\tAnonUID $anonymous\n\t\tAnonGID $anonymous\n\t</ExportOptions>"
}
with_rules() { # lines
    what="$scheme, ${*:-no rule}"
    configure "$scheme" 1 && rules "$@" && bring_up
}
owned_by() { # name, uid, gid
    run pvfs2-ls -n "$mnt" >"$tmp/list"
    awk -v n="$1" -v u="$2" -v g="$3" '$NF == n && $3 == u && $4 == g { found = 1 } END { exit !found }' "$tmp/list" && return 0
    cat "$tmp/list"
    return 1
}
makes() { # uid: new files and folders must belong to that user
    run pvfs2-touch "$mnt/file" && run pvfs2-mkdir "$mnt/folder" && run pvfs2-cp "$tmp/f1000003" "$mnt/copied" &&
        owned_by file "$1" "$1" && owned_by folder "$1" "$1" && owned_by copied "$1" "$1"
}
refused() { # words, command: must fail with the words
    local words=$1
    shift
    if "$@" >"$tmp/out" 2>&1; then
        echo "was not refused: $*"
        return 1
    fi
    cat "$tmp/out"
    grep -qi -- "$words" "$tmp/out"
}

listable() { # pvfs2-ping wants to write
    local i
    for i in $(seq 60); do
        run pvfs2-ls "$mnt" && return 0
        sleep 0.5
    done
    return 1
}

with_rules && check "$what: root's files are root's" makes 0
end
for rule in "$host" 127.0.0.0@8 "127.*" "*" "10.0.0.0@8 $scheme://$host"; do
    with_rules "RootSquash $scheme://$rule" && check "$what: root's files are nobody's" makes $anonymous
    end
done
for rule in "$scheme://10.0.0.0@8" "$scheme://127.0.0.2" "tcp://10.0.0.0@8"; do
    with_rules "RootSquash $rule" && check "$what: root's files are root's" makes 0
    end
done
with_rules "RootSquash $scheme://127.0.0.0@8" "RootSquashExceptions $scheme://$host" &&
    check "$what: root's files are root's" makes 0
end
with_rules "AllSquash $scheme://127.0.0.0@8" && check "$what: root's files are nobody's" makes $anonymous
end

# Host names are not resolved.
if [ "$scheme" = ib ]; then
    with_rules "RootSquash ib://no-host.invalid" && check "$what: root's files are root's" makes 0
    check "$what: the log names the rule" grep -rq 'rule "ib://no-host.invalid": selects no client' "$tmp" --include='server*'
    end
fi

# A rule for another network is checked with our addresses, too: OrangeFS uses the rule's scheme.
if [ "$scheme" = ib ]; then
    with_rules "RootSquash tcp://$host" && check "$what: root's files are root's" makes 0
    end
fi

# Existing files are readable, and nothing is writable.
what="$scheme, before ReadOnly"
configure "$scheme" 1 && bring_up && check "$what: a file is written" run pvfs2-cp "$tmp/f1000003" "$mnt/old"
end
what="$scheme, ReadOnly $scheme://$host"
file_system_lines "\t<ExportOptions>\n\t\tReadOnly $scheme://$host\n\t</ExportOptions>"
start_server 0
check "$what: ready" listable
check "$what: writing is refused" refused "read-only" run pvfs2-cp "$tmp/f1000003" "$mnt/new"
check "$what: making a folder is refused" refused "read-only" run pvfs2-mkdir "$mnt/folder"
check "$what: changing a mode is refused" refused "read-only" run pvfs2-chmod 600 "$mnt/old"
check "$what: reading is not" run pvfs2-cp "$mnt/old" "$tmp/back"
check "$what: the contents are right" cmp "$tmp/f1000003" "$tmp/back"
end
finish

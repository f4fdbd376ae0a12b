# SPDX-License-Identifier: LGPL-2.1-or-later
# OrangeFS in the guest: servers on device one, clients on device two. A file system is named by its
# configuration (/pvfs/NAME.conf); `use` selects the programs.
store=/tmp/store
$IP rule add pref 8 from 10.7.0.1 to 10.7.0.1 lookup local # servers reach each other inside device one
servers= # pid:configuration:alias of running servers
wrap=    # of the clients' programs
# Over elan4 each server is on the node of its address, and clients are on node 1.
elan4="emuelan4 --dir /tmp/elan4 --node"
BMI_ELAN4_SERVER_ADDR=2=10.7.0.1:3400,3=10.7.0.1:3401,4=10.7.0.1:3402,5=10.7.0.1:3403
BMI_ELAN4_LOG=/tmp/contexts
export BMI_ELAN4_SERVER_ADDR BMI_ELAN4_LOG

use() { # new or old
    PATH=/$1/bin:/$1/sbin:/x:/usr/bin:/bin
    LD_LIBRARY_PATH=/x:/$1/lib
    export PATH LD_LIBRARY_PATH
}
aliases() { awk '$1 == "Alias" {print $2}' "/pvfs/$1.conf"; }
address_of() { awk -v a="$2" '$1 == "Alias" && $2 == a {print $3}' "/pvfs/$1.conf"; }

network_of() { # configuration
    case $1 in elan*) echo elan4 ;; tcp*) echo tcp ;; *) echo ib ;; esac
}
server_wrap() { # configuration, alias
    node=$(address_of "$1" "$2" | sed -n 's#^elan4://\([0-9]*\):.*#\1#p')
    echo "${server_as-} ${node:+$elan4 $node}"
}
# Prints the file systems of the networks, with these numbers of servers.
file_systems() { # numbers
    for n in ${networks:-tcp ib elan4}; do # networks: of the kernel's command line
        for servers_of in "$@"; do
            [ ! -f /pvfs/${n%4}$servers_of.conf ] || echo ${n%4}$servers_of
        done
    done
}
# Sets the options of a network's clients: those of ib use the second device, those of elan4 need
# the servers' contexts.
choose_options() { # configuration
    unset client_options
    case $(network_of "$1") in
    ib) client_options=device=rxe2 ;;
    elan4) client_options=elan_contexts=2-5 ;;
    esac
    options=${client_options+--bmi-opts=$client_options}
}

start_server() { # configuration, alias
    $(server_wrap "$1" "$2") pvfs2-server -d -a "$2" "/pvfs/$1.conf" >>"/tmp/$1-$2.out" 2>&1 &
    servers="$servers $!:$1:$2"
}
server_pid() { # configuration, alias
    for s in $servers; do
        case $s in *:$1:$2) echo "${s%%:*}" ;; esac
    done
}
forget_server() { # configuration, alias
    left=
    for s in $servers; do
        case $s in *:$1:$2) ;; *) left="$left $s" ;; esac
    done
    servers=$left
}
stop_servers() { # configuration; each must end by itself
    for a in $(aliases "$1"); do
        pid=$(server_pid "$1" "$a")
        [ -n "$pid" ] || continue
        if kill -0 "$pid" 2>/dev/null; then pass "$1: server $a is alive at the end"; else fail "$1: server $a died"; tail -5 "/tmp/$1-$a.out"; fi
        kill "$pid" 2>/dev/null
        (sleep 20; kill -9 "$pid") 2>/dev/null &
        guard=$!
        wait "$pid"
        status=$?
        kill $guard 2>/dev/null
        if [ $status = 0 ]; then pass "$1: server $a ends on SIGTERM"; else fail "$1: server $a: status $status on SIGTERM"; fi
        forget_server "$1" "$a"
    done
    if grep -ihE 'assert|segmentation|signal 11|signal 6' /tmp/"$1".log* /tmp/"$1"-*.out 2>/dev/null; then fail "$1: the servers' logs"; fi
}

# Makes the file system, starts its servers and writes the clients' tab file.
begin() { # configuration
    mnt=/m/$1
    mkdir -p "$mnt" $store
    for a in $(aliases "$1"); do
        $(server_wrap "$1" "$a") pvfs2-server -f -a "$a" "/pvfs/$1.conf" >"/tmp/$1-$a.out" 2>&1 || { fail "$1: mkfs of $a"; tail -5 "/tmp/$1-$a.out"; return 1; }
        start_server "$1" "$a"
    done
    fs_url=$(address_of "$1" "$(aliases "$1" | head -1)")
    fs_url=${fs_url%%,*}/$(awk '$1 == "Name" {print $2}' "/pvfs/$1.conf")
    echo "$fs_url $mnt pvfs2 defaults,noauto${client_options+,bmi_opts=\"$client_options\"} 0 0" >"/tmp/$1.tab"
    client "$1"
    check 60 "$1: ready" ready
}
client() { # configuration: the programs' file system from now on
    mnt=/m/$1
    wrap=
    [ "$(network_of "$1")" != elan4 ] || wrap="$elan4 1"
    PVFS2TAB_FILE=/tmp/$1.tab
    export PVFS2TAB_FILE
}
ready() {
    i=0
    until timeout 20 $wrap pvfs2-ping -m "$mnt" >/tmp/ping.log 2>&1; do
        i=$((i + 1))
        [ $i -lt 40 ] || { cat /tmp/ping.log; return 1; }
        sleep 0.5
    done
}

# pvfs2-cp does not overwrite, so each copy has a new name; the last one is in /tmp/copy, because
# check runs in a separate shell.
there_and_back() { # file, buffer
    copy=copy$(tr -d ' .' </proc/uptime)
    echo $copy >/tmp/copy
    rm -f /tmp/back
    $wrap pvfs2-cp -b "$2" "$1" "$mnt/$copy" && $wrap pvfs2-cp -b "$2" "$mnt/$copy" /tmp/back && same_sum "$1" /tmp/back
}
same_sum() { # two files
    a=$(sha256sum <"$1")
    b=$(sha256sum <"$2")
    [ "$a" = "$b" ] || { echo "$1: $a, $2: $b"; return 1; }
}
# Waits until no server has a thread that is runnable in most of thirty samples, so that a busy host
# does not matter.
at_rest() {
    for try in 1 2 3 4 5 6 7 8; do
        for s in $servers; do cat /proc/${s%%:*}/task/*/stat; done >/dev/null || return 1
        i=0
        while [ $i -lt 30 ]; do
            for s in $servers; do cat /proc/${s%%:*}/task/*/stat; done
            i=$((i + 1))
            sleep 0.1
        done | awk '{seen[$1]++; if ($3 == "R") ready[$1]++}
            END {for (t in seen) if (ready[t] > seen[t] / 2) {bad++; print "thread " t ": ready " ready[t] " times of " seen[t]}; exit bad > 0}' && return 0
    done
    return 1
}

# A mount by the kernel: the module, the client daemon, and mount with a line of /etc/fstab.
mount_fs() { # URL, folder, options of pvfs2-client
    url=$1
    at=$2
    shift 2
    grep -q '^orangefs ' /proc/modules || insmod /orangefs/orangefs.ko* || return 1
    mkdir -p "$at"
    $wrap pvfs2-client -p "$(command -v pvfs2-client-core)" -L /tmp/client.log "$@" >/tmp/client.out 2>&1 || return 1
    i=0
    echo "$url $at pvfs2 noauto 0 0" >/etc/fstab
    until mount "$at" 2>/tmp/mount.out; do
        i=$((i + 1))
        [ $i -lt 20 ] || { cat /tmp/mount.out /tmp/client.out; tail -5 /tmp/client.log; return 1; }
        sleep 0.5
    done
}
unmount_fs() { # folder
    umount "$1" || return 1
    stop_client
}
stop_client() {
    pid=$(pidof pvfs2-client)
    kill $pid 2>/dev/null
    i=0
    while pidof pvfs2-client pvfs2-client-core >/dev/null; do
        i=$((i + 1))
        [ $i -lt 40 ] || { echo "the client daemon does not end: $(pidof pvfs2-client pvfs2-client-core)"; return 1; }
        sleep 0.5
    done
}

# SPDX-License-Identifier: LGPL-2.1-or-later
# shellcheck shell=bash disable=SC2154
# File systems of SERVERS (1) OrangeFS servers each, for the scripts of this folder that source it after bench/lib.sh.  A way is a name
# with prefix[way], the OrangeFS, scheme[way], its network, and maybe bmi_opts[way], options of our methods.  elan4_wrapper is the
# wrapper of choose_elan4.
declare -A bmi_opts=()
elan4_wrapper=()

# Sets command, the words before a program that select a way's OrangeFS, file system and device.
command=()
choose() { # way [node of a server of elan4]
    command=(env "PATH=${prefix[$1]}/bin:${prefix[$1]}/sbin:$PATH" "LD_LIBRARY_PATH=${prefix[$1]}/lib" "PVFS2TAB_FILE=$work/$1/tab")
    [ "$1" != bound ] || command+=(EMUVERBS_STILL_FROM=16384)
    case ${scheme[$1]} in
    ib) command+=("${wrapper[@]}") ;;
    elan4)
        command+=("${elan4_wrapper[@]}")
        [ -z "${2-}" ] || command[-1]=$2
        ;;
    esac
}
run() { # way, program, arguments
    choose "$1"
    shift
    "${command[@]}" "$@"
}

serve() { # way
    local way=$1 dir=$work/$1 number=${#pids[@]} port first spec alias options=
    port=$((FIRST_PORT + number))
    first=${scheme[$way]}://localhost:$port
    spec=$first
    [ "${SERVERS:-1}" = 1 ] || spec="${scheme[$way]}://localhost:{$port-$((port + SERVERS - 1))}"
    if [ "${scheme[$way]}" = elan4 ]; then
        spec=$(seq -f 'elan4://%.0f:2' -s , "$number" $((number + ${SERVERS:-1} - 1)))
        first=${spec%%,*}
    fi
    mkdir -p "$dir/mnt"
    run "$way" pvfs2-genconfig --quiet --iospec="$spec" --metaspec="$spec" --storage="$dir/data" --logfile="$dir/server.log" \
        "$dir/fs.conf" > "$dir/genconfig" 2>&1 || die "pvfs2-genconfig: $(tail -n 1 "$dir/genconfig")"
    sed -i "s/^[ \t]*BMIModules.*/&\n\tDBMaxSize 67108864/" "$dir/fs.conf"
    if [ -n "${bmi_opts[$way]-}" ]; then
        sed -i "s/^[ \t]*BMIModules.*/&\n\tBMIOpts ${bmi_opts[$way]}/" "$dir/fs.conf"
        options=",bmi_opts=\"${bmi_opts[$way]}\""
    fi
    echo "$first/orangefs $dir/mnt pvfs2 defaults,noauto$options 0 0" > "$dir/tab"
    # By number: pvfs2-genconfig has 10 before 9, but the nodes are given out in order.
    for alias in $(awk '$1 == "Alias" { print $2 }' "$dir/fs.conf" | sort -V); do
        run "$way" pvfs2-server -f -a "$alias" "$dir/fs.conf" > "$dir/mkfs" 2>&1 || die "$way: mkfs: $(tail -n 1 "$dir/mkfs")"
        choose "$way" $((number++))
        "${command[@]}" pvfs2-server -d -a "$alias" "$dir/fs.conf" >> "$dir/out" 2>&1 < /dev/null &
        pids+=($!)
    done
    for ((i = 0; i < 60; i++)); do
        run "$way" pvfs2-ping -m "$dir/mnt" > "$dir/ping" 2>&1 && return
        sleep 0.5
    done
    tail -n 3 "$dir/ping" "$dir"/server.log* >&2
    die "$way: the server does not answer"
}

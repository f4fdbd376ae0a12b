# SPDX-License-Identifier: LGPL-2.1-or-later
# Additions of tests/vm/run to the image if ORANGEFS_PREFIX names an installed OrangeFS with our
# bmi_ib: its programs, the kernel's orangefs.ko (loaded by the suite that mounts), and
# configurations by its own pvfs2-genconfig. ORANGEFS_OLD_PREFIX: one with OrangeFS's own bmi_ib,
# for comparison.

orangefs_missing() { # prints why the suites cannot run, if so
    local p
    [ -n "${ORANGEFS_PREFIX-}" ] || { echo "ORANGEFS_PREFIX is not set; set it to an installed OrangeFS that has bmi_ib"; return; }
    for p in sbin/pvfs2-server sbin/pvfs2-client sbin/pvfs2-client-core bin/pvfs2-genconfig bin/pvfs2-cp; do
        [ -x "$ORANGEFS_PREFIX/$p" ] || { echo "there is no $ORANGEFS_PREFIX/$p"; return; }
    done
    find "$kernel/lib/modules/$release" -name 'orangefs.ko*' | grep -q . || echo "the kernel $release has no orangefs.ko"
}

orangefs_programs() { # prefix, name in the guest
    local p
    mkdir -p "$root/$2"/{bin,sbin,lib}
    for p in "$1"/bin/pvfs2-* "$1"/sbin/pvfs2-{server,client,client-core}; do
        head -c 4 "$p" | grep -q ELF && with_libraries "$p" "$2/$(basename "$(dirname "$p")")"
    done
    for p in "$1"/lib/lib*.so.* "$1"/lib/libemuelan4.so; do # the last one has no version
        [ ! -f "$p" ] || with_libraries "$p" "$2/lib"
    done
    strip --strip-debug "$root/$2"/*/* 2>/dev/null
}

orangefs_config() { # file, protocol, first port, servers
    local spec="$2://one:$3" name=orangefs
    [ "$4" = 1 ] || spec="$2://one:{$3-$(($3 + $4 - 1))}"
    # Over elan4 server i is on node i + 2, and the file system's name is that of paper 004.
    [ "$2" != elan4 ] || { spec=$(seq -f "elan4://%.0f:2" -s, 2 $(($4 + 1))) && name=pvfs2-fs; }
    # Small databases and short retries: the storage is in memory, and dead servers are part of the
    # tests. TCPBindSpecific applies to every network: servers use the device of their address.
    "$ORANGEFS_PREFIX/bin/pvfs2-genconfig" --quiet --fsname="$name" --iospec="$spec" --metaspec="$spec" --storage="/tmp/store/$1" \
        --logfile="/tmp/$1.log" --client-job-timeout 20 "$root/pvfs/$1.conf" >/dev/null &&
        sed -i -e 's/^[ \t]*ClientRetryDelayMilliSecs.*/\tClientRetryDelayMilliSecs 500/' \
            -e 's/^[ \t]*BMIModules.*/&\n\tDBMaxSize 67108864\n\tTCPBindSpecific yes/' "$root/pvfs/$1.conf"
}

orangefs_image() {
    mkdir -p "$root/pvfs" "$root/orangefs"
    orangefs_programs "$ORANGEFS_PREFIX" new
    [ -z "${ORANGEFS_OLD_PREFIX-}" ] || orangefs_programs "$ORANGEFS_OLD_PREFIX" old
    orangefs_config ib1 ib 3340 1
    orangefs_config ib4 ib 3350 4
    orangefs_config tcp1 tcp 3360 1
    orangefs_config tcp4 tcp 3361 4
    if "$ORANGEFS_PREFIX/bin/pvfs2-config" --libs | grep -q bmi_elan4; then
        orangefs_config elan1 elan4 3400 1
        orangefs_config elan4 elan4 3400 4
        # Three contexts for the clients of the node: those of dead ones are used again.
        sed -i 's/^[ \t]*BMIModules.*/&\n\tBMIOpts elan_contexts=2-5/' "$root"/pvfs/elan?.conf
    fi
    orangefs_config old1 ib 3370 1
    # One server with both networks; its clients know it by tcp, too.
    orangefs_config both1 ib 3380 1
    sed -i -e 's#ib://one:3380#tcp://one:3390,ib://one:3380#' -e 's/BMIModules.*/BMIModules bmi_tcp,bmi_ib/' "$root/pvfs/both1.conf"
    cp "$(find "$kernel/lib/modules/$release" -name 'orangefs.ko*' | head -1)" "$root/orangefs/"
    cp "$here/orangefs/guest.sh" "$root/pvfs/"
    # A source tree for tar that covers a real one: ours.
    tar -C "$here/../.." -cf "$root/pvfs/tree.tar" common bmi_ib
}

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# host.sh COMMAND...: makes and ends test hosts. Run only inside the namespaces of a lab (lab.py), in
# which every mount, network namespace and process is private and goes away with the lab.
#   setup LAB ADDRESS/LEN [NET...] bridge, tmpfs for the hosts' own files; NETs that lie on the bridge too
#   add LAB BASE KIND NAME ADDRESS/LEN [PUBLIC]   KIND: light (an sshd), systemd (a booted Debian) or container
#                                  (the same, in which container engines work)
#   start LAB NAME                 boots what `add` made (the caller may put files in between)
#   exec LAB NAME CMD...           runs a command inside a host
#   bind LAB NAME OTHER PATH       PATH of the host OTHER, in place of the host's own
#   del LAB NAME                   pulls the plug and removes the host
set -eu

setup() {
    mount -t tmpfs -o mode=755 lab-run /run
    mkdir -p /run/netns /run/systemd/nspawn "$lab/hosts"
    # nspawn refuses to clean up after a reboot when this is on a disk
    mount -t tmpfs -o mode=755 nspawn /run/systemd/nspawn
    mount -t tmpfs -o mode=755,size=12g lab-hosts "$lab/hosts"
    mkdir /run/lock
    ip link set lo up
    ip link add br0 type bridge
    ip addr add "$1" dev br0
    ip link set br0 up
    shift
    : >"$lab/nets"
    for net in "$@"; do
        echo "$net" >>"$lab/nets"
        ip route replace "$net" dev br0
    done
}

add() {
    base=$1 kind=$2 name=$3 addr=$4 public=${5:-}
    d=$lab/hosts/$name
    mkdir -p "$d/up/etc" "$d/wk" "$d/m"
    echo "$kind" >"$d/kind"
    echo "$name" >"$d/up/etc/hostname"
    printf '127.0.0.1 localhost\n%s %s\n' "${addr%/*}" "$name" >"$d/up/etc/hosts"
    : >"$d/up/etc/machine-id"
    mount -t overlay "$name" -o "lowerdir=$base,upperdir=$d/up,workdir=$d/wk" "$d/m"
    if [ "$kind" = light ]; then
        # before /usr/sbin in root's and sudo's paths
        for name_ in reboot poweroff halt shutdown; do
            cp "$d/m/usr/local/lab-sbin/$name_" "$d/m/usr/local/sbin/$name_"
        done
        cat /proc/sys/kernel/random/uuid >"$d/m/lab-boot-id"
    fi
    ip netns add "$name"
    ip link add "v$name" type veth peer name eth0 netns "$name"
    ip link set "v$name" master br0 up
    ip -n "$name" -batch - <<X
link set lo up
addr add $addr dev eth0
link set eth0 up
X
    while read -r net; do ip -n "$name" route replace "$net" dev eth0; done <"$lab/nets"
    if [ -n "$public" ]; then
        ip -n "$name" addr add "$public/32" dev eth0
        ip route replace "$public/32" via "${addr%/*}"
    fi
    say made
}

# Every host gets control groups of its own: two systemds in one group end each other's units.
own_cgroup() {
    for top in /sys/fs/cgroup/systemd /sys/fs/cgroup/unified /sys/fs/cgroup; do
        [ -w "$top/cgroup.procs" ] || continue
        mkdir -p "$top/gp-${lab##*/}/$name"
        echo 0 >"$top/gp-${lab##*/}/$name/cgroup.procs"
    done
}

# On a machine with control groups of version 1, container engines need groups of their own in each controller.
own_controllers() {
    for top in /sys/fs/cgroup/*/; do
        top=${top%/}
        [ -e "$top/cgroup.procs" ] && [ "${top##*/}" != unified ] || continue
        own=$top
        for part in "gp-${lab##*/}" "$name"; do
            mkdir -p "$own/$part"
            for file in cpuset.cpus cpuset.mems; do
                [ ! -e "$own/$file" ] || cat "$own/$file" >"$own/$part/$file"
            done
            own=$own/$part
        done
        echo 0 >"$own/cgroup.procs"
    done
}

# What the host is in: made, running, rebooting or off, and its number of boots. Whole at any moment.
say() {
    echo "$*" >"$d/state.new"
    mv "$d/state.new" "$d/state"
}

# One boot of a host; returns how pid 1 ended.
boot_systemd() {
    systemd-nspawn --quiet --boot -D "$d/m" --network-namespace-path="/run/netns/$name" \
        --register=no --keep-unit --machine="$name" --console=pipe \
        --kill-signal=SIGRTMIN+3 </dev/null >>"$d/console.log" 2>&1 &
    pid=$!
    echo "$pid" >"$d/pid"
    wait "$pid"
}

# The engines' folders are not on the host's own overlay, which cannot carry another one.
boot_container() {
    mkdir -p "$d/store/docker" "$d/store/containers" "$d/store/containerd"
    # shellcheck disable=SC2016
    unshare --mount --cgroup --propagation private sh -c '
        d=$1 name=$2
        if [ -d /sys/fs/cgroup/memory ]; then
            umount -l /sys/fs/cgroup && mount -t tmpfs cgroup /sys/fs/cgroup || exit 99
            for c in cpu cpuacct cpuset memory devices freezer blkio pids systemd; do
                mkdir "/sys/fs/cgroup/$c"
                case $c in systemd) o=none,name=systemd ;; *) o=$c ;; esac
                mount -t cgroup -o "$o" cgroup "/sys/fs/cgroup/$c" || exit 99
            done
        fi
        fuse=
        [ ! -e /dev/fuse ] || fuse=--bind=/dev/fuse
        SYSTEMD_NSPAWN_API_VFS_WRITABLE=network exec systemd-nspawn --quiet --boot -D "$d/m" \
            --network-namespace-path="/run/netns/$name" \
            --register=no --keep-unit --machine="$name" --console=pipe --kill-signal=SIGRTMIN+3 \
            --capability=all --system-call-filter="@keyring bpf" $fuse --bind="$d/store/docker:/var/lib/docker" \
            --bind="$d/store/containers:/var/lib/containers" --bind="$d/store/containerd:/var/lib/containerd"
        ' sh "$d" "$name" </dev/null >>"$d/console.log" 2>&1 &
    pid=$!
    echo "$pid" >"$d/pid"
    wait "$pid"
}

boot_light() {
    cat /proc/sys/kernel/random/uuid >"$d/m/lab-boot-id"
    # shellcheck disable=SC2016
    nsenter --net="/run/netns/$name" unshare --mount --uts --ipc --pid --fork --kill-child \
        --propagation private sh -c 'mount --bind "$1" "$1"
            # its own: the machine itself must not get the device files that packages make
            mount -t tmpfs -o mode=755 dev "$1/dev"
            for n in null zero full random urandom tty ptmx fuse btrfs-control; do
                [ ! -e /dev/$n ] || cp -a /dev/$n "$1/dev/"
            done
            mkdir -m 755 "$1/dev/pts" && mount --rbind /dev/pts "$1/dev/pts" && mkdir -m 1777 "$1/dev/shm"
            ln -s /proc/self/fd "$1/dev/fd"
            for n in 0:in 1:out 2:err; do ln -s /proc/self/fd/${n%:*} "$1/dev/std${n#*:}"; done
            mount -t sysfs -o ro sysfs "$1/sys" 2>/dev/null
            exec chroot "$1" /sbin/lab-init' sh "$d/m" </dev/null >>"$d/console.log" 2>&1 &
    pid=$!
    echo "$pid" >"$d/pid"
    wait "$pid"
}

supervise() {
    set +e
    boots=0 kind=$(cat "$d/kind")
    own_cgroup
    [ "$kind" != container ] || own_controllers
    while [ "$boots" -lt 50 ] && [ ! -e "$d/down" ]; do
        boots=$((boots + 1))
        say running "$boots"
        "boot_$kind"
        rc=$?
        echo "boot $boots ended: $rc" >>"$d/boots.log"
        [ -e "$d/down" ] && break
        # restart: 133 from nspawn, 128+SIGHUP from a light host's pid 1
        case $kind.$rc in systemd.133 | container.133 | light.129) ;; *) break ;; esac
        say rebooting "$boots"
        [ -e "$d/boot-delay" ] && sleep "$(cat "$d/boot-delay")"
    done
    say off "$boots"
}

# Process id of a host's pid 1, as the lab sees it.
init_pid() {
    top=$(cat "$d/pid") || return 1
    for _ in 1 2 3; do
        child=$(cat "/proc/$top/task/$top/children" 2>/dev/null)
        child=${child%% *}
        [ -n "$child" ] || return 1
        [ "$(readlink "/proc/$child/ns/pid")" != "$(readlink /proc/self/ns/pid)" ] &&
            { echo "$child"; return 0; }
        top=$child
    done
    return 1
}

del() {
    [ -d "$d" ] || return 0
    touch "$d/down"
    # again and again: a boot may have been about to begin
    n=0
    while [ $n -lt 600 ]; do
        case $(cat "$d/state") in running* | rebooting*) ;; *) break ;; esac
        if init=$(init_pid 2>/dev/null); then kill -9 "$init" 2>/dev/null || true; fi
        kill -9 "$(cat "$d/pid" 2>/dev/null)" 2>/dev/null || true
        sleep 0.05
        n=$((n + 1))
    done
    umount -l "$d/m"
    ip netns del "$name"
    ip link del "v$name" 2>/dev/null || true
    rm -rf "$d"
}

command=$1 lab=$2
shift 2
case $command in
setup) setup "$@" ;;
add) add "$@" ;;
supervise) name=$1 d=$lab/hosts/$1; supervise ;;
start)
    d=$lab/hosts/$1
    say running 0
    setsid "$0" supervise "$lab" "$1" </dev/null >"$d/supervise.log" 2>&1 & ;;
exec)
    d=$lab/hosts/$1
    shift
    exec nsenter -t "$(init_pid)" --mount --uts --ipc --net --pid --root --wd "$@" ;;
bind)
    d=$lab/hosts/$1
    nsenter -t "$(init_pid)" --mount mount --bind "$lab/hosts/$2/m$3" "$d/m$3" ;;
del) name=$1 d=$lab/hosts/$1; del ;;
*) echo "host.sh: unknown command '$command'" >&2; exit 2 ;;
esac

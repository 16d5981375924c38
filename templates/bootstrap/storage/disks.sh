# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2034,SC2094,SC2154
# Mounts disks: all blank local NVMe disks as one file system, or one volume. A disk is formatted only when it is blank:
# not in use, without a signature of anything, and with zeros at its beginning. Disks that gpuprov formatted for this
# mount have the label LABEL.
numbers() { printf '%d:%d' "0x$(stat -Lc %t "$1")" "0x$(stat -Lc %T "$1")"; }
# signature DEV TAG: what blkid finds on the disk itself, not in its cache
signature() { root blkid -p -s "$2" -o value "$1" 2>/dev/null; }
# Status 0: blank. Else sets $why.
blank() {
    id=$(numbers "$1")
    why=$(awk -v id="$id" '$3 == id { print "is mounted on " $5; exit }' /proc/self/mountinfo)
    [ -z "$why" ] || return 1
    if grep -qs "^$1 " /proc/swaps; then why='is used as swap'; fi
    for part in "/sys/dev/block/$id"/*/partition; do
        [ ! -e "$part" ] || why='has partitions'
    done
    for holder in "/sys/dev/block/$id"/holders/*; do
        [ ! -e "$holder" ] || why="is used by ${holder##*/}"
    done
    [ -z "$why" ] || return 1
    found=$(root blkid -p -o export "$1" 2>&1)
    rc=$?
    kind_of=$(printf '%s\n' "$found" | sed -n 's/^\(TYPE\|PTTYPE\)=//p' | head -n 1)
    if [ $rc -eq 0 ]; then
        why="holds ${kind_of:-data}"
    elif [ $rc -ne 2 ]; then
        why="cannot be read as blank: ${found:-blkid ended with status $rc}"
    elif [ -n "$(root wipefs -n "$1" 2>/dev/null)" ]; then
        why='holds a signature (see wipefs -n)'
    else
        look_into "$1"
    fi
    [ -z "$why" ]
}
# Counts bytes: a pattern of grep would not match a newline, or a byte that is no character of the node's language.
look_into() {
    set -- "$1" "$(root head -c 1048576 "$1" 2>/dev/null | wc -c)" "$(root head -c 1048576 "$1" 2>/dev/null | tr -d '\0' | wc -c)"
    if [ "$2" -ne 1048576 ]; then
        why='cannot be read'
    elif [ "$3" -ne 0 ]; then
        why='holds data of an unknown form'
    fi
}
# The local NVMe disks. A cloud's network volumes are NVMe devices too: their models are known.
nvme_disks() {
    for d in /sys/block/nvme*n*; do
        name=${d##*/}
        case $name in *c*n* | *p[0-9]*) continue ;; esac
        [ -b "/dev/$name" ] && [ "$(cat "$d/size" 2>/dev/null)" != 0 ] || continue
        # a disk behind a network (NVMe over Fabrics) is not this node's alone
        if cat "$d/device/transport" "$d/device"/nvme*/transport 2>/dev/null | grep -qvx -e pcie -e apple-nvme; then continue; fi
        case $(cat "$d/device/model" 2>/dev/null) in
        *'Elastic Block Store'* | *nvme_card-pd* | *PersistentDisk* | *'MSFT NVMe Accelerator'* | *'Cloud Elastic'*)
            continue
            ;;
        esac
        echo "/dev/$name"
    done
}
# Sorts the local disks: $ours (with the label), $members (of the array with the label), $free, and $others in words.
sort_nvme() {
    ours='' members='' free='' others=''
    for d in $(nvme_disks); do
        l=$(signature "$d" LABEL)
        if [ "$l" = "$label" ]; then
            ours="$ours $d"
        elif [ "${l##*:}" = "$label" ] && [ "$(signature "$d" TYPE)" = linux_raid_member ]; then
            members="$members $d"
        elif blank "$d"; then
            free="$free $d"
        else
            others="$others; $d $why"
        fi
    done
}
# The device of the volume: $dev. Clouds show the id as a serial number, a link or the end of one.
find_volume() {
    dev=
    case $source in
    /dev/*) [ ! -b "$source" ] || dev=$(readlink -f "$source") ;;
    *)
        bare=$(printf '%s' "$source" | tr -d '-')
        for s in /sys/block/*/serial /sys/block/*/device/serial; do
            [ -r "$s" ] || continue
            serial=$(tr -d ' \n-' <"$s")
            [ "$serial" = "$bare" ] || [ "$serial" = "${source#d-}" ] || continue
            s=${s#/sys/block/}
            dev=/dev/${s%%/*}
        done
        for l in /dev/disk/by-id/google-"$source" /dev/disk/by-id/virtio-"$source"; do
            [ ! -b "$l" ] || dev=$(readlink -f "$l")
        done
        ;;
    esac
    [ -n "$dev" ] && [ -b "$dev" ]
}
entry_of() {
    more=x-systemd.device-timeout=60s
    case $kind in
    nvme)
        what=LABEL=$label type=$(sort_nvme_type) || return 1
        ;;
    volume)
        find_volume || return 1
        uuid=$(signature "$dev" UUID) type=$(signature "$dev" TYPE)
        what=UUID=$uuid
        [ -n "$uuid" ] && [ -n "$type" ]
        ;;
    esac
}
# The arrays that the local disks are in. After a reboot one may have another name, such as /dev/md127.
arrays() {
    for d in ${1:-$(nvme_disks)}; do
        for h in "/sys/block/${d##*/}/holders"/md*; do
            [ ! -e "$h" ] || echo "/dev/${h##*/}"
        done
    done | sort -u
}
# The file system with the label, if there is one.
sort_nvme_type() {
    for d in $(nvme_disks) $(arrays); do
        [ -b "$d" ] && [ "$(signature "$d" LABEL)" = "$label" ] || continue
        signature "$d" TYPE
        return 0
    done
    return 1
}
is_source() {
    case $kind in
    nvme) [ -b "$have_source" ] && [ "$(signature "$have_source" LABEL)" = "$label" ] ;;
    volume) [ -b "$have_source" ] && [ "$(signature "$have_source" UUID)" = "$uuid" ] ;;
    esac
}
need_tool() {
    [ -n "$(PATH=$PATH:/usr/sbin:/sbin command -v "$1")" ] && return
    may_install "$2"
    install_packages "$2"
}
# make_fs LABEL DEV...: no tool is told to overwrite what it finds
make_fs() {
    l=$1
    shift
    say "formats $* as ${fs:-ext4}"
    case ${fs:-ext4} in
    xfs)
        need_tool mkfs.xfs xfsprogs
        within 600 root mkfs.xfs -q -L "$l" "$@"
        ;;
    btrfs)
        need_tool mkfs.btrfs btrfs-progs
        within 600 root mkfs.btrfs -q -d raid0 -m raid1 -L "$l" "$@"
        ;;
    *)
        need_tool mkfs.ext4 e2fsprogs
        within 600 root mkfs.ext4 -q -m 0 -L "$l" "$@"
        ;;
    esac || fail "$* cannot be formatted: $(printf '%s\n' "$said" | head -n 1)"
    ! command -v udevadm >/dev/null 2>&1 || within 30 root udevadm settle || :
}
kernel_has() { grep -qw "$1" /proc/filesystems || root modprobe -q "$1" 2>/dev/null; }
has_md() { [ -e /proc/mdstat ] || root modprobe -q raid0 2>/dev/null; }
# Several disks are one: by md, or by btrfs where the kernel has no md.
stripe() {
    count=$#
    if has_md; then
        need_tool mdadm mdadm
        root mkdir -p /dev/md
        say "stripes $* by md"
        within 120 root mdadm --create "/dev/md/$label" --level=0 --raid-devices=$count --name="$label" --run "$@" ||
            fail "mdadm cannot stripe $*: $(printf '%s\n' "$said" | tail -n 1)"
        make_fs "$label" "/dev/md/$label"
    elif kernel_has btrfs; then
        [ -z "$fs" ] || warn "this node's kernel has no md: $* are striped by btrfs instead of $fs"
        fs=btrfs
        make_fs "$label" "$@"
    else
        fail "this node has $count local disks, and its kernel ($(uname -r)) has neither md nor btrfs to stripe them: \
use another kernel"
    fi
}
prepare_nvme() {
    sort_nvme
    if [ -n "$ours" ]; then
        # after a reboot the kernel may not have seen all of them
        ! command -v btrfs >/dev/null 2>&1 || root btrfs device scan >/dev/null 2>&1
        return 0
    fi
    if [ -n "$members" ]; then
        array=$(arrays "$members" | head -n 1)
        if [ -z "$array" ]; then
            array=/dev/md/$label
            # shellcheck disable=SC2086
            within 120 root mdadm --assemble "$array" $members ||
                fail "the array on$members cannot be assembled: $(printf '%s\n' "$said" | tail -n 1)"
        fi
        [ -n "$(signature "$array" TYPE)" ] || make_fs "$label" "$array"
        return 0
    fi
    [ -n "$free$others" ] || fail 'this node has no local NVMe disk: choose another instance type, or remove the mount'
    [ -n "$free" ] || fail "this node has no blank local NVMe disk: ${others#; }"
    [ -z "$others" ] || warn "left alone: ${others#; }"
    # shellcheck disable=SC2086
    set -- $free
    if [ $# -eq 1 ]; then make_fs "$label" "$1"; else stripe "$@"; fi
}
prepare_volume() {
    n=0
    until find_volume; do
        [ $n -lt 120 ] || fail "this node has no disk $source: attach it, or correct 'volume'"
        [ $n -ne 0 ] || say "waits for the disk $source"
        sleep 0.5
        n=$((n + 1))
    done
    type=$(signature "$dev" TYPE) uuid=$(signature "$dev" UUID)
    if [ -n "$type" ] && [ -n "$uuid" ] && kernel_has "$type"; then
        [ -z "$fs" ] || [ "$fs" = "$type" ] ||
            fail "$source ($dev) holds $type, and the spec wants $fs: remove 'fs', or erase the disk yourself"
        return 0
    fi
    blank "$dev" || fail "$source ($dev) $why: gpuprov formats only blank disks"
    make_fs "$label" "$dev"
}
prepare() {
    case $kind in
    nvme) prepare_nvme ;;
    volume) prepare_volume ;;
    esac
}
explain() {
    kernel_has "$type" || said="this node's kernel ($(uname -r)) has no $type"
}
# A file system that gpuprov made, and that is still empty, belongs to the login user.
mounted_now() {
    mounted "$at" && [ "$(signature "$have_source" LABEL)" = "$label" ] || return 0
    [ "$(root stat -c %u "$at")" = 0 ] && [ -z "$(root ls -A "$at" | grep -vx 'lost+found')" ] || return 0
    within 30 root chown "$(id -u):$(id -g)" "$at" || fail "cannot give $at to $(id -un): $said"
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2034,SC2094,SC2154
# Shared by the steps that mount. MOUNTS: lines of AT|KIND|SOURCE|FS|OPTIONS|MODE|ENDPOINT|REGION|SECRETS|LABEL.
# The file of a step defines, for the mount whose values are in $at to $label:
#   entry_of     sets $what, $type and $more, the fields of its line in fstab; status 1: not known before prepare
#   is_source    status 0: the mount that is there ($have_type, $have_source, $have_dev) is this one
#   prepare      installs tools and makes what is mounted, without touching $at
#   mounted_now  what is left to do after a mount
#   explain      appends a cause or next step to $said, the words of a failed mount
MOUNT_S=90 READ_S=30
# A child that waits to be collected. Its command line says less: that is empty too while it starts a program.
ended() {
    { read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 0
    case ${stat##*) } in Z* | X*) true ;; *) false ;; esac
}
# within SECONDS [root] COMMAND...: runs it with a time limit. A process that hangs in the kernel does not end when it
# is killed: it is left behind. Status 124: over its time. Sets $said to the first lines of its output.
within() {
    limit=$1
    shift
    heard=$(mktemp) || fail 'cannot write in /tmp'
    if [ "$1" = root ]; then
        shift
        root timeout -k 5 "$limit" "$@" >"$heard" 2>&1 </dev/null &
    else
        timeout -k 5 "$limit" "$@" >"$heard" 2>&1 </dev/null &
    fi
    child=$! n=0
    while ! ended $child && [ $n -lt $(((limit + 10) * 10)) ]; do
        sleep 0.1
        n=$((n + 1))
    done
    status=124
    if ended $child; then
        wait $child
        status=$?
        [ $status -ne 137 ] || status=124
    fi
    said=$(head -c 4096 "$heard" | tr -d '\0\r' | grep . | head -n 5)
    rm -f "$heard"
    return $status
}
# The uppermost mount at $1, read without touching it: sets $have_type, $have_source, $have_options, $have_dev.
mounted() {
    have=$(awk -v at="$1" '$5 == at {
        for (i = 7; i <= NF && $i != "-"; i++) ;
        last = $(i + 1) " " $(i + 2) " " $6 "," $(i + 3) " " $3
    } END { if (last) print last }' /proc/self/mountinfo)
    [ -n "$have" ] || return 1
    read -r have_type have_source have_options have_dev <<X
$have
X
}
# fstab's line for $at, without ours: nothing may be there; with ours: the whole line
fstab_line() { awk -v at="$at" '$1 !~ /^#/ && $2 == at' /etc/fstab 2>/dev/null; }
fstab_wanted() { printf '%s %s %s %s 0 0\n' "$what" "$at" "$type" "$opts"; }
fstab_options() {
    opts=nofail,x-gpuprov
    [ "$mode" = write ] || opts=ro,$opts
    [ -z "$more" ] || opts=$opts,$more
    # options of rclone are in its own file
    [ -z "$options" ] || [ "$kind" = bucket ] || opts=$opts,$options
}
fstab_write() {
    line=$(fstab_line)
    [ "$line" != "$(fstab_wanted)" ] || return 0
    case $line in
    '' | *x-gpuprov*) ;;
    *) fail "/etc/fstab has an entry for $at that gpuprov did not write: remove it, or the mount from the spec" ;;
    esac
    # some images have none
    [ -e /etc/fstab ] || write_file /etc/fstab 644 '# made by gpuprov'
    all=$(awk -v at="$at" '$1 ~ /^#/ || $2 != at' /etc/fstab && fstab_wanted) ||
        fail '/etc/fstab cannot be read: nothing was changed'
    write_file /etc/fstab 644 "$all"
    if systemd_runs; then root systemctl daemon-reload; fi
}
# ext4 makes itself read-only after an error: that is among the options of the file system, not of the mount.
right_mode() {
    case ,$have_options, in
    *,ro,*) [ "$mode" = read ] ;;
    *) [ "$mode" = write ] ;;
    esac
}
# Lists the folder as the login user. A mount that answers "mounted" may not answer at all.
reads() { within $READ_S sh -c 'ls -A "$1" >/dev/null && [ -d "$1" ]' sh "$at"; }
writes() {
    within $READ_S sh -c 'f=$1/.gpuprov-$(uname -n)-$$; trap "rm -f \"\$f\"" EXIT
        echo gpuprov >"$f" && [ "$(cat "$f")" = gpuprov ] && rm "$f"' sh "$at"
}
each_mount() {
    printf '%s' "$MOUNTS" | while IFS='|' read -r at kind source fs options mode endpoint region secrets label; do
        export at kind source fs options mode endpoint region secrets label
        "$1" </dev/null || exit $?
    done
}
probe_one() {
    if entry_of && fstab_options && [ "$(fstab_line)" = "$(fstab_wanted)" ] && mounted "$at" && is_source &&
        right_mode && reads; then
        return 0
    fi
    need_root "the mount at $at"
    return 10
}
probe() { each_mount probe_one; }
# Removes what is mounted at $at when gpuprov mounted it, or when it is dead; a foreign mount is left alone.
clear_way() {
    while mounted "$at"; do
        case $(fstab_line) in
        *x-gpuprov*) ;;
        *) fail "$at is a mount of $have_source ($have_type) that gpuprov did not make: unmount it, or correct 'at'" ;;
        esac
        say "unmounts $have_source from $at"
        within 30 root umount "$at" || within 30 root umount -l "$at" ||
            fail "$at is a mount of $have_source and cannot be unmounted: $said"
    done
    if [ -d "$at" ] && [ -n "$(root ls -A "$at" 2>/dev/null | head -n 1)" ]; then
        fail "$at is a folder with files, which a mount would hide: move them away, or correct 'at'"
    fi
    within 30 root mkdir -p "$at" || fail "cannot create $at: $said"
    within 30 root readlink -f "$at" || fail "cannot read $at: $said"
    [ "$said" = "$at" ] || fail "$at leads through a symbolic link to $said: write 'at: $said'"
}
apply_one() {
    if entry_of && fstab_options && [ "$(fstab_line)" = "$(fstab_wanted)" ] && mounted "$at" && is_source &&
        right_mode && reads; then
        return 0
    fi
    prepare
    entry_of || fail "$at: $source cannot be mounted: it has no file system"
    fstab_options
    clear_way
    fstab_write
    say "mounts $source at $at"
    # A helper that stays, as of a bucket, must not belong to this login's session.
    if systemd_runs && command -v systemd-run >/dev/null 2>&1; then
        within $MOUNT_S root systemd-run --scope --quiet --collect mount "$at"
    else
        within $MOUNT_S root mount "$at"
    fi || {
        [ $? -ne 124 ] || said="did not answer within $MOUNT_S s and was killed"
        explain
        fail "$source cannot be mounted at $at: $(printf '%s' "$said" | head -n 1)"
    }
    mounted_now
}
mounted_now() { :; }
apply() { each_mount apply_one; }
verify_one() {
    mounted "$at" || fail "mount reported success for $source at $at, and nothing is mounted there"
    entry_of
    is_source || fail "$at is a mount of $have_source ($have_type) instead of $source"
    right_mode || fail "$at is mounted with $have_options, which is not for $mode"
    reads || {
        [ $? -ne 124 ] || said="no answer within $READ_S s"
        explain
        fail "$at is mounted and cannot be read by $(id -un): $(printf '%s' "$said" | head -n 1)"
    }
    [ "$mode" = read ] || writes || {
        [ $? -ne 124 ] || said="no answer within $READ_S s"
        fail "$at is mounted and cannot be written by $(id -un): $(printf '%s' "$said" | head -n 1); \
use 'mode: read', or give that user the permission"
    }
}
verify() { each_mount verify_one; }

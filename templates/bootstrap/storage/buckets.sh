# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2016,SC2034,SC2094,SC2154
# Mounts buckets through a helper of mount(8), /sbin/mount.gpuprov, which reads what to mount and with which secrets
# from a file that only root reads: no secret is in an argument. Secrets are in this step's environment.
HELPER=/sbin/mount.gpuprov
CONF=/etc/gpuprov/mounts
helper_text() {
    cat <<'X'
#!/bin/sh
# made by gpuprov: mount.gpuprov NAME FOLDER [-o OPTIONS] mounts the bucket that /etc/gpuprov/mounts/NAME describes;
# mount.gpuprov --try NAME read|write lists it, or writes and removes an object, without a mount.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
umask 077
# older releases of rclone end on it
unset AWS_CA_BUNDLE
try=
if [ "$1" = --try ]; then
    try=$3
    shift
fi
. "/etc/gpuprov/mounts/$1" || exit 32
is_mounted() { awk -v at="$1" '$5 == at { for (i = 7; $i != "-"; i++) ; if ($(i + 1) ~ /^fuse/) found = 1 }
    END { exit !found }' /proc/self/mountinfo; }
if [ -n "$try" ] && [ "$TOOL" = rclone ]; then
    set -- --contimeout 10s --timeout 20s --retries 1 --low-level-retries 1
    if [ "$try" = write ]; then
        object=$REMOTE/.gpuprov-$(uname -n)-$$
        echo gpuprov | rclone "$@" rcat "$object" && rclone "$@" deletefile "$object"
        exit
    fi
    rclone "$@" lsf --max-depth 1 "$REMOTE" >/dev/null
    exit
fi
[ -z "$try" ] || exit 0 # mount-s3 tries it itself
is_mounted "$2" && exit 0
if [ "$TOOL" = mount-s3 ]; then
    eval "set -- $FLAGS \"\$BUCKET\" \"\$2\""
    exec mount-s3 "$@"
fi
at=$2
eval "set -- $FLAGS"
rclone mount "$@" --daemon "$REMOTE" "$at" || exit 32
n=0
until is_mounted "$at"; do
    [ $n -lt 300 ] || { echo 'rclone did not mount it within 60 s' >&2; exit 32; }
    sleep 0.2
    n=$((n + 1))
done
X
}
# Text in single quotes for sh. Only programs of the shell itself see it.
quoted() {
    rest=$1
    printf "'"
    while case $rest in *"'"*) true ;; *) false ;; esac; do
        printf "%s'\\\\''" "${rest%%"'"*}"
        rest=${rest#*"'"}
    done
    printf "%s'" "$rest"
}
line() { printf '%s=%s\n' "$1" "$(quoted "$2")"; }
# mount-s3 where it is, and on Amazon Linux, which has it in its repository; rclone elsewhere.
tool_of() {
    case $source in
    s3://*)
        if command -v mount-s3 >/dev/null 2>&1 || grep -qs '^ID="*amzn' /etc/os-release; then
            echo mount-s3
            return
        fi
        ;;
    esac
    echo rclone
}
flags() {
    if [ "$tool" = mount-s3 ]; then
        f="--allow-other --uid $(id -u) --gid $(id -g)"
        if [ "$mode" = read ]; then f="$f --read-only"; else f="$f --allow-delete --allow-overwrite"; fi
        path=${source#s3://*/}
        case ${source#s3://} in */*) f="$f --prefix $path/" ;; esac
        [ -z "$endpoint" ] || f="$f --endpoint-url $endpoint"
        [ -z "$region" ] || f="$f --region $region"
    else
        f="--allow-other --uid $(id -u) --gid $(id -g) --umask 022"
        f="$f --dir-cache-time 1m --cache-dir /var/cache/gpuprov"
        if [ "$mode" = read ]; then f="$f --read-only"; else f="$f --vfs-cache-mode writes"; fi
    fi
    for o in $(printf '%s' "$options" | tr ',' ' '); do f="$f --$o"; done
    printf '%s' "$f"
}
conf_text() {
    echo '# made by gpuprov'
    line TOOL "$tool"
    line FLAGS "$(flags)"
    bucket=${source#*://}
    line BUCKET "${bucket%%/*}"
    line REMOTE "GP:$bucket"
    case $source in
    s3://*) store=s3 provider=AWS ;;
    oss://*) store=s3 provider=Alibaba ;;
    *) store='google cloud storage' provider= ;;
    esac
    [ -z "$endpoint" ] || [ "$provider" != AWS ] || provider=Other
    echo 'export RCLONE_CONFIG=/dev/null HOME=/root'
    echo "export RCLONE_CONFIG_GP_TYPE='$store'"
    if [ -n "$provider" ]; then
        echo "export RCLONE_CONFIG_GP_PROVIDER=$provider RCLONE_CONFIG_GP_ENV_AUTH=true"
        # or it would make the bucket
        echo 'export RCLONE_CONFIG_GP_NO_CHECK_BUCKET=true'
    fi
    [ "$store" = s3 ] || echo 'export RCLONE_CONFIG_GP_BUCKET_POLICY_ONLY=true'
    [ -z "$endpoint" ] || echo "export RCLONE_CONFIG_GP_ENDPOINT='$endpoint'"
    [ -z "$region" ] || echo "export RCLONE_CONFIG_GP_REGION='$region' AWS_REGION='$region'"
    for name in $secrets; do
        eval "value=\$GPUPROV_SECRET_$name"
        printf 'export '
        line "$name" "$value"
    done
}
# One name for each folder: /a/b is a_b, and /a_b is a+5Fb.
name_of() { printf '%s' "${at#/}" | sed 's/+/+2B/g; s/_/+5F/g; s|/|_|g'; }
set_tool() {
    tool=$(tool_of)
    conf=$CONF/$(name_of)
}
entry_of() {
    set_tool
    what=$(name_of) type=gpuprov more=_netdev,x-systemd.mount-timeout=${MOUNT_S}s
    command -v "$tool" >/dev/null 2>&1 && file_is "$HELPER" 755 "$(helper_text)" &&
        file_is "$conf" 600 "$(conf_text)"
}
is_source() { case $have_type in fuse*) true ;; *) false ;; esac }
try() {
    within 60 root "$HELPER" --try "$(name_of)" "$1" && return
    [ $? -ne 124 ] || said='no answer within 60 s'
    # the words of rclone: "2026/01/01 10:00:00 ERROR : : error listing: ..."
    said=$(printf '%s\n' "$said" | grep -v 'not found - using defaults' | tail -n 1 |
        sed 's/^[0-9/]* [0-9:]* *[A-Z]* *: *//')
    return 1
}
prepare() {
    set_tool
    packages=$tool
    [ "$tool" != rclone ] || packages='rclone fuse3'
    [ -c /dev/fuse ] || root modprobe fuse 2>/dev/null || [ -c /dev/fuse ] ||
        fail 'this node has no /dev/fuse, which mounts of buckets need: remove the mount, or use another image'
    helper=fusermount3
    [ "$tool" = rclone ] || helper=$tool
    if ! command -v "$tool" >/dev/null 2>&1 || ! command -v $helper >/dev/null 2>&1; then
        # shellcheck disable=SC2086
        may_install $packages
        # shellcheck disable=SC2086
        install_packages $packages
        command -v "$tool" >/dev/null 2>&1 || fail "the package $tool is installed, but the program is not there"
    fi
    write_file "$HELPER" 755 "$(helper_text)"
    root mkdir -p -m 0700 "$CONF" && root chmod 0700 "$CONF"
    write_file "$conf" 600 "$(conf_text)"
    try read || fail "$source cannot be listed: $said"
    [ "$mode" = read ] || try write || fail "$source cannot be written: $said; use 'mode: read', or other credentials"
}
explain() { :; }

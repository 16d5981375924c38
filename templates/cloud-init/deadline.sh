#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# deadline.sh CONFIG: ends this node, without gpuprov: it powers off, or runs the script END until the cloud has deleted
# it. It ends at EXPIRES (wall clock, counted only while it is synchronized), after TTL and GRACE seconds of use, after
# IDLE seconds without a job, a login and GPU use, and after CONTROLLER seconds without a gpuprov (0: never). The counts
# are monotonic and kept in files that survive reboots. CONFIG is read again at each tick and at SIGUSR1; one that is
# incomplete changes nothing. RUN/deadline has what is in force.
# With --look, a child measures what this node is used for: it may hang on a dead share or driver.
set -u
umask 022
TICK=30 FORCE_AFTER=90 SYSRQ_AFTER=60 HOLD=300 RETRY=30 IDLE=0 CONTROLLER=0 GPU_BUSY=5 BROKEN=3600
END='' STATE=/var/lib/gpuprov/deadline-used RUN=/run/gpuprov MACHINE='' EXPIRES=0 TTL=0 GRACE=0
CONFIG=$1

# Lines NAME=VALUE. What gpuprov writes begins with FORM=2 and ends with COMPLETE=1.
read_config() {
    seen=' ' form='' complete=''
    while IFS= read -r line || [ -n "$line" ]; do
        name=${line%%=*} value=${line#*=}
        case $name in
        FORM) form=$value ;;
        COMPLETE) complete=$value ;;
        EXPIRES | TTL | GRACE | TICK | FORCE_AFTER | SYSRQ_AFTER | HOLD | RETRY | IDLE | CONTROLLER | GPU_BUSY | BROKEN)
            case $value in '' | *[!0-9]* | 0?* | ?????????????*) return 1 ;; esac
            ;;
        END | STATE | RUN | MACHINE) ;;
        *) continue ;;
        esac
        eval "new_$name=\$value"
        seen="$seen$name "
    done <"$CONFIG" || return 1
    case "$form$complete" in '' | 21) ;; *) return 1 ;; esac
    for name in EXPIRES TTL GRACE; do
        case $seen in *" $name "*) ;; *) return 1 ;; esac
    done
    for name in $seen; do eval "$name=\$new_$name"; done
} 2>/dev/null

uptime_s() { read -r up _ </proc/uptime; up=${up%%.*}; }

# --- what the node is used for; printed as "use=yes|no|unknown" and "contact=yes|no" ---

homes() { cut -d: -f6 /etc/passwd | grep '^/.' | sort -u; }

is_job() { grep -aq gpuprov-agent "/proc/$1/cmdline"; } 2>/dev/null

# A job of gpuprov that runs. One whose supervisor was killed leaves its files behind.
has_job() {
    pid=''
    [ ! -e "$RUN/job" ] || read -r pid _ <"$RUN/job" || :
    case $pid in
    '' | *[!0-9]*) [ ! -e "$RUN/job" ] || return 0 ;;
    *) [ ! -d "/proc/$pid" ] || return 0 ;;
    esac
    homes | while IFS= read -r home; do
        for file in "$home"/.gpuprov/nodes/*/jobs/*/pid; do
            [ ! -f "$file" ] || ! read -r pid _ <"$file" || ! is_job "$pid" || exit 9
        done
    done
    [ $? -eq 9 ]
} 2>/dev/null

# Sessions of SSH, with or without a terminal, and logins at a console.
has_login() {
    grep -aqsE '^sshd(-session)?: [^ ]+@' /proc/[0-9]*/cmdline || who 2>/dev/null | grep -q .
}

# 0: any GPU is used; 1: none is, or there is none; 2: not known.
gpu_use() {
    [ -e "${NVIDIACTL:-/dev/nvidiactl}" ] || return 1
    said=$(timeout -k 5 60 nvidia-smi --query-gpu=utilization.gpu --format=csv,noheader,nounits 2>/dev/null) || return 2
    unknown=''
    for percent in $said; do
        case $percent in
        *[!0-9]*) unknown=yes ;; # such as "[N/A]" of a GPU in MIG mode
        *) [ "$percent" -lt "$GPU_BUSY" ] || return 0 ;;
        esac
    done
    [ -n "$said" ] || return 2
    [ -n "$unknown" ] || return 1
    said=$(timeout -k 5 60 nvidia-smi --query-compute-apps=pid --format=csv,noheader 2>/dev/null) || return 2
    [ -z "$said" ]
    return $((! $?))
}

# Each gpuprov writes "BOOT PID UPTIME" of its session to ~/.gpuprov/contact. A session that stays counts while
# something passes through it, and so does one with a terminal. RUN/contact-io has what was seen before.
has_contact() {
    read -r boot </proc/sys/kernel/random/boot_id
    {
        homes | while IFS= read -r home; do
            [ ! -f "$home/.gpuprov/contact" ] || ! read -r of pid at <"$home/.gpuprov/contact" || [ "$of" != "$boot" ] ||
                printf '%s %s\n' "${pid%%[!0-9]*}" "${at%%[!0-9.]*}"
        done
        grep -alsE '^sshd(-session)?: [^ ]+@(pts|tty)' /proc/[0-9]*/cmdline | sed 's|^/proc/\([0-9]*\)/.*|\1 0|'
    } | while read -r pid at; do
        read=''
        ! grep -aqsE '^sshd(-session)?: [^ ]+@' "/proc/$pid/cmdline" || read=$(sed -n 's/^rchar: //p' "/proc/$pid/io")
        printf '%s %s %s\n' "$pid" "$at" "$read"
    done >"$RUN/contact-io.new"
    [ -f "$RUN/contact-io" ] || : >"$RUN/contact-io"
    grep -qvxFf "$RUN/contact-io" "$RUN/contact-io.new"
    set -- $?
    mv "$RUN/contact-io.new" "$RUN/contact-io"
    return "$1"
} 2>/dev/null

look() {
    use=no contact=no
    uptime_s
    gpu_use
    case $? in 0) use=yes ;; 2) use=unknown ;; esac
    ! has_job && ! has_login || use=yes
    ! has_contact || contact=yes
    printf '%s use=%s contact=%s\n' "$up" "$use" "$contact" >"$RUN/look.new" && mv "$RUN/look.new" "$RUN/look"
}

if [ "${2:-}" = --look ]; then
    read_config && look
    exit
fi

# --- the counts ---

# Overwrites in place with a fixed width: that needs no new block, so a full disk does not stop the count.
remember() {
    printf '%012d\n' "$used" 1<>"$STATE"
    printf '%012d\n' "$idle" 1<>"$STATE.idle"
    printf '%012d\n' "$quiet" 1<>"$STATE.quiet"
} 2>/dev/null

recall() {
    text=''
    [ ! -r "$1" ] || read -r text <"$1"
    case $text in
    '' | *[!0-9]*) echo 0 ;;
    *) echo "$text" | sed 's/^0*\(.\)/\1/' ;;
    esac
}

# Starts a look, and adds the time between the last two to the counts that this one does not end. A look that has not
# ended, or that could not know, adds none.
count_quiet() {
    if [ "$IDLE" -eq 0 ] && [ "$CONTROLLER" -eq 0 ]; then
        idle=0 quiet=0 looked=$up
        return
    fi
    said=''
    [ ! -f "$RUN/look" ] || read -r said <"$RUN/look"
    at=${said%% *}
    case $at in
    '' | *[!0-9]*) ;;
    *)
        rm -f "$RUN/look"
        case $said in *use=yes*) idle=0 ;; *use=no*) idle=$((idle + at - looked)) ;; esac
        case $said in *contact=yes) quiet=0 ;; *contact=no) quiet=$((quiet + at - looked)) ;; esac
        looked=$at look_pid=''
        ;;
    esac
    [ -n "$look_pid" ] && kill -0 "$look_pid" 2>/dev/null && return
    sh "$0" "$CONFIG" --look </dev/null >/dev/null 2>&1 &
    look_pid=$! look_began=$up
}

# --- the end ---

clock_is_right() {
    [ -e /run/systemd/timesync/synchronized ] && return 0
    LC_ALL=C timedatectl 2>/dev/null | grep -Eq '(System clock|NTP) synchronized: yes' && return 0
    LC_ALL=C chronyc -n tracking 2>/dev/null | grep -Eq '^Leap status *: Normal'
}

# Sets why, if this node must end now. A count of quiet time ends it only after a look of this moment: hurry is set until
# there is one.
must_end() {
    why='' hurry=''
    if [ "$used" -ge $((TTL + GRACE)) ]; then
        why="it was used for $used s, its ttl is $TTL s"
    elif [ "$(date +%s)" -ge "$EXPIRES" ] && clock_is_right; then
        why="its deadline has passed"
    elif [ "$IDLE" -gt 0 ] && [ "$idle" -ge "$IDLE" ]; then
        why="it had no job, no login and no GPU use for $idle s, and limits.idle is $IDLE s"
        hurry=yes
    elif [ "$CONTROLLER" -gt 0 ] && [ "$quiet" -ge "$CONTROLLER" ]; then
        why="no gpuprov has connected for $quiet s, and limits.controller is $CONTROLLER s"
        hurry=yes
    fi
    [ -z "$hurry" ] || [ $((up - looked)) -gt 5 ] || hurry=''
    [ -n "$why" ] && [ -z "$hurry" ]
}

end_node() {
    if [ -n "$END" ]; then # a poweroff would stop this node, but not its bill
        echo "gpuprov: this node deletes itself now: $1"
        while :; do
            sh "$END" delete
            sleep "$RETRY"
        done
    fi
    echo "gpuprov: this node powers off now: $1"
    poweroff &
    sleep "$FORCE_AFTER"
    poweroff -f &
    sleep "$SYSRQ_AFTER"
    echo o >/proc/sysrq-trigger
    sleep 30
    echo b >/proc/sysrq-trigger
}

# For `gpuprov extend`, which waits until its deadline is in force.
publish() {
    printf 'expires=%s ttl=%s used=%s idle=%s quiet=%s idle_limit=%s controller_limit=%s\n' "$EXPIRES" "$TTL" "$used" \
        "$idle" "$quiet" "$IDLE" "$CONTROLLER" >"$RUN/deadline.new" && mv "$RUN/deadline.new" "$RUN/deadline"
} 2>/dev/null

nudged='' sleeper=''
trap 'nudged=yes; [ -z "$sleeper" ] || kill "$sleeper" 2>/dev/null' USR1
broken=''
read_config || broken=yes
mkdir -p "$RUN"
echo $$ >"$RUN/deadline.pid"
rm -rf "$RUN/ending" "$RUN/look"

# An image of another node contains that node's CONFIG. cloud-init replaces it soon; if it does not, this
# CONFIG stays in force, except that it never deletes another machine.
if [ -z "$broken" ] && [ "$MACHINE" != "$(cat /sys/class/dmi/id/product_uuid 2>/dev/null)" ]; then
    sleep "$HOLD"
    if [ -n "$END" ]; then
        echo "gpuprov: the deadline here is another machine's: nothing is deleted"
        exit 0 # the unit starts it again
    fi
fi

used=$(recall "$STATE") idle=$(recall "$STATE.idle") quiet=$(recall "$STATE.quiet") look_pid='' look_began=0
# A start counts as one tick, so that a node that keeps rebooting powers off too.
uptime_s
if [ "$up" -lt "$TICK" ]; then first=$up; else first=$TICK; fi
used=$((used + first)) idle=$((idle + first)) quiet=$((quiet + first)) last=$up looked=$up
if [ -n "$broken" ]; then
    echo "gpuprov: $CONFIG cannot be read: this node ends after $BROKEN s of use unless it is written again"
    EXPIRES=999999999999 TTL=$((used + BROKEN)) GRACE=0
    [ ! -s "${CONFIG%/*}/end.sh" ] || END=${CONFIG%/*}/end.sh
fi
remember

while :; do
    nudged='' # a signal from here on ends the pause below, wherever it arrives
    read_config || :
    count_quiet
    publish
    if must_end; then
        # A deadline that was moved before this folder was there counts; one that is moved later does not.
        mkdir "$RUN/ending" 2>/dev/null
        read_config || :
        ! must_end || end_node "$why"
        rmdir "$RUN/ending"
    fi
    pause=$TICK
    [ -z "$hurry" ] || [ $((up - look_began)) -gt 60 ] || pause=1
    sleep "$pause" &
    sleeper=$!
    [ -z "$nudged" ] || kill "$sleeper" 2>/dev/null
    wait "$sleeper"
    sleeper=''
    uptime_s
    used=$((used + up - last))
    last=$up
    remember
done

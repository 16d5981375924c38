# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# Starts a step so that it outlives the connection. STEP: its folder; HASH: of its script; RUN_ID: this run;
# JOB, WRAP: the scripts. Prints the run that is active now: this one, or an equal one that an earlier gpuprov
# started. Files for pid and status are created first, so that a full disk cannot hide them.
users=$(umask)
umask 077
d=$NODE_DIR/steps/$STEP
because() { full_disks "$HOME" | sed 's/^/: the disk is full: /'; }
said=$(mkdir -p "$d" 2>&1) && cd "$d" || fail "cannot make $d: ${said##*: }$(because)"
# After a lost reply gpuprov sends this again while the first start may still run. The lock ends with this
# script. Some file systems have no locks; the step starts without one there.
{ true >lock; } 2>/dev/null || fail "cannot write in $d$(because)"
exec 9>lock
if command -v flock >/dev/null 2>&1; then flock -w 20 9; fi
read -r boot </proc/sys/kernel/random/boot_id
alive() { read -r p <pid && grep -q "$1" "/proc/${p:-x}/cmdline" 2>/dev/null; }
# Does a gpuprov follow the run of this folder? It notes the seconds since the boot each second.
followed() { { read -r at <followed && read -r up _ </proc/uptime; } 2>/dev/null && [ $((${up%%.*} - at)) -le 3 ]; }
if [ -s id ] && read -r old_hash old_boot old_run <id; then
    # sent again because the reply was lost; follow.sh reports whether a reboot interrupted the run
    if [ "$old_run" = "$RUN_ID" ]; then
        printf '::run %s\n' "$old_run"
        exit 0
    fi
    # Another gpuprov has not seen yet that its equal run ended well: both take that end.
    if [ "$old_boot $old_hash" = "$boot $HASH" ] && grep -q '^0 ' rc && followed; then
        printf '::run %s\n' "$old_run"
        exit 0
    fi
    if [ "$old_boot" = "$boot" ] && grep -q '^run' rc && alive "$old_run"; then
        if [ "$old_hash" = "$HASH" ]; then
            printf '::run %s\n' "$old_run"
            exit 0
        fi
        # an earlier gpuprov that was ended stops to follow it in a moment
        n=0
        while followed && [ $n -lt 50 ]; do
            sleep 0.2
            n=$((n + 1))
        done
        if alive "$old_run"; then
            ! followed || fail 'another gpuprov, with another spec, runs this step on the node now: wait until it has ended'
            end_group "$p" || fail 'an earlier version of this step still runs and cannot be killed'
        fi
    fi
fi
rm -f out tail tail.new rc pid id run job.sh asked reboot.said followed
if ! { printf '%s' "$JOB" >run && printf '%s' "$WRAP" >job.sh && printf '%-10s\n' run >rc &&
    printf '%-10s\n' '' >pid && true >out && printf '%s %s %s\n' "$HASH" "$boot" "$RUN_ID" >id; } 2>/dev/null; then
    rm -f id
    fail "cannot write in $d$(because)"
fi
umask "$users" # the step's own files; $d is closed to others
setsid sh ./job.sh "$RUN_ID" </dev/null >/dev/null 2>&1 9>&- &
# on a busy node a poll before the run has written its pid would find it dead
n=0
until alive "$RUN_ID" || [ $n -ge 1000 ]; do
    read -r now <rc || now=
    case $now in run*) ;; *) break ;; esac
    sleep 0.02
    n=$((n + 1))
done
printf '::run %s\n' "$RUN_ID"

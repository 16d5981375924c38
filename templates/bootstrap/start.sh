# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# Starts a step so that it outlives the connection. STEP: its folder; HASH: of what it does; RUN_ID:
# this run; JOB, WRAP: the scripts. Says which run is going now: this one, or one of an earlier gpuprov
# that does the same. Places for pid and status are taken before, so that a full disk cannot hide them.
umask 077
d=$NODE_DIR/steps/$STEP
because() { full_disks "$HOME" | sed 's/^/: the disk is full: /'; }
said=$(mkdir -p "$d" 2>&1) && cd "$d" || fail "cannot make $d: ${said##*: }$(because)"
# When the answer was lost and gpuprov asks again, the first start may still be at it. The lock goes
# away with this script; where there is none to be had (some file systems) it is done without.
{ true >lock; } 2>/dev/null || fail "cannot write in $d$(because)"
exec 9>lock
if command -v flock >/dev/null 2>&1; then flock -w 20 9; fi
boot=$(cat /proc/sys/kernel/random/boot_id)
alive() { read -r p <pid && grep -q "$1" "/proc/${p:-x}/cmdline" 2>/dev/null; }
if [ -s id ] && read -r old_hash old_boot old_run <id; then
    # asked again because the answer was lost; whether a reboot has cut the run is follow.sh's to say
    if [ "$old_run" = "$RUN_ID" ]; then
        printf '::run %s\n' "$old_run"
        exit 0
    fi
    if [ "$old_boot" = "$boot" ] && grep -q '^run' rc && alive "$old_run"; then
        if [ "$old_hash" = "$HASH" ]; then
            printf '::run %s\n' "$old_run"
            exit 0
        fi
        end_group "$p" || fail 'an earlier form of this step still runs and cannot be ended'
    fi
fi
rm -f out tail tail.new rc pid id run job.sh
if ! { printf '%s' "$JOB" >run && printf '%s' "$WRAP" >job.sh && printf '%-10s\n' run >rc &&
    printf '%-10s\n' '' >pid && true >out && printf '%s %s %s\n' "$HASH" "$boot" "$RUN_ID" >id; } 2>/dev/null; then
    rm -f id
    fail "cannot write in $d$(because)"
fi
setsid sh ./job.sh "$RUN_ID" </dev/null >/dev/null 2>&1 9>&- &
# a busy node takes its time: who asks before the run has said its number would take it for dead
n=0
until alive "$RUN_ID" || [ $n -ge 1000 ]; do
    case $(cat rc) in run*) ;; *) break ;; esac
    sleep 0.02
    n=$((n + 1))
done
printf '::run %s\n' "$RUN_ID"

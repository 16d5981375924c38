# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# Starts a step so that it outlives the connection. STEP: its folder; HASH: of what it does; RUN_ID:
# this run; JOB, WRAP: the scripts. Says which run is going now: this one, or one of an earlier gpuprov
# that does the same. Places for pid and status are taken before, so that a full disk cannot hide them.
umask 077
d=$HOME/.gpuprov/steps/$STEP
mkdir -p "$d" && cd "$d" || fail "cannot make $d$(full_disks "$HOME" | sed 's/^/: the disk is full: /')"
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
        say 'ends an earlier form of this step that still runs'
        kill -KILL -- "-$p" 2>/dev/null || root kill -KILL -- "-$p"
    fi
fi
rm -f out tail tail.new rc pid id run job.sh
if ! { printf '%s' "$JOB" >run && printf '%s' "$WRAP" >job.sh && printf '%-10s\n' run >rc &&
    printf '%-10s\n' '' >pid && : >out && printf '%s %s %s\n' "$HASH" "$boot" "$RUN_ID" >id; } 2>/dev/null; then
    rm -f id
    fail "cannot write in $d$(full_disks "$HOME" | sed 's/^/: the disk is full: /')"
fi
if command -v setsid >/dev/null 2>&1; then
    setsid sh ./job.sh "$RUN_ID" </dev/null >/dev/null 2>&1 &
else
    nohup sh ./job.sh "$RUN_ID" </dev/null >/dev/null 2>&1 &
fi
n=0
until alive "$RUN_ID" || [ $n -ge 50 ]; do
    case $(cat rc) in run*) ;; *) break ;; esac
    sleep 0.02
    n=$((n + 1))
done
printf '::run %s\n' "$RUN_ID"

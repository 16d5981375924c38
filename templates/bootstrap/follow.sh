# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# Follows a run: STEP, RUN_ID, OFF (what was seen of its output), SLICE (seconds, then gpuprov asks
# again). Lines that begin with '::RUN_ID' say where it is and how it ended.
cd "$HOME/.gpuprov/steps/$STEP" 2>/dev/null && read -r _ boot run <id && [ "$run" = "$RUN_ID" ] || {
    printf '::%s vanished gone\n' "$RUN_ID"
    exit 0
}
alive() { read -r p <pid && grep -q "$RUN_ID" "/proc/${p:-x}/cmdline" 2>/dev/null; }
off=$OFF began=$(date +%s)
while :; do
    lives=
    alive && lives=yes
    read -r rc <rc || rc=run
    [ -n "$rc" ] || rc=run
    if [ "$rc" != run ]; then
        # something that the step left running may still hold its output: not waited for long
        n=0
        until [ -e tail ] || [ $n -ge 10 ]; do
            sleep 0.1
            n=$((n + 1))
        done
    fi
    size=$(wc -c <out)
    if [ "$size" -gt "$off" ]; then
        tail -c "+$((off + 1))" out | head -c "$((size - off))"
        off=$size
        printf '\n::%s at %s\n' "$RUN_ID" "$off"
    fi
    if [ "$rc" != run ]; then break; fi
    if [ -z "$lives" ]; then
        [ "$boot" = "$(cat /proc/sys/kernel/random/boot_id)" ] || { printf '::%s vanished reboot\n' "$RUN_ID"; exit 0; }
        printf '::%s vanished killed\n' "$RUN_ID"
        exit 0
    fi
    if [ $(($(date +%s) - began)) -ge "$SLICE" ]; then
        printf '::%s again\n' "$RUN_ID"
        exit 0
    fi
    sleep 0.2
done
if [ "$rc" -ne 0 ]; then
    # A shutdown ends what runs, which looks like a failure: what comes after it tells.
    n=0
    while [ "$(systemctl is-system-running 2>/dev/null)" = stopping ] && [ $n -lt "$SLICE" ]; do
        sleep 1
        n=$((n + 1))
    done
    [ "$boot" = "$(cat /proc/sys/kernel/random/boot_id)" ] || { printf '::%s vanished reboot\n' "$RUN_ID"; exit 0; }
    last='out'
    if [ -s tail ]; then
        last='tail'
        grep '^::error ' tail | tail -n 1 # said after what `out` holds
    fi
    tail -c 8192 "$last" | tr -d '\r' | grep -v '^::' | grep . | tail -n 1 | sed "s/^/::$RUN_ID last /"
    full_disks / "$HOME" /var /tmp | sed "s/^/::$RUN_ID full /"
fi
printf '::%s end %s\n' "$RUN_ID" "$rc"

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# Follows a run. STEP, RUN_ID, OFF (bytes of its output already seen), SLICE (seconds until gpuprov polls
# again). Lines that begin with '::RUN_ID' report its position and its end; the others are its output.
cd "$NODE_DIR/steps/$STEP" 2>/dev/null && read -r _ boot run <id || {
    printf '::%s vanished gone\n' "$RUN_ID"
    exit 0
}
# start.sh of another gpuprov found this run ended and began one of its own
replaced() { read -r _ _ run <id && [ "$run" != "$RUN_ID" ]; }
alive() { read -r p <pid && grep -q "$RUN_ID" "/proc/${p:-x}/cmdline" 2>/dev/null; }
rebooted() { read -r now </proc/sys/kernel/random/boot_id && [ "$boot" != "$now" ]; }
# not the time of day, which may be set meanwhile
seconds() { read -r up _ </proc/uptime && echo "${up%%.*}"; }
news() { tail -c "+$((off + 1))" out | head -c "$((size - off))"; }
# Most steps end soon, and a poll costs the node three processes.
rest() {
    polls=$((polls + 1))
    if [ $polls -le 4 ]; then sleep 0.05; elif [ $polls -le 20 ]; then sleep 0.2; else sleep 0.5; fi
}
off=$OFF began=$(seconds) beat='' seen='' polls=0
while :; do
    up=$(seconds)
    if [ "$up" != "$beat" ]; then
        # start.sh of another gpuprov leaves a run alone that is followed. The line ends this script when nobody reads it.
        { echo "$up" >followed; } 2>/dev/null
        [ -z "$beat" ] || printf '::%s alive\n' "$RUN_ID"
        beat=$up
    fi
    lives=
    alive && lives=yes
    read -r rc <rc || rc=run
    [ -n "$rc" ] || rc=run
    n=0
    until [ -n "$lives" ] || [ -s id ] || [ $n -ge 50 ]; do # it is written last
        sleep 0.1
        n=$((n + 1))
    done
    if replaced; then # the status may be that of the other run
        printf '::%s vanished replaced\n' "$RUN_ID"
        exit 0
    fi
    if [ "$rc" != run ]; then
        # Its output is complete once its last line is there. A process that it left running may hold
        # the other end of `out` for ever, and after a MiB of output there is no such line.
        n=0
        until [ -e tail ] || grep -q "^::$RUN_ID over" out || [ $n -ge 50 ]; do
            sleep 0.1
            n=$((n + 1))
        done
    fi
    size=$(wc -c <out) half=
    [ "$size" -le "$off" ] || half=$(head -c "$size" out | tail -c 1 | tr '\0' x)
    if [ -n "$half" ] && [ "$rc" = run ]; then
        # a line without an end: shown when nothing is added to it, unless it is meant for gpuprov
        whole=$((size - $(news | tail -n 1 | wc -c)))
        if [ "$size" != "$seen" ] || [ $polls -le 4 ] || [ "$(news | tail -n 1 | head -c 1)" = : ]; then
            seen=$size
            size=$whole half=
        fi
    fi
    if [ "$size" -gt "$off" ]; then
        news
        off=$size
        [ -z "$half" ] || echo
        printf '::%s at %s\n' "$RUN_ID" "$off"
    fi
    if [ "$rc" != run ]; then break; fi
    if [ -z "$lives" ]; then
        if rebooted; then printf '::%s vanished reboot\n' "$RUN_ID"; else printf '::%s vanished killed\n' "$RUN_ID"; fi
        exit 0
    fi
    if [ $((up - began)) -ge "$SLICE" ]; then
        printf '::%s again\n' "$RUN_ID"
        exit 0
    fi
    rest
done
rm -f followed
if [ "$rc" -ne 0 ]; then
    # A shutdown kills the run, which looks like a failure: wait until the node has rebooted.
    n=0
    while [ "$(systemctl is-system-running 2>/dev/null)" = stopping ] && [ $n -lt "$SLICE" ]; do
        sleep 1
        n=$((n + 1))
    done
    if rebooted; then
        printf '::%s vanished reboot\n' "$RUN_ID"
        exit 0
    fi
    last='out'
    if [ -s tail ]; then
        last='tail'
        tr -d '\0' <"$last" | LC_ALL=C grep -E '^::(error|reboot) ' | tail -n 1 # said after what `out` holds
    fi
    tail -c 8192 "$last" | tr -d '\0\r' | LC_ALL=C grep -v '^::' | LC_ALL=C grep . | tail -n 1 |
        LC_ALL=C sed "s/^/::$RUN_ID last /"
    full_disks / "$HOME" /var /tmp | sed "s/^/::$RUN_ID full /"
fi
printf '::%s end %s\n' "$RUN_ID" "$rc"

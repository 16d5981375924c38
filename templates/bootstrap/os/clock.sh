# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# Sets a clock with which TLS and signatures of repositories fail. NOW: seconds since the epoch on the controller;
# BEHIND, AHEAD: the largest differences in seconds; OURS: "yes" on a node that gpuprov launched, else only a warning.
off() { echo $(($(date +%s) - NOW)); }
wrong() {
    o=$(off)
    [ "$o" -gt "$AHEAD" ] || [ "$o" -lt "-$BEHIND" ]
}
# "3 days behind"
in_words() {
    o=$(off) way=ahead
    [ "$o" -ge 0 ] || o=$((-o)) way=behind
    if [ "$o" -ge 172800 ]; then echo "$((o / 86400)) days $way"; else echo "$((o / 60)) minutes $way"; fi
}
synchronized() { [ "$(timedatectl show -p NTPSynchronized --value 2>/dev/null)" = yes ]; }
probe() {
    wrong || return 0
    if synchronized; then
        warn "the clock is $(in_words) this machine's, and a time service sets it: check the clock of this machine"
    elif [ "$OURS" != yes ]; then
        warn "the clock is $(in_words) this machine's: set it, TLS and package signatures may fail"
    else
        return 10
    fi
}
apply() {
    if ! wrong; then
        echo '::unchanged'
        return 0
    fi
    was=$(in_words)
    said=$(root date -s "@$NOW" 2>&1 >/dev/null) ||
        fail "the clock is $was and cannot be set here: ${said##*: }: set the clock of the machine that runs this node"
    say "set the clock, which was $was"
    root hwclock --systohc 2>/dev/null # a node without such a clock loses only the time at the next boot
    [ -d /run/systemd/system ] || return 0
    # sets ntp where a service for it is installed: chrony or systemd-timesyncd
    root timedatectl set-ntp true 2>/dev/null || warn 'no time service is installed: the clock is set once only'
}
verify() { ! wrong || fail "the clock is still $(in_words) after it was set"; }

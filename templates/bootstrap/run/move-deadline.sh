# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015
# Run as root: sh -c THIS move-deadline ACTION RUN UID EXPIRES LEFT IDLE CONTROLLER, with the text of deadline.sh on
# standard input. Moves the deadline of this node in two steps, so that either all nodes of a stack move or none does:
# "prepare" writes everything beside the files in force, "commit" renames it and waits until it is in force. "restore"
# undoes a commit. LEFT: seconds until EXPIRES by the cloud's clock, because this node's may be wrong. Each may be
# interrupted anywhere and run again. For tests: ETC, STATE, STATUS replace the folders.
umask 022
action=$1 run=$2 uid=$3 expires=$4 left=$5 idle=$6 controller=$7
etc=${ETC:-/etc/gpuprov} state=${STATE:-/var/lib/gpuprov} status=${STATUS:-/run/gpuprov}
conf=$etc/deadline.conf
give_up() {
    printf '::error %s\n' "$*"
    exit 1
}
runs() { grep -lq 'gpuprov/[d]eadline.sh' /proc/[0-9]*/cmdline 2>/dev/null; }
stored() { sync "$@" 2>/dev/null || sync; }
ending() {
    tries=25 # it looks at its deadline once more before it ends
    while [ -e "$status/ending" ]; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 0
        sleep 0.2
    done
    return 1
}
# NAME of a file with lines NAME=VALUE
value() { sed -n "s/^$1=//p" "$2" | tail -n 1; }
word() { tr ' ' '\n' <"$status/deadline" 2>/dev/null | sed -n "s/^$1=//p"; }
nudge() {
    pid=''
    [ ! -f "$status/deadline.pid" ] || read -r pid <"$status/deadline.pid"
    case $pid in
    '' | *[!0-9]*) systemctl restart gpuprov-deadline.service 2>/dev/null ;; # that of an earlier version
    *) kill -s USR1 "$pid" 2>/dev/null || systemctl restart gpuprov-deadline.service 2>/dev/null ;;
    esac
}
in_force() { # waits until the node has taken what is in CONF
    want="$(value EXPIRES "$conf") $(value TTL "$conf")"
    tries=100
    nudge
    until [ "$(word expires) $(word ttl)" = "$want" ]; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 1
        [ $((tries % 20)) -ne 0 ] || nudge
        sleep 0.2
    done
}
prepare() {
    case $(cat "$etc/instance" 2>/dev/null) in
    "$uid "*) ;;
    '') give_up "it has no deadline of its own: run 'gpuprov up' first" ;;
    *) give_up 'its deadline is that of another stack' ;;
    esac
    [ -s "$conf" ] || give_up "it has no /etc/gpuprov/deadline.conf: run 'gpuprov up' first"
    runs || give_up "gpuprov-deadline is not running: run 'gpuprov up' first"
    ! ending || give_up 'it is ending already'
    used=''
    [ ! -r "$state/deadline-used" ] || read -r used <"$state/deadline-used"
    case $used in
    '' | *[!0-9]*) used=0 ;;
    *) used=$(echo "$used" | sed 's/^0*\(.\)/\1/') ;;
    esac
    rm -f "$etc"/deadline.conf.next-* "$etc"/deadline.sh.next-* # of runs that were cut
    {
        printf 'FORM=2\nEXPIRES=%s\nTTL=%s\n' "$expires" $((used + left))
        grep -Ev '^(FORM|EXPIRES|TTL|IDLE|CONTROLLER|COMPLETE)=' "$conf"
        printf 'IDLE=%s\nCONTROLLER=%s\nCOMPLETE=1\n' "$idle" "$controller"
    } >"$conf.next-$run" && cat >"$etc/deadline.sh.next-$run" && stored "$conf.next-$run" "$etc/deadline.sh.next-$run" &&
        [ "$(tail -n 1 "$conf.next-$run")" = COMPLETE=1 ] && sh -n "$etc/deadline.sh.next-$run" ||
        {
            rm -f "$conf.next-$run" "$etc/deadline.sh.next-$run"
            give_up 'could not write below /etc/gpuprov; make room on its disk'
        }
    printf '::prepared %s\n' "$(value EXPIRES "$conf")"
}
commit() {
    if [ -e "$conf.next-$run" ]; then
        ln -f "$conf" "$conf.before-$run" && mv "$etc/deadline.sh.next-$run" "$etc/deadline.sh" &&
            mv "$conf.next-$run" "$conf" && stored "$etc" || give_up 'could not rename the new deadline'
    fi
    [ "$(value EXPIRES "$conf")" = "$expires" ] || give_up 'another gpuprov moves its deadline at the same time; run this again'
    in_force || give_up 'gpuprov-deadline did not take the new deadline'
    ! ending || give_up 'it began to end before the new deadline was there'
    printf '::moved\n'
}
restore() {
    rm -f "$conf.next-$run" "$etc/deadline.sh.next-$run"
    if [ -e "$conf.before-$run" ]; then
        mv "$conf.before-$run" "$conf" && stored "$etc" && in_force || give_up 'could not restore the earlier deadline'
    fi
    printf '::restored\n'
}
finish() {
    rm -f "$conf".before-*
    printf '::finished\n'
}
case $action in
prepare | commit | restore | finish) "$action" ;;
*) give_up 'unknown action' ;;
esac

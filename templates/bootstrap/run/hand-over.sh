# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015
# Run as root: sh -c THIS hand-over INSTALL UID, with the credential on standard input. It gives the node the right to
# end itself: the credential goes to a file in memory that only root may read, and the deadline's unit, which the node has
# from its launch or which INSTALL installs, uses it. It may be interrupted anywhere and run again.
umask 077
give_up() {
    printf '::error %s\n' "$*"
    exit 1
}
runs() { grep -lq 'gpuprov/[d]eadline.sh' /proc/[0-9]*/cmdline 2>/dev/null; }
deletes() { grep -q '^END=/etc/gpuprov/end.sh$' /etc/gpuprov/deadline.conf 2>/dev/null; }
is_of() { case $(cat /etc/gpuprov/instance 2>/dev/null) in "$1 "*) ;; *) return 1 ;; esac; }

[ "$(stat -f -c %T /run)" = tmpfs ] || give_up '/run is not in memory: the credential is not stored on a disk'
mkdir -p /run/gpuprov && chmod 0700 /run/gpuprov && cat >/run/gpuprov/end.new && mv /run/gpuprov/end.new /run/gpuprov/end.conf ||
    give_up 'could not write /run/gpuprov/end.conf'
if ! { runs && deletes && is_of "$2" && [ -s /etc/gpuprov/end.sh ]; }; then
    said=$(sh -c "$1" 2>&1) || give_up "its unit gpuprov-deadline could not be installed: $said"
fi
deletes && is_of "$2" || give_up 'its deadline is that of another run'
said=$(sh /etc/gpuprov/end.sh check 2>&1) || give_up "${said#gpuprov: }"
tries=50
until runs; do
    tries=$((tries - 1))
    [ "$tries" -gt 0 ] || give_up 'gpuprov-deadline is not running'
    sleep 0.2
done
printf '::ends\n'

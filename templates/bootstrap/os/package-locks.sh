# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# Ends unattended upgrades on a node that gpuprov launched: they hold the locks of package managers, and replace the
# kernel or the driver under a running workload.
UNITS='apt-daily.timer apt-daily-upgrade.timer unattended-upgrades.service dnf-automatic.timer
    dnf-automatic-install.timer dnf-makecache.timer dnf5-automatic.timer yum-cron.service packagekit.service'
RUNS='apt-daily.service apt-daily-upgrade.service'
# Those that are enabled or run.
# shellcheck disable=SC2086
active() {
    for unit in $UNITS $RUNS; do
        state=$(systemctl is-active $unit 2>/dev/null)
        case $state in active | activating | reloading) ;; *) [ "$(systemctl is-enabled $unit 2>/dev/null)" = enabled ] || continue ;; esac
        printf ' %s' $unit
    done
}
probe() {
    [ -d /run/systemd/system ] || return 0
    [ -z "$(active)" ] || return 10
}
# shellcheck disable=SC2086
apply() {
    for unit in $(active); do
        say "stops $unit"
        # an upgrade that runs ends after its current package
        root systemctl disable --now $unit >/dev/null 2>&1
        root systemctl stop $unit >/dev/null 2>&1
    done
    return 0
}
verify() {
    left=$(active)
    [ -z "$left" ] || fail "unattended upgrades cannot be stopped:$left: stop them with 'systemctl disable --now'"
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# Installs the node's own deadline. cloud-init's bootcmd runs it before sshd at every boot, or bootstrap runs it once.
# Time that an earlier boot of the same instance counted is kept; time from a baked image is dropped.
umask 022
mkdir -p /etc/gpuprov /var/lib/gpuprov
id="$UID_ ${INSTANCE_ID:-}"
if [ "$(cat /etc/gpuprov/instance 2>/dev/null)" != "$id" ]; then
    systemctl stop gpuprov-deadline.service 2>/dev/null
    rm -f /etc/gpuprov/deadline.conf /var/lib/gpuprov/deadline-used*
    printf '%s\n' "$id" >/etc/gpuprov/instance
fi
# without the sync a crash could leave an empty file, and no deadline
put() { base64 -d >"$1.new" && { sync "$1.new" || sync; } && mv "$1.new" "$1"; }
# A deadline that 'gpuprov extend' has moved stays; one that is not complete is replaced by that of the launch.
is_whole() { grep -q '^TTL=' "$1" && { ! grep -q '^FORM=2$' "$1" || [ "$(tail -n 1 "$1")" = COMPLETE=1 ]; }; } 2>/dev/null
if ! is_whole /etc/gpuprov/deadline.conf; then
    { echo "$CONF" | base64 -d; echo "MACHINE=$(cat /sys/class/dmi/id/product_uuid 2>/dev/null)"; echo COMPLETE=1; } |
        base64 | put /etc/gpuprov/deadline.conf
fi
echo "$SCRIPT" | put /etc/gpuprov/deadline.sh
[ -z "$END_" ] || echo "$END_" | put /etc/gpuprov/end.sh
echo "$UNIT" | put /etc/systemd/system/gpuprov-deadline.service
systemctl daemon-reload
systemctl enable gpuprov-deadline.service
timeout 30 systemctl start gpuprov-deadline.service
if ! systemctl is-active --quiet gpuprov-deadline.service; then
    echo 'gpuprov: systemd did not start gpuprov-deadline.service: running it without systemd' >&2
    setsid sh /etc/gpuprov/deadline.sh /etc/gpuprov/deadline.conf </dev/null >/dev/null 2>&1 &
fi
exit 0

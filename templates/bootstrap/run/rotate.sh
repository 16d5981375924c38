# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015
# Run as root: sh -c THIS rotate make | switch KEY. `make` creates the node's own host key, or finds the one
# of an earlier run, and prints "::key STATE KEY". `switch` installs it and reloads sshd. Both may be interrupted
# anywhere and run again.
umask 077
next=/etc/ssh/gpuprov_next_host_key live=/etc/ssh/ssh_host_ed25519_key done=/etc/ssh/gpuprov_host_key_made
public() { ssh-keygen -y -f "$1" </dev/null 2>/dev/null | cut -d' ' -f1,2; }
give_up() {
    printf '::error %s\n' "$*"
    exit 1
}
switched() { [ -s "$done" ] && [ "$(cat "$done")" = "$(public "$live")" ]; }

case $1 in
make)
    if switched; then
        printf '::key switched %s\n' "$(cat "$done")"
        exit 0
    fi
    if [ -z "$(public "$next")" ]; then
        rm -f "$next" "$next.pub" "$next.tmp" "$next.tmp.pub"
        said=$(ssh-keygen -q -t ed25519 -N '' -C '' -f "$next.tmp" </dev/null 2>&1) ||
            give_up "could not create a host key: $said"
        sync
        mv "$next.tmp" "$next" && rm -f "$next.tmp.pub" || give_up 'could not put a host key in /etc/ssh'
    fi
    key=$(public "$next")
    [ -n "$key" ] || give_up 'the new host key is empty: check that the disk has free space'
    printf '::key new %s\n' "$key"
    ;;
switch)
    if ! switched; then
        [ "$(public "$next")" = "$2" ] || give_up 'the new host key is not the one that was created'
        { cp "$next" "$live.new" && printf '%s\n' "$2" >"$live.pub.new" && printf '%s\n' "$2" >"$done.new"; } ||
            give_up 'could not write the new host key'
        chmod 0644 "$live.pub.new"
        if command -v restorecon >/dev/null 2>&1; then restorecon "$live.new" "$live.pub.new"; fi
        sync
        mv "$live.new" "$live" && mv "$live.pub.new" "$live.pub" && mv "$done.new" "$done" ||
            give_up 'could not install the new host key'
        sync
    fi
    rm -f "$next"
    if [ -d /run/systemd/system ]; then
        systemctl reload ssh.service 2>/dev/null || systemctl reload sshd.service 2>/dev/null && exit 0
    fi
    for file in /run/sshd.pid /var/run/sshd.pid; do
        if [ -s "$file" ]; then kill -HUP "$(cat "$file")" && exit 0; fi
    done
    ;; # an sshd that is started per connection reads its key each time
esac

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015
# The start command of a container that is a node: allows the login key and becomes sshd with the first-contact host key,
# which gpuprov replaces at its first login. Run again, it keeps the host key that the node made itself.
umask 077
say() { printf 'gpuprov: %s\n' "$*"; }
# A container that ends is started again and billed: this one stays, and its log has the reason.
give_up() {
    say "$*"
    while :; do sleep 3600; done
}
find_sshd() {
    for sshd in /usr/sbin/sshd /usr/local/sbin/sshd /usr/bin/sshd; do
        [ ! -x "$sshd" ] || return 0
    done
    return 1
}
install_sshd() {
    if command -v apt-get >/dev/null 2>&1; then
        apt-get -q update && DEBIAN_FRONTEND=noninteractive apt-get -q -y --no-install-recommends install openssh-server
    elif command -v dnf >/dev/null 2>&1; then
        dnf -q -y install openssh-server
    elif command -v microdnf >/dev/null 2>&1; then
        microdnf -y install openssh-server
    elif command -v apk >/dev/null 2>&1; then
        apk add --no-cache openssh
    else
        say 'this image has no package manager that is known'
        return 1
    fi
}
if ! find_sshd; then
    say 'this image has no sshd: installing openssh-server'
    (umask 022 && install_sshd) || give_up 'could not install openssh-server: choose an image that has it'
    find_sshd || give_up 'openssh-server has no sshd: choose an image that has one'
fi
home=$(sed -n 's/^root:[^:]*:[^:]*:[^:]*:[^:]*:\([^:]*\):.*/\1/p' /etc/passwd)
home=${home:-/root}
mkdir -p /etc/ssh /run/sshd "$home/.ssh" && chmod 755 /etc/ssh /run/sshd && chmod go-w "$home" ||
    give_up "could not make $home/.ssh"
printf '%s\n' @@q:LOGIN_KEY@@ >"$home/.ssh/authorized_keys" || give_up 'could not write the login key'
# What the image sets for its programs: sshd gives it to no login by itself.
env | grep -E '^(PATH|LD_LIBRARY_PATH|CUDA_[A-Z_]*|NVIDIA_[A-Z_]*|NCCL_[A-Z_]*)=' >"$home/.ssh/environment"
live=/etc/ssh/ssh_host_ed25519_key
if [ ! -s /etc/ssh/gpuprov_host_key_made ]; then
    printf '%s' @@b64:HOST_KEY_PRIVATE@@ | base64 -d >"$live.new" && mv "$live.new" "$live" &&
        printf '%s\n' @@q:HOST_KEY_PUBLIC@@ >"$live.pub" && chmod 644 "$live.pub" ||
        give_up 'could not write the host key'
fi
unset GPUPROV_START
umask 022
exec "$sshd" -D -e -o "HostKey=$live" -o PidFile=/run/sshd.pid -o PermitRootLogin=prohibit-password \
    -o PasswordAuthentication=no -o AuthorizedKeysFile=.ssh/authorized_keys -o PermitUserEnvironment=yes

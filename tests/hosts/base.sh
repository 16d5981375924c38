#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# base.sh FOLDER: makes FOLDER/base once: a small root of this machine's own distribution with
# systemd, sshd, sudo and cloud-init, from the mirror that this machine's apt already uses. Test hosts
# are copy-on-write clones of it. Needs root, debootstrap and about 400 MB. Prints the path.
# Safe to run twice at once (flock).
set -eu

dir=${1:?usage: base.sh FOLDER}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
# shellcheck source=tests/hosts/root.sh
. "$(dirname "$0")/root.sh"
begin base "$0" "$(dirname "$0")/root.sh"

apt_mirror 'Debian|Ubuntu'
packages=openssh-server,sudo,cloud-init,systemd,systemd-sysv,dbus,libpam-systemd,iproute2,procps
# (python3-cffi-backend: debootstrap does not resolve the virtual names it provides)
packages=$packages,ca-certificates,kmod,iputils-ping,util-linux,gzip,python3-cffi-backend
bootstrap() {
    rm -rf --one-file-system "$new"
    debootstrap --variant=minbase --include="$packages" "$suite" "$new" "$site"
}
online "$log" bootstrap || exit 1

# A host gets its own identity when it starts.
rm -f "$new"/etc/ssh/ssh_host_* "$new"/var/cache/apt/archives/*.deb "$new/etc/resolv.conf"
rm -rf "$new"/usr/share/doc/* "$new"/usr/share/man/* "$new"/usr/share/locale/* "$new"/var/lib/apt/lists/*
rm -f "$new"/etc/apt/sources.list "$new"/etc/apt/sources.list.d/*
: >"$new/etc/resolv.conf"
: >"$new/etc/machine-id"

# The user that a fleet owner has already made on machines of his own.
chroot "$new" useradd -m -s /bin/bash ops
echo 'ops ALL=(ALL) NOPASSWD:ALL' >"$new/etc/sudoers.d/90-ops"
chmod 0440 "$new/etc/sudoers.d/90-ops"

# cloud-init takes its data from the seed folder; addresses are given from outside.
cat >"$new/etc/cloud/cloud.cfg.d/90-lab.cfg" <<'X'
datasource_list: [NoCloud, None]
network: {config: disabled}
locale: false
X
mkdir -p "$new/etc/ssh/sshd_config.d"
printf 'UseDNS no\nMaxStartups 200:30:400\n' >"$new/etc/ssh/sshd_config.d/lab.conf"
# Nothing on a test host may look for a network that is not there.
for unit in systemd-networkd-wait-online.service NetworkManager-wait-online.service \
    systemd-resolved.service apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer; do
    ln -sf /dev/null "$new/etc/systemd/system/$unit"
done

# pid 1 of a light host: an sshd and nothing else. reboot(2) in a pid namespace ends pid 1 by SIGHUP
# (restart) or SIGINT (power off), which the supervisor reads.
cat >"$new/sbin/lab-init" <<'X'
#!/bin/sh
mount -t proc proc /proc
mount -t tmpfs -o mode=755 tmpfs /run
mount -t devpts devpts /dev/pts -o newinstance,ptmxmode=0666,mode=620 2>/dev/null
mkdir -p /run/sshd /run/lock
hostname "$(cat /etc/hostname)"
cat /lab-boot-id >/run/boot_id
mount --bind /run/boot_id /proc/sys/kernel/random/boot_id
[ -f /etc/ssh/ssh_host_ed25519_key ] || ssh-keygen -q -t ed25519 -N '' -f /etc/ssh/ssh_host_ed25519_key
exec /usr/sbin/sshd -D -e 2>>/var/log/sshd.log
X
cat >"$new/usr/local/sbin/lab-reboot" <<'X'
#!/usr/bin/python3
import ctypes, os, sys
name = os.path.basename(sys.argv[1])
off = name in ("poweroff", "halt") or (name == "shutdown" and "-r" not in sys.argv)
os.sync()
libc = ctypes.CDLL(None, use_errno=True)
libc.reboot(0x4321FEDC if off else 0x01234567)
sys.exit("reboot: errno %d" % ctypes.get_errno())
X
chmod 0755 "$new/sbin/lab-init" "$new/usr/local/sbin/lab-reboot"
mkdir -p "$new/usr/local/lab-sbin"
for name in reboot poweroff halt shutdown; do
    printf '#!/bin/sh\nexec /usr/local/sbin/lab-reboot %s "$@"\n' "$name" >"$new/usr/local/lab-sbin/$name"
    chmod 0755 "$new/usr/local/lab-sbin/$name"
done

finish

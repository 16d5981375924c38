#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# base_container13.sh FOLDER: makes FOLDER/container13 once: FOLDER/container (base_container.sh makes that) with the
# engines of Debian 13: docker 26 and containerd 1.7, which know CDI. Needs root and about 1.5 GB. Prints the path.
# Safe to run twice at once (flock); a half-made one never gets its name.
set -eu

dir=${1:?usage: base_container13.sh FOLDER}
base=$("$(dirname "$0")/base_container.sh" "$dir")
dir=${base%/container}
stamp=$(cat "$0" "$dir/container.stamp" | sha256sum | cut -c1-16)

exec 9>"$dir/container13.lock"
flock 9
if [ "$(cat "$dir/container13.stamp" 2>/dev/null)" = "$stamp" ] && [ -d "$dir/container13" ]; then
    echo "$dir/container13"
    exit 0
fi

# shellcheck disable=SC2016 # apt expands these
mirror=$(apt-get indextargets --format '$(ORIGIN) $(SITE) $(CODENAME) $(COMPONENT)' \
    'Created-By: Packages' | awk '$1 == "Debian" && $3 !~ /-/ && $4 == "main" { print $2; exit }')
[ -n "$mirror" ] || { echo "base_container13.sh: apt knows no Debian mirror: run apt-get update" >&2; exit 1; }
proxy=$(apt-config shell proxy Acquire::http::Proxy)
[ -z "$proxy" ] || eval "$proxy"

new=$dir/container13.new
rm -rf --one-file-system "$new" "$dir/container13" "$dir/container13.stamp"
cp -a --reflink=auto "$base" "$new"
echo "deb $mirror trixie main" >"$new/etc/apt/sources.list"
cp -L /etc/resolv.conf "$new/etc/resolv.conf"
printf '#!/bin/sh\nexit 101\n' >"$new/usr/sbin/policy-rc.d" # starts nothing in the chroot
chmod 0755 "$new/usr/sbin/policy-rc.d"
in_new() {
    chroot "$new" env DEBIAN_FRONTEND=noninteractive LC_ALL=C ${proxy:+"http_proxy=$proxy"} "$@" >>"$dir/container13.log" 2>&1 ||
        { tail -n 5 "$dir/container13.log" >&2; exit 1; }
}
: >"$dir/container13.log"
in_new apt-get -q update
in_new apt-get -q -y --no-install-recommends -o Dpkg::Options::=--force-confold install \
    docker.io docker-cli podman containerd runc crun
in_new systemctl disable docker.service docker.socket containerd.service podman.socket podman.service \
    podman-auto-update.timer podman-restart.service podman-clean-transient.service
rm -rf "$new/usr/sbin/policy-rc.d" "$new"/var/lib/apt/lists/* "$new"/var/cache/apt/archives/*.deb "$new"/usr/share/doc/*
rm -f "$new/etc/apt/sources.list"
: >"$new/etc/resolv.conf"
: >"$new/etc/machine-id"

mv "$new" "$dir/container13"
echo "$stamp" >"$dir/container13.stamp"
echo "$dir/container13"

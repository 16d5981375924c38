#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# base.sh FOLDER: makes FOLDER/openstack once: a copy of FOLDER/base (tests/hosts/base.sh makes that) with the
# distribution's keystone, placement, glance, neutron and nova as Python libraries, without any service.
# openstack_lab.py runs them in it. Needs root and about 1.2 GB. Prints the path. Safe to run twice at once (flock); a
# half-made one never gets its name.
set -eu

dir=${1:?usage: base.sh FOLDER}
base=$("$(dirname "$0")/../hosts/base.sh" "$dir")
dir=${base%/base}
stamp=$(cat "$0" "$dir/base.stamp" | sha256sum | cut -c1-16)

exec 9>"$dir/openstack.lock"
flock 9
if [ "$(cat "$dir/openstack.stamp" 2>/dev/null)" = "$stamp" ] && [ -d "$dir/openstack" ]; then
    echo "$dir/openstack"
    exit 0
fi

# shellcheck disable=SC2016 # apt expands these
target=$(apt-get indextargets --format '$(ORIGIN) $(SITE) $(CODENAME) $(COMPONENT)' \
    'Created-By: Packages' | awk '($1 == "Debian" || $1 == "Ubuntu") && $3 !~ /-/ && $4 == "main" {
    print $2, $3, "main", ($1 == "Ubuntu" ? "universe" : ""); exit }')
[ -n "$target" ] || { echo "base.sh: apt knows no Debian or Ubuntu mirror: run apt-get update" >&2; exit 1; }
proxy=$(apt-config shell proxy Acquire::http::Proxy)
[ -z "$proxy" ] || eval "$proxy"

new=$dir/openstack.new
rm -rf --one-file-system "$new" "$dir/openstack" "$dir/openstack.stamp"
cp -a --reflink=auto "$base" "$new"
echo "deb $target" >"$new/etc/apt/sources.list"
cp -L /etc/resolv.conf "$new/etc/resolv.conf"
printf '#!/bin/sh\nexit 101\n' >"$new/usr/sbin/policy-rc.d" # starts nothing in the chroot
chmod 0755 "$new/usr/sbin/policy-rc.d"
# About 300 packages come: their maintainers' byte-compiling takes minutes, and two thirds of it are test suites.
mv "$new/usr/bin/py3compile" "$new/usr/bin/py3compile.lab"
ln -s true "$new/usr/bin/py3compile"
in_new() {
    chroot "$new" env DEBIAN_FRONTEND=noninteractive LC_ALL=C ${proxy:+"http_proxy=$proxy"} "$@" \
        >>"$dir/openstack.log" 2>&1 || { tail -n 5 "$dir/openstack.log" >&2; exit 1; }
}
: >"$dir/openstack.log"
in_new apt-get -q update
in_new apt-get -q -y --no-install-recommends -o Dpkg::Options::=--force-unsafe-io \
    -o Dpkg::Options::=--path-exclude='/usr/share/doc/*' -o Dpkg::Options::=--path-exclude='/usr/share/man/*' \
    -o Dpkg::Options::=--path-exclude='/usr/lib/python3/dist-packages/nova/tests/*' install \
    python3-keystone python3-placement python3-glance python3-neutron python3-nova python3-waitress
rm "$new/usr/bin/py3compile"
mv "$new/usr/bin/py3compile.lab" "$new/usr/bin/py3compile"
# a few packages have files that no Python 3 compiles: such a file is never imported
chroot "$new" python3 -m compileall -q -j 2 -x '/tests?/|/test_' /usr/lib/python3/dist-packages \
    >>"$dir/openstack.log" 2>&1 || true
rm -rf "$new/usr/sbin/policy-rc.d" "$new"/var/cache/apt/archives/*.deb "$new"/var/lib/apt/lists/* \
    "$new/etc/apt/sources.list"
: >"$new/etc/resolv.conf"
: >"$new/etc/machine-id"
mkdir -p "$new/lab" "$new/code"

mv "$new" "$dir/openstack"
echo "$stamp" >"$dir/openstack.stamp"
echo "$dir/openstack"

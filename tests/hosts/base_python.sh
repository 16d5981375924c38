#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# base_python.sh FOLDER: makes FOLDER/python once: a copy of FOLDER/base (base.sh makes that) with the distribution's
# python3-venv, whose packages are kept in /debs, and with an environment of the user ops in /opt/venv. Needs root and
# about 400 MB. Prints the path. Safe to run twice at once (flock); a half-made one never gets its name.
set -eu

dir=${1:?usage: base_python.sh FOLDER}
base=$("$(dirname "$0")/base.sh" "$dir")
dir=${base%/base}
stamp=$(cat "$0" "$dir/base.stamp" | sha256sum | cut -c1-16)

exec 9>"$dir/python.lock"
flock 9
if [ "$(cat "$dir/python.stamp" 2>/dev/null)" = "$stamp" ] && [ -d "$dir/python" ]; then
    echo "$dir/python"
    exit 0
fi

# shellcheck disable=SC2016 # apt expands these
target=$(apt-get indextargets --format '$(ORIGIN) $(SITE) $(CODENAME) $(COMPONENT)' \
    'Created-By: Packages' | awk '($1 == "Debian" || $1 == "Ubuntu") && $3 !~ /-/ && $4 == "main" {
    print $2, $3, "main", ($1 == "Ubuntu" ? "universe" : ""); exit }')
[ -n "$target" ] || { echo "base_python.sh: apt knows no Debian or Ubuntu mirror: run apt-get update" >&2; exit 1; }
proxy=$(apt-config shell proxy Acquire::http::Proxy)
[ -z "$proxy" ] || eval "$proxy"

new=$dir/python.new
rm -rf --one-file-system "$new" "$dir/python" "$dir/python.stamp"
cp -a --reflink=auto "$base" "$new"
echo "deb $target" >"$new/etc/apt/sources.list"
cp -L /etc/resolv.conf "$new/etc/resolv.conf"
in_new() {
    chroot "$new" env DEBIAN_FRONTEND=noninteractive LC_ALL=C ${proxy:+"http_proxy=$proxy"} "$@" >>"$dir/python.log" 2>&1 ||
        { tail -n 5 "$dir/python.log" >&2; exit 1; }
}
: >"$dir/python.log"
in_new apt-get -q update
in_new apt-get -q -y --no-install-recommends --download-only install python3-venv
mkdir "$new/debs"
cp "$new"/var/cache/apt/archives/*.deb "$new/debs/"
in_new apt-get -q -y --no-install-recommends install python3-venv
# most tests need an environment, and not that it is made: it takes seconds of a core
chroot "$new" install -d -o ops -g ops /opt/venv
in_new su ops -c 'python3 -m venv /opt/venv'
rm -rf "$new"/var/cache/apt/archives/*.deb "$new"/var/lib/apt/lists/* "$new/etc/apt/sources.list"
: >"$new/etc/resolv.conf"
: >"$new/etc/machine-id"

mv "$new" "$dir/python"
echo "$stamp" >"$dir/python.stamp"
echo "$dir/python"

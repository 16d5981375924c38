#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# base_nvidia.sh FOLDER: as base_gpu.sh, whose FOLDER/gpu it prints, and fetches into FOLDER/nvidia.debs once what Debian's
# own NVIDIA driver adds to that root, with headers of the real-time kernel of the same version. No driver is installed:
# gpuprov does that in the tests. Needs root, Debian and about 350 MB more. Safe to run twice at once (flock).
set -eu

# shellcheck source=tests/hosts/online.sh
. "$(dirname "$0")/online.sh"
dir=${1:?usage: base_nvidia.sh FOLDER}
base=$("$(dirname "$0")/base_gpu.sh" "$dir")
dir=${base%/gpu}
stamp=$(cat "$0" "$dir/gpu.stamp" | sha256sum | cut -c1-16)

exec 9>"$dir/nvidia.lock"
flock 9
if [ "$(cat "$dir/nvidia.stamp" 2>/dev/null)" = "$stamp" ] && [ -d "$dir/nvidia.debs" ]; then
    echo "$base"
    exit 0
fi

suite=$(sed -n 's/^VERSION_CODENAME=//p' "$base/etc/os-release")
# shellcheck disable=SC2016 # apt expands these
sources=$(apt-get indextargets --format '$(ORIGIN) $(SITE) $(CODENAME) $(COMPONENT)' 'Created-By: Packages' |
    awk -v suite="$suite" '$1 == "Debian" && $4 == "main" && ($3 == suite || $3 == suite "-security") {
    print "deb", $2, $3, "main contrib non-free non-free-firmware" }')
[ -n "$sources" ] || { echo "base_nvidia.sh: apt knows no Debian mirror: run apt-get update" >&2; exit 1; }
kernel=$(cat "$base/etc/lab-kernel")

new=$dir/nvidia.new
rm -rf "$new" "$dir/nvidia.debs" "$dir/nvidia.stamp"
mkdir -p "$new/state/lists/partial" "$new/cache/archives/partial"
echo "$sources" >"$new/sources.list"
# This machine's apt for the root's packages: the root has no network and no keys.
of_base() {
    online "$dir/nvidia.log" apt-get -q -y -o Acquire::Retries=5 -o "Dir::State=$new/state" \
        -o "Dir::Cache=$new/cache" -o "Dir::Etc::SourceList=$new/sources.list" \
        -o Dir::Etc::SourceParts=/dev/null -o Dir::Etc::PreferencesParts=/dev/null \
        -o "Dir::State::status=$base/var/lib/dpkg/status" -o APT::Update::Post-Invoke-Success::= "$@" || exit 1
}
: >"$dir/nvidia.log"
of_base update --error-on=any # one that did not come is an error
of_base --download-only install nvidia-kernel-dkms nvidia-smi libcuda1 \
    "linux-headers-$kernel" "linux-headers-${kernel%-amd64}-rt-amd64"
rm -rf "$new/cache/archives/partial" "$new/cache/archives/lock"
mv "$new/cache/archives" "$dir/nvidia.debs"
rm -rf "$new"
echo "$stamp" >"$dir/nvidia.stamp"
echo "$base"

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# base_gpu13.sh FOLDER: makes FOLDER/debian13/gpu once: what base_gpu.sh makes, of Debian 13. Needs root, debootstrap, a
# mirror of Debian that this machine's apt knows, and about 1.3 GB. Prints the path. Safe to run twice at once (flock).
set -eu

# shellcheck source=tests/hosts/online.sh
. "$(dirname "$0")/online.sh"
dir=${1:?usage: base_gpu13.sh FOLDER}
mkdir -p "$dir/debian13"
dir=$(cd "$dir/debian13" && pwd)
exec 8>"$dir/apt.lock"
flock 8
apt=$dir/apt
if [ ! -e "$apt/conf" ]; then
    # shellcheck disable=SC2016 # apt expands these
    mirror=$(apt-get indextargets --format '$(ORIGIN) $(SITE) $(CODENAME) $(COMPONENT)' \
        'Created-By: Packages' | awk '$1 == "Debian" && $3 !~ /-/ && $4 == "main" { print $2; exit }')
    [ -n "$mirror" ] || { echo "base_gpu13.sh: apt knows no Debian mirror: run apt-get update" >&2; exit 1; }
    rm -rf "$apt"
    mkdir -p "$apt/state/lists/partial" "$apt/cache/archives/partial"
    echo "deb $mirror trixie main" >"$apt/sources.list"
    cat >"$apt/conf.new" <<E
Dir::State "$apt/state";
Dir::Cache "$apt/cache";
Dir::State::status "/dev/null";
Dir::Etc::SourceList "$apt/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::Etc::PreferencesParts "/dev/null";
APT::Update::Post-Invoke-Success:: "";
E
    : >"$dir/apt.log"
    online "$dir/apt.log" env "APT_CONFIG=$apt/conf.new" apt-get -q -o Acquire::Retries=5 update --error-on=any || exit 1
    mv "$apt/conf.new" "$apt/conf"
fi
flock -u 8
# The scripts ask this machine's apt for the suite: here it knows Debian 13 only.
APT_CONFIG=$apt/conf exec "$(dirname "$0")/base_gpu.sh" "$dir"

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# real_torch.sh FOLDER: makes FOLDER/torch once: an environment with PyTorch from the package index that pip uses (540
# MB are fetched, 1.2 GB stay). Its build is for CUDA, whose libraries are stubs: it computes on the CPU. Needs gcc and
# readelf. Prints the path. Safe to run twice at once (flock); a half-made one never gets its name.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/hosts/online.sh
. "$here/online.sh"
dir=${1:?usage: real_torch.sh FOLDER}
mkdir -p "$dir"
dir=$(cd "$dir" && pwd)
stamp=$(cat "$0" "$here/torch_stubs.py" | sha256sum | cut -c1-16)

exec 9>"$dir/torch.lock"
flock 9
if [ "$(cat "$dir/torch.stamp" 2>/dev/null)" = "$stamp" ] && [ -d "$dir/torch" ]; then
    echo "$dir/torch"
    exit 0
fi
rm -rf "$dir/torch" "$dir/torch.stamp"
log=$dir/torch.log
: >"$log"
install() { online "$log" "$dir/torch/bin/pip" install -q "$@"; }
libraries() { "$dir/torch/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'; }
{
    python3 -m venv "$dir/torch" &&
        install --no-deps --only-binary :all: torch==2.15.0 &&
        install typing_extensions filelock jinja2 sympy networkx fsspec &&
        python3 "$here/torch_stubs.py" "$(libraries)"
} >>"$log" 2>&1 || {
    tail -n 5 "$log" >&2
    exit 1
}
echo "$stamp" >"$dir/torch.stamp"
echo "$dir/torch"

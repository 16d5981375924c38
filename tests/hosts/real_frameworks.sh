#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# real_frameworks.sh FOLDER NAME: makes FOLDER/NAME once: a copy of FOLDER/torch (real_torch.sh makes that) with the
# real DeepSpeed (NAME deepspeed, 1.4 GB) or Horovod (NAME horovod) from the package index that pip uses. Horovod is
# built for this torch, which takes 8 minutes of a core and needs cmake, g++ and CUDA's toolkit. Prints the path. Safe
# to run twice at once (flock); a half-made one never gets its name.
set -eu

here=$(cd "$(dirname "$0")" && pwd)
# shellcheck source=tests/hosts/online.sh
. "$here/online.sh"
dir=${1:?usage: real_frameworks.sh FOLDER NAME}
name=${2:?usage: real_frameworks.sh FOLDER NAME}
torch=$("$here/real_torch.sh" "$dir")
dir=${torch%/torch}
stamp=$(cat "$0" "$dir/torch.stamp" | sha256sum | cut -c1-16)

exec 9>"$dir/$name.lock"
flock 9
if [ "$(cat "$dir/$name.stamp" 2>/dev/null)" = "$stamp" ] && [ -d "$dir/$name" ]; then
    echo "$dir/$name"
    exit 0
fi
rm -rf "${dir:?}/$name" "$dir/$name.new" "$dir/$name.stamp"
cp -a --reflink=auto "$torch" "$dir/$name.new"
log=$dir/$name.log
: >"$log"
pip() { online "$log" "$dir/$name.new/bin/python" -m pip "$@"; }

# Its last version is from before C++20, which this torch needs.
horovod() {
    src=$dir/$name.new/src
    mkdir "$src" &&
        pip download -q --no-deps --no-binary :all: --no-build-isolation -d "$src" horovod==0.28.1 &&
        tar -C "$src" -xf "$src/horovod-0.28.1.tar.gz" &&
        sed -i 's/CMAKE_CXX_STANDARD 14/CMAKE_CXX_STANDARD 20/' "$src/horovod-0.28.1/CMakeLists.txt" \
            "$src/horovod-0.28.1/horovod/torch/CMakeLists.txt" &&
        online "$log" env HOROVOD_WITH_PYTORCH=1 HOROVOD_WITH_GLOO=1 HOROVOD_WITHOUT_MPI=1 \
            HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 PATH="$dir/$name.new/bin:$PATH" \
            "$dir/$name.new/bin/python" -m pip install -q --no-deps --no-build-isolation "$src/horovod-0.28.1" &&
        rm -rf "$src"
}

{
    pip install -q wheel setuptools ninja numpy psutil hjson einops msgpack packaging py-cpuinfo pydantic tqdm \
        nvidia-ml-py cloudpickle pyyaml cffi &&
        case $name in
        deepspeed) pip install -q --no-deps --no-build-isolation deepspeed==0.19.8 ;;
        horovod) horovod ;;
        *) echo "real_frameworks.sh: '$name' is not deepspeed or horovod" && exit 1 ;;
        esac
} >>"$log" 2>&1 || {
    tail -n 5 "$log" >&2
    exit 1
}
mv "$dir/$name.new" "$dir/$name"
echo "$stamp" >"$dir/$name.stamp"
echo "$dir/$name"

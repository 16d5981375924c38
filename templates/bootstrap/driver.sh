# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# Checks that the node has a working GPU driver. IMAGE: the name of the image.
probe() {
    if [ ! -e /dev/nvidiactl ] && ! command -v nvidia-smi >/dev/null 2>&1; then
        fail "no driver: image $IMAGE has none"
    fi
    if command -v nvidia-smi >/dev/null 2>&1; then
        said=$(timeout -k 5 60 nvidia-smi -L 2>&1) || fail "the driver of image $IMAGE does not work: nvidia-smi reported: $(printf '%s\n' "$said" | grep . | head -n 1)"
        return 0
    fi
    [ -r /proc/driver/nvidia/version ] || fail "no driver: image $IMAGE has not loaded one"
}

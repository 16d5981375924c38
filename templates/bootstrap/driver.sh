# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# Checks that the node has a working GPU driver. IMAGE: the name of the image; empty: the machine existed before.
probe() {
    of=${IMAGE:+image $IMAGE}
    # this step looks only: it is there where the spec has gpuprov install none
    next=${IMAGE:+choose an image with the NVIDIA driver}
    of=${of:-this host} next=${next:-"write bootstrap.driver: auto, install it there, or correct gpu in the hosts file"}
    if [ ! -e /dev/nvidiactl ] && ! command -v nvidia-smi >/dev/null 2>&1; then
        fail "no driver: $of has neither /dev/nvidiactl nor nvidia-smi: $next"
    fi
    if command -v nvidia-smi >/dev/null 2>&1; then
        said=$(timeout -k 5 60 nvidia-smi -L 2>&1) || fail "the driver of $of does not work: nvidia-smi reported: $(printf '%s\n' "$said" | grep . | head -n 1)"
        return 0
    fi
    [ -r /proc/driver/nvidia/version ] || fail "no driver: $of has not loaded one: $next"
}

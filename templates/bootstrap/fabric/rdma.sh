# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# Lets network cards with InfiniBand or RoCE reach the memory of GPUs. FABRIC: "infiniband", or "auto": only where such a
# card is. With the open kernel modules and Linux 5.12 the kernel does that by itself (dma-buf); else nvidia-peermem does.
has_card() {
    for dir in /sys/bus/pci/devices/*; do
        { read -r vendor <"$dir/vendor" && read -r class <"$dir/class"; } 2>/dev/null || continue
        case $vendor$class in 0x15b30x0200* | 0x15b30x0207*) return 0 ;; esac
    done
    return 1
}
has_dma_buf() {
    grep -q 'Open Kernel Module' /proc/driver/nvidia/version 2>/dev/null || return 1
    release=$(uname -r)
    minor=${release#*.}
    minor=${minor%%[!0-9]*}
    [ "${release%%.*}" -gt 5 ] || { [ "${release%%.*}" -eq 5 ] && [ "${minor:-0}" -ge 12 ]; }
}
has_peermem() { [ -d /sys/module/nvidia_peermem ]; }
probe() {
    if ! has_card; then
        [ "$FABRIC" = auto ] ||
            fail 'this node has no network card with InfiniBand (PCI 15b3): choose a node with one, or remove bootstrap.fabric'
        return 0
    fi
    # without a GPU's driver there is nothing that a card could reach
    if [ ! -e /proc/driver/nvidia/version ] || has_dma_buf || has_peermem; then return 0; fi
    [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null ||
        fail "user '$(id -un)' may not use sudo without a password here, so nvidia-peermem cannot be loaded"
    return 10
}
apply() {
    # Debian's own driver has another name for it
    for module in nvidia-peermem nvidia-current-peermem; do
        if root modprobe "$module" 2>modprobe.log; then
            root sh -c 'mkdir -p /etc/modules-load.d && echo "$1" >/etc/modules-load.d/gpuprov-peermem.conf' sh "$module" ||
                fail 'cannot write /etc/modules-load.d/gpuprov-peermem.conf'
            return 0
        fi
        [ "$module" != nvidia-peermem ] || why=$(grep . modprobe.log | tail -n 1 | cut -c1-200)
    done
    fail "nvidia-peermem cannot be loaded: $why; install the kernel modules of the card (ib_core), or use the open kernel modules of the driver (bootstrap.driver: {flavour: open})"
}
verify() { has_peermem || fail 'modprobe reported success, but nvidia-peermem is not loaded'; }

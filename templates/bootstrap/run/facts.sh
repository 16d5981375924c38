# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
printf '::fact arch %s\n' "$(uname -m)"
printf '::fact boot %s\n' "$(cat /proc/sys/kernel/random/boot_id)"
printf '::fact home %s\n' "$HOME"
printf '::fact user %s\n' "$(id -un)"
if [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; then printf '::fact root yes\n'; fi
if [ -e /dev/nvidiactl ]; then printf '::fact nvidia yes\n'; fi
# shellcheck disable=SC1091
(. /etc/os-release && printf '::fact os %s-%s\n' "$ID" "$VERSION_ID") 2>/dev/null
printf '::fact kernel %s\n' "$(uname -r)"
# NVIDIA's PCI devices: class, device, subsystem. 0300, 0302: a GPU; 0680: an NVSwitch.
for dir in /sys/bus/pci/devices/*; do
    { read -r vendor <"$dir/vendor"; } 2>/dev/null && [ "$vendor" = 0x10de ] || continue
    { read -r class <"$dir/class" && read -r device <"$dir/device"; } 2>/dev/null || continue
    { read -r of <"$dir/subsystem_vendor" && read -r sub <"$dir/subsystem_device"; } 2>/dev/null || of='' sub=0x0
    [ "$of" = 0x10de ] || sub=0x0
    printf '::fact pci %s %s %s\n' "$class" "$device" "$sub"
done
# the kernel module that is loaded, and the words "open" or "proprietary"
if [ -r /proc/driver/nvidia/version ]; then
    sed -n '/^NVRM/{s/.*Open Kernel.* \([0-9][0-9.]*\) .*/::fact driver \1 open/p;t
        s/.* \([0-9][0-9.]*\) .*/::fact driver \1 proprietary/p}' /proc/driver/nvidia/version
fi
# what templates/bootstrap/gpu/driver.sh installed, or began to
if [ -e /etc/gpuprov/driver ]; then printf '::fact driver-ours yes\n'; fi
for tool in dd head tail wc tr cut sed grep timeout setsid df awk sha256sum; do
    command -v "$tool" >/dev/null 2>&1 || printf '::fact missing %s\n' "$tool"
done

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# Installs the software of AWS's EFA: its kernel module, libfabric and the NCCL plugin (aws-ofi-nccl). FABRIC: "efa", or
# "auto": only where the device is; URL: where the installer is; FINGERPRINT: of the key that signs it.
# EFA devices, as sysfs lists them.
devices() {
    for dir in /sys/bus/pci/devices/*; do
        { read -r vendor <"$dir/vendor" && read -r device <"$dir/device"; } 2>/dev/null || continue
        case $vendor$device in 0x1d0f0xefa*) printf '%s\n' "$dir" ;; esac
    done
}
has_gpu() { grep -lqx 0x10de /sys/bus/pci/devices/*/vendor 2>/dev/null; }
# The first thing that is missing; nothing: all is there.
lacks() {
    for dir in $(devices); do
        driver=$(readlink "$dir/driver")
        [ "${driver##*/}" = efa ] || {
            echo "the kernel module efa does not drive ${dir##*/}"
            return
        }
    done
    timeout -k 5 60 /opt/amazon/efa/bin/fi_info -p efa 2>/dev/null | grep -q 'provider: efa' || {
        echo 'libfabric (/opt/amazon/efa) finds no efa provider'
        return
    }
    has_gpu || return 0
    for plugin in /opt/amazon/ofi-nccl/lib64 /opt/amazon/ofi-nccl/lib /opt/amazon/ofi-nccl/lib/x86_64-linux-gnu; do
        if [ -e "$plugin/libnccl-net.so" ] || [ -e "$plugin/libnccl-net-ofi.so" ]; then return 0; fi
    done
    echo 'the NCCL plugin (/opt/amazon/ofi-nccl) is not installed'
}
probe() {
    if [ -z "$(devices)" ]; then
        [ "$FABRIC" = auto ] ||
            fail 'this node has no EFA device (PCI 1d0f:efa*): choose an instance type with EFA and a network interface of that type, or remove bootstrap.fabric'
        return 0
    fi
    [ -n "$(lacks)" ] || return 0
    may_install efa
    return 10
}
fetch() {
    if command -v curl >/dev/null 2>&1; then
        curl -fsSL --retry 3 --connect-timeout 20 -o "$1" "$URL/$1"
    elif [ -x /usr/lib/apt/apt-helper ]; then
        rm -f "$1" && /usr/lib/apt/apt-helper -o Acquire::Retries=3 download-file "$URL/$1" "$1"
    else
        wget -q --tries=3 -O "$1" "$URL/$1"
    fi >fetch.log 2>&1 ||
        fail "cannot fetch $URL/$1: $(grep . fetch.log | tail -n 1 | cut -c1-200): check the network of the node"
}
# The key comes from the same place as the installer: only its fingerprint makes it the right one.
check_signature() {
    sed -e '1,/^$/d' -e '/^=/,$d' -e '/^-----/d' aws-efa-installer.key | base64 -d >key.gpg 2>/dev/null
    command -v gpgv >/dev/null 2>&1 || install_packages gnupg2
    gpgv --status-fd 1 --keyring "$PWD/key.gpg" installer.tar.gz.sig installer.tar.gz >signature.log 2>&1
    sed -n 's/^\[GNUPG:\] VALIDSIG //p' signature.log | tr ' ' '\n' | grep -qx "$FINGERPRINT" ||
        fail "the installer of EFA at $URL has no valid signature of the key $FINGERPRINT: nothing was installed"
}
apply() {
    say 'fetches the installer of EFA'
    for file in aws-efa-installer-latest.tar.gz aws-efa-installer-latest.tar.gz.sig aws-efa-installer.key; do fetch $file; done
    mv aws-efa-installer-latest.tar.gz installer.tar.gz && mv aws-efa-installer-latest.tar.gz.sig installer.tar.gz.sig
    check_signature
    rm -rf aws-efa-installer
    tar -xzf installer.tar.gz && [ -f aws-efa-installer/efa_installer.sh ] ||
        fail "the installer of EFA at $URL has no efa_installer.sh"
    say 'installs EFA'
    (cd aws-efa-installer && root env DEBIAN_FRONTEND=noninteractive bash ./efa_installer.sh -y </dev/null) >installer.log 2>&1
    rc=$?
    sed 's/^::/ ::/' installer.log
    root rm -rf aws-efa-installer installer.tar.gz
    left=$(lacks)
    case $left in
    'the kernel module'*)
        # an older module that is in use is replaced by a reboot only
        if [ $rc -eq 0 ] && [ ! -e rebooted ]; then
            : >rebooted
            restart_node "$left"
        fi
        ;;
    esac
    rm -f rebooted
    [ $rc -eq 0 ] || [ -z "$left" ] ||
        fail "efa_installer.sh ended with status $rc: $(grep . installer.log | tail -n 1 | cut -c1-200)"
}
verify() {
    left=$(lacks)
    [ -z "$left" ] || fail "efa_installer.sh reported success, but $left"
}

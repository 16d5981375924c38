# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094,SC2086
# Keeps the driver nouveau from the GPUs: NVIDIA's cannot have them at the same time.
CONF=/etc/modprobe.d/gpuprov-nouveau.conf
probe() {
    driver_fits && return 0
    if ! is_loaded nouveau; then
        [ -e "$CONF" ] && return 0
        # a kernel without the module cannot load it
        modinfo -k "$(uname -r)" nouveau >/dev/null 2>&1 || return 0
    fi
    may_install nouveau-off
    return 10
}
apply() {
    [ -e "$CONF" ] || {
        root sh -c 'printf "blacklist nouveau\noptions nouveau modeset=0\n" >"$1"' sh "$CONF" ||
            fail "cannot write $CONF"
        # the initramfs loads it before the root file system is there
        if command -v update-initramfs >/dev/null 2>&1; then
            root update-initramfs -u >initramfs.log 2>&1 || fail "update-initramfs failed: $(tail -n 1 initramfs.log)"
        elif command -v dracut >/dev/null 2>&1; then
            root dracut -f >initramfs.log 2>&1 || fail "dracut failed: $(tail -n 1 initramfs.log)"
        fi
    }
    is_loaded nouveau || return 0
    root modprobe -r nouveau >/dev/null 2>&1
    if is_loaded nouveau; then restart_node 'nouveau is loaded and in use'; fi
}
verify() {
    if is_loaded nouveau; then fail 'nouveau is still loaded, although it is blocked: check the kernel command line'; fi
    [ -e "$CONF" ] || fail "$CONF is not there"
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2046,SC2094,SC2086,SC2154
# Installs a service that must have exactly the driver's version. PACKAGE: its package; UNIT: its service; PROGRAM: what
# that runs; NEED: what does not work without it. NVLSM: "", or with NVSwitches of NVLink 5 the packages of the subnet
# manager, which the fabric manager's start script starts, and which reaches the switches through InfiniBand's modules.
MODULES="mlx5_ib ib_umad"
MODULES_FILE=/etc/modules-load.d/gpuprov-nvlsm.conf
ours() { package_version "$PACKAGE"; }
unloaded() {
    for module in $MODULES; do
        # one that is built into the kernel is only there
        is_loaded $module || [ -d /sys/module/$module ] || printf ' %s' $module
    done
}
# Is NVLSM at work, or not needed here?
nvlsm_runs() {
    [ -n "$NVLSM" ] || return 0
    [ -z "$(missing $NVLSM)" ] && [ -z "$(unloaded)" ] && [ -e "$MODULES_FILE" ] && program_runs nvlsm
}
probe() {
    now=$(loaded_driver)
    if driver_fits && [ "$(ours)" = "$now" ] && service_runs "$UNIT" "$PROGRAM" && nvlsm_runs; then return 0; fi
    may_install "$PACKAGE" $NVLSM
    return 10
}
refresh() { if is_apt; then apt_update; else dnf_refresh; fi; }
# NVLSM comes before the fabric manager: without it, ibstat or a module the start script ends with an error.
nvlsm_ready() {
    for name in $(missing $NVLSM); do
        [ -n "$(versions_of "$name")" ] || refresh
        [ -n "$(versions_of "$name")" ] ||
            fail "no repository of this node has the package $name, which the fabric manager needs for NVSwitches of" \
                "NVLink 5 ($NEED): write bootstrap.driver: {source: nvidia}, or a mirror that has it"
    done
    [ -z "$(missing $NVLSM)" ] || install_packages $(missing $NVLSM)
    for module in $(unloaded); do
        root modprobe "$module" >modprobe.log 2>&1 && continue
        why=$(grep . modprobe.log | tail -n 1 | cut -c1-200)
        fail "the kernel module $module, which NVLSM needs, cannot be loaded: $why; add the package that has it to" \
            "bootstrap.packages (Ubuntu: linux-modules-extra-$(uname -r))"
    done
    root sh -c 'mkdir -p "${1%/*}" && printf "%s\n" $2 >"$1"' sh "$MODULES_FILE" "$MODULES" ||
        fail "cannot write $MODULES_FILE: check that the disk has free space"
}
start() {
    set -- "$PROGRAM"
    # as its unit starts it; both run on as daemons
    if [ -n "$NVLSM" ] && [ ! -d /run/systemd/system ]; then
        etc=/usr/share/nvidia run=/run/nvidia-fabricmanager
        root mkdir -p $run
        set -- nvidia-fabricmanager-start.sh --mode start --fm-config-file $etc/nvswitch/fabricmanager.cfg \
            --fm-pid-file $run/nv-fabricmanager.pid --nvlsm-config-file $etc/nvlsm/nvlsm.conf \
            --nvlsm-pid-file $run/nvlsm.pid
    fi
    service_on "$UNIT" "$@"
}
# The repository's version of the package that has this upstream version.
row_of() {
    versions_of "$PACKAGE" | awk -v want="$1" '{ v = $1; sub(/^[0-9]+:/, "", v); sub(/-.*/, "", v) } v == want { print $1; exit }'
}
apply() {
    set -f
    packages_begin
    now=$(loaded_driver)
    [ -n "$now" ] || fail "no driver is loaded, whose version $PACKAGE must have"
    release_holds
    row=$(row_of "$now")
    [ -n "$row" ] || {
        refresh
        row=$(row_of "$now")
    }
    [ -n "$row" ] ||
        fail "the repository has no $PACKAGE of the driver's version $now, and another does not work with it ($NEED):" \
            "choose a driver version that it has"
    [ -z "$NVLSM" ] || nvlsm_ready
    if [ "$(ours)" != "$now" ]; then
        if is_apt; then
            from_cache --allow-downgrades "$PACKAGE=$row"
            apt install --allow-downgrades "$PACKAGE=$row" || said apt-get '^E: '
        else
            from_cache "$PACKAGE-$row"
            run_dnf install "$PACKAGE-$row" || dnf_said
        fi
    fi
    mark_ours
    start
}
verify() {
    [ "$(ours)" = "$(loaded_driver)" ] || fail "$PACKAGE $(ours) is installed, and driver $(loaded_driver) is loaded: $NEED"
    service_comes "$UNIT" "$PROGRAM" || fail "service $UNIT does not run$(service_said "$UNIT"): $NEED"
    left=${NVLSM:+$(unloaded)}
    [ -z "$left" ] || fail "modprobe reported success, but$left is not loaded"
    comes nvlsm_runs ||
        fail "service $UNIT runs, but NVLSM, which it starts for NVSwitches of NVLink 5, does not$(service_said "$UNIT"): $NEED"
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094,SC2086,SC2154
# Installs a service that must have exactly the driver's version. PACKAGE: its package; UNIT: its service; PROGRAM: what
# that runs; NEED: what does not work without it.
ours() { package_version "$PACKAGE"; }
probe() {
    now=$(loaded_driver)
    if driver_fits && [ "$(ours)" = "$now" ] && service_runs "$UNIT" "$PROGRAM"; then return 0; fi
    may_install "$PACKAGE"
    return 10
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
        if is_apt; then apt_update; else dnf_refresh; fi
        row=$(row_of "$now")
    }
    [ -n "$row" ] ||
        fail "the repository has no $PACKAGE of the driver's version $now, and another does not work with it ($NEED):" \
            "choose a driver version that it has"
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
    service_on "$UNIT" "$PROGRAM"
}
verify() {
    [ "$(ours)" = "$(loaded_driver)" ] || fail "$PACKAGE $(ours) is installed, and driver $(loaded_driver) is loaded: $NEED"
    service_comes "$UNIT" "$PROGRAM" || fail "service $UNIT does not run$(service_said "$UNIT"): $NEED"
}

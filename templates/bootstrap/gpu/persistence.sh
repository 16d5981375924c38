# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094,SC2086
# Keeps the driver's state while no program uses a GPU: else each start of a program takes seconds.
UNIT=nvidia-persistenced
probe() {
    service_runs $UNIT $UNIT && return 0
    # a driver without the daemon keeps its own mode
    if driver_fits && [ ! -e "$MARK" ]; then return 0; fi
    may_install $UNIT
    return 10
}
apply() {
    set -f
    # a dependency of the driver in some repositories, a package in others
    command -v $UNIT >/dev/null 2>&1 || install_packages $UNIT
    service_on $UNIT $UNIT
}
verify() { service_comes $UNIT $UNIT || fail "service $UNIT does not run"; }

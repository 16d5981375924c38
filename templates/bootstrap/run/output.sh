# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# Prints the kept output of a step's last run: the first MiB and the last 64 KiB. STEP: its folder. Without one: the
# folders of the steps that ran.
cd "$NODE_DIR/steps/$STEP" 2>/dev/null && [ -e out ] || {
    for dir in "$NODE_DIR"/steps/*/out; do
        dir=${dir%/out}
        [ ! -d "$dir" ] || printf '::ran %s\n' "${dir##*/}"
    done
    exit 0
}
printf '::output %s\n' "$PWD/out"
{
    cat out
    if [ -s tail ]; then
        [ "$(wc -c <./tail)" -lt 65536 ] || printf '\n[gpuprov: the output from here to its last 64 KiB was not kept]\n'
        cat ./tail
    fi
} | LC_ALL=C sed '/^::/d'

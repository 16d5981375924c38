# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094,SC2154
# Python packages in VENV. PACKAGES: one requirement per line; REQUIREMENTS: the text of a requirements file; KEEP: "torch"
# where another step installs it, so that no package replaces its build.
wish() { printf '%s\n%s\n' "$PACKAGES" "$REQUIREMENTS"; }
# Sets $left to the unmet requirements, one per line.
look() { left=$(unmet "$(wish)" 2>&1) || fail "cannot read what is installed in $VENV: $(printf '%s\n' "$left" | tail -n 1)"; }
one_line() { printf '%s\n' "$left" | head -n 5 | tr '\n' ',' | sed 's/,$//; s/,/, /g'; }
probe() {
    [ "$(venv_state)" = ready ] || return 10 # the step before makes it
    look
    [ -n "$left" ] || return 0
    may_write
    return 10
}
apply() {
    look
    [ -n "$left" ] || {
        echo '::unchanged'
        return 0
    }
    may_write
    pip_credentials "$INDEX"
    pip_forget
    (umask 077 && wish >requirements.txt && : >constraints.txt) || fail 'the disk is full'
    kept=
    [ -z "$KEEP" ] || kept=$("$vpython" -I -c 'from importlib import metadata; print(metadata.version("torch"))' 2>/dev/null)
    [ -z "$kept" ] || printf 'torch==%s\n' "$kept" >constraints.txt
    say "installs $(one_line)"
    set -- -r requirements.txt -c constraints.txt
    [ -z "$INDEX" ] || set -- --index-url "$INDEX" "$@"
    pip_install "${INDEX:-the package index}" "$@"
}
verify() {
    look
    [ -z "$left" ] || fail "pip reported success, but $(one_line)"
    said=$(timeout -k 5 120 "$vpython" -I -m pip check --disable-pip-version-check 2>&1 </dev/null) ||
        warn "packages in $VENV do not fit each other: $(printf '%s\n' "$said" | head -n 3 | tr '\n' ';')"
}

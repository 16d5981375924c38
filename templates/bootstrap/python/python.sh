# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094,SC2154
# An interpreter of the wanted VERSION, with venv and pip: the distribution's, else one that uv, micromamba or conda on
# this node can bring.
python_packages() {
    if is_apt; then
        name=python3
        [ -z "$VERSION" ] || [ "$(version_of python3)" = "$VERSION" ] || name=python$VERSION
        echo "$name $name-venv"
    else
        echo "python${VERSION:-3}"
    fi
}
# Does the distribution have the packages?
offered() {
    for p in "$@"; do
        if is_apt; then
            LC_ALL=C apt-cache policy "$p" 2>/dev/null | grep -q '^  Candidate: [0-9]' || return 1
        elif ! installed "$p"; then
            root "$(command -v dnf || command -v yum)" -q list "$p" >/dev/null 2>&1 || return 1
        fi
    done
}
probe() {
    case $(venv_state) in ready) return 0 ;; esac
    find_python && return 0
    if [ -n "$REFUSAL" ] || ! root true 2>/dev/null; then
        find_manager && return 0
    fi
    # shellcheck disable=SC2046
    may_install $(python_packages)
    return 10
}
apply() {
    # shellcheck disable=SC2034 # of pkg.sh
    log=./manager.log waited=0
    if find_python; then
        echo '::unchanged'
        return 0
    fi
    # shellcheck disable=SC2046
    set -- $(python_packages)
    offered "$@" || ! is_apt || apt_update
    if offered "$@"; then
        install_packages "$@"
    elif find_manager; then
        say "this distribution has no python$VERSION: $manager will bring it"
        echo '::unchanged'
    else
        fail "this distribution has no python$VERSION (its python3 is $(version_of python3)), and none of uv, micromamba and conda is on the node: choose another bootstrap.python.version, or another image"
    fi
}
verify() {
    find_python || find_manager ||
        fail "the package manager reported success, but there is no python${VERSION:-3} that makes virtual environments${near:+: $near}"
}

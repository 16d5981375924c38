# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094,SC2154
# A virtual environment at VENV, made and owned by the login user.
probe() {
    state=$(venv_state)
    case $state in
    ready) return 0 ;;
    absent | broken) ;;
    *) fail "$state" ;;
    esac
    return 10
}
own_folder() {
    mkdir -p "$VENV" 2>/dev/null && [ -w "$VENV" ] && return
    [ ! -e "$VENV" ] || [ -z "$(ls -A "$VENV" 2>/dev/null)" ] || fail "$VENV belongs to $(stat -c %U "$VENV"), and '$(id -un)' cannot write there: choose another bootstrap.python.venv"
    root mkdir -p "$VENV" && root chown "$(id -u):$(id -g)" "$VENV" ||
        fail "cannot make $VENV: user '$(id -un)' may neither write there nor use sudo: choose another bootstrap.python.venv"
}
made() {
    "$@" >venv.log 2>&1 </dev/null && return
    sed 's/^::/ ::/' venv.log
    full=$(full_disks "$VENV" | head -n 1)
    [ -z "$full" ] || fail "cannot make $VENV: the disk is full ($full)"
    fail "cannot make $VENV: $1 reported: $(grep . venv.log | tail -n 1)"
}
apply() {
    probe && {
        echo '::unchanged'
        return 0
    }
    own_folder
    printf 'made by gpuprov\n' >"$VENV/.gpuprov" || fail "cannot write in $VENV"
    if find_python; then
        say "makes $VENV with Python $have"
        made "$python" -I -m venv --clear "$VENV"
    elif find_manager; then
        say "makes $VENV with Python $VERSION by $manager"
        case $manager in
        uv) made "$manager_path" venv --quiet --seed --allow-existing --python "$VERSION" "$VENV" ;;
        *)
            # `create` refuses a folder that is there, or replaces it, which the login user may not do in /opt
            mkdir -p "$VENV/conda-meta" && : >>"$VENV/conda-meta/history" || fail "cannot write in $VENV"
            channel=
            [ "$manager" = conda ] || channel='--channel conda-forge'
            # shellcheck disable=SC2086
            made "$manager_path" install --yes --quiet $channel --prefix "$VENV" "python=$VERSION" pip
            ;;
        esac
    else
        fail "there is no python${VERSION:-3} that makes virtual environments${near:+: $near}"
    fi
    printf 'made by gpuprov\n' >"$VENV/.gpuprov" || fail "cannot write in $VENV"
}
verify() {
    state=$(venv_state)
    case $state in
    ready) return 0 ;;
    absent | broken) fail "$VENV was made, but its Python or pip does not run" ;;
    *) fail "$state" ;;
    esac
}

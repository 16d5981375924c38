# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2034
# Shared by the steps of Python. VERSION: the wanted one, or ""; VENV: the folder of the virtual environment.
python_least=3.8
vpython=$VENV/bin/python
# "3.11" of an interpreter; nothing where it does not run.
version_of() { timeout -k 5 60 "$1" -I -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null </dev/null; }
# Can it make a virtual environment with pip? Debian ships ensurepip in a package of its own.
makes_venv() { timeout -k 5 60 "$1" -I -c 'import venv, ensurepip' >/dev/null 2>&1 </dev/null; }
older() { [ "$(printf '%s\n' "$1" "$2" | sort -t. -k1,1n -k2,2n | head -n 1)" = "$1" ] && [ "$1" != "$2" ]; }
# Sets $python to the distribution's interpreter of the wanted version, $have to its version. $near: why it is not used.
find_python() {
    near=
    for python in "python$VERSION" python3; do
        python=$(command -v "$python" 2>/dev/null) || continue
        have=$(version_of "$python")
        [ -n "$have" ] || {
            near="$python does not run"
            continue
        }
        if [ -n "$VERSION" ] && [ "$have" != "$VERSION" ]; then
            near="$python is $have"
            continue
        fi
        if older "$have" $python_least; then
            near="$python is $have, and pip's packages need $python_least or newer"
            continue
        fi
        makes_venv "$python" && return 0
        near="$python has no module ensurepip"
    done
    return 1
}
# Sets $manager to a tool that brings interpreters of its own, for a version that the distribution does not have.
find_manager() {
    [ -n "$VERSION" ] || return 1
    for manager in uv micromamba mamba conda; do
        for dir in "" "$HOME/.local/bin/" "$HOME/miniforge3/bin/" "$HOME/miniconda3/bin/" /opt/conda/bin/ \
            /opt/miniforge3/bin/ /opt/miniconda3/bin/; do
            manager_path=$(command -v "$dir$manager" 2>/dev/null) && return 0
        done
    done
    return 1
}
# The state of the environment: "ready", "absent", "broken", or a reason why it cannot be used.
venv_state() {
    if [ ! -e "$VENV" ] || { [ -d "$VENV" ] && [ -z "$(ls -A "$VENV" 2>/dev/null)" ]; }; then
        echo absent
        return
    fi
    have=$(version_of "$vpython")
    if [ -z "$have" ]; then
        if [ -e "$VENV/.gpuprov" ]; then echo broken; else
            echo "$VENV exists, and it has no Python that runs: remove it, or choose another bootstrap.python.venv"
        fi
    elif [ -n "$VERSION" ] && [ "$have" != "$VERSION" ]; then
        echo "$VENV has Python $have, not $VERSION: remove it, or choose another bootstrap.python.venv"
    elif older "$have" $python_least; then
        echo "$VENV has Python $have, which is older than $python_least: choose another bootstrap.python.venv"
    elif ! timeout -k 5 60 "$vpython" -I -c 'import pip' >/dev/null 2>&1 </dev/null; then
        if [ -e "$VENV/.gpuprov" ]; then echo broken; else
            echo "$VENV has no pip: choose another bootstrap.python.venv"
        fi
    else
        echo ready
    fi
}

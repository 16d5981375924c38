# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2154
# Steps with kept results, for check.sh and first_minutes.sh. A step runs once: its output is $work/NAME.out, its
# errors $work/NAME.err, its status and seconds $work/NAME.done, which is written last, with a checksum of the
# command and of $inputs. A later call skips steps that are done, so a call that was cut off, also by SIGKILL, is
# called again to go on. Before the first step: work, limit (seconds of this call; empty: none), inputs (a text), and
# after_step, a function that is called after each step.
INCOMPLETE=3
began=$(date +%s)
ran=0
say() { printf 'gpu-check: %s\n' "$*" >&2; }
left() { echo $((${limit:-1000000} - ($(date +%s) - began))); }

later() { # NAME SECONDS: the rest does not fit
    say "$1 takes up to $2 s and $(left) s are left: run again to go on"
    after_step
    exit "$INCOMPLETE"
}

# Ends what a call that was killed left running: its process group, if it is still that of a step.
end_orphan() {
    [ -f "$work/running" ] || return 0
    read -r pid name <"$work/running" || return 0
    if [ -n "$pid" ] && tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" | grep -qx "GPUPROV_STEP=$name"; then
        say "ending $name of the call before (process $pid)"
        kill -s KILL -- "-$pid" 2>/dev/null || kill -s KILL "$pid" 2>/dev/null || :
    fi
    rm -f "$work/running"
}

step_is_done() { [ -f "$work/$1.done" ] && [ "$(sed -n 1p "$work/$1.done")" = "$2" ]; }
step_status() { sed -n 's/^status //p' "$work/$1.done" 2>/dev/null; } # empty: not done
step_seconds() { sed -n 's/^seconds //p' "$work/$1.done" 2>/dev/null; }

# step NAME SECONDS COMMAND...: SECONDS is the most that it takes on a sound machine; three times that, or the call's
# limit, ends it. A command that fails is done too: its status is a result. One that this call's limit cut off
# twice, although it was the first of its call, is done with status 124.
step() {
    name=$1 need=$2
    shift 2
    sum=$(printf '%s\n' "$inputs" "$@" | cksum)
    if step_is_done "$name" "$sum"; then return 0; fi
    [ "$(left)" -ge "$need" ] || [ "$ran" -eq 0 ] || later "$name" "$need"
    most=$((need * 3)) cut=''
    if [ "$(left)" -lt $((most + 10)) ]; then most=$(($(left) - 10)) cut=yes; fi
    [ "$most" -gt 0 ] || later "$name" "$need"
    say "$name (up to $need s)"
    from=$(date +%s)
    rm -f "$work/$name.done"
    # a session of its own, so that all of it can be ended; it notes its pid itself, before it runs anything
    # shellcheck disable=SC2016
    GPUPROV_STEP=$name setsid sh -c 'echo "$$ $GPUPROV_STEP" >"$0/running" && exec timeout -k 5 "$@"' \
        "$work" "$most" "$@" >"$work/$name.out" 2>"$work/$name.err" </dev/null 9>&- &
    pid=$!
    status=0
    wait "$pid" || status=$?
    rm -f "$work/running"
    ran=$((ran + 1))
    if [ "$status" -eq 124 ] && [ -n "$cut" ]; then
        tries=$(($(cat "$work/$name.tries" 2>/dev/null || echo 0) + (ran == 1)))
        echo "$tries" >"$work/$name.tries"
        [ "$tries" -ge 2 ] || later "$name" "$need"
    fi
    printf '%s\nstatus %s\nseconds %s\n' "$sum" "$status" "$(($(date +%s) - from))" >"$work/$name.new"
    mv "$work/$name.new" "$work/$name.done"
    after_step
}

# One call at a time; a second one would spoil the figures.
steps_open() {
    mkdir -p "$work"
    if command -v flock >/dev/null 2>&1; then
        exec 9>"$work/lock"
        flock -n 9 || { say "another call works in $work"; exit 1; }
    fi
    end_orphan
    trap 'end_orphan; exit 130' INT TERM
}

# The Python with PyTorch, and the folders of the CUDA libraries that it has.
find_python() {
    for py in "${GPUPROV_GPU_CHECK_PYTHON:-}" "${VIRTUAL_ENV:+$VIRTUAL_ENV/bin/python}" python3 "$HOME"/.venv/bin/python \
        /venv/bin/python /opt/venv/bin/python /opt/*/.venv/bin/python /opt/*/venv/bin/python /opt/*/bin/python \
        /opt/*/envs/*/bin/python; do
        command -v "${py:-/none}" >/dev/null 2>&1 || continue
        "$py" -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)' 2>/dev/null || continue
        echo "$py"
        return
    done
    echo "${GPUPROV_GPU_CHECK_PYTHON:-python3}"
}
python_libraries() { # PYTHON
    "$1" -c 'import glob, sysconfig
roots = {sysconfig.get_paths()[k] for k in ("purelib", "platlib")}
print(":".join(d for r in sorted(roots) for d in sorted(glob.glob(r + "/nvidia/*/lib"))))' 2>/dev/null || :
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# For the steps of containers. ENGINE: docker, podman or containerd. Root's engine, not one of the login user.
case $ENGINE in containerd) program=ctr ;; *) program=$ENGINE ;; esac
has_engine() { command -v "$program" >/dev/null 2>&1; }
asked() { root timeout -k 5 60 "$@" </dev/null 2>/dev/null; }
ENGINE_IS='' # the version of the running engine; "": it does not answer, or was not asked
# The engines' exit statuses are not enough: that of 'docker info' may be 0 without a daemon. ctr waits 10 s for one.
engine_works() {
    ENGINE_IS=''
    if [ "$ENGINE" = containerd ] && has_systemd && ! systemctl is-active -q containerd.service; then return 1; fi
    ENGINE_IS=$(case $ENGINE in
        docker) asked docker info -f '{{.ServerVersion}}' ;;
        podman) asked podman info -f '{{.Version.Version}}' ;;
        containerd) asked ctr version | sed -n '/^Server/,$s/^ *Version: *v\{0,1\}//p' ;;
        esac | head -n 1)
    [ -n "$ENGINE_IS" ]
}
# at_least HAVE WANT: versions of numbers with points; what follows them does not count.
at_least() {
    awk -v have="$1" -v want="$2" 'BEGIN {
        n = split(want, w, "."); split(have, h, ".")
        for (i = 1; i <= n; i++) { if (h[i] + 0 > w[i] + 0) exit 0; if (h[i] + 0 < w[i] + 0) exit 1 }
        exit 0 }' </dev/null
}
# Whether this version of the engine gives GPUs to containers by CDI, though it may be switched off.
has_cdi() {
    [ -n "$ENGINE_IS" ] || engine_works
    case $ENGINE in
    docker) at_least "${ENGINE_IS:-0}" 25 ;;
    podman) at_least "${ENGINE_IS:-0}" 4.3 ;;
    containerd) at_least "${ENGINE_IS:-0}" 1.7 ;;
    esac
}
has_systemd() { [ -d /run/systemd/system ]; }
may_be_root() {
    [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null ||
        fail "user '$(id -un)' may not use sudo without a password here, so $1"
}
# The reason why the engine does not answer, in one line.
engine_trouble() {
    log=$(root journalctl -q -u "$ENGINE.service" -n 60 -o cat --no-pager 2>/dev/null)
    line=$(printf '%s\n' "$log" | grep -E 'failed to start daemon|level=fatal|^containerd: ' | tail -n 1)
    [ -n "$line" ] || line=$(printf '%s\n' "$log" | grep -E 'level=error' | tail -n 1)
    case $ENGINE in containerd) set -- ctr version ;; *) set -- "$ENGINE" info ;; esac
    [ -n "$line" ] || line=$(root timeout -k 5 60 "$@" </dev/null 2>&1 | grep -i -E 'error|cannot|fail' | tail -n 1)
    printf '%s\n' "${line:-no reason}" | cut -c1-300
}
# Restarts the engine, so that it reads its settings again.
restart_engine() {
    case $ENGINE in podman) return 0 ;; esac
    has_systemd || fail "$ENGINE must be restarted, and systemd does not run here: restart it"
    root systemctl restart "$ENGINE.service" 2>/dev/null
    wait_engine
}
wait_engine() {
    n=0
    until engine_works || [ $n -ge 100 ]; do
        case $(systemctl is-active "$ENGINE.service" 2>/dev/null) in failed) break ;; esac
        sleep 0.3
        n=$((n + 1))
    done
}

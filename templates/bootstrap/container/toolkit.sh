# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2034,SC2094,SC2154
# Installs NVIDIA's container toolkit, and connects the engine with it. ENGINE; REPO: NVIDIA's repository, added where no
# other one has the package; KEY_SHA256: of its key.
PACKAGE=nvidia-container-toolkit
has_toolkit() { command -v nvidia-ctk >/dev/null 2>&1; }
# Whether a container of the running engine can get a GPU: by CDI, or by the NVIDIA runtime where there is no CDI.
connected() {
    case $ENGINE in
    podman) has_cdi || command -v nvidia-container-runtime >/dev/null 2>&1 ;;
    docker)
        if has_cdi; then
            asked docker info -f '{{json .CDISpecDirs}}' | grep -q '"/'
        else
            asked docker info -f '{{json .Runtimes}}' | grep -q nvidia
        fi
        ;;
    containerd)
        if ! has_cdi; then
            asked containerd config dump | grep -q nvidia-container-runtime
        else # on by default since 2.0
            asked containerd config dump | grep -q 'enable_cdi *= *true'
        fi
        ;;
    esac
}
probe() {
    if ! has_toolkit; then
        may_install "$PACKAGE"
        return 10
    fi
    has_engine && connected || return 10
}
known() {
    if is_apt; then
        apt-cache policy "$PACKAGE" 2>/dev/null | grep -q '^ *Candidate: *[0-9]'
    else
        dnf=dnf
        command -v dnf >/dev/null 2>&1 || dnf=yum
        root "$dnf" -q list "$PACKAGE" >/dev/null 2>&1
    fi
}
# The key that this version of gpuprov knows, or none.
fetch_key() {
    say "fetches the key of $REPO"
    rm -f key
    if is_apt; then
        root /usr/lib/apt/apt-helper -o Acquire::Retries=3 download-file "$REPO/gpgkey" "$PWD/key" "SHA256:$KEY_SHA256" >key.log 2>&1
    else
        curl -fsSL --retry 3 -o key "$REPO/gpgkey" >key.log 2>&1
    fi
    sum=$(sha256sum key 2>/dev/null | cut -c1-64)
    [ "$sum" = "$KEY_SHA256" ] && return
    grep -q -i 'hash sum mismatch' key.log || [ -n "$sum" ] ||
        fail "cannot fetch $REPO/gpgkey: $(grep -E '^(E|W|Err|curl)' key.log | head -n 1 | cut -c1-200); open the network, or add a repository with $PACKAGE by a step"
    fail "$REPO/gpgkey is not the key that this gpuprov knows: update gpuprov, or add a repository with $PACKAGE by a step"
}
add_repository() {
    fetch_key
    if is_apt; then
        root sh -c 'mkdir -p /usr/share/keyrings && cp key "$1" && chmod 0644 "$1" && printf "%s\n" "$2" >"$3"' sh \
            /usr/share/keyrings/nvidia-container-toolkit.asc \
            "deb [signed-by=/usr/share/keyrings/nvidia-container-toolkit.asc] $REPO/stable/deb/$(dpkg --print-architecture) /" \
            /etc/apt/sources.list.d/nvidia-container-toolkit.list || fail 'cannot write below /etc/apt'
    else
        root sh -c 'mkdir -p /etc/pki/rpm-gpg && cp key "$1" && chmod 0644 "$1" && cat >"$2"' sh \
            /etc/pki/rpm-gpg/nvidia-container-toolkit.asc /etc/yum.repos.d/nvidia-container-toolkit.repo <<REPO_FILE || fail 'cannot write below /etc/yum.repos.d'
[nvidia-container-toolkit]
name=nvidia-container-toolkit
baseurl=$REPO/stable/rpm/$(uname -m)
repo_gpgcheck=1
gpgcheck=0
enabled=1
gpgkey=file:///etc/pki/rpm-gpg/nvidia-container-toolkit.asc
REPO_FILE
    fi
}
# Docker ends its containers when it is restarted, unless live-restore is on.
spare_containers() {
    [ "$ENGINE" = docker ] && [ "$(root docker info --format '{{.LiveRestoreEnabled}}' 2>/dev/null)" != true ] || return 0
    n=$(root docker ps -q 2>/dev/null | grep -c .)
    [ "$n" -eq 0 ] ||
        fail "docker must be restarted to give containers the GPUs, which ends running containers ($n): stop them, or set live-restore in /etc/docker/daemon.json"
}
connect() {
    spare_containers
    set -- "--runtime=$ENGINE"
    if has_cdi; then set -- "$@" --cdi.enabled; fi
    say "connects $ENGINE with the NVIDIA runtime"
    said=$(root nvidia-ctk runtime configure "$@" 2>&1) ||
        fail "nvidia-ctk runtime configure reported: $(printf '%s\n' "$said" | tail -n 1)"
    restart_engine
}
apply() {
    if ! has_toolkit; then
        log=./manager.log waited=0
        if is_apt && ! known; then apt_update; fi # the image's list of packages may be old
        if ! known; then
            add_repository
            if is_apt; then apt_update; fi
        fi
        install_packages "$PACKAGE"
    fi
    connected || connect
}
verify() {
    has_toolkit || fail "$PACKAGE is installed, but the program nvidia-ctk is not there"
    engine_works || fail "$ENGINE does not work with the settings of nvidia-ctk: $(engine_trouble)"
    connected && return
    if has_cdi; then fail "$ENGINE $ENGINE_IS was set up for CDI, but does not report it"; fi
    fail "$ENGINE $ENGINE_IS was set up for the NVIDIA runtime, but does not report it"
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094,SC2086,SC2154
# Makes NVIDIA's package repository, or a mirror of it, known. URL: the repository of this system; KEY: the address of its
# keyring package (apt) or key (dnf), whose sha256 is KEY_SHA256; REPO: NVIDIA's name of the system.
list() { if is_apt; then echo "/etc/apt/sources.list.d/cuda-$REPO-x86_64.list"; else echo "/etc/yum.repos.d/cuda-$REPO.repo"; fi; }
ready() {
    grep -q -F "$URL" "$(list)" 2>/dev/null || return 1
    [ "$(cat /etc/gpuprov/driver-key 2>/dev/null)" = "$KEY_SHA256" ] || return 1
    if is_apt; then installed cuda-keyring; else rpm -q gpg-pubkey >/dev/null 2>&1; fi
}
probe() {
    set -f
    if driver_fits && [ -z "$(missing $LIBRARIES)" ]; then return 0; fi
    ready && return 0
    [ -n "$KEY_SHA256" ] ||
        fail "the hash of the key of $URL is not known, and a key without a hash is not trusted: write it behind the" \
            "address: driver.source: URL#sha256=HASH"
    may_install cuda-keyring
    return 10
}
fetch() {
    if command -v curl >/dev/null 2>&1; then
        root curl -fsSL --retry 3 --connect-timeout 20 -o "$2" "$1"
    elif [ -x /usr/lib/apt/apt-helper ]; then
        root /usr/lib/apt/apt-helper -o Acquire::Retries=3 download-file "$1" "$2"
    else
        root wget -q -O "$2" "$1"
    fi >fetch.log 2>&1 ||
        fail "cannot fetch $1: $(grep -E '^(E:|curl:)|Err' fetch.log | tail -n 1 | cut -c1-200): check the network of the node"
}
apply() {
    packages_begin
    file=$PWD/cuda-key.${KEY##*.}
    root rm -f "$file"
    say "fetches the key of the repository"
    fetch "$KEY" "$file"
    have=$(sha256sum "$file" | cut -c1-64)
    [ "$have" = "$KEY_SHA256" ] || {
        root rm -f "$file"
        fail "the key of the repository has another hash than expected: $KEY is $have, not $KEY_SHA256; nothing was installed"
    }
    if is_apt; then
        apt_repair
        patiently root env DEBIAN_FRONTEND=noninteractive LC_ALL=C dpkg --force-confnew -i "$file" || said dpkg '^dpkg: error'
        root sh -c 'rm -f /etc/apt/sources.list.d/cuda-*-x86_64.list
            echo "deb [signed-by=/usr/share/keyrings/cuda-archive-keyring.gpg] $1 /" >"$2"' sh "$URL/" "$(list)"
        apt_update
        # apt-get returns 0 when it could not use the repository
        if grep -E '^(W|Err|E)' "$log" | grep -q -F "$URL"; then said 'apt-get update' "^(E|W): .*$URL"; fi
    else
        root rpm --import "$file" || fail "rpm does not accept the key of $KEY"
        kept=/etc/pki/rpm-gpg/RPM-GPG-KEY-cuda-$REPO
        root sh -c 'mkdir -p /etc/pki/rpm-gpg && cp "$3" "$4" && chmod 0644 "$4" &&
            printf "[cuda]\nname=cuda\nbaseurl=%s\nenabled=1\ngpgcheck=1\ngpgkey=%s\n" "$1" "file://$4" >"$2"' sh \
            "$URL" "$(list)" "$file" "$kept"
    fi
    root mkdir -p /etc/gpuprov && root sh -c 'echo "$1" >/etc/gpuprov/driver-key' sh "$KEY_SHA256"
}
verify() {
    ready || fail "the repository $URL is not set up, although its key was installed"
}

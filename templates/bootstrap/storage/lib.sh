# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# Shared by the steps of this folder. Sent in front of them.
able() { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }
need_root() { able || fail "user '$(id -un)' may not use sudo without a password here, so $1 cannot be set up"; }
# Whether a file of root's has exactly this text and mode.
file_is() {
    printf '%s\n' "$3" | root cmp -s - "$1" 2>/dev/null && [ "$(root stat -c '%a %U' "$1" 2>/dev/null)" = "$2 root" ]
}
# Writes a file of root's as a whole. The text goes through stdin: it may be secret.
write_file() {
    # shellcheck disable=SC2016
    said=$(printf '%s\n' "$3" | root sh -c '
        umask 077
        mkdir -p -m 0755 "${1%/*}" && cat >"$1.gpuprov" && chmod "$2" "$1.gpuprov" && chown root:root "$1.gpuprov" &&
            sync "$1.gpuprov" && mv -f "$1.gpuprov" "$1"' sh "$1" "$2" 2>&1) ||
        fail "cannot write $1: ${said##*: }"
}
systemd_runs() { [ -d /run/systemd/system ]; }

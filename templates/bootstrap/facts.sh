# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
printf '::fact arch %s\n' "$(uname -m)"
printf '::fact boot %s\n' "$(cat /proc/sys/kernel/random/boot_id)"
printf '::fact home %s\n' "$HOME"
printf '::fact user %s\n' "$(id -un)"
if [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; then printf '::fact root yes\n'; fi
if [ -e /dev/nvidiactl ]; then printf '::fact nvidia yes\n'; fi
for tool in dd head tail wc tr cut sed grep timeout setsid df awk sha256sum; do
    command -v "$tool" >/dev/null 2>&1 || printf '::fact missing %s\n' "$tool"
done

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# The package cache of the run, for pkg.sh. CACHE: its address, "http://10.0.0.5:40123".
# Fetches what apt would fetch from the cache, each file by the SHA-256 of apt's own signed lists, and puts it where apt
# looks for it. Nothing depends on it: apt fetches what is missing.
from_cache() {
    archives=/var/cache/apt/archives host=${CACHE#http://}
    host=${host%:*}
    # 'URL' NAME SIZE SHA256:SUM
    root env LC_ALL=C apt-get -q -y -o Acquire::ForceHash=SHA256 --print-uris install "$@" 2>/dev/null |
        sed -n "s/^'\([A-Za-z0-9+:/._~%@,=!-]*\)' \([A-Za-z0-9+._~%-]*\.deb\) \([0-9]*\) SHA256:\([0-9a-f]*\)\$/\4 \3 \2 \1/p" |
        while read -r sum size name url; do
            url=$(cache_origin "$url") && printf '%s %s %s %s\n' "$sum" "$size" "$name" "$url"
        done >cache.list
    [ -s cache.list ] || return 0
    count=$(wc -l <cache.list) got=0
    say "asks the package cache for $count package$([ "$count" -eq 1 ] || echo s)"
    root mkdir -p -m 0755 "$archives/gpuprov" || return 0
    while read -r sum size name url; do
        printf '%s/%s/%s/%s\n%s\n' "$CACHE" "$sum" "$size" "$url" "$archives/gpuprov/$name"
    done <cache.list >cache.args
    root env LC_ALL=C xargs -n 100 timeout -k 5 "$BUDGET" /usr/lib/apt/apt-helper -q -q -o Acquire::Retries=0 \
        -o Acquire::http::Timeout=60 -o Acquire::http::Pipeline-Depth=0 -o "Acquire::http::Proxy::$host=DIRECT" \
        -o APT::Sandbox::User=root download-file <cache.args >cache.log 2>&1
    while read -r sum size name url; do
        if printf '%s  %s\n' "$sum" "$archives/gpuprov/$name" | root sha256sum -c --status 2>/dev/null &&
            root mv "$archives/gpuprov/$name" "$archives/$name"; then
            got=$((got + 1))
        fi
    done <cache.list
    root rm -rf "$archives/gpuprov"
    [ "$got" -eq "$count" ] ||
        warn "fetches $((count - got)) of $count packages directly: the package cache at $CACHE: $(cache_said)"
}
cache_said() {
    line=$(sed -n 's|http://[^ ]* *||g; s/^[EW]: *//p' cache.log | head -n 1 | cut -c1-120)
    printf '%s' "${line:-its files are not what the package lists name}"
}
# "http/host/path" of a URL; that of the first mirror for one of a list of mirrors. Status 1: apt has to fetch it.
cache_origin() {
    case $1 in
    http://* | https://*) printf '%s/%s' "${1%%://*}" "${1#*://}" ;;
    mirror+file:*.list/*)
        mirrors=${1#mirror+file:}
        rest=${mirrors#*.list/}
        mirrors=/$(printf '%s' "${mirrors%"/$rest"}" | sed 's|^/*||')
        first=$(sed -n 's/[[:space:]].*//; /^https*:\/\//{p;q;}' "$mirrors" 2>/dev/null)
        [ -n "$first" ] || return 1
        printf '%s/%s/%s' "${first%%://*}" "$(printf '%s' "${first#*://}" | sed 's|/*$||')" "$rest"
        ;;
    *) return 1 ;;
    esac
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# The package cache of the run, for pkg.sh. CACHE: its address, "http://10.0.0.5:40123".
# Fetches what apt or dnf would fetch from the cache, each file by the SHA-256 of the package lists, and puts it where the
# package manager looks for it. Nothing depends on it: the package manager fetches what is missing. The node that serves it
# may send anything, without end: no more is taken than the package lists name, and no part stays on the disk.
lists_suffice() { apt -s install "$@" >/dev/null; }
from_cache() { if is_apt; then from_cache_apt "$@"; else from_cache_dnf "$@"; fi; }
from_cache_apt() {
    archives=/var/cache/apt/archives host=${CACHE#http://}
    host=${host%:*}
    # 'URL' NAME SIZE SHA256:SUM
    root env LC_ALL=C apt-get -q -y -o Acquire::ForceHash=SHA256 --print-uris install "$@" >cache.uris 2>/dev/null
    # without such a line there is nothing to fetch, or apt itself reports what is wrong
    count=$(grep "^'" cache.uris | grep -vc "^'\(file\|copy\|cdrom\):") got=0
    [ "$count" -gt 0 ] || return 0
    sed -n "s/^'\([A-Za-z0-9+:/._~%@,=!-]*\)' \([A-Za-z0-9+._~%-]*\.deb\) \([0-9]*\) SHA256:\([0-9a-f]*\)\$/\4 \3 \2 \1/p" cache.uris |
        while read -r sum size name url; do
            url=$(cache_origin "$url") && printf '%s %s %s %s\n' "$sum" "$size" "$name" "$url"
        done >cache.list
    say "asks the package cache for $count package$([ "$count" -eq 1 ] || echo s)"
    root mkdir -p -m 0755 "$archives/gpuprov" || return 0
    # The size of files that apt-helper may write, in blocks of 512 bytes: that is the unit of dash, and of bash as sh. It
    # counts for its log, too, so each has 64 KiB more. Each package has its own limit, so each has its own apt-helper.
    while read -r sum size name url; do
        printf '%s %s/%s/%s/%s %s\n' $((size / 512 + 129)) "$CACHE" "$sum" "$size" "$url" "$archives/gpuprov/$name"
    done <cache.list >cache.args
    : >cache.log
    # shellcheck disable=SC2016
    [ ! -s cache.args ] || root env LC_ALL=C timeout -k 5 "$(cache_limit)" xargs -n 3 sh -c 'ulimit -f "$2" && exec \
        /usr/lib/apt/apt-helper -q -q -o Acquire::Retries=0 -o Acquire::http::Timeout=60 -o Acquire::http::Pipeline-Depth=0 \
        -o "Acquire::http::Proxy::$1=DIRECT" -o APT::Sandbox::User=root download-file "$3" "$4"' sh "$host" \
        <cache.args >cache.log 2>&1
    slow=$?
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
# Seconds for the cache: two minutes and one for each MB, and at most half of the step's time, so that the package
# manager has the rest when the cache is too slow.
cache_limit() {
    limit=$BUDGET
    [ ! -s cache.list ] || limit=$(awk '{ n += $2 } END { printf "%d", 120 + n / 1000000 }' cache.list)
    [ "$limit" -le $((BUDGET / 2)) ] || limit=$((BUDGET / 2))
    [ "$limit" -gt 0 ] || limit=1
    echo "$limit"
}
cache_said() {
    line=$(sed -n 's|http://[^ ]* *||g; s/^[EW]: *//p' cache.log | head -n 1 | cut -c1-120)
    case $line in *'died unexpectedly'* | *'signal 25'*) line='it sends more than the package lists name' ;; esac
    [ -n "$line" ] || [ $slow -ne 124 ] || line='it is too slow'
    [ -n "$line" ] || [ "$(wc -l <cache.list)" -eq "$count" ] || line='it takes http, https and SHA-256 only'
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
# dnf prints no hashes. Its own Python module, which is there wherever dnf 3 or 4 is, has them.
from_cache_dnf() {
    cat >cache.py <<'END'
import hashlib, http.client, os, sys, urllib.request
import dnf

base = dnf.Base()
base.conf.read()
base.conf.substitutions.update_from_etc(base.conf.installroot)
if base.conf.substitutions.get("releasever") is None:
    base.conf.substitutions["releasever"] = ""
base.read_all_repos()
base.fill_sack()
for name in sys.argv[2:]:
    base.install(name)
base.resolve()
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
count = got = 0
why = ""
for p in base.transaction.install_set:
    kind, sum_ = p.returnIdSum()
    url, path = p.remote_location(schemes=("http", "https")), p.localPkg()
    if not url or kind != "sha256" or os.path.exists(path):
        continue
    count += 1
    try:
        asked = "%s/%s/%d/%s" % (sys.argv[1], sum_, p.downloadsize, url.replace("://", "/", 1))
        os.makedirs(os.path.dirname(path), exist_ok=True)
        seen, left = hashlib.sha256(), p.downloadsize
        print("::part", path + ".gpuprov", flush=True)
        with direct.open(asked, timeout=60) as answer, open(path + ".gpuprov", "wb") as file:
            for part in iter(lambda: answer.read(1 << 20), b""):
                left -= len(part)
                if left < 0:
                    raise OSError("it sends more than the package lists name")
                seen.update(part)
                file.write(part)
        if seen.hexdigest() != sum_:
            raise OSError("its files are not what the package lists name")
        os.rename(path + ".gpuprov", path)
        got += 1
    except (OSError, ValueError, http.client.HTTPException) as e:
        why = why or " ".join(str(e).split())[:120]
        if os.path.exists(path + ".gpuprov"):
            os.remove(path + ".gpuprov")
print("::cached", count, got, why)
END
    for python in /usr/libexec/platform-python python3; do
        root "$python" -c 'import dnf' 2>/dev/null || continue
        say 'asks the package cache'
        root env LC_ALL=C timeout -k 5 "$(cache_limit)" "$python" cache.py "$CACHE" "$@" >cache.log 2>&1
        line=$(grep '^::cached ' cache.log) || {
            # it was killed, and has one part at most: that of its last package
            part=$(sed -n 's/^::part \(.*\.gpuprov\)$/\1/p' cache.log | tail -n 1)
            [ -z "$part" ] || root rm -f "$part"
            line=$(grep -v '^::' cache.log | grep . | tail -n 1 | cut -c1-120)
            warn "fetches packages directly: the package cache was not used: ${line:-it is too slow}"
            return 0
        }
        # shellcheck disable=SC2086
        set -- ${line#::cached}
        count=$1 got=$2
        shift 2
        [ "$got" -eq "$count" ] ||
            warn "fetches $((count - got)) of $count packages directly: the package cache at $CACHE: $*"
        return 0
    done
    warn "fetches packages directly: the package cache needs the Python module dnf, which this node does not have"
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# Starts the package cache of a run on this node, or renews its lease; sent again and again while the run needs it.
# DIR: its folder; BIND: the address that it listens on; PEERS: the addresses that it answers; LEASE: the time after
# which it ends by itself; ALLOW: origins that it fetches from besides the node's own package sources; FETCH: a script.
# END=yes: ends it. Prints the port.
umask 077
pid='' port=''
serves() {
    { read -r pid port <"$DIR/at"; } 2>/dev/null && tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF "cache --dir $DIR "
}
if [ "$END" = yes ]; then
    rm -f "$DIR/lease"
    n=0
    while serves && [ $n -lt 50 ]; do
        sleep 0.1
        n=$((n + 1))
    done
    # also a folder that a reboot has left
    serves || { [ ! -L "$DIR" ] && rm -rf "$DIR"; }
    exit 0
fi
mkdir "$DIR" 2>/dev/null
# every user can make a folder of this name: only a private one of this user is used
[ -d "$DIR" ] && [ ! -L "$DIR" ] && [ "$(stat -c '%u %a' "$DIR")" = "$(id -u) 700" ] ||
    fail "$DIR cannot be used for the package cache: it is not a private folder of this user"
cd "$DIR" || fail "$DIR cannot be used for the package cache"
printf '%s\n' "$PEERS" >peers.new && mv peers.new peers && printf '%s' "$FETCH" >fetch.new && mv fetch.new fetch &&
    touch lease || fail "cannot write in $DIR: check that the disk has free space"
if ! serves; then
    setsid "$HOME/.gpuprov/agent/gpuprov-agent" cache --dir "$DIR" --bind "$BIND" --fetch "$DIR/fetch" \
        --lease "$LEASE" --allow "$ALLOW" --port "${port:-0}" </dev/null >>log 2>&1 &
    n=0
    until serves || [ $n -ge 100 ] || ! kill -0 $! 2>/dev/null; do
        sleep 0.1
        n=$((n + 1))
    done
fi
serves || fail "the package cache did not start: $(tail -n 1 log)"
printf '::cache %s\n' "$port"

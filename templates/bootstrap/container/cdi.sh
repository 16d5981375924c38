# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094,SC2154
# Describes the node's GPUs for containers (CDI), now and at each boot. ENGINE. An engine without CDI needs none: its
# containers get GPUs by the NVIDIA runtime (toolkit.sh).
OUT=/var/run/cdi/nvidia.yaml # the file that the toolkit's own unit writes; it wins over one in /etc/cdi
UNIT=gpuprov-cdi.service
# The toolkit brings a unit that also watches the driver, since version 1.18.
shipped() { systemctl cat nvidia-cdi-refresh.service >/dev/null 2>&1; }
# The description that counts: every file that it names must exist, and every GPU must be in it.
stale() {
    file=$OUT
    [ -s "$file" ] || file=$(grep -ls 'nvidia.com/gpu' /etc/cdi/*.yaml /etc/cdi/*.json /var/run/cdi/*.yaml 2>/dev/null | head -n 1)
    [ -n "$file" ] || {
        echo 'no file describes the GPUs'
        return
    }
    for path in $(sed -n 's/^[ -]*\(hostPath\|path\): *"\{0,1\}\(\/[^"]*\)"\{0,1\} *$/\2/p' "$file" | sort -u); do
        root test -e "$path" || echo "$file names $path, which does not exist"
    done | head -n 1
    for gpu in /dev/nvidia[0-9]*; do
        [ ! -e "$gpu" ] || grep -q "$gpu\([^0-9]\|\$\)" "$file" || echo "$file does not name $gpu"
    done | head -n 1
}
refreshed() {
    has_systemd || return 0
    if shipped; then
        systemctl is-enabled -q nvidia-cdi-refresh.service 2>/dev/null || systemctl is-enabled -q nvidia-cdi-refresh.path 2>/dev/null
    else
        systemctl is-enabled -q "$UNIT" 2>/dev/null
    fi
}
probe() {
    has_engine && engine_works || return 10
    has_cdi || return 0
    if [ -z "$(stale)" ] && refreshed; then return 0; fi
    may_be_root 'the GPUs cannot be described for containers'
    return 10
}
own_unit() {
    ctk=$(command -v nvidia-ctk)
    root sh -c 'cat >"$1.new" && mv "$1.new" "$1" && systemctl daemon-reload' sh "/etc/systemd/system/$UNIT" <<UNIT_FILE
[Unit]
Description=gpuprov: describes the NVIDIA GPUs for containers (CDI)
After=systemd-modules-load.service nvidia-persistenced.service
Before=docker.service containerd.service
[Service]
Type=oneshot
RemainAfterExit=yes
UMask=0022
ExecStart=$ctk cdi generate --output=$OUT
[Install]
WantedBy=multi-user.target
UNIT_FILE
}
apply() {
    if ! has_cdi; then
        say "$ENGINE $ENGINE_IS has no CDI: its containers get GPUs by the NVIDIA runtime"
        echo '::unchanged'
        return 0
    fi
    say 'describes the GPUs for containers'
    if ! has_systemd; then
        warn "systemd does not run here: run 'nvidia-ctk cdi generate --output=$OUT' after each boot"
        said=$(root nvidia-ctk cdi generate "--output=$OUT" 2>&1) || fail "nvidia-ctk reported: $(printf '%s\n' "$said" | tail -n 1)"
        return 0
    fi
    if shipped; then
        unit=nvidia-cdi-refresh.service
        root systemctl enable --now nvidia-cdi-refresh.path 2>&1 | sed 's/^::/ ::/'
    else
        own_unit || fail "cannot write /etc/systemd/system/$UNIT"
        unit=$UNIT
    fi
    root systemctl enable "$unit" 2>&1 | sed 's/^::/ ::/'
    root systemctl restart "$unit" ||
        fail "nvidia-ctk reported: $(root journalctl -q -u "$unit" -n 20 -o cat --no-pager | grep -v -E '^(Starting|Failed|Stopped)|: (Main|Failed|Deactivated)' | tail -n 1)"
}
verify() {
    has_cdi || return 0
    wrong=$(stale | head -n 1)
    [ -z "$wrong" ] || fail "nvidia-ctk was run, but $wrong: check that the driver works (nvidia-smi)"
    refreshed || fail "the description of the GPUs would not be written at boot: 'systemctl enable' failed"
}

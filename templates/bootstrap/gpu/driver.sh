# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094,SC2086,SC2154
# Installs the driver: PIN and DRIVER, its packages; builds its module for the running kernel and loads it. REPLACE: "yes"
# when a driver that came another way may be removed; STREAM: the dnf module.
smi() { timeout -k 5 60 nvidia-smi -L 2>&1; }
# The driver that is there but is not the wanted one: "550.90.07 of NVIDIA's runfile". Nothing: none, or packages of the
# wanted branch, which are brought up to date.
foreign() {
    now=$(loaded_driver)
    if by_runfile; then
        echo "${now:-a driver} of NVIDIA's runfile"
        return
    fi
    other=$(other_packages | head -n 1)
    [ -z "$other" ] || echo "package $other"
}
UNINSTALL=/usr/bin/nvidia-uninstall
by_runfile() {
    [ -e $UNINSTALL ] || return 1
    if is_apt; then ! dpkg -S $UNINSTALL; else ! rpm -qf $UNINSTALL; fi >/dev/null 2>&1
}
# "NAME VERSION" of packages with a kernel module or a driver library of another branch.
other_packages() {
    # shellcheck disable=SC2016
    if is_apt; then
        dpkg-query -W -f='${db:Status-Status} ${Package} ${Version}\n' 'nvidia-*' 'libnvidia-*' 'cuda-drivers*' 'xserver-xorg-video-nvidia*' 2>/dev/null |
            sed -n 's/^installed //p'
    else
        rpm -qa --qf '%{NAME} %{VERSION}\n' '*nvidia*' 'cuda-drivers*'
    fi | awk -v want="$BRANCH." '
        $1 ~ /container|pinning|modprobe-loader|^nvidia-(settings|xconfig|support|installer-cleanup|kernel-common)$/ { next }
        { v = $2; sub(/^[0-9]+:/, "", v) }
        v ~ /^[0-9][0-9][0-9]\.[0-9]+/ && index(v, want) != 1 { print }'
}
probe() {
    set -f
    if driver_fits && smi >/dev/null; then return 0; fi
    there=$(foreign)
    if [ -n "$there" ] && [ "$REPLACE" != yes ]; then
        fail "$there is installed, and the spec wants driver $BRANCH: write bootstrap.driver: {replace: true} to remove" \
            "it, or driver: none to leave it alone"
    fi
    may_install $DRIVER
    return 10
}
remove_foreign() {
    if by_runfile; then
        say "removes the driver of NVIDIA's runfile"
        unload
        root $UNINSTALL --silent >uninstall.log 2>&1
        if [ -e $UNINSTALL ]; then
            fail "nvidia-uninstall left the driver of NVIDIA's runfile installed: $(grep . uninstall.log | tail -n 1 | cut -c1-200)"
        fi
    fi
    names=$(other_packages | cut -d' ' -f1 | tr '\n' ' ')
    [ -n "$names" ] || return 0
    say "removes $names"
    unload
    if is_apt; then
        apt purge --allow-change-held-packages $names || said apt-get '^E: '
        apt autoremove --purge || said apt-get '^E: '
    else
        run_dnf remove $names || dnf_said
    fi
    left=$(other_packages)
    [ -z "$left" ] || fail "the package manager left $(printf '%s\n' "$left" | head -n 1) installed"
}
# Removes the loaded modules; status 1: they are in use.
unload() {
    for service in nvidia-persistenced nvidia-fabricmanager nvidia-imex nvidia-dcgm; do
        [ ! -d /run/systemd/system ] || root systemctl stop $service >/dev/null 2>&1
    done
    [ -d /run/systemd/system ] || root sh -c 'kill $(pidof nvidia-persistenced) 2>/dev/null'
    for m in nvidia_drm nvidia_modeset nvidia_uvm nvidia_peermem gdrdrv nvidia nvidia_current nvidia_current_open; do
        if is_loaded $m; then root modprobe -r $m >/dev/null 2>&1 || root rmmod $m >/dev/null 2>&1; fi
    done
    [ -z "$(loaded_driver)" ]
}
# The compiler that the kernel was built with: "gcc-12". Its makefiles call it for modules too.
kernel_compiler() {
    sed -n 's/^CONFIG_CC_VERSION_TEXT="\{0,1\}\([^ "]*\).*/\1/p' "/lib/modules/$kernel/build/.config" \
        "/lib/modules/$kernel/build/include/config/auto.conf" 2>/dev/null | head -n 1 | sed 's/^.*-gnu-//'
}
# Why there is no module for this kernel, from what is on the node.
why_not_built() {
    [ -e "/lib/modules/$kernel/build/Makefile" ] ||
        fail "no module was built for the running kernel $kernel: its headers are not installed"
    full=$(full_disks /var/lib/dkms /var /tmp /usr / | head -n 1)
    make_log=$(find /var/lib/dkms -name make.log -newer "$PWD/began" 2>/dev/null | head -n 1)
    if [ -n "$full" ] || grep -q 'No space left on device' dkms.log "$log" ${make_log:+"$make_log"} 2>/dev/null; then
        fail "no module was built for the running kernel $kernel: the disk is full (${full:-/var})"
    fi
    command -v gcc >/dev/null 2>&1 || command -v cc >/dev/null 2>&1 ||
        fail "no module was built for the running kernel $kernel: the node has no C compiler: install gcc"
    if ! is_apt && ! dkms_has "$ours"; then
        script=$(failed_script)
        [ -n "$script" ] || script="run 'dnf reinstall $(rpm -q --whatprovides --qf '%{NAME}' nvidia-kmod)'"
        fail "no module was built for the running kernel $kernel: dkms does not have its source: $script"
    fi
    cc=$(kernel_compiler)
    if [ -n "$cc" ] && ! command -v "$cc" >/dev/null 2>&1 &&
        grep -q -e "$cc: .*not found" -e 'Failed CC [a-z]* check' "$make_log" 2>/dev/null; then
        fail "no module was built for the running kernel $kernel: it was built with $cc, which the node does not have: install $cc"
    fi
    if grep -q 'BUILD_EXCLUSIVE directive which does not match' dkms.log "$log" 2>/dev/null; then
        rule=$(set +f; grep -h '^BUILD_EXCLUSIVE_' /usr/src/nvidia-*"${ours:-}"/dkms.conf 2>/dev/null | tr -s '\n ' ' ' | sed 's/ $//')
        fail "no module was built for the running kernel $kernel: driver ${ours:-$BRANCH} does not support it${rule:+ ($rule)}: choose an" \
            "image with another kernel, or another driver branch"
    fi
    why=$(grep -hiE 'error:|not found|\*\*\* ' ${make_log:+"$make_log"} dkms.log 2>/dev/null | grep -v '^Error! ' | head -n 1 | cut -c1-240)
    [ -n "$why" ] || why=$(grep -h '^Error!' dkms.log | head -n 1 | cut -c1-240)
    fail "no module was built for the running kernel $kernel: ${why:-dkms gave no reason}${make_log:+; $make_log has the output}"
}
# What the package manager would install now, before it does: a pin may have had no effect.
offered() {
    is_apt || return 0
    offer=$(apt-cache policy "$(first_of $DRIVER)" 2>/dev/null | sed -n 's/^  Candidate: //p' | sed 's/^[0-9]*://; s/-.*//')
    [ -n "$offer" ] && [ "$offer" != '(none)' ] || return 0 # apt-get gives the reason
    version_fits "$offer" ||
        fail "the repositories offer $(first_of $DRIVER) $offer, and the spec wants driver ${EXACT:-$BRANCH}${MINIMUM:+ of at least $MINIMUM}"
}
# NVIDIA's rpm packages call it nvidia or, with open modules, nvidia-open. dkms 2 prints "nvidia, 535.54.03: added".
dkms_has() { dkms status 2>/dev/null | grep -q "^nvidia[a-z-]*[/,] *$1[,:]"; }
dkms_add() (
    set +f
    for source in /usr/src/nvidia*-"$1"; do
        [ -e "$source/dkms.conf" ] || continue
        name=${source##*/}
        root dkms add -m "${name%-"$1"}" -v "$1"
    done >dkms.log 2>&1
)
# dnf reports success when a script of a package failed.
failed_script() {
    name=$(sed -n 's/.*Error in [^ ]* scriptlet in rpm package \([^ ]*\).*/\1/p' "$log" | head -n 1)
    [ -z "$name" ] || printf 'a script of package %s failed' "$(rpm -q --qf '%{NAME}-%{EPOCHNUM}:%{VERSION}-%{RELEASE}.%{ARCH}' "$name" 2>/dev/null || echo "$name")"
}
# dnf has no pins: sets package, the newest version that the spec accepts.
choose() {
    name=$(first_of $DRIVER)
    for lists in kept new; do
        [ $lists = kept ] || dnf_refresh
        for row in $(versions_of "$name"); do
            version=${row#*:}
            version_fits "${version%%-*}" || continue
            package=$name=$row
            return
        done
    done
    fail "the repositories have no $name that is driver ${EXACT:-$BRANCH}${MINIMUM:+ of at least $MINIMUM}: check driver.branch"
}
# On RHEL and its clones dkms comes from EPEL.
need_dkms() {
    if installed dkms || [ -n "$(versions_of dkms)" ]; then return 0; fi
    epel="epel-release"
    [ ! -e /etc/oracle-release ] || epel=oracle-epel-release-el$(sed -n 's/^VERSION_ID="*\([0-9]*\).*/\1/p' /etc/os-release)
    [ -n "$(versions_of "$epel")" ] ||
        fail "no repository of this node has dkms, which builds the driver's module, or $epel: add the repository EPEL to the image"
    say "adds the repository EPEL, which has dkms"
    install_packages "$epel"
}
# The package manager failed. When the module cannot be built, dkms has the reason. A daemon may have failed that its
# package starts before the driver is loaded (nvidia-persistenced): the driver is judged for itself.
after_failure() {
    cp "$log" dkms.log
    if grep -q 'dkms.*\(exit status\|bad return\)\|Bad return status' dkms.log; then why_not_built; fi
    [ -z "$(missing $DRIVER)" ] || fail "$(cat manager.failed)"
    warn "$(half_configured)$(cat manager.failed)"
}
half_configured() {
    # shellcheck disable=SC2016
    ! is_apt || dpkg-query -W -f='${db:Status-Status} ${Package}\n' 2>/dev/null | sed -n 's/^half-configured \(.*\)/\1 is not configured; /p' | tr -d '\n'
}
install_driver() {
    if is_apt; then
        [ -z "$PIN" ] || install_packages $PIN
        offered
        set -- $DRIVER
    else
        if [ -n "$STREAM" ]; then
            run_dnf module reset nvidia-driver && run_dnf module enable "nvidia-driver:$STREAM" || dnf_said
        fi
        choose
        need_dkms
        set -- "$package"
    fi
    (
        fail() {
            printf '%s\n' "$*" >manager.failed
            exit 1
        }
        install_packages "$@"
    ) || after_failure
    is_apt || [ -z "$(failed_script)" ] || warn "$(failed_script), and dnf reported success"
}
build() {
    ours=$(package_version "$(first_of $DRIVER)")
    [ -n "$ours" ] || fail "no package of $DRIVER is installed"
    [ "$(built_for "$kernel")" != "$ours" ] || return 0
    say "builds the module for kernel $kernel"
    # a script of the package that failed or was cut; rpm does not run it again
    if ! is_apt && ! dkms_has "$ours"; then dkms_add "$ours"; fi
    root dkms autoinstall -k "$kernel" >>dkms.log 2>&1
    [ "$(built_for "$kernel")" = "$ours" ] || why_not_built
}
load() {
    now=$(loaded_driver)
    [ "$now" != "$ours" ] || return 0
    if [ -n "$now" ] && ! unload; then restart_node "driver $now is loaded and in use, and $ours is installed"; fi
    say "loads driver $ours"
    root modprobe "$(module_for "$kernel")" >modprobe.log 2>&1 && return 0
    why=$(grep . modprobe.log | head -n 1 | cut -c1-200)
    case $why in
    *'Key was rejected'* | *'Required key not available'*)
        fail "the kernel refuses the driver's module (${why##*: }): Secure Boot is enabled and its key is not enrolled; switch" \
            "Secure Boot off for this node, or choose an image with a signed driver" ;;
    *'No such device'*)
        fail "the driver's module finds no GPU that it supports (${why##*: }): check that the node has an NVIDIA GPU that" \
            "driver $BRANCH with $FLAVOUR modules supports" ;;
    esac
    if is_loaded nouveau; then fail "the driver's module cannot be loaded, because nouveau has the GPU: $why"; fi
    fail "the driver's module cannot be loaded: $why"
}
apply() {
    set -f
    packages_begin
    kernel=$(uname -r)
    : >"$PWD/began"
    # from now on its libraries are wanted too, also by a run after a cut
    root sh -c 'mkdir -p /etc/gpuprov && : >/etc/gpuprov/driver' || fail 'cannot write /etc/gpuprov/driver: check the disk'
    : >"$log"
    : >dkms.log
    release_holds
    remove_foreign
    if [ -n "$(missing $PIN $DRIVER)" ] || ! version_fits "$(package_version "$(first_of $DRIVER)")"; then
        install_driver
        version_fits "$(package_version "$(first_of $DRIVER)")" ||
            fail "the package manager installed $(first_of $DRIVER) $(package_version "$(first_of $DRIVER)"), and the spec wants driver ${EXACT:-$BRANCH}"
    fi
    build
    mark_ours
    load
}
verify() {
    ours=$(built_for "$(uname -r)") || fail "no module of the driver is installed for the running kernel $(uname -r)"
    now=$(loaded_driver)
    [ "$now" = "$ours" ] || fail "driver ${now:-none} is loaded, and $ours is installed"
    driver_fits ||
        fail "driver $now ($(loaded_flavour)) is loaded with libraries of $(library_version), and the spec wants driver ${EXACT:-$BRANCH} ($FLAVOUR)"
    said=$(smi) || fail "driver $now does not work: nvidia-smi reported: $(printf '%s\n' "$said" | grep . | head -n 1)"
}

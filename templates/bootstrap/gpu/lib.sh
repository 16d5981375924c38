# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094,SC2086
# For the steps of the driver and its libraries, behind lib.sh and pkg.sh. BRANCH, MINIMUM, EXACT, FLAVOUR: the wanted
# driver; DRIVER, LIBRARIES: its packages and those on top of it.
PATH=$PATH:/usr/sbin:/sbin
MARK=/etc/gpuprov/driver # exists where gpuprov has installed a driver or its libraries
# The version of the loaded kernel module.
loaded_driver() {
    awk '/^NVRM/ { for (i = 1; i <= NF; i++) if ($i ~ /^[0-9]+\.[0-9.]+$/) { print $i; exit } }' \
        /proc/driver/nvidia/version 2>/dev/null
}
loaded_flavour() {
    if grep -q 'Open Kernel Module' /proc/driver/nvidia/version 2>/dev/null; then echo open; else echo proprietary; fi
}
# The version of the libraries that programs find.
library_version() {
    lib=$(ldconfig -p 2>/dev/null | sed -n 's/.*libnvidia-ml\.so\.1 .*=> //p' | head -n 1)
    lib=$(readlink -f "${lib:-/nonexistent}" 2>/dev/null)
    case $lib in *.so.*.*) printf '%s\n' "${lib##*.so.}" ;; esac
}
at_least() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | head -n 1)" = "$2" ]; }
# Is this version of the driver one that the spec accepts?
version_fits() {
    case $1 in "$BRANCH".*) ;; *) return 1 ;; esac
    [ -z "$EXACT" ] || [ "$1" = "$EXACT" ] || return 1
    [ -z "$MINIMUM" ] || at_least "$1" "$MINIMUM"
}
# Is a driver loaded that the spec accepts, with libraries of its version?
driver_fits() {
    now=$(loaded_driver)
    [ -n "$now" ] && version_fits "$now" || return 1
    [ -z "$FLAVOUR" ] || [ "$(loaded_flavour)" = "$FLAVOUR" ] || return 1
    libs=$(library_version)
    [ -z "$libs" ] || [ "$libs" = "$now" ]
}
# The module's name for a kernel: Debian's own driver has another.
module_for() {
    for name in nvidia nvidia-current nvidia-current-open; do
        if modinfo -k "$1" -F version "$name" >/dev/null 2>&1; then
            echo $name
            return 0
        fi
    done
    return 1
}
# The version of the module that is installed for a kernel.
built_for() {
    name=$(module_for "$1") && modinfo -k "$1" -F version "$name" 2>/dev/null
}
is_loaded() { grep -q "^$1 " /proc/modules 2>/dev/null; }
# The upstream version of an installed package: "580.65.06" of "1:580.65.06-0ubuntu1".
package_version() {
    # shellcheck disable=SC2016
    if is_apt; then
        dpkg-query -W -f='${db:Status-Status} ${Version}\n' "${1%%=*}" 2>/dev/null | sed -n 's/^installed //p'
    else
        rpm -q --qf '%{VERSION}\n' "${1%%=*}" 2>/dev/null | grep -v 'not installed'
    fi | head -n 1 | sed 's/^[0-9]*://; s/-.*//'
}
first_of() { printf '%s\n' "$1"; }
# The versions of a package that the repositories have: "580.65.06-1", or with dnf "3:580.65.06-1.el9". As root, because
# dnf keeps other package lists for each user. None while another dnf runs: dnf_refresh waits for that.
versions_of() {
    if is_apt; then
        apt-cache madison "$1" 2>/dev/null | awk -F'|' '{ gsub(/ /, "", $2); print $2 }'
    else
        root "$dnf" -q --setopt=exit_on_lock=1 repoquery --qf '%{epoch}:%{version}-%{release}' "$1" 2>/dev/null | grep . | sort -u -V -r
    fi
}
# dnf keeps package lists for hours or days.
dnf_refresh() {
    say 'updates the package lists'
    run_dnf clean expire-cache && run_dnf makecache || dnf_said
}
# The packages that gpuprov holds at their version, as far as they are installed: a name, or for dnf's plugin
# versionlock "nvidia-open-3:580.65.06-1.el9".
held_names() {
    is_apt || {
        rpm -qa --qf '%{NAME}-%{EPOCHNUM}:%{VERSION}-%{RELEASE}\n' \
            '*nvidia*' 'cuda-*' 'libcudnn*' 'libnccl*' nvlsm 'kernel*' | sort -u
        return
    }
    # shellcheck disable=SC2016
    dpkg-query -W -f='${db:Status-Status} ${Package}\n' 'linux-image-*' 'linux-headers-*' 'linux-modules-*' \
        'nvidia-*' 'libnvidia-*' 'cuda-*' 'libcuda*' 'libcudnn*' 'libnccl*' nvlsm 2>/dev/null |
        sed -n 's/^installed //p' | grep -v -x -e 'cuda-keyring' | sort -u
}
# What versionlock holds. dnf itself would fetch the lists of all repositories first.
locked() {
    set -- /etc/dnf/plugins
    [ -d "$1" ] || set -- /etc/yum/pluginconf.d
    list=$(sed -n 's/^ *locklist *= *//p' "$1/versionlock.conf" 2>/dev/null | tail -n 1)
    sed -n 's/\.\*$//p' "${list:-$1/versionlock.list}" 2>/dev/null
}
versionlock() { root "$dnf" -q --disablerepo='*' versionlock "$@"; }
# Lets this step change them. They are held again at its end, also when it fails: until the step "holds" an unattended
# upgrade could replace them, and some holds may be the user's own.
release_holds() {
    if is_apt; then
        held=$(apt-mark showhold 2>/dev/null | grep -x -F "$(held_names)" | tr '\n' ' ')
    elif [ -e "$MARK" ]; then
        held=$(locked | grep -x -F "$(held_names)" | tr '\n' ' ')
    else
        return 0
    fi
    [ -n "$held" ] || return 0
    trap hold_again EXIT
    trap 'exit 1' HUP INT TERM
    if is_apt; then
        root apt-mark -qq unhold $held >/dev/null 2>&1
    else
        versionlock delete $held >versionlock.log 2>&1 ||
            fail "dnf versionlock cannot release the driver's packages: $(grep . versionlock.log | tail -n 1)"
    fi
    return 0
}
hold_again() {
    set -f
    left=$(printf '%s\n' $held | grep -x -F "$(held_names)" | tr '\n' ' ')
    [ -n "$left" ] || return 0
    if is_apt; then root apt-mark -qq hold $left >/dev/null 2>&1; else versionlock add $left >/dev/null 2>&1; fi ||
        warn "these packages are no longer held: $left"
}
# What the functions of pkg.sh need.
# shellcheck disable=SC2034
packages_begin() {
    log=./manager.log waited=0 dnf=dnf
    : >"$log"
    command -v dnf >/dev/null 2>&1 || dnf=yum
}
mark_ours() {
    root mkdir -p "${MARK%/*}" && root sh -c 'echo "installed by gpuprov" >"$1"' sh "$MARK" ||
        fail "cannot write $MARK: check that the disk has free space"
}
# Starts a service of the driver, now and at each boot; where systemd does not run, its program alone.
service_on() {
    if [ -d /run/systemd/system ]; then
        root systemctl enable "$1" >/dev/null 2>&1
        root systemctl restart "$1" >service.log 2>&1 ||
            fail "service $1 does not start: $(systemctl status "$1" 2>&1 | grep -v '^ *\(Loaded\|Docs\|Tasks\|CPU\|Memory\)' | tail -n 1 | cut -c1-200)"
    else
        shift
        root "$@" >service.log 2>&1 || fail "$1 does not start: $(grep . service.log | tail -n 1 | cut -c1-200)"
    fi
}
program_runs() { (set +f && cat /proc/[0-9]*/comm) 2>/dev/null | grep -q -x -F "$(printf %.15s "$1")"; }
service_runs() {
    if [ -d /run/systemd/system ]; then
        systemctl is-active -q "$1" && systemctl is-enabled -q "$1" 2>/dev/null
    else
        program_runs "$2"
    fi
}
# " (WORDS)": the last line that a service printed, where systemd keeps it.
service_said() {
    [ -d /run/systemd/system ] || return 0
    line=$(root journalctl -q -n 1 -o cat "_SYSTEMD_UNIT=$1.service" 2>/dev/null | tail -n 1 | cut -c1-200)
    printf '%s' "${line:+ ($line)}"
}
# A daemon may take a moment to be there, and one that cannot work ends a moment after its start.
comes() {
    tries=50
    until "$@"; do
        [ $tries -gt 0 ] || return 1
        sleep 0.2
        tries=$((tries - 1))
    done
    sleep 1
    "$@"
}
service_comes() { comes service_runs "$@"; }

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094,SC3045
# Sets limits of logins (pam_limits) and services (systemd). MEMLOCK: "", "unlimited" or KiB; NOFILE: 0 or open files;
# HUGEPAGES: 0 or pages. The program runs in_login in a new login afterwards.
LOGINS=/etc/security/limits.d/99-gpuprov.conf
SERVICES=/etc/systemd/system.conf.d/99-gpuprov.conf
KERNEL=/etc/sysctl.d/99-gpuprov-limits.conf
pages() { cat /proc/sys/vm/nr_hugepages 2>/dev/null; }
most_files() { cat /proc/sys/fs/nr_open 2>/dev/null || echo 0; }
# "*" does not include root
logins_text() {
    echo '# made by gpuprov'
    for who in '*' root; do
        [ -z "$MEMLOCK" ] || printf '%s - memlock %s\n' "$who" "$MEMLOCK"
        [ "$NOFILE" = 0 ] || printf '%s - nofile %s\n' "$who" "$NOFILE"
    done
}
services_text() {
    echo '# made by gpuprov'
    echo '[Manager]'
    case $MEMLOCK in
    '') ;;
    unlimited) echo 'DefaultLimitMEMLOCK=infinity' ;;
    *) echo "DefaultLimitMEMLOCK=${MEMLOCK}K" ;;
    esac
    [ "$NOFILE" = 0 ] || echo "DefaultLimitNOFILE=$NOFILE"
}
kernel_text() {
    echo '# made by gpuprov'
    # the kernel refuses more open files than this, and pam_limits then refuses logins
    if [ "$NOFILE" -gt 1048576 ]; then echo "fs.nr_open = $NOFILE"; fi
    [ "$HUGEPAGES" = 0 ] || echo "vm.nr_hugepages = $HUGEPAGES"
}
wants_services() { [ "$(services_text | wc -l)" -gt 2 ]; }
wants_kernel() { [ "$(kernel_text | wc -l)" -gt 1 ]; }
files_hold() {
    if wants_services; then
        file_is "$LOGINS" 644 "$(logins_text)" && file_is "$SERVICES" 644 "$(services_text)" || return 1
    fi
    ! wants_kernel || file_is "$KERNEL" 644 "$(kernel_text)"
}
kernel_holds() {
    [ "$(most_files)" -ge "$NOFILE" ] &&
        { [ "$HUGEPAGES" = 0 ] || { p=$(pages) && [ "${p:-0}" -ge "$HUGEPAGES" ]; }; }
}
services_hold() {
    systemd_runs && wants_services || return 0
    shown=$(systemctl show -p DefaultLimitMEMLOCK -p DefaultLimitNOFILE 2>/dev/null)
    case $MEMLOCK in
    '') ;;
    unlimited) printf '%s\n' "$shown" | grep -qx 'DefaultLimitMEMLOCK=infinity' || return 1 ;;
    *) printf '%s\n' "$shown" | grep -qx "DefaultLimitMEMLOCK=$((MEMLOCK * 1024))" || return 1 ;;
    esac
    [ "$NOFILE" = 0 ] || printf '%s\n' "$shown" | grep -qx "DefaultLimitNOFILE=$NOFILE"
}
# at_least HAVE WANT
at_least() { [ "$1" = unlimited ] || { [ "$2" != unlimited ] && [ "$1" -ge "$2" ]; }; }
login_holds() {
    { [ -z "$MEMLOCK" ] || at_least "$(ulimit -l)" "$MEMLOCK"; } &&
        { [ "$NOFILE" = 0 ] || at_least "$(ulimit -n)" "$NOFILE"; }
}
# Huge pages are memory that no program gets otherwise. A node without the rest does not answer any more, also after a
# reboot. Prints what the pages need and what there is.
too_many_pages() {
    awk -v pages="$HUGEPAGES" '/^MemTotal:/ { all = $2 } /^Hugepagesize:/ { page = $2 }
        END {
            if (pages * page <= all * 0.95 - 1048576) exit 1
            printf "%d huge pages of %d MiB need %.1f GiB, and this node has %.1f GiB", pages, page / 1024,
                pages * page / 1048576, all / 1048576
        }' /proc/meminfo
}
probe() {
    if files_hold && kernel_holds && services_hold && login_holds; then return 0; fi
    if [ "$HUGEPAGES" != 0 ] && said=$(too_many_pages); then
        fail "$said, of which it needs 1 GiB and 5 % itself: ask for fewer"
    fi
    need_root 'limits'
    return 10
}
# try_limit OPTION VALUE KEY UNIT. A limit that the kernel refuses would make pam_limits refuse every login.
try_limit() {
    # shellcheck disable=SC2016
    said=$(root sh -c 'ulimit "$1" "$2"' sh "$1" "$2" 2>&1) ||
        fail "this machine does not allow $3 $2$4: ${said##*ulimit: }; set a smaller bootstrap.limits.$3"
}
try_limits() {
    case $MEMLOCK in
    '') ;;
    unlimited) try_limit -l unlimited memlock '' ;;
    *) try_limit -l "$MEMLOCK" memlock ' KiB' ;;
    esac
    [ "$NOFILE" = 0 ] || try_limit -n "$NOFILE" nofile ''
}
apply() {
    if wants_kernel; then
        write_file "$KERNEL" 644 "$(kernel_text)"
    fi
    if [ "$(most_files)" -lt "$NOFILE" ]; then
        said=$(printf '%s\n' "$NOFILE" | root sh -c 'cat >/proc/sys/fs/nr_open' 2>&1) ||
            fail "the kernel allows $(most_files) open files, and fs.nr_open cannot be raised: ${said##*: }"
    fi
    if [ "$HUGEPAGES" != 0 ] && [ "$(pages)" -lt "$HUGEPAGES" ]; then
        said=$(printf '%s\n' "$HUGEPAGES" | root sh -c 'cat >/proc/sys/vm/nr_hugepages' 2>&1) ||
            fail "vm.nr_hugepages cannot be set: ${said##*: }"
    fi
    wants_services || return 0
    try_limits
    write_file "$LOGINS" 644 "$(logins_text)"
    write_file "$SERVICES" 644 "$(services_text)"
    services_hold || root systemctl daemon-reexec || fail 'systemctl daemon-reexec failed'
}
verify() {
    files_hold || fail "$LOGINS, $SERVICES or $KERNEL was changed by another program"
    if [ "$HUGEPAGES" != 0 ]; then
        p=$(pages)
        [ "${p:-0}" -ge "$HUGEPAGES" ] ||
            fail "the kernel reserved ${p:-0} of $HUGEPAGES huge pages: its memory is too small or fragmented; \
ask for fewer, or reboot the node"
    fi
    [ "$(most_files)" -ge "$NOFILE" ] || fail "the kernel allows $(most_files) open files (fs.nr_open), not $NOFILE"
    services_hold || fail "systemd does not use $SERVICES: another file in /etc/systemd/system.conf.d overrides it"
}
in_login() {
    login_holds && return 0
    have="memlock $(ulimit -l) KiB, nofile $(ulimit -n)"
    if ! grep -qs '^[^#]*pam_limits' /etc/pam.d/sshd /etc/pam.d/*-auth /etc/pam.d/common-session; then
        fail "a new login has $have: /etc/pam.d/sshd does not use pam_limits; add 'session required pam_limits.so'"
    fi
    fail "a new login has $have: another line in /etc/security/limits.conf or limits.d wins, or sshd has 'UsePAM no'"
}

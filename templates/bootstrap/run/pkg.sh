# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# Packages, for the steps that install some. BUDGET: the most seconds to wait for locks; REFUSAL: "" or the reason why
# nothing may be installed on this node.
# An rpm system may have apt-get or dpkg too, but then dpkg has no packages.
is_apt() { command -v apt-get >/dev/null 2>&1 && [ -s /var/lib/dpkg/status ]; }
installed() {
    want=${1%%=*} version=
    case $1 in *=*) version=${1#*=} ;; esac
    if is_apt; then
        # shellcheck disable=SC2016
        have=$(dpkg-query -W -f='${db:Status-Status} ${Version}\n' "$want" 2>/dev/null | grep '^installed ')
        if [ -n "$have" ]; then
            [ -z "$version" ] || [ "${have#installed }" = "$version" ]
            return
        fi
        # a virtual name
        # shellcheck disable=SC2016
        dpkg-query -W -f='${db:Status-Status} ${Provides},\n' 2>/dev/null |
            sed -n 's/^installed //p' | tr -d ' ' | tr ',' '\n' | sed 's/(.*//' | grep -qxF "$want"
    elif [ -n "$version" ]; then
        rpm -q "$want-${version#*:}" >/dev/null 2>&1
    else
        rpm -q "$want" >/dev/null 2>&1 || rpm -q --whatprovides "$want" >/dev/null 2>&1
    fi
}
# Those of the given packages (NAME or NAME=VERSION) that are not installed.
missing() {
    set -f
    for p in "$@"; do
        installed "$p" || printf ' %s' "$p"
    done
}
# May this user install these packages?
may_install() {
    [ -z "$REFUSAL" ] || fail "$REFUSAL"
    if [ "$(id -u)" != 0 ] && ! sudo -n true 2>/dev/null; then
        fail "user '$(id -un)' may not use sudo without a password here, so$(missing "$@") cannot be installed"
    fi
}
# The newest progress of a package manager's output on stdin, "40 Unpacking htop": the status lines of apt, the counted
# lines of dnf 4, yum 3 and dnf 5.
percent_of() {
    tr '\r' '\n' | LC_ALL=C awk '
        function done(of, what) {
            split(of, n, "/")
            if (n[2] < 1 || n[1] > n[2]) return
            percent = int(n[1] * 100 / n[2])
            text = what
        }
        /^(dl|pm)status:[^:]*:[0-9.]+:/ {
            split($0, part, ":")
            percent = int(part[3])
            text = substr($0, length(part[1] part[2] part[3]) + 4)
        }
        /^\([0-9]+\/[0-9]+\): / { done(substr($1, 2, length($1) - 3), "downloads " $2) }
        /^ +[A-Z][a-z ]* *: .* [0-9]+\/[0-9]+ *$/ {
            rest = $0
            sub(/^[^:]*: */, "", rest)
            sub(/ .*/, "", rest)
            done($NF, tolower($1) " " rest)
        }
        /^\[ *[0-9]+\/[0-9]+\] / {
            line = $0
            gsub(/^\[ */, "", line)
            of = line
            sub(/\].*/, "", of)
            sub(/^[^ ]* /, "", line)
            sub(/  .*/, "", line)
            done(of, line)
        }
        END { if (text != "" && percent <= 100) print percent, text }'
}
# Shows the progress in $log while the package manager writes it.
show_percent() {
    shown=
    while sleep 1 >/dev/null 2>&1; do
        now=$(tail -c 8192 "$log" 2>/dev/null | percent_of)
        [ -z "$now" ] || [ "$now" = "$shown" ] || printf '::percent %s\n' "$now"
        shown=$now
    done
}
# Runs the package manager, and repeats it while another process holds its lock. Its output also goes to $log.
# The patterns are messages of apt and dpkg, of dnf 4 and rpm, of dnf 5, and of yum 3.
patiently() {
    while :; do
        : >"$log"
        show_percent &
        shows=$!
        "$@" >"$log" 2>&1
        rc=$?
        kill "$shows" 2>/dev/null
        wait "$shows" 2>/dev/null
        LC_ALL=C sed '/^[dp][lm]status:/d; /^pm\(error\|conffile\):/d' "$log" >"$log.new" && mv "$log.new" "$log"
        sed 's/^::/ ::/' "$log"
        [ $rc -ne 0 ] || return 0
        if ! grep -Eq -e 'Could not get lock|Unable to (acquire|lock)|(is|was) locked by another' \
            -e 'already locked by [0-9]|transaction lock on .*temporarily unavailable' \
            -e 'Failed to obtain rpm transaction lock' -e 'holding the yum lock|another copy is running' "$log"; then
            return $rc
        fi
        who=$(grep -Eo 'held by process [^.]*|already locked by [0-9]+|running as pid [0-9]+|another process with pid [0-9]+' "$log" | head -n 1)
        [ "$waited" -lt "$BUDGET" ] ||
            fail "another package manager held its lock for $waited s${who:+: $who}"
        say "waits for another package manager: ${who:+$who }($waited s)"
        sleep 2
        waited=$((waited + 2))
    done
}
# The status lines have a descriptor of their own (sudo leaves none open, so it is opened behind it): dpkg closes it for
# the packages' scripts, which with 1 would have no stdout.
apt() {
    # shellcheck disable=SC2016
    set -- env DEBIAN_FRONTEND=noninteractive NEEDRESTART_MODE=a APT_LISTCHANGES_FRONTEND=none LC_ALL=C \
        sh -c 'exec "$@" 3>&1' sh apt-get -q -y -o Acquire::Retries=3 -o Acquire::http::Timeout=30 \
        -o Acquire::https::Timeout=30 -o APT::Status-Fd=3 -o Dpkg::Use-Pty=0 -o Dpkg::Options::=--force-confdef \
        -o Dpkg::Options::=--force-confold "$@"
    patiently root "$@"
}
said() {
    full=$(full_disks / /var /usr /boot | head -n 1)
    [ -z "$full" ] || fail "the disk is full ($full)"
    line=$(grep -E "$2" "$log" | head -n 1)
    case $line in
    *'dpkg returned an error code'*) # its own words name the package and the script that failed
        own=$(sed -n '/^dpkg: error processing /{N;s/:\n */: /;p;q;}' "$log")
        [ -z "$own" ] || line=$own
        ;;
    esac
    [ -n "$line" ] || line=$(grep . "$log" | tail -n 1)
    fail "$1 reported: $line${trouble:+ (the update of the package lists reported: $trouble)}"
}
# Repairs an installation that a reboot or power loss interrupted.
apt_repair() {
    [ -n "$(root dpkg --audit 2>/dev/null | head -n 1)" ] || [ -n "$(ls /var/lib/dpkg/updates 2>/dev/null)" ] || return 0
    say 'finishes an interrupted installation'
    patiently root env DEBIAN_FRONTEND=noninteractive LC_ALL=C dpkg --force-confdef --force-confold --configure -a ||
        said 'dpkg --configure -a' '^dpkg: error'
    apt -f install || said apt-get '^E: '
}
apt_update() {
    say 'updates the package lists'
    apt update || said 'apt-get update' '^(E|Err|W): '
    # a repository that does not answer is no failure of apt-get, and its packages are unknown then
    trouble=$(grep -E '^W: (Failed to fetch|GPG error)' "$log" | head -n 1)
}
# Fetches packages from the run's cache, before apt or dnf does: run/cache.sh replaces it in runs with a cache.
from_cache() { :; }
# Do the package lists have everything? The cache must know; apt itself tells when it installs.
lists_suffice() { :; }
# What apt-get reports where newer package lists may help. Nothing is installed then.
OLD_LISTS='404|Failed to fetch|Unable to (locate|fetch)|has no installation candidate|was not found|unmet dependencies'
with_apt() {
    apt_repair
    fresh=
    if ! lists_suffice "$@"; then
        apt_update
        fresh=yes
    fi
    from_cache "$@"
    say "installs$(missing "$@")"
    if ! apt install "$@"; then
        if [ -n "$fresh" ] || ! grep -Eq "$OLD_LISTS" "$log"; then said apt-get '^E: '; fi
        apt_update
        from_cache "$@"
        apt install "$@" || said apt-get '^E: '
    fi
}
# Without exit_on_lock dnf waits for a lock for ever and prints nothing.
run_dnf() {
    patiently root env LC_ALL=C PYTHONUNBUFFERED=1 "$dnf" -y --setopt=exit_on_lock=1 "$@"
}
# The reason why dnf failed, on one line: its error, the lines that belong to it, and the failed download.
dnf_said() {
    awk '
        !why && match($0, /(Curl error|Status code|HTTP Error).*/) {
            why = substr($0, RSTART)
            sub(/ \[.*/, "", why)
        }
        /^Error: Failed to download metadata/ && !repo { repo = $0 }
        /^Error(s during downloading|: Failed to download metadata)/ { more = 0; next }
        !head && /^(Error|Failed to|Transaction failed|No package .* available)/ {
            head = $0
            more = 3
            next
        }
        more-- > 0 && (/^ / || head ~ /: *$/) {
            sub(/ *$/, "", head)
            sub(/^ */, "")
            head = head " " $0
            next
        }
        { more = 0 }
        END {
            if (!head) head = repo
            if (head) print head (why ? " (" why ")" : "")
        }' "$log" >manager.said
    [ ! -s manager.said ] || mv manager.said "$log"
    said "$dnf" '^Error'
}
with_dnf() {
    dnf=dnf
    command -v dnf >/dev/null 2>&1 || dnf=yum
    command -v "$dnf" >/dev/null 2>&1 || fail 'this system has neither apt-get nor dnf nor yum'
    set -f
    say "installs$(missing "$@")"
    # name=version is name-version here
    # shellcheck disable=SC2046
    set -- $(printf '%s\n' "$*" | tr '=' '-')
    from_cache "$@"
    run_dnf install "$@" && return
    # the image's package list may be old
    grep -Eq 'Status code: 404|No match for argument|No package .* available|nothing provides' "$log" || dnf_said
    say 'updates the package lists'
    run_dnf clean expire-cache || dnf_said
    from_cache "$@"
    run_dnf install "$@" || dnf_said
}
# Installs packages (NAME or NAME=VERSION), or fails. Its status says nothing about what they do on this node: look.
install_packages() {
    log=./manager.log waited=0 trouble=''
    if is_apt; then with_apt "$@"; else with_dnf "$@"; fi
    left=$(missing "$@")
    [ -z "$left" ] || fail "the package manager reported success, but$left is not installed"
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2034,SC2094,SC2154
# pip in VENV, for the steps that install with it. INDEX: URL or ""; AUTH: name of the secret with USER:PASSWORD, or
# "". No secret of the environment reaches a package's own setup program.
# A password is in a file of this user alone, not in an argument or the environment: pip hands its index on to the
# processes that build packages.
pip_credentials() {
    [ -n "$AUTH" ] || return 0
    eval "login=\${GPUPROV_SECRET_$AUTH-}"
    case $login in
    ?*:?*) ;;
    *) fail "the secret $AUTH is not USER:PASSWORD" ;;
    esac
    login_user=${login%%:*} login_password=${login#*:}
    case $login in *[[:space:]\"\\]*) fail "the secret $AUTH has a blank, a quote or a backslash, which a netrc file cannot hold" ;; esac
    netrc_dir=$(
        umask 077
        mktemp -d /dev/shm/gpuprov.XXXXXX 2>/dev/null || mktemp -d
    ) || fail 'cannot make a folder for the credentials'
    trap 'rm -rf "$netrc_dir"' EXIT
    trap 'exit 129' HUP INT TERM
    for url in "$@"; do
        [ -n "$url" ] || continue
        at=${url#*://}
        at=${at%%/*}
        (umask 077 && printf 'machine %s login %s password %s\n' "${at%:*}" "$login_user" "$login_password" >>"$netrc_dir/netrc") ||
            fail 'cannot write the credentials: the disk is full'
    done
    NETRC=$netrc_dir/netrc
    export NETRC
}
pip_forget() {
    for s in $GPUPROV_SECRETS; do unset "GPUPROV_SECRET_$s"; done
    unset login login_user login_password
}
# "--trusted-host HOST:PORT" for each http URL: pip ignores such an index without it. Never for https: it would switch
# off the check of the certificate.
pip_trust() {
    for url in "$@"; do
        case $url in http://*) at=${url#http://} && printf -- '--trusted-host %s ' "${at%%/*}" ;; esac
    done
}
# The reason of a failure, from pip's output.
pip_reason() {
    LC_ALL=C awk -v index_url="$1" '
        { sub(/\r$/, "") }
        /Retrying \(Retry/ && match($0, /after connection broken by .*/) {
            cut = substr($0, RSTART + 27)
            sub(/: \/[^:]*$/, "", cut)
            gsub(/<[^>]*>[,:]? */, "", cut)
            sub(/^\047?[A-Za-z]+[(]\047?/, "", cut)
            sub(/[\047)]+$/, "", cut)
            broken = cut
        }
        /WARNING: 40[13] Error|40[13] Client Error/ { refused = $0; sub(/^ *WARNING: /, "", refused); sub(/^ERROR: /, "", refused) }
        /DO NOT MATCH THE HASHES/ { hash = 1 }
        hash == 1 && /^ +[^ ].*:$/ { bad = $0; gsub(/^ +|:$/, "", bad); hash = 2 }
        /No space left on device/ { full = 1 }
        /^ERROR: Could not find a version that satisfies the requirement/ { none = $0 }
        /^ERROR: Cannot install|ResolutionImpossible/ && !clash { clash = $0 }
        /^ERROR: / { error = $0 }
        /^ *[A-Za-z]*Error: / { raised = $0 }
        { if ($0 ~ /[^ ]/) last = $0 }
        END {
            if (full) print "the disk is full"
            else if (hash) print "a file of " (bad ? bad : "a package") " has another hash than requirements states: check the file and the index"
            else if (refused) print refused ": check the secret of bootstrap.python.index_auth"
            else if (none && broken) print "cannot reach " index_url ": " broken "; check the node\047s network and bootstrap.python.index"
            else if (none) { sub(/^ERROR: /, "", none); print none }
            else if (broken && error ~ /Max retries|Could not install/) print "cannot reach " index_url ": " broken "; check the node\047s network and bootstrap.python.index"
            else if (clash) { sub(/^ERROR: /, "", clash); print clash }
            else if (error) { sub(/^ERROR: /, "", error); print error }
            else print raised ? raised : last
        }' pip.log | tr -d '\000-\010\013-\037' | cut -c1-400
}
# pip reports an index that refuses a login as one without the package. Asks it again; prints "401" or "403", or nothing.
pip_refusal() {
    grep -q 'from versions: none' pip.log || return 0
    name=$(sed -n 's/^ERROR: Could not find a version that satisfies the requirement \([A-Za-z0-9._-]*\).*/\1/p' pip.log | head -n 1)
    AT="${1%/}/$name/" timeout -k 5 60 "$vpython" -I - 2>/dev/null <<'PY'
import base64, netrc, os, urllib.error, urllib.parse, urllib.request

at = os.environ["AT"]
ask = urllib.request.Request(at)
login = netrc.netrc(os.environ["NETRC"]).authenticators(urllib.parse.urlsplit(at).hostname) if "NETRC" in os.environ else None
if login:
    ask.add_header("Authorization", "Basic " + base64.b64encode(("%s:%s" % (login[0], login[2])).encode()).decode())
try:
    urllib.request.urlopen(ask, timeout=30)
except urllib.error.HTTPError as e:
    if e.code in (401, 403):
        print(e.code)
PY
}
# pip_install NAME_OF_INDEX ARGUMENT...: shows downloads as progress. Fails with pip's own reason.
pip_install() {
    pip_index=$1
    shift
    : >pip.log || fail 'the disk is full'
    {
        # shellcheck disable=SC2046
        timeout -k 10 "$BUDGET" env -u PYTHONPATH -u PIP_TARGET -u PIP_PREFIX -u PIP_ROOT PIP_USER=0 PIP_NO_INPUT=1 \
            PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_COLOR=1 PYTHONUNBUFFERED=1 \
            "$vpython" -I -m pip install --no-input --retries 3 --timeout 30 $(pip_trust "$INDEX" "${TORCH_INDEX-}") "$@" </dev/null 2>&1
        echo $? >pip.rc
    } | while IFS= read -r line; do
        printf '%s\n' "$line" >>pip.log
        case $line in
        '  Downloading '* | Downloading* | 'Installing collected packages'* | *'Building wheel for '*) say "$(printf '%s' "${line#"${line%%[! ]*}"}" | cut -c1-160)" ;;
        ::*) printf ' %s\n' "$line" ;;
        *) printf '%s\n' "$line" ;;
        esac
    done
    read -r rc <pip.rc || rc=1
    [ "$rc" -ne 0 ] || return 0
    [ "$rc" -ne 124 ] || fail "pip did not end within $BUDGET s; its last output: $(grep . pip.log | tail -n 1 | cut -c1-200)"
    full=$(full_disks "$VENV" "${TMPDIR:-/tmp}" | head -n 1)
    [ -z "$full" ] || fail "pip failed: the disk is full ($full)"
    code=$(pip_refusal "$pip_index")
    pip_next='name a secret with USER:PASSWORD in bootstrap.python.index_auth'
    [ -z "$AUTH" ] || pip_next="check the secret $AUTH"
    [ -z "$code" ] || fail "$pip_index answered $code, which is a refusal: $pip_next"
    fail "pip reported: $(pip_reason "$pip_index")"
}
may_write() {
    [ -w "$VENV" ] || fail "$VENV belongs to $(stat -c %U "$VENV"), and '$(id -un)' cannot write there: choose another bootstrap.python.venv, or ask for no packages"
}
# Compares the wish with what is installed in VENV. WISH: lines of requirements. Prints the lines that are not met, each
# with the version that is there; nothing when all are.
unmet() {
    WISH=$1 timeout -k 5 60 "$vpython" -I - <<'PY'
import os, re, sys
from importlib import metadata
from pip._vendor.packaging.requirements import InvalidRequirement, Requirement

plain = lambda name: re.sub(r"[-_.]+", "-", name).lower()
every = {}


def version(name):
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        pass
    if not every:
        for d in metadata.distributions():
            every[plain(d.metadata["Name"] or "")] = d.version
    return every.get(plain(name))


def origin(name):
    text = metadata.distribution(name).read_text("direct_url.json")
    return __import__("json").loads(text).get("url") if text else None


for line in re.sub(r"\\\n", " ", os.environ["WISH"]).splitlines():
    line = re.sub(r"(^|\s)#.*", "", line).strip()
    if not line or line.startswith("-"):
        continue
    line = re.split(r"\s--hash", line)[0].strip()
    try:
        want = Requirement(line)
    except InvalidRequirement:
        print("%s (is not a requirement)" % line)
        continue
    if want.marker and not want.marker.evaluate({"extra": ""}):
        continue
    have = version(want.name)
    if have is None:
        print("%s (is not installed)" % line)
    elif not want.specifier.contains(have, prereleases=True):
        print("%s (%s is installed)" % (line, have))
    elif want.url and origin(want.name) != want.url.split("#")[0] and "$" not in want.url:
        print("%s (%s is installed from elsewhere)" % (line, have))
PY
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094,SC2086,SC2154
# Pulls images. ENGINE; IMAGES: full names with a tag or a digest, separated by blanks; AUTH: the name of the secret with
# the login, or "". The login is written for root alone while images are pulled, and is never an argument.
LOGIN=/run/gpuprov-login
# What an engine prints when the network fails; only then a pull is repeated.
BROKEN='connection (refused|reset)|no such host|i/o timeout|no route to host|network is unreachable|deadline exceeded'
BROKEN="$BROKEN|TLS handshake timeout|temporary failure|unexpected EOF|server misbehaving"
# The digest of an image that is there, by its name; nothing: it is not there.
digest_of() {
    case $ENGINE in
    docker) asked docker image inspect -f '{{range .RepoDigests}}{{println .}}{{end}}' "$1" ;;
    podman) asked podman image inspect -f '{{range .RepoDigests}}{{println .}}{{end}}' "$1" ;;
    containerd) asked ctr images ls "name==$1" | awk 'NR > 1 { print "@" $3 }' ;;
    esac | sed -n 's/.*@\(sha256:[0-9a-f]\{64\}\).*/\1/p' | {
        case $1 in *@*) grep -x "${1#*@}" ;; *) cat ;; esac
    } | head -n 1
}
# ctr also lists an image of which it has only a part.
whole() {
    case $ENGINE in
    containerd) asked ctr images check "name==$1" | awk 'NR > 1 && $4 == "complete" { ok = 1 } END { exit !ok }' ;;
    esac
}
present() { [ -n "$(digest_of "$1")" ] && whole "$1"; }
registry_of() { printf '%s\n' "${1%%/*}"; }
registries() { for image in $IMAGES; do registry_of "$image"; done | sort -u; }
probe() {
    if [ -n "$AUTH" ]; then
        eval "login=\$GPUPROV_SECRET_$AUTH"
        case $login in
        '{'*)
            case $login in *'"auths"'*) ;; *) fail "the secret $AUTH is JSON without \"auths\": use a docker config.json, or USER:PASSWORD" ;; esac
            [ "$ENGINE" != containerd ] ||
                fail "containerd takes no docker config.json: write USER:PASSWORD into the secret $AUTH" ;;
        *?:?*)
            [ "$(registries | wc -l)" -le 1 ] ||
                fail "the secret $AUTH is USER:PASSWORD, which is for one registry, but the images are of $(registries | tr '\n' ' ' | sed 's/ $//; s/ / and /g'): use a docker config.json" ;;
        *) fail "the secret $AUTH is not USER:PASSWORD and not a docker config.json" ;;
        esac
    fi
    has_engine || return 10
    for image in $IMAGES; do
        present "$image" || {
            may_be_root "no image can be pulled"
            return 10
        }
    done
}
forget_login() { root rm -rf "$LOGIN"; }
write_login() {
    forget_login
    root sh -c 'umask 077; mkdir "$1" && cat >"$1/config.json"' sh "$LOGIN" || fail "cannot write in /run: $(full_disks /run)"
}
# A folder of its own in every case: a login that someone left on the node must not count.
make_login() {
    [ -n "$AUTH" ] || {
        echo '{}' | write_login
        return
    }
    eval "login=\$GPUPROV_SECRET_$AUTH"
    for name in $GPUPROV_SECRETS; do unset "GPUPROV_SECRET_$name"; done # the engine needs none
    case $login in
    '{'*) printf '%s\n' "$login" | write_login ;;
    *)
        host=$(registries)
        token=$(printf '%s' "$login" | base64 | tr -d '\n')
        [ "$host" != docker.io ] || host='https://index.docker.io/v1/'
        printf '{"auths":{"%s":{"auth":"%s"}}}\n' "$host" "$token" | write_login
        ;;
    esac
}
# containerd's ctr takes a password as an argument, or from a terminal. This is the terminal: it shows no input, and
# the password is written when ctr asks for it. Only the user's name is an argument.
ctr_pull() {
    [ -n "$AUTH" ] || {
        root ctr images pull "$1" </dev/null
        return
    }
    command -v script >/dev/null 2>&1 || fail "containerd needs the program 'script' for a login: install it (bsdutils or util-linux)"
    rm -f answers terminal
    mkfifo -m 0600 answers && : >terminal || fail "cannot write in $PWD"
    # shellcheck disable=SC2016
    root env CTR_USER="${login%%:*}" CTR_IMAGE="$1" script -q -e -E never -c \
        'stty -echo; exec ctr images pull --user "$CTR_USER" "$CTR_IMAGE"' /dev/null <answers >terminal 2>&1 &
    terminal=$!
    exec 3>answers
    until grep -q 'Password' terminal || ! runs $terminal; do sleep 0.1; done
    # ctr may have ended: its reason is in the terminal
    (trap '' PIPE && printf '%s\n' "${login#*:}" 2>/dev/null >&3)
    wait $terminal
    rc=$?
    exec 3>&-
    tr '\r' '\n' <terminal | LC_ALL=C sed "s/$(printf '\033')\[[0-9;]*[A-Za-z]//g"
    return $rc
}
pull() {
    case $ENGINE in
    docker) root env HOME="$LOGIN" DOCKER_CONFIG="$LOGIN" docker pull "$1" </dev/null ;;
    podman) root env HOME="$LOGIN" REGISTRY_AUTH_FILE="$LOGIN/config.json" podman pull "$1" </dev/null ;;
    containerd) ctr_pull "$1" ;;
    esac
}
# The reason of a pull that failed, in one line.
pull_failed() {
    at=$(registry_of "$1")
    line=$(grep -v '^ *$' pull.log | grep -i -E 'error|unauthorized|denied|unknown|refused|no space|timeout|fail' | tail -n 1 |
        sed 's/^\(Error:\|Error response from daemon:\|ctr:\) *//' | cut -c1-300)
    [ -n "$line" ] || line=$(grep . pull.log | tail -n 1 | cut -c1-300)
    if grep -q -i 'no space left on device' pull.log; then
        full=$(full_disks / /var /var/lib /var/lib/docker /var/lib/containers /var/lib/containerd /tmp /var/tmp 2>/dev/null | head -n 1)
        fail "the disk is full${full:+ ($full)}: $1 needs more space"
    elif grep -q -i -E 'unauthorized|authentication required|no basic auth|access (to the resource is )?denied|status:? 40[13]' pull.log; then
        if [ -n "$AUTH" ]; then next="check the secret $AUTH (bootstrap.container.registry_auth)"; else next='add bootstrap.container.registry_auth'; fi
        fail "the registry $at refuses $1: $line; $next"
    elif grep -q -i -E 'manifest unknown|name unknown|not found' pull.log; then
        fail "the registry $at has no $1: $line; correct bootstrap.container.images"
    elif grep -q -i -E "$BROKEN|certificate" pull.log; then
        fail "the registry $at cannot be reached: $line; check the node's network"
    fi
    fail "$ENGINE pull reported: $line"
}
# Prints how far a pull is, and keeps its output.
watch_pull() {
    total=0 ready=0
    while IFS= read -r line; do
        printf '%s\n' "$line" >>pull.log
        case $line in
        *': Pulling fs layer' | *'Copying blob '*) total=$((total + 1)) ;;
        *': Pull complete' | *': Already exists') ready=$((ready + 1)) ;;
        *) continue ;;
        esac
        if [ $ready -gt 0 ]; then say "pulls $1: $ready of $total layers"; else say "pulls $1: $total layers"; fi
    done
}
apply() {
    make_login
    trap forget_login EXIT
    trap 'exit 1' HUP INT TERM
    for image in $IMAGES; do
        ! present "$image" || continue
        for pause in 2 4 0; do
            say "pulls $image"
            rm -f pull.rc
            : >pull.log
            {
                pull "$image"
                echo $? >pull.rc
            } 2>&1 | watch_pull "$image"
            sed 's/^::/ ::/' pull.log
            if [ "$(cat pull.rc 2>/dev/null)" = 0 ]; then break; fi
            [ $pause -gt 0 ] && grep -q -i -E "$BROKEN" pull.log || pull_failed "$image"
            say "the registry $(registry_of "$image") did not answer, tries again in $pause s"
            sleep $pause
        done
    done
}
verify() {
    for image in $IMAGES; do
        have=$(digest_of "$image")
        [ -n "$have" ] || fail "$ENGINE pull reported success, but $image is not there$(case $image in *@*) echo ' with this digest' ;; esac)"
        whole "$image" || fail "$ENGINE has only a part of $image"
        say "$image is $have"
    done
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# A step of the user's own. RUN: its script; CHECK: its check or ""; HASH: of both; MARK: where it is
# noted that a step without a check has run. Secrets are in the environment.
probe() {
    if [ -n "$CHECK" ]; then
        holds "$CHECK" && return 0
    elif [ "$(cat "$NODE_DIR/marks/$MARK" 2>/dev/null)" = "$HASH" ]; then
        return 0
    fi
    return 10
}
apply() {
    # an earlier step may have made this one needless, or an earlier gpuprov's run of it has ended by now
    if probe; then
        echo '::unchanged'
        return 0
    fi
    script=$PWD/script
    printf '%s\n' "$RUN" >"$script" || fail 'the disk is full'
    chmod 0700 "$script"
    cd "$HOME" || fail "no home folder '$HOME'"
    case $RUN in
    '#!'*) "$script" ;;
    *) sh -e "$script" ;;
    esac
    rc=$?
    [ $rc -eq 0 ] || fail "ended with status $rc"
}
verify() {
    if [ -n "$CHECK" ]; then
        holds "$CHECK" || fail "ran, but its check does not hold: $CHECK"
        return 0
    fi
    mkdir -p "$NODE_DIR/marks" && printf '%s\n' "$HASH" >"$NODE_DIR/marks/$MARK.new" &&
        sync "$NODE_DIR/marks/$MARK.new" &&
        mv "$NODE_DIR/marks/$MARK.new" "$NODE_DIR/marks/$MARK" ||
        fail 'ran, but that could not be noted: is the disk full?'
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# Runs a step of the user. RUN: its script; CHECK: its check or ""; HASH: of both; MARK: the file that records that a
# step without a check has run. Only its script and its check get the secrets (with_secrets).
probe() {
    if [ -n "$CHECK" ]; then
        holds "$CHECK" && return 0
    elif [ "$(cat "$NODE_DIR/marks/$MARK" 2>/dev/null)" = "$HASH" ]; then
        return 0
    elif [ "$(cat "/etc/gpuprov/baked/$MARK" 2>/dev/null)" = "$HASH" ]; then
        return 0 # on the node that this node's image was made of
    fi
    return 10
}
apply() {
    # an earlier step, or a run that an earlier gpuprov started, may have done this one by now
    if probe; then
        echo '::unchanged'
        return 0
    fi
    script=$PWD/script
    printf '%s\n' "$RUN" >"$script" || fail 'the disk is full'
    chmod 0700 "$script"
    cd "$HOME" || fail "no home folder '$HOME'"
    case $RUN in
    '#!'*) with_secrets "$script" ;;
    *) with_secrets sh -e "$script" ;;
    esac
    rc=$?
    echo # ends a last line without a newline: the next line is for gpuprov
    [ $rc -ne 75 ] || exit 75 # "::reboot WHY" and this status: see restart_node
    [ $rc -eq 0 ] || fail "ended with status $rc"
}
verify() {
    if [ -n "$CHECK" ]; then
        holds "$CHECK" || fail "ran, but its check still fails: $CHECK"
        return 0
    fi
    mkdir -p "$NODE_DIR/marks" && printf '%s\n' "$HASH" >"$NODE_DIR/marks/$MARK.new" &&
        sync "$NODE_DIR/marks/$MARK.new" &&
        mv "$NODE_DIR/marks/$MARK.new" "$NODE_DIR/marks/$MARK" ||
        fail 'ran, but its mark could not be written: check that the disk has free space'
}

# shellcheck shell=sh
# SPDX-License-Identifier: Apache-2.0
# online.sh: sourced by the scripts that fetch from a distribution or a package index.

# online LOG COMMAND...: COMMAND, whose output goes to the end of LOG. A failure for which the network may be the reason
# is tried again, 5 times within about 4 minutes: a name server that does not answer, a connection that is refused or
# lost, a file that did not come. Prints the end of LOG if it fails for good.
online() {
    online_log=$1
    shift
    for online_wait in 10 20 40 80 80 ''; do
        online_at=$(wc -l <"$online_log")
        "$@" >>"$online_log" 2>&1 && return 0
        [ -n "$online_wait" ] && tail -n "+$((online_at + 1))" "$online_log" | grep -qiE "$online_failures" || break
        echo "online.sh: the network may be the reason: again in $online_wait s" >>"$online_log"
        sleep "$online_wait"
    done
    tail -n 5 "$online_log" >&2
    return 1
}
# apt, debootstrap, pip
online_failures='failed to fetch|unable to fetch|failed getting|couldn.t download|name resolution|failure resolving'
online_failures="$online_failures|could not connect|could not resolve|connection (refused|reset|broken|timed out|failed)"
online_failures="$online_failures|max retries exceeded|read timed out"

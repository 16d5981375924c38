# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Reads the agent's lines with awk alone.

# "CHECK METRIC VALUE UNIT"
figures() {
    awk '/^\{"type":"result"/ {
        check = $0; sub(/^\{"type":"result","check":"/, "", check); sub(/".*/, "", check)
        rest = $0; if (!sub(/.*,"metrics":\[/, "", rest)) next
        sub(/\],"data":.*/, "", rest)
        while (match(rest, /\{"name":"[^"]*","value":[^,}]*,"unit":"[^"]*"/)) {
            one = substr(rest, RSTART, RLENGTH); rest = substr(rest, RSTART + RLENGTH)
            name = one; sub(/^\{"name":"/, "", name); sub(/".*/, "", name)
            value = one; sub(/.*"value":/, "", value); sub(/,.*/, "", value)
            unit = one; sub(/.*"unit":"/, "", unit); sub(/"$/, "", unit)
            print check, name, value, unit
        } }' "$@"
}
# The same of GPU 0 alone, which is the one that other tools measure: "CHECK METRIC VALUE".
first_gpu() {
    awk '/^\{"type":"result"/ {
        check = $0; sub(/^\{"type":"result","check":"/, "", check); sub(/".*/, "", check)
        at = index($0, "\"gpus\":[{\"gpu\":0,"); if (!at) next
        rest = substr($0, at); at = index(rest, "\"metrics\":{"); if (!at) next
        rest = substr(rest, at + 11); sub(/\}.*/, "", rest); n = split(rest, one, ",")
        for (i = 1; i <= n; i++) { split(one[i], part, ":"); gsub(/"/, "", part[1]); print check, part[1], part[2] }
    }' "$1"
}
# all_reduce at each size, of nccl.bandwidth: "BYTES TIME_US BUSBW"
sizes() {
    awk '/"check":"nccl.bandwidth"/ {
        rest = $0
        while (match(rest, /\{"op":"all_reduce"[^}]*\}/)) {
            one = substr(rest, RSTART, RLENGTH); rest = substr(rest, RSTART + RLENGTH)
            b = one; sub(/.*"bytes":/, "", b); sub(/,.*/, "", b)
            t = one; sub(/.*"time_us":/, "", t); sub(/,.*/, "", t)
            w = one; sub(/.*"busbw":/, "", w); sub(/[,}].*/, "", w)
            print b, t, w
        } }' "$1"
}
verdicts() {
    awk '/^\{"type":"result"/ {
        check = $0; sub(/^\{"type":"result","check":"/, "", check); sub(/".*/, "", check)
        m = $0; sub(/^.*,"message":"/, "", m); sub(/","suggestion":.*/, "", m); gsub(/\|/, "/", m)
        ms = $0; sub(/^.*,"took_ms":/, "", ms); sub(/,.*/, "", ms)
        v = substr($0, index($0, "\"verdict\":\"") + 11); sub(/".*/, "", v)
        printf "| %s | %s | %.1f | %s |\n", check, v, ms / 1000, m }' "$1"
}
first_text() { # member FILE: the first string member of that name in the inventory
    awk -v key="\"$1\":\"" '/"check":"gpu.presence"/ {
        data = substr($0, index($0, "\"data\":{")); at = index(data, key)
        if (at) { data = substr(data, at + length(key)); sub(/".*/, "", data); print data; exit } }' "$2"
}
number_of() { # CHECK MEMBER FILE: the first number of that name in the data of a check
    awk -v check="\"check\":\"$1\"" -v key="\"$2\":" 'index($0, check) {
        data = substr($0, index($0, "\"data\":{")); at = index(data, key)
        if (at) { data = substr(data, at + length(key)); sub(/[^0-9].*/, "", data); print data; exit } }' "$3"
}
cuda_version() { # the driver's, 13000 as 13.0
    awk '/"check":"gpu.presence"/ && match($0, /"cuda":[0-9]+/) { v = substr($0, RSTART + 7, RLENGTH - 7); print int(v / 1000) "." int(v % 1000 / 10); exit }' "$1"
}
end_verdict() { awk '/^\{"type":"end"/ { v = substr($0, index($0, "\"verdict\":\"") + 11); sub(/".*/, "", v); print v }' "$1"; }

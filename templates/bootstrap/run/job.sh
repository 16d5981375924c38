# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# job.sh RUN_ID: runs ./run; keeps the first MiB and the last 64 KiB of its output, and its status.
# Another run may have replaced it before it started.
read -r _ _ mine <id && [ "$mine" = "$1" ] || exit 0
printf '%-10s\n' $$ 1<>pid
{
    sh ./run </dev/null
    rc=$?
    printf '\n::%s over\n' "$1"
    printf '%-10s\n' $rc 1<>rc
} 2>&1 | {
    # dd, because head holds back what it has read. It counts reads, which a pipe answers with less than a block.
    size=0
    while [ $(((1048576 - size) / 4096)) -gt 0 ]; do
        dd bs=4096 count=$(((1048576 - size) / 4096)) >>out 2>/dev/null
        before=$size
        size=$(wc -c <out)
        [ "$size" -gt "$before" ] || break
    done
    tail -c 65536 >tail.new
    mv tail.new tail
}

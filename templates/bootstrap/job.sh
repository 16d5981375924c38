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
    # dd, because head holds back what it has read
    dd bs=65536 count=1048576 iflag=count_bytes >out 2>/dev/null
    tail -c 65536 >tail.new
    mv tail.new tail
}

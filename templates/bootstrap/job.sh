# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# job.sh RUN_ID: runs ./run; keeps the first MiB and the last 64 KiB of what it says, and its status.
printf '%-10s\n' $$ 1<>pid
{
    sh ./run </dev/null
    printf '%-10s\n' $? 1<>rc
} 2>&1 | {
    # dd, because head holds back what it has read
    dd bs=65536 count=1048576 iflag=count_bytes >out 2>/dev/null
    tail -c 65536 >tail.new
    mv tail.new tail
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# Reboots the node because a run of a step asked for it with restart_node. STEP, RUN_ID. Prints "::back" if the node
# has rebooted since that run began, else "::asked". May be sent again at any time.
cd "$NODE_DIR/steps/$STEP" 2>/dev/null && read -r _ boot run <id && [ "$run" = "$RUN_ID" ] ||
    fail 'the record of the step is gone from the node'
if [ "$boot" != "$(cat /proc/sys/kernel/random/boot_id)" ]; then
    echo '::back'
    exit 0
fi
if [ ! -e asked ]; then
    sync
    root systemctl reboot >/dev/null 2>reboot.said || root reboot >/dev/null 2>>reboot.said ||
        fail "the command reboot failed: $(grep . reboot.said | tail -n 1)"
    : >asked
fi
echo '::asked'

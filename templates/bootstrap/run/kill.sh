# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# Kills a run that exceeded its time. STEP, RUN_ID. Status 1: it still runs.
cd "$NODE_DIR/steps/$STEP" && read -r p <pid && grep -q "$RUN_ID" "/proc/${p:-x}/cmdline" 2>/dev/null || exit 0
end_group "$p"

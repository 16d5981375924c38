# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094
# Ends a run that overran. STEP, RUN_ID. Status 1: it could not be ended.
cd "$NODE_DIR/steps/$STEP" && read -r p <pid && grep -q "$RUN_ID" "/proc/${p:-x}/cmdline" 2>/dev/null || exit 0
end_group "$p"

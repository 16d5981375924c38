#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Slurm's Prolog: no job begins on a node that fails gpuprov's checks. A certificate of this machine and boot is enough
# (milliseconds); without one the node checks run. A node without a verdict (a tool's own trouble, too little time) is
# accepted: GPUPROV_REFUSE_ON="fail unknown" refuses it, so that jobs begin on validated nodes only. A node that fails is drained with a Reason that
# healthcheck.sh clears later, and the job goes back to the queue (exit 1). In slurm.conf:
# Prolog=/etc/slurm/gpuprov/prolog.sh, PrologFlags=Alloc, SchedulerParameters=nohold_on_prolog_fail.
# Settings, from /etc/default/gpuprov: those of healthcheck.sh, and
#   GPUPROV_PROLOG_TIME  duration of the checks without a certificate (10s)
#   GPUPROV_REFUSE_ON    fail (default), "fail unknown": the verdicts that keep a job from this node
set -u
# shellcheck disable=SC1091
[ ! -r /etc/default/gpuprov ] || . /etc/default/gpuprov
GPUPROV_STATE_DIR=${GPUPROV_STATE_DIR:-/var/lib/gpuprov}
export GPUPROV_STATE_DIR
node=${SLURMD_NODENAME:-$(uname -n | cut -d. -f1)}
gpuprov=${GPUPROV:-gpuprov}

if [ -n "${GPUPROV_CERTIFICATE:-}" ] &&
  "$gpuprov" verify --this-machine "$GPUPROV_CERTIFICATE" >/dev/null 2>&1; then
  exit 0
fi
line=$(timeout -k 5 "${GPUPROV_LIMIT:-45}" "$gpuprov" validate --node-check --time "${GPUPROV_PROLOG_TIME:-10s}" \
  ${GPUPROV_GPU:+--gpu "$GPUPROV_GPU"} 2>/dev/null)
code=$?
case $code in
0) verdict=pass ;;
1) verdict=degraded ;;
2) verdict=fail ;;
*) verdict=unknown ;;
esac
case " ${GPUPROV_REFUSE_ON:-fail} " in
*" $verdict "*)
  line=$(printf '%.200s' "${line:-$verdict: exit status $code without output}" | LC_ALL=C tr -cd ' !#-~')
  scontrol update NodeName="$node" State=DRAIN Reason="gpuprov: $line"
  exit 1
  ;;
esac
exit 0

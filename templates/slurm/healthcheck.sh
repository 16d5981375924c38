#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Slurm's HealthCheckProgram: gpuprov's node checks on this node. A node that fails is drained with a Reason that
# begins with "gpuprov:". A node that passes again is resumed if it has such a Reason. In
# slurm.conf: HealthCheckProgram=/etc/slurm/gpuprov/healthcheck.sh, HealthCheckInterval=300.
# Settings, from /etc/default/gpuprov:
#   GPUPROV              the program (gpuprov)
#   GPUPROV_GPU          GPUs that the node must have, "H100:8" (default: the GPUs found)
#   GPUPROV_TIME         duration of the checks (20s; with loading it must stay below GPUPROV_LIMIT)
#   GPUPROV_LIMIT        time limit of the program in seconds (45; Slurm kills a health check at 60)
#   GPUPROV_DRAIN_ON     fail (default), "fail unknown", "fail degraded unknown"
#   GPUPROV_CERTIFICATE  file (.json) for a signed certificate, which prolog.sh accepts instead of a check
#   GPUPROV_PROMETHEUS   file for node_exporter's textfile collector, *.prom
set -u
# shellcheck disable=SC1091
[ ! -r /etc/default/gpuprov ] || . /etc/default/gpuprov
GPUPROV_STATE_DIR=${GPUPROV_STATE_DIR:-/var/lib/gpuprov}
export GPUPROV_STATE_DIR
node=${SLURMD_NODENAME:-$(uname -n | cut -d. -f1)}

# "idle|none": state and reason
said=$(sinfo -h -n "$node" -o '%t|%E' 2>/dev/null | head -n 1)
state=${said%%|*}
reason=${said#*|}
case $state in
# not known to the controller; rebooting, booting, powered down, in maintenance, reserved for it
'' | *@ | *^ | *'#' | *'~' | *! | *% | *'$' | boot* | maint* | pow* | fut*) exit 0 ;;
# jobs run: checks would compete with them for the GPUs
alloc* | mix* | comp* | drng*) exit 0 ;;
# another program or an administrator took it out: leave it alone
drain* | down* | fail*) case $reason in gpuprov:*) ;; *) exit 0 ;; esac ;;
esac

line=$(timeout -k 5 "${GPUPROV_LIMIT:-45}" "${GPUPROV:-gpuprov}" validate --node-check --time "${GPUPROV_TIME:-20s}" \
  ${GPUPROV_GPU:+--gpu "$GPUPROV_GPU"} ${GPUPROV_CERTIFICATE:+--certificate "$GPUPROV_CERTIFICATE"} \
  ${GPUPROV_PROMETHEUS:+--report "prometheus=$GPUPROV_PROMETHEUS"} 2>/dev/null)
code=$?
case $code in
0) verdict=pass ;;
1) verdict=degraded ;;
2) verdict=fail ;;
124 | 137) verdict=unknown line="unknown: no verdict within ${GPUPROV_LIMIT:-45} s" ;;
127) verdict=unknown line="unknown: there is no ${GPUPROV:-gpuprov} on this node" ;;
*) verdict=unknown ;;
esac
line=$(printf '%.200s' "${line:-unknown: exit status $code without output}" | LC_ALL=C tr -cd ' !#-~')

case " ${GPUPROV_DRAIN_ON:-fail} " in
*" $verdict "*)
  [ "$reason" = "gpuprov: $line" ] || scontrol update NodeName="$node" State=DRAIN Reason="gpuprov: $line"
  ;;
*)
  # An unknown verdict does not return a node to service.
  case $state,$reason,$verdict in
  *,*,unknown) ;;
  drain*,gpuprov:*,* | down*,gpuprov:*,*) scontrol update NodeName="$node" State=RESUME ;;
  esac
  ;;
esac
echo "$line"

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2153,SC2154
# The end of a job's text where it runs in a container. JOB_ENGINE, JOB_IMAGE, JOB_NAME: of the container. JOB_VARS: names of variables
# that it gets. JOB_GPUS: not empty if the node has GPUs. JOB_TEXT: the job's own text. The container has the node's network, shared memory and
# working folder. Root's engine, as in bootstrap. Ended here, because a killed client leaves its container running.
case $JOB_ENGINE in docker | podman) ;; *)
    echo "gpuprov: job.image does not work with $JOB_ENGINE: use docker or podman" >&2
    exit 125
    ;;
esac
if [ "$(id -u)" = 0 ]; then engine() { "$JOB_ENGINE" "$@"; }; else
    engine() { sudo -n --preserve-env="$(printf '%s' "$JOB_VARS" | tr ' ' ',')" "$JOB_ENGINE" "$@"; }
fi
set --
for JOB_VAR in $JOB_VARS; do set -- "$@" --env "$JOB_VAR"; done
if [ -n "$JOB_GPUS" ]; then
    if grep -qs 'nvidia.com/gpu' /etc/cdi/*.yaml /etc/cdi/*.json /var/run/cdi/*.yaml &&
        { [ "$JOB_ENGINE" = podman ] || engine info -f '{{json .}}' 2>/dev/null | grep -q '"CDISpecDirs":\["'; }; then
        set -- "$@" --device nvidia.com/gpu=all
    elif [ "$JOB_ENGINE" = docker ] && engine info -f '{{json .Runtimes}}' 2>/dev/null | grep -q '"nvidia":'; then
        set -- "$@" --runtime nvidia --env NVIDIA_VISIBLE_DEVICES=all
    elif [ "$JOB_ENGINE" = podman ]; then
        set -- "$@" --runtime "$(command -v nvidia-container-runtime || echo nvidia-container-runtime)" --env NVIDIA_VISIBLE_DEVICES=all
    else
        set -- "$@" --gpus all
    fi
fi
[ ! -d /dev/infiniband ] || set -- "$@" --device /dev/infiniband --ulimit memlock=-1
engine rm -f "$JOB_NAME" >/dev/null 2>&1
engine run --rm --init --name "$JOB_NAME" --network host --ipc host --security-opt label=disable \
    --volume "$PWD:$PWD" --workdir "$PWD" --volume "$GPUPROV_HOSTFILE:$GPUPROV_HOSTFILE:ro" "$@" \
    --entrypoint sh "$JOB_IMAGE" -c "$JOB_TEXT" </dev/null &
JOB_PID=$!
trap 'engine stop -t 6 "$JOB_NAME" >/dev/null 2>&1' TERM INT HUP
wait $JOB_PID
JOB_STATUS=$?
while kill -0 $JOB_PID 2>/dev/null; do
    wait $JOB_PID
    JOB_STATUS=$?
done
trap '' TERM INT HUP
engine rm -f "$JOB_NAME" >/dev/null 2>&1
# Files that root of the container made: the next job of this user must be able to replace them.
[ "$(id -u)" = 0 ] || sudo -n chown -R -h "$(id -u):$(id -g)" . 2>/dev/null
exit $JOB_STATUS

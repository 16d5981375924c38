# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015
# Run as root: sh -c THIS bake HOME NODE_DIR. Prints what the node has ("::fact KEY VALUE"), then removes everything from
# its disk that must not be in an image: identity, logins, secrets, output of steps. May be run again. The running
# deadline unit goes on until the node stops: it has read its files.
home=$1 node_dir=$2
give_up() {
    printf '::error %s\n' "$*"
    exit 1
}
said() { printf '::fact %s %s\n' "$1" "$2"; }

# --- what it has ---
said arch "$(uname -m)"
driver=$(cat /sys/module/nvidia/version 2>/dev/null)
[ -z "$driver" ] || said driver "$driver"
for nvcc in /usr/local/cuda/bin/nvcc /usr/bin/nvcc; do
    [ -x "$nvcc" ] || continue
    cuda=$("$nvcc" --version 2>/dev/null | sed -n 's/^Cuda compilation tools, release \([0-9.]*\),.*/\1/p')
    if [ -n "$cuda" ]; then said cuda "$cuda" && break; fi
done

# --- steps that need not run again on nodes of the image ---
mkdir -p /etc/gpuprov/baked || give_up 'could not make /etc/gpuprov/baked: check that the disk has free space'
if [ -d "$node_dir/marks" ]; then
    cp "$node_dir/marks/"* /etc/gpuprov/baked/ 2>/dev/null
    for mark in "$node_dir/marks/"*; do
        [ ! -f "$mark" ] || cmp -s "$mark" "/etc/gpuprov/baked/${mark##*/}" ||
            give_up "could not keep ${mark##*/} in /etc/gpuprov/baked: check that the disk has free space"
    done
fi
chmod -R a+rX /etc/gpuprov

# --- file systems of others: what is removed below must be on this node's disk ---
# A blank in the name of a folder is \040 there. The last one mounted goes first.
cd / || give_up 'cannot change to /'
# shellcheck disable=SC2016
trouble=$(awk -v home="$home" '
    $3 ~ /^(nfs4?|lustre|cifs|smb3|ceph|glusterfs|9p|virtiofs|beegfs|gpfs|fuse([.].*)?)$/ &&
        ($2 ~ "^/(home|root|var|tmp|etc)(/|$)" || $2 == home || index($2, home "/") == 1) { at[n++] = $2 }
    END { while (n > 0) print at[--n] }' /proc/self/mounts | while IFS= read -r at; do
    at=$(printf '%b' "$at")
    why=$(timeout -k 5 60 umount -- "$at" 2>&1) && continue
    printf '%s is shared with other machines and could not be unmounted: %s\n' "$at" "$(printf '%s' "$why" | tail -n 1)"
    exit 1
done) || give_up "$trouble"

# --- files with secrets that steps wrote: one list ---
# registry logins, cloud and S3 credentials, tokens of package indexes and model hubs, credential files of mounts
for user_home in /root "$home" /home/*; do
    [ -d "$user_home" ] || continue
    rm -rf "$user_home/.docker/config.json" "$user_home/.config/containers/auth.json" \
        "$user_home/.aws" "$user_home/.config/rclone" "$user_home/.rclone.conf" "$user_home/.passwd-s3fs" \
        "$user_home/.netrc" "$user_home/.git-credentials" "$user_home/.config/gcloud" "$user_home/.azure" \
        "$user_home/.kaggle" "$user_home/.cache/huggingface/token" "$user_home/.huggingface/token" \
        "$user_home/.config/pip" "$user_home/.pip" "$user_home/.pypirc" \
        "$user_home"/.*_history "$user_home/.lesshst" "$user_home/.viminfo" \
        "$user_home/.ssh/known_hosts" "$user_home"/.ssh/id_*
done
rm -rf /run/containers/0/auth.json /etc/passwd-s3fs /etc/gpuprov/credentials /etc/gpuprov/secrets /etc/gpuprov/mounts

# --- buckets: rclone keeps copies of their files, and files that it has not uploaded yet ---
copies=/var/cache/gpuprov n=0
unsent() { grep -rlsE '"Dirty": *true' $copies/vfsMeta; }
while [ $n -lt 300 ] && [ -n "$(unsent)" ]; do
    sleep 0.2
    n=$((n + 1))
done
[ -z "$(unsent)" ] || give_up "a bucket's mount has files that are not uploaded after a minute: see $copies"
awk '$3 == "fuse.rclone" && $1 ~ /^GP[:{]/ { print $2 }' /proc/self/mounts | while IFS= read -r at; do
    timeout -k 5 30 umount "$at" || timeout -k 5 30 umount -l "$at"
done >/dev/null 2>&1
rm -rf $copies

# --- gpuprov's own files: the agent stays, output and state of steps go ---
for user_home in "$home" /root; do
    rm -rf "$user_home/.gpuprov/nodes" "$user_home/.gpuprov/tmp"
done

# --- the deadline of this node: the next one gets its own from its user-data or its bootstrap ---
systemctl disable gpuprov-deadline.service >/dev/null 2>&1
rm -f /etc/gpuprov/deadline.conf /etc/gpuprov/instance /var/lib/gpuprov/deadline-used*

# --- logs and mail of this node; temporary files ---
find /var/log /var/mail /var/spool/mail -xdev -type f -exec sh -c 'for f; do : >"$f"; done' sh {} + 2>/dev/null
rm -rf /var/lib/systemd/random-seed /var/lib/dhcp/* /var/lib/NetworkManager/*.lease
find /tmp /var/tmp -xdev -mindepth 1 -delete 2>/dev/null

# --- cloud-init runs anew: it makes users, keys and host keys of the next node ---
if command -v cloud-init >/dev/null 2>&1; then
    cloud-init clean --logs >/dev/null 2>&1 || rm -rf /var/lib/cloud/instance /var/lib/cloud/instances /var/lib/cloud/data
fi

# --- identity, last: afterwards nobody logs in any more ---
rm -f /etc/ssh/ssh_host_*_key /etc/ssh/ssh_host_*_key.pub /etc/ssh/gpuprov_host_key /etc/ssh/gpuprov_host_key.pub \
    /etc/ssh/gpuprov_host_key_made /etc/ssh/gpuprov_next_host_key*
: >/etc/machine-id
rm -f /var/lib/dbus/machine-id
for user_home in /root "$home" /home/*; do
    rm -f "$user_home/.ssh/authorized_keys" "$user_home/.ssh/authorized_keys2"
done
sync
for left in /etc/gpuprov/deadline.conf /etc/ssh/gpuprov_host_key "$home/.ssh/authorized_keys" "$home/.gpuprov/nodes" \
    "$home/.docker/config.json" "$copies"; do
    [ ! -e "$left" ] || give_up "$left could not be removed"
done
[ ! -s /etc/machine-id ] || give_up '/etc/machine-id could not be emptied'
printf '::fact cleaned yes\n'

#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs what is missing for the parts named: build (program and demo), test, lint, bench.
# Only packages that are not there are asked for, by name; no service is started; the Python tools go
# into .venv. With --check nothing is installed: what is missing is printed and the exit code is 1.
set -eu
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin
missing=
check=

have() { command -v "$1" >/dev/null 2>&1; }
add() { missing="$missing $1"; }
# need PACKAGE PROGRAM: the package when the program is not in PATH
need() { have "$2" || add "$1"; }
# need_pc PACKAGE MODULE: the package when pkg-config does not know the module
need_pc() { { have pkg-config && pkg-config --exists "$2" 2>/dev/null; } || add "$1"; }
need_file() { [ -e "$2" ] || add "$1"; }

part_build() {
  need gcc gcc
  need make make
  need pkg-config pkg-config
  need gzip gzip
  need_file libc6-dev /usr/include/stdio.h
  need_pc libcurl4-openssl-dev libcurl
  need_pc libssh2-1-dev libssh2
  need_pc libjansson-dev jansson
  need_pc libyaml-dev yaml-0.1
  need_pc libexpat1-dev expat
  need_pc libsqlite3-dev sqlite3
  need_pc libssl-dev libcrypto
  need_pc zlib1g-dev zlib
  need_file ca-certificates /etc/ssl/certs/ca-certificates.crt
  need openssh-client ssh
  need openssh-server sshd
  # nodes of an ordinary user live in a user namespace
  [ "$(id -u)" = 0 ] || need uidmap newuidmap
}

part_test() {
  need_file libcmocka-dev /usr/include/cmocka.h
  have python3 || add python3
  python3 -c 'import venv, ensurepip' 2>/dev/null || add python3-venv
  need debootstrap debootstrap
  need systemd-container systemd-nspawn
  need tmux tmux
  need procps ps
  need iputils-ping ping
  need openssl openssl
  need strace strace
  need util-linux setarch
  need iproute2 ip
  # one test boots a kernel of its own
  need qemu-system-x86 qemu-system-x86_64
  need e2fsprogs debugfs
  # manual pages and completions are tried with the programs that read them
  need mandoc mandoc
  need zsh zsh
  need fish fish
  # a browser lays out the report's page
  need chromium chromium
  # the scripts for CI use these
  need curl curl
  need jq jq
  need shellcheck shellcheck
  # the hooks for Slurm are tested against a real one, in namespaces
  need slurmctld slurmctld
  need slurmd slurmd
  need munge munged
}

part_bench() {
  # the other client of the copies
  need rsync rsync
}

part_lint() {
  need clang clang
  need clang-tidy clang-tidy
  need clang-format clang-format
  need shellcheck shellcheck
  have python3 || add python3
  python3 -c 'import venv, ensurepip' 2>/dev/null || add python3-venv
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif have sudo; then
    sudo "$@"
  else
    echo "deps: needs root or sudo to install:$missing" >&2
    exit 1
  fi
}

# sshd must not begin to listen because somebody built this program: masked before it comes.
mask_ssh() {
  [ -e /etc/systemd/system/ssh.service ] || as_root ln -s /dev/null /etc/systemd/system/ssh.service
  [ -e /etc/systemd/system/ssh.socket ] || as_root ln -s /dev/null /etc/systemd/system/ssh.socket
  echo "deps: ssh.service is masked, so no SSH server starts ('systemctl unmask ssh.service ssh.socket' undoes it)"
}

apt_install() {
  # shellcheck disable=SC2086 # a list of names
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends $missing
}

# policy-rc.d is Debian's own switch: with exit 101 no package starts a service.
install_packages() {
  if ! have apt-get; then
    echo "deps: this is not an apt system; install what matches:$missing" >&2
    exit 1
  fi
  echo "deps: installing:$missing"
  case " $missing " in *' openssh-server '*)
    as_root mkdir -p /etc/systemd/system
    mask_ssh
    ;;
  esac
  policy=
  if [ ! -e /usr/sbin/policy-rc.d ]; then
    policy=$(mktemp)
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    as_root install -m 0755 "$policy" /usr/sbin/policy-rc.d
    rm -f "$policy"
    trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
  fi
  # shellcheck disable=SC2086 # a list of names
  if ! apt-get install -s --no-install-recommends $missing >/dev/null 2>&1; then
    as_root apt-get update -q
  fi
  apt_install || { as_root apt-get update -q && apt_install; }
  if [ -n "$policy" ]; then
    as_root rm -f /usr/sbin/policy-rc.d
    trap - EXIT
  fi
}

requirements() { cat tests/requirements.txt tests/clouds/sdk/*.txt 2>/dev/null || true; }
venv_ready() { [ -x .venv/bin/python ] && requirements | cmp -s - .venv/requirements.done; }

make_venv() {
  venv_ready && return 0
  echo "deps: installing the Python test tools into .venv"
  .venv/bin/python -m pip --version >/dev/null 2>&1 || python3 -m venv --clear .venv
  # the clouds' own clients, which speak to the tests' stand-ins for those clouds
  requirements >.venv/requirements.all
  .venv/bin/python -m pip install -q -r .venv/requirements.all
  mv .venv/requirements.all .venv/requirements.done
}

parts=
for word in "$@"; do
  case $word in
  --check) check=1 ;;
  build | test | lint | bench) parts="$parts $word" ;;
  *)
    echo "usage: deps.sh [--check] build|test|lint|bench ..." >&2
    exit 2
    ;;
  esac
done
for part in $parts; do "part_$part"; done
if [ -n "$check" ]; then
  case $parts in *test* | *lint*) venv_ready || add .venv ;; esac
  [ -z "$missing" ] || { echo "missing:$missing"; exit 1; }
  exit 0
fi
[ -z "$missing" ] || install_packages
case $parts in *test* | *lint*) make_venv ;; esac

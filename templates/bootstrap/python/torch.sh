# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094,SC2154
# PyTorch in VENV. WANT: its version or the beginning of one; "": the newest; TAG: its build: cpu, cu128; TORCH_INDEX: URL
# of the folder with an index per build; WHY: why no build fits this node, or "".
# Prints the reason why the installed one does not fit; nothing when it fits. Does not import it, which takes seconds.
torch_left() {
    WANT=$WANT TAG=$TAG timeout -k 5 60 "$vpython" -I - <<'PY'
import os, re, sys
from importlib import metadata

want, tag = os.environ["WANT"], os.environ["TAG"]
try:
    it = metadata.distribution("torch")
except metadata.PackageNotFoundError:
    sys.exit(print("is not installed"))
have = it.version.split("+")[0]
if want and have != want and not have.startswith(want + "."):
    sys.exit(print("%s is installed" % it.version))
try:
    with open(str(it.locate_file("torch/version.py")), encoding="utf-8") as f:
        text = f.read()
except OSError:
    sys.exit(print("%s is installed only in part" % it.version))
cuda = re.search(r"^cuda[^=\n]*=\s*['\"]([0-9.]+)['\"]", text, re.M)
build = "cu" + cuda.group(1).replace(".", "") if cuda else "cpu"
if tag != "cpu" and build != tag:  # where there is no GPU, the build for one computes as well
    print("%s is installed for %s" % (it.version, build))
PY
}
look() { left=$(torch_left 2>&1) || fail "cannot read what is installed in $VENV: $(printf '%s\n' "$left" | tail -n 1)"; }
probe() {
    [ -z "$WHY" ] || fail "$WHY"
    [ "$(venv_state)" = ready ] || return 10 # an earlier step makes it
    look
    [ -n "$left" ] || return 0
    may_write
    return 10
}
torch_version() { "$vpython" -I -c 'from importlib import metadata; print(metadata.version("torch"))' 2>/dev/null; }
# Its own index first, without what it needs, so that no other index can put another build in its place.
apply() {
    look
    [ -n "$left" ] || {
        echo '::unchanged'
        return 0
    }
    may_write
    pip_credentials "$INDEX" "$TORCH_INDEX"
    pip_forget
    from=${TORCH_INDEX%/}/$TAG
    case $WANT in
    '') which=torch ;;
    *.*.*) which="torch==$WANT" ;;
    *) which="torch==$WANT.*" ;;
    esac
    say "installs $which for $TAG ($left)"
    pip_install "$from" --index-url "$from" --upgrade --force-reinstall --no-deps "$which"
    here=$(torch_version)
    [ -n "$here" ] || fail 'pip reported success, but torch is not installed'
    pip_install "${INDEX:-$from}" --index-url "${INDEX:-$from}" "torch==$here"
}
verify() {
    look
    [ -z "$left" ] || fail "pip reported success, but torch $left"
    said=$(timeout -k 5 300 "$vpython" -I -c 'import torch' 2>&1 </dev/null) ||
        fail "torch $(torch_version) is installed, but 'import torch' fails: $(printf '%s\n' "$said" | grep . | tail -n 1 | cut -c1-300)"
}

# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh disable=SC2015,SC2094,SC2046
# Compares and places files. FILES: lines of number, sha256, mode, owner ("-": the login user) and path. The program
# sends the content of those that differ as one file COPY; ROWS: lines of offset, size, sha256, mode, owner and path.
able() { [ "$(id -u)" = 0 ] || sudo -n true 2>/dev/null; }
as_root() { if able; then root "$@"; else "$@"; fi; }
# Prints what is there: "sum SHA256  PATH" and "stat MODE USER GROUP PATH", "folder PATH" for a folder in the way.
there() {
    # shellcheck disable=SC2016
    printf '%s' "$FILES" | cut -d' ' -f5- | as_root sh -c '
        plain() { while IFS= read -r p; do if [ -f "$p" ] && [ ! -L "$p" ]; then printf "%s\0" "$p"; fi; done; }
        list=$(cat)
        printf "%s\n" "$list" | while IFS= read -r p; do
            if [ -d "$p" ] && [ ! -L "$p" ]; then printf "folder %s\n" "$p"; fi
        done
        printf "%s\n" "$list" | plain | xargs -0 -r sha256sum -- | sed "s/^/sum /"
        printf "%s\n" "$list" | plain | xargs -0 -r stat -c "stat %a %U %G %n" --'
}
# Prints the numbers of the files that differ, or "folder PATH".
differing() {
    {
        there
        echo wanted
        printf '%s' "$FILES"
    } | LC_ALL=C awk -v me="$(id -un)" -v group="$(id -gn)" '
        function rest(n,   s, i) {
            s = $0
            for (i = 0; i < n; i++) sub(/^[^ ]* /, "", s)
            return s
        }
        !wanted && $1 == "folder" { print; next }
        !wanted && $1 == "sum" { p = substr($0, 71); sum[p] = $2; next }
        !wanted && $1 == "stat" { p = rest(4); mode[p] = $2; user[p] = $3; of[p] = $4; next }
        !wanted { wanted = 1; next }
        {
            p = rest(4)
            owner = $4 == "-" ? me ":" group : $4
            has = owner ~ /:/ ? user[p] ":" of[p] : user[p]
            if (sum[p] != $2 || mode[p] != $3 || has != owner) print $1
        }'
}
# Sets $differ.
looks() {
    differ=$(differing) || fail 'the files of the node cannot be compared'
    case $differ in
    *folder\ *)
        path=$(printf '%s\n' "$differ" | sed -n '/^folder /{s/^folder //p;q;}')
        fail "'$path' is a folder on the node: remove it, or correct 'to'"
        ;;
    esac
}
probe() {
    looks
    [ -z "$differ" ] || return 10
}
# Prints "NODE BOOT", which begin the names of files that are written beside their places: other nodes may share a folder.
own_names() {
    printf '%s' "$NODE_DIR" | sha256sum | cut -c1-8 | tr '\n' ' '
    cut -c1-8 /proc/sys/kernel/random/boot_id
}
# Removes what a killed run left beside the places. A run that goes on keeps its files.
sweep() {
    # shellcheck disable=SC2016
    printf '%s' "$FILES" | cut -d' ' -f5- | sed 's|/[^/]*$||' | sort -u | as_root sh -c '
        while IFS= read -r d; do
            for t in "$d/.gpuprov.$1".*; do
                [ -f "$t" ] || continue
                its=${t##*".gpuprov.$1."}
                boot=${its%%.*} its=${its#*.}
                if [ "$boot" != "$2" ] || [ ! -e "/proc/${its%.*}" ]; then rm -f -- "$t"; fi
            done
        done' sh $(own_names)
}
compare() {
    looks
    sweep
    copies=$HOME/.gpuprov/files
    (umask 077; mkdir -p "$copies") && chmod 0700 "$HOME/.gpuprov" || fail "cannot make $copies"
    # what an interrupted run left
    find "$copies" -type f -mmin +60 -exec rm -f {} + 2>/dev/null
    [ -z "$differ" ] || printf '%s\n' "$differ" | sed 's/^/::need /'
}
place() {
    # sent again after a lost reply: all may be in their places
    [ -e "$COPY" ] || { looks; return 0; }
    # Three passes, because each program costs the node a millisecond for each file: write all beside their places,
    # compare their sums at once, then rename. The folder may belong to another user, who can put a link in place of
    # the new file: it is created anew, and its owner and mode are set by its open descriptor.
    # shellcheck disable=SC2016
    said=$(printf '%s' "$ROWS" | as_root sh -c '
        umask 077
        copy=$1 me=$2 own=$3.$4 rows=$(cat)
        each() {
            n=0
            # the "/" keeps blanks at the end of a name
            printf "%s\n" "$rows" | sed "s|\$|/|" | while read -r offset size sum mode owner path; do
                path=${path%/}
                n=$((n + 1)) d=${path%/*}
                t=$d/.gpuprov.$own.$$.$n
                case $owner in -) owner=$me ;; *:*) ;; *) owner=$owner: ;; esac
                "$1" || exit
            done
        }
        folder() {
            made=$d
            while up=${made%/*} && [ ! -d "$up/" ]; do made=$up; done
            (umask 022; mkdir -p -- "$d/") || { echo "cannot create the folder $d"; return 1; }
            chown -R -- "$owner" "$made" || { echo "cannot give $made to $owner"; return 1; }
        }
        write() {
            [ -d "$d/" ] || folder || return
            set -C
            {
                tail -c "+$((offset + 1))" "$copy" | head -c "$size" >&3 || { echo "cannot write $path"; return 1; }
                chown -- "$owner" /proc/self/fd/3 || { echo "cannot give $path to $owner"; return 1; }
                chmod -- "$mode" /proc/self/fd/3 || { echo "cannot set the mode of $path"; return 1; }
            } 3>"$t" || { echo "cannot write $path"; return 1; }
        }
        sums() { printf "%s  %s\n" "$sum" "$t"; }
        clear() { rm -f -- "$t"; }
        rename() {
            mv -fT -- "$t" "$path" || { echo "cannot put $path in its place"; return 1; }
        }
        trap "each clear; exit 1" HUP INT TERM PIPE
        { each write && { each sums | sha256sum -c --status || { echo "the copy is damaged"; false; }; } &&
            each rename; } || { each clear; exit 1; }' sh "$COPY" "$(id -un):$(id -gn)" $(own_names) 2>&1) || {
        full=$(full_disks / /var /tmp "$HOME" | head -n 1)
        why=$(printf '%s\n' "$said" | grep . | head -n 1)
        fail "$(printf '%s\n' "$said" | grep . | tail -n 1): $why${full:+: the disk is full ($full)}"
    }
    rm -f "$COPY"
}

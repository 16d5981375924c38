# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=sh
# Writes check.sh's page from the results that are there.
# shellcheck disable=SC2154,SC2016 # check.sh's variables; Markdown's backquotes

# Medians of the rounds, and their ratio, in $work/ratios.
compare() {
    for f in "$work"/round*.out "$work"/once.*.out; do
        [ -f "${f%.out}.done" ] || continue
        case ${f##*/} in
        round*.*.out | once.*) awk 'NF == 4 && $3 + 0 > 0 { print "other", $1, $2, $3, $4 }' "$f" ;;
        *) first_gpu "$f" | awk '{ print "ours", $1, $2, $3 }' ;;
        esac
    done >"$work/pairs"
    [ ! -f "$work/full.done" ] || sizes "$work/full.out" | awk '
        { print "ours nccl.bandwidth busbw_" $1, $3; print "ours nccl.bandwidth calls_per_s_" $1, 1e6 / $2 }' >>"$work/pairs"
    [ ! -f "$work/train.done" ] || figures "$work/train.out" | awk '$2 == "tokens_per_s" { print "ours", $1, $2, $3 }' >>"$work/pairs"
    awk -f "$here/ratios.awk" "$work/pairs" >"$work/ratios"
}

run_line() { # NAME TEXT GOAL
    if [ -f "$work/$1.done" ]; then
        v=$(end_verdict "$work/$1.out")
        printf '`%s`: **%s** in %s s%s.\n' "$2" "${v:-no verdict}" "$(step_seconds "$1")" "$3"
    else
        printf '`%s`: not run yet.\n' "$2"
    fi
}

page() {
    compare
    mkdir -p "$out"
    {
        printf '# %s\n\n' "$model"
        printf 'Made by `make gpu-check` on %s: %s GPU%s, driver %s, CUDA %s, %s.\n\n' "$(date -u +%Y-%m-%d)" "$gpus" \
            "$([ "$gpus" -eq 1 ] || echo s)" "$(first_text driver "$work/presence.out")" \
            "$(cuda_version "$work/presence.out")" "$("$agent" version)"
        run_line full "run --time $time --all" ''
        run_line minute "run --time 1m" ' (goal: under 60)'
        printf '\n| check | verdict | seconds | message |\n|---|---|---|---|\n'
        for f in full minute; do
            [ -f "$work/$f.done" ] || continue
            verdicts "$work/$f.out"
            break
        done
        printf '\n## Figures\n\n| check | figure | value | unit |\n|---|---|---|---|\n'
        [ ! -f "$work/full.done" ] || figures "$work/full.out" |
            awk '{ unit = $4; for (i = 5; i <= NF; i++) unit = unit " " $i; print "| " $1 " | " $2 " | " $3 " | " unit " |" }'
        printf '\n## Side by side on GPU 0\n\nMedians of %s rounds, ours and the other in turn. Ratio: ours / other.\n\n' "$rounds"
        printf '| figure | gpuprov | other | tool | ratio | goal |\n|---|---|---|---|---|---|\n'
        awk '{ printf "| %s %s | %.4g | %.4g | %s | %.3f | %s |\n", $1, $2, $3, $4, $5, $6, $7 }' "$work/ratios"
        if [ -s "$work/missing" ]; then
            printf '\nNot compared, because it is not installed here:\n\n'
            sed 's/^/* /' "$work/missing"
        fi
        failed=$(for f in "$work"/round*.*.done "$work"/once.*.done; do
            if [ ! -f "$f" ] || grep -q '^status 0$' "$f"; then continue; fi
            f=${f%.done}
            printf '* %s: %s\n' "${f##*/}" "$(tail -n 1 "$f.err")"
        done)
        [ -z "$failed" ] || printf '\nNot compared, because the tool failed:\n\n%s\n' "$failed"
        if [ -f "$work/once.dcgm.done" ]; then printf '\n%s\n' "$(sed -n 's/^DCGM/DCGM/p' "$work/once.dcgm.out")"; fi
        if [ "$gpus" -eq 1 ]; then
            printf '\n## Gang checks, two processes on one GPU\n\n'
            printf 'The logic only. NCCL takes the two processes for two machines (NCCL_HOSTID) and connects them by sockets over\n'
            printf 'the loopback; the GPU runs them in turns. No figure of this section is a bandwidth or a speed of a gang.\n\n'
            printf '| check | verdict | seconds | message |\n|---|---|---|---|\n'
            for check in $gang; do
                [ ! -f "$work/same.$check.done" ] || verdicts "$work/same.$check.out"
            done
        fi
    } >"$work/page.new"
    mv "$work/page.new" "$file.new"
    mv "$file.new" "$file"
}

# SPDX-License-Identifier: Apache-2.0
# Lines "ours CHECK METRIC VALUE" and "other CHECK METRIC VALUE TOOL" become
# "CHECK METRIC OURS OTHER TOOL RATIO GOAL", of medians; GOAL "-": none is set.
function median(list,    n, v, i, j, t) {
    n = split(list, v, " ")
    for (i = 2; i <= n; i++)
        for (j = i; j > 1 && v[j] + 0 < v[j - 1] + 0; j--) { t = v[j]; v[j] = v[j - 1]; v[j - 1] = t }
    return v[int((n + 1) / 2)] + 0
}
function goal(check, metric, tool) {
    if (check == "gpu.bandwidth" && tool == "pytorch") return 0.98
    if (check == "gpu.gemm" && tool == "cublaslt-best") return 0.98
    if (check == "nccl.bandwidth" && tool == "nccl-tests") return metric ~ /^busbw_/ && substr(metric, 7) + 0 >= 1048576 ? 0.98 : "-"
    if (check == "train.ddp" && tool == "pytorch-eager") return 1
    return "-"
}
$1 == "ours" { own[$2 " " $3] = own[$2 " " $3] " " $4 }
$1 == "other" {
    key = $2 " " $3 " " $5
    if (!(key in other)) order[++count] = key
    other[key] = other[key] " " $4
}
END {
    for (i = 1; i <= count; i++) {
        split(order[i], part, " ")
        if (!((part[1] " " part[2]) in own)) continue
        o = median(own[part[1] " " part[2]]); t = median(other[order[i]])
        if (t > 0) print part[1], part[2], o, t, part[3], o / t, goal(part[1], part[2], part[3])
    }
}

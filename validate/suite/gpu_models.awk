# SPDX-License-Identifier: Apache-2.0
# Turns gpu_models.tsv into the tables that models.c includes. POSIX awk; the head of that file describes
# its lines. An unreadable line fails the build and is named by its number.

function bad(text) {
    printf "%s:%d: %s\n", FILENAME, FNR, text >"/dev/stderr"
    failed = 1
    exit 1
}
function quote(text) {
    gsub(/\\/, "\\\\", text)
    gsub(/"/, "\\\"", text)
    return "\"" text "\""
}
function number(text) {
    if (text !~ /^[0-9]+(\.[0-9]+)?$/) bad("'" text "' is not a number")
    return text
}
function model(id) {
    if (!(id in models)) bad("no model '" id "' above this line")
    return models[id]
}
function source(key) {
    if (!(key in sources)) bad("no source '" key "' above this line")
    return sources[key]
}
function how(key) {
    if (!(key in hows)) bad("no how '" key "' above this line")
    return hows[key]
}
function hex(text) {
    if (text !~ /^[0-9a-f][0-9a-f][0-9a-f][0-9a-f]$/) bad("'" text "' is not a PCI id")
    return "0x" text
}
function bytes(text,   n, unit) {
    n = text
    unit = text
    sub(/[A-Za-z]+$/, "", n)
    sub(/^[0-9]+/, "", unit)
    number(n)
    if (unit == "MiB") return n " * 1024 * 1024"
    if (unit == "GiB") return n "LL * 1024 * 1024 * 1024"
    bad("'" text "' is not a size such as 64MiB or 8GiB")
}
function when(text,   n, i, parts, pair, gpus, size, nvls, nvlink) {
    gpus = 0; size = "0"; nvls = -1; nvlink = 0
    n = text == "-" ? 0 : split(text, parts, " ")
    for (i = 1; i <= n; i++) {
        split(parts[i], pair, "=")
        if (pair[1] == "gpus") gpus = number(pair[2])
        else if (pair[1] == "bytes") size = bytes(pair[2])
        else if (pair[1] == "nvls" && pair[2] ~ /^[01]$/) nvls = pair[2]
        else if (pair[1] == "nvlink" && pair[2] == "1") nvlink = 1
        else bad("'" parts[i] "' is not a condition")
    }
    return ".gpus = " gpus ", .bytes = " size ", .nvls = " nvls ", .nvlink = " (nvlink ? "true" : "false")
}

BEGIN { FS = "\t"; n_models = n_sources = n_hows = n_pci = n_names = n_specs = n_figures = 0 }
/^#/ || /^$/ { next }
$1 == "source" {
    if (NF != 3 || $2 in sources) bad("a source needs a new key and a title")
    sources[$2] = n_sources
    source_rows[n_sources++] = "    {" quote($2) ", " quote($3) "},"
    next
}
$1 == "how" {
    if (NF != 4 || $2 in hows || $3 !~ /^(same|below|best)$/) bad("a how needs a new key, a kind and a text")
    hows[$2] = n_hows
    how_rows[n_hows++] = "    {" ($3 == "same" ? "GPU_HOW_SAME" : $3 == "below" ? "GPU_HOW_BELOW" : "GPU_HOW_BEST") ", " \
        quote($4) "},"
    next
}
$1 == "model" {
    if (NF < 3 || NF > 4 || $2 in models) bad("a model needs a new id and a name")
    like = NF == 4 ? model($4) : -1
    models[$2] = n_models
    model_rows[n_models++] = "    {" quote($2) ", " quote($3) ", " like "},"
    next
}
$1 == "pci" {
    if (NF != 3) bad("pci needs a model and an id")
    m = model($2)
    n = split($3, id, ":")
    pci_rows[n_pci++] = "    {" m ", " hex(id[1]) ", " (n > 1 ? hex(id[2]) : "0") "},"
    next
}
$1 == "name" {
    if (NF != 3) bad("name needs a model and a text")
    name_rows[n_names++] = "    {" model($2) ", " quote($3) "},"
    next
}
$1 == "spec" {
    if (NF != 4) bad("spec needs a model, a source and figures")
    m = model($2); s = source($3)
    n = split($4, parts, " ")
    for (i = 1; i <= n; i++) {
        if (split(parts[i], pair, "=") != 2) bad("'" parts[i] "' is not a figure")
        spec_rows[n_specs++] = "    {" m ", " s ", " quote(pair[1]) ", " number(pair[2]) "},"
    }
    next
}
$1 == "measured" || $1 == "floor" {
    if (NF != 9) bad($1 " needs a model, a source, check, figure, value, unit, when and how")
    figure_rows[n_figures++] = "    {.model = " model($2) ", .source = " source($3) ", .is_floor = " \
        ($1 == "floor" ? "true" : "false") ", .check = " quote($4) ", .metric = " quote($5) \
        ", .value = " number($6) ", .unit = " quote($7) ", .how = " how($9) ", " when($8) "},"
    next
}
{ bad("'" $1 "' is not a kind of line") }

function table(head, rows, n,   i) {
    print "static const struct " head "[] = {"
    for (i = 0; i < n; i++) print rows[i]
    print "};"
}
END {
    if (failed) exit 1
    print "/* made from gpu_models.tsv by gpu_models.awk */"
    table("model_source sources", source_rows, n_sources)
    table("model_how hows", how_rows, n_hows)
    table("gpu_model models", model_rows, n_models)
    table("model_pci pci_ids", pci_rows, n_pci)
    table("model_name names", name_rows, n_names)
    table("model_spec specs", spec_rows, n_specs)
    table("model_figure figures", figure_rows, n_figures)
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the spec's block `estimate`. Pure; any thread. */
#include "base/gp_base.h"

#include "spec/spec_internal.h"

#define COUNT_PATTERN "^[0-9]{1,12}([.][0-9]{1,6})?[KMBT]?$"
#define COUNT_DOC "a number with K, M, B or T behind it, such as 7B"

double spec_estimate_number(const char *text) {
    static const char units[] = "KMBT";
    if (text == NULL) return 0;
    size_t n = strspn(text, "0123456789.");
    const char *unit = text[n] != '\0' ? strchr(units, text[n]) : NULL;
    GP_AUTO_FREE char *digits = xstrndup(text, n);
    double v = 0;
    if ((text[n] != '\0' && (unit == NULL || text[n + 1] != '\0')) || !str_to_double(digits, &v)) return 0;
    for (const char *u = units; unit != NULL && u <= unit; u++) v *= 1000;
    return v;
}

static void check_positive(struct spec_ctx *c, const struct yaml_node *at) {
    if (!(spec_estimate_number(at->value) > 0))
        spec_complain(c, at, "'%.60s' must be more than 0", spec_shown(at, at->value));
}

static void check_model(struct spec_ctx *c, const struct yaml_node *at) {
    if (c->names == NULL || c->names->gpu_known == NULL || c->names->gpu_known(at->value)) return;
    spec_complain(c, at, "unknown GPU model '%.60s': 'gpuprov checks --models' lists them", spec_shown(at, at->value));
}

/* Rows read as rows. */
/* clang-format off */
static const struct spec_field estimate_fields[] = {
    {.name = "params", .type = SPEC_TEXT, .offset = offsetof(struct spec_estimate, params), .required = true,
     .doc = "parameters of the model that each token passes through", .example = "7B", .pattern = COUNT_PATTERN,
     .pattern_doc = COUNT_DOC, .check = check_positive, .effect = SPEC_LATER},
    {.name = "tokens", .type = SPEC_TEXT, .offset = offsetof(struct spec_estimate, tokens), .required = true,
     .doc = "tokens of the whole training, each as often as it is read", .example = "300B", .pattern = COUNT_PATTERN,
     .pattern_doc = COUNT_DOC, .check = check_positive, .effect = SPEC_LATER},
    {.name = "mfu", .type = SPEC_TEXT, .offset = offsetof(struct spec_estimate, mfu),
     .def_doc = "what was measured on that GPU elsewhere", .doc = "the share of the data sheet's dense BF16 rate that "
     "the training reaches (model FLOPs utilization)", .example = "0.4", .pattern = "^(0[.][0-9]{1,4}|1)$",
     .pattern_doc = "a number from 0.0001 to 1", .check = check_positive, .effect = SPEC_LATER},
    {.name = "gpu", .type = SPEC_TEXT, .offset = offsetof(struct spec_estimate, gpu),
     .def_doc = "that of the nodes", .doc = "the model of GPU to compute for", .example = "H100",
     .pattern = "^[A-Za-z][A-Za-z0-9 ._-]{0,39}$", .pattern_doc = "a GPU model such as H100", .check = check_model,
     .effect = SPEC_LATER},
    {0}};
const struct spec_block spec_estimate_block = {
    .path = "estimate", .doc = "The size of a training: `plan` computes its GPU hours, time and cost as 6 x params x "
    "tokens operations.", .fields = estimate_fields};
/* clang-format on */

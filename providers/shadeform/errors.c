// SPDX-License-Identifier: Apache-2.0
/* Shadeform's errors: {"error_code", "error"} was seen in public (INSUFFICIENT_FUNDS with HTTP 409); no list is
 * documented, so that the text decides where the code is unknown. Its part of the spec language. Static data. */
#include "base/gp_base.h"

#include "providers/shadeform/shadeform_int.h"

#define ADVICE_KEY "check the API key ('gpuprov doctor' names where it is from), or make a new one in the console"

const struct cloud_error shade_errors[] = {
    {"INSUFFICIENT_FUNDS", GP_EMONEY, GP_SCOPE_PROVIDER, CLOUD_NO, "top up the account in the console"},
    {"*|balance", GP_EMONEY, GP_SCOPE_PROVIDER, CLOUD_NO, "top up the account in the console"},
    {"*|payment", GP_EMONEY, GP_SCOPE_PROVIDER, CLOUD_NO, "correct the means of payment in the console"},
    {"OUT_OF_STOCK", GP_ECAPACITY, GP_SCOPE_REGION, CLOUD_NO, ""},
    {"*|out of stock", GP_ECAPACITY, GP_SCOPE_REGION, CLOUD_NO, ""},
    {"*|capacity", GP_ECAPACITY, GP_SCOPE_REGION, CLOUD_NO, ""},
    {"*|not available", GP_ECAPACITY, GP_SCOPE_REGION, CLOUD_NO, ""},
    {"*|unavailable", GP_ECAPACITY, GP_SCOPE_REGION, CLOUD_NO, ""},
    {"*|quota", GP_EQUOTA, GP_SCOPE_OFFER, CLOUD_NO, "ask Shadeform's support for more"},
    {"*|limit exceeded", GP_EQUOTA, GP_SCOPE_OFFER, CLOUD_NO, "ask Shadeform's support for more"},
    {"HTTP 401", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_STALE, ADVICE_KEY},
    {"HTTP 403", GP_EAUTH, GP_SCOPE_PROVIDER, CLOUD_NO, ADVICE_KEY},
    {"HTTP 404", GP_ENOTFOUND, GP_SCOPE_OFFER, CLOUD_NO, ""},
    {"HTTP 400", GP_EUSAGE, GP_SCOPE_OFFER, CLOUD_NO, ""},
};
const size_t shade_error_count = GP_ARRAY_LEN(shade_errors);

/* Statuses without a code of the service become codes of their own; */
void shade_said(const struct http_resp *resp, const json_t *json, struct cloud_said *ret) {
    static const struct {
        int status;
        const char *code;
    } statuses[] = {{400, "HTTP 400"}, {401, "HTTP 401"}, {403, "HTTP 403"}, {404, "HTTP 404"}, {409, "HTTP 409"}};
    if (resp->status == 429 || resp->status >= 500) { /* whatever its text: it may have acted, or is to be repeated */
        *ret = (struct cloud_said){"", "", ""};
        return;
    }
    const char *code = json_str(json, "error_code", json_str(json, "code", ""));
    const char *text = json_str(json, "error", json_str(json, "message", ""));
    for (size_t i = 0; code[0] == '\0' && i < GP_ARRAY_LEN(statuses); i++)
        if (resp->status == statuses[i].status) code = statuses[i].code;
    if (code[0] == '\0' && resp->status / 100 == 2 && json_str(json, "error", "")[0] != '\0') code = "error";
    *ret = (struct cloud_said){code, text, ""};
}

/* clang-format off */
static const struct spec_provider_key keys[] = {
    {.name = "regions", .pattern = "^[a-z0-9]{1,30}[.][a-z0-9-]{1,32}$",
     .pattern_doc = "CLOUD.REGION, such as hyperstack.canada-1", .example = "[hyperstack.canada-1, nebius.eu-north1]",
     .note = "without it: every region of every cloud that has the type now"},
    {.name = "instance_type", .pattern = "^[A-Za-z][A-Za-z0-9_]{0,62}$",
     .pattern_doc = "Shadeform's name of a type, such as H100_sxm5x8", .example = "H100_sxm5x8"},
    {.name = "image", .example = "{id: ubuntu22.04_cuda12.2_shade_os}",
     .note = "`id` is one of the type's `os_options`; `image: auto` is the newest one with CUDA"},
    {0}};
/* clang-format on */

static const char *os(size_t i) {
    static const char *const names[] = {"ubuntu-24.04", "ubuntu-22.04"};
    return i < GP_ARRAY_LEN(names) ? names[i] : NULL;
}

const struct spec_provider shadeform_spec = {
    .name = "shadeform", .doc = "Shadeform, machines of many GPU clouds", .keys = keys, .os = os};

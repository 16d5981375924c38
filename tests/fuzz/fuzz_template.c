/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a template: rendered, or refused with one line; what is rendered without a variable in
 * it is the text itself. */
#include "base/gp_base.h"

#include "templates/templates.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct template_var vars[] = {
        {"A", "@@A@@"}, {"Q", "it's \"so\" $(here)\n"}, {"EMPTY", ""}, {"LONG_NAME_9", "9"}, {NULL, NULL}};
    GP_AUTO_STR struct str out = {.max = 65536};
    struct gp_error err = {0};
    int rc = template_render_text("fuzz", (const char *)data, size, vars, &out, &err);
    if ((rc != 0) != (err.msg[0] != '\0')) abort();
    if (rc != 0 && rc != -GP_EINTERNAL) abort();
    if (out.len > 65536) abort();
    bool plain = size < 65536 && memmem(data, size, "@@", 2) == NULL;
    if (plain && (rc != 0 || out.len != size || (size > 0 && memcmp(out.s, data, size) != 0))) abort();
    return 0;
}

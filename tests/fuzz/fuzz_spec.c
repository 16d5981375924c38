/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a spec: refused with problems that can be shown, or accepted with a canonical form
 * that is accepted again with the same hash. */
#include "base/gp_base.h"

#include "providers/provider.h"
#include "spec/spec.h"
#include "validate/validate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds, const char *what) {
    if (holds) return;
    fprintf(stderr, "%s\n", what);
    abort();
}

static void again(const struct spec *first, const struct spec_names *names) {
    GP_AUTO_FREE char *text = spec_canonical(first);
    GP_AUTO_SPEC struct spec *spec = NULL;
    struct spec_problems problems = {0};
    struct gp_error err = {0};
    int r = spec_load_form("again.yaml", text, names, &spec, &problems, &err);
    if (r != 0 && problems.list.len > 0) fprintf(stderr, "%s\n", problems.list.items[0].message);
    must(r == 0, "the canonical form is not a spec");
    must(strcmp(spec->hash, first->hash) == 0, "the canonical form has another hash");
    spec_problems_clear(&problems);
}

static void one(const char *text, size_t size, const struct spec_names *names) {
    GP_AUTO_SPEC struct spec *spec = NULL;
    struct spec_problems problems = {0};
    struct gp_error err = {0};
    int r = spec_load_text("fuzz.yaml", text, size, names, &spec, &problems, &err);
    must((r == 0) == (problems.list.len == 0), "refused without a problem, or accepted with one");
    if (r == 0) {
        again(spec, names);
    } else {
        GP_AUTO_FREE char *whole = xstrndup(text, size);
        GP_AUTO_STR struct str out = {0};
        spec_problems_format(&problems, "fuzz.yaml", whole, true, &out);
        must(out.len > 0, "nothing is shown");
    }
    spec_problems_clear(&problems);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (size > 65536) return 0;
    provider_specs_register();
    GP_AUTO_FREE char *text = xmalloc(size + 1);
    memcpy(text, data, size);
    text[size] = '\0';
    one(text, size, validate_names());
    one(text, size, NULL);
    return 0;
}

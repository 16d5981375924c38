// SPDX-License-Identifier: Apache-2.0
/* Decodes GPU names of clouds: words in any order and case, some without meaning. It does not guess: an unknown
 * word becomes part of the model, so that no model has that name. */
#include "base/gp_base.h"

#include "providers/common/gpu_name.h"

#include "base/str.h"
#include "validate/suite/models.h"

#include <ctype.h>

/* Makers, kinds of memory, and words that clouds add. "MEGA" is GCP's word for the network of a3-megagpu. */
static bool says_nothing(const char *word) {
    static const char *const words[] = {"NVIDIA", "TESLA", "GEFORCE", "SERVER", "AMD",
                                        "GPU",    "GB",    "GIB",     "MEGA",   NULL};
    for (size_t i = 0; words[i] != NULL; i++)
        if (strcmp(word, words[i]) == 0) return true;
    return str_starts(word, "HBM");
}

static bool is_form(const char *word) {
    if (str_starts(word, "SXM")) return strspn(word + 3, "0123456789") == strlen(word + 3) && strlen(word) <= 4;
    return strcmp(word, "PCIE") == 0 || strcmp(word, "NVL") == 0;
}

/* "80GB", "80G", "80GIB", and "80" before a "GB" of its own. */
static int memory_of(const char *word, const char *next) {
    size_t digits = strspn(word, "0123456789");
    const char *unit = word + digits;
    if (digits == 0 || digits > 4) return 0;
    if (unit[0] == '\0') unit = next;
    bool gb = strcmp(unit, "GB") == 0 || strcmp(unit, "GIB") == 0 || (unit == word + digits && strcmp(unit, "G") == 0);
    return gb ? (int)strtol(word, NULL, 10) : 0;
}

static int count_of(const char *word) {
    size_t digits = strspn(word, "0123456789");
    bool count = digits > 0 && digits <= 3 && strcmp(word + digits, "X") == 0;
    return count ? (int)strtol(word, NULL, 10) : 0;
}

void gpu_name_parse(const char *text, struct gpu_name *ret) {
    GP_AUTO_STRV struct strv words = {0};
    GP_AUTO_FREE char *upper = xstrdup(text);
    size_t used = 0;
    *ret = (struct gpu_name){0};
    for (char *p = upper; *p != '\0'; p++) *p = (char)toupper((unsigned char)*p);
    strv_split(&words, upper, " -_/()");
    for (size_t i = 0; i < words.n; i++) {
        const char *w = words.v[i];
        int memory = i > 0 ? memory_of(w, i + 1 < words.n ? words.v[i + 1] : "") : 0, count = count_of(w);
        if (memory > 0) ret->memory_gb = memory;
        else if (is_form(w)) str_put(ret->form, sizeof ret->form, w);
        else if (count > 0) ret->count = count;
        else if (!says_nothing(w))
            for (; *w != '\0' && used + 1 < sizeof ret->model; w++)
                if (isalnum((unsigned char)*w)) ret->model[used++] = *w;
    }
}

static bool plain(const char *form) { return form[0] == '\0' || str_starts(form, "SXM"); }

bool gpu_name_same(const struct gpu_name *a, const struct gpu_name *b) {
    if (a->model[0] == '\0' || strcmp(a->model, b->model) != 0) return false;
    return (plain(a->form) && plain(b->form)) || strcmp(a->form, b->form) == 0;
}

/* True if the name may mean this model of the table. */
static bool may_mean(const struct gpu_name *said, const struct gpu_name *model) {
    if (said->model[0] == '\0' || strcmp(said->model, model->model) != 0) return false;
    if (said->memory_gb > 0 && said->memory_gb != model->memory_gb) return false;
    if (said->form[0] == '\0' || strcmp(said->form, model->form) == 0) return true;
    if (model->form[0] == '\0') return strcmp(said->form, "PCIE") == 0; /* a card that exists in one form only */
    return strcmp(said->form, "SXM") == 0 && plain(model->form);
}

/* The only model of that name in the table; NULL: none, or several. */
static const struct gpu_model *only_one(const char *text) {
    const struct gpu_model *m = NULL, *found = NULL;
    for (size_t i = 0; (m = gpu_model_at(i)) != NULL; i++) {
        if (!gpu_model_is(m, text)) continue;
        if (found != NULL) return NULL;
        found = m;
    }
    return found;
}

bool gpu_name_known(const char *text, char *ret, size_t n) {
    struct gpu_name said;
    const struct gpu_model *m = NULL, *one = only_one(text), *meant = NULL;
    size_t n_meant = 0;
    gpu_name_parse(text, &said);
    for (size_t i = 0; one == NULL && (m = gpu_model_at(i)) != NULL; i++) {
        struct gpu_name model;
        gpu_name_parse(gpu_model_name(m), &model);
        if (may_mean(&said, &model) && n_meant++ == 0) meant = m;
    }
    GP_AUTO_FREE char *shared = said.form[0] != '\0' ? xasprintf("%s %s", said.model, said.form)
                                : said.memory_gb > 0 ? xasprintf("%s-%dGB", said.model, said.memory_gb)
                                                     : xstrdup(said.model);
    if (n_meant == 1) one = meant;
    if (n_meant > 1) one = only_one(shared);
    if (one != NULL) return str_put(ret, n, gpu_model_name(one));
    return n_meant > 1 && gpu_model_named(shared) != NULL && str_put(ret, n, shared);
}

bool gpu_name_fits(const char *wanted, const char *text) {
    struct gpu_name want, have, known = {0};
    char name[64];
    gpu_name_parse(wanted, &want);
    gpu_name_parse(text, &have);
    if (gpu_name_known(text, name, sizeof name)) gpu_name_parse(name, &known);
    if (!gpu_name_same(&want, &have) && !gpu_name_same(&want, &known)) return false;
    if (want.memory_gb == 0) return true;
    return have.memory_gb > want.memory_gb * 0.9 && have.memory_gb < want.memory_gb * 1.1;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of `bootstrap.driver`, `.cuda`, `.cudnn` and `.nccl`, and the refusal of versions that cannot work together,
 * with line and column. No I/O. Any thread. */
#include "base/gp_base.h"

#include "spec/spec_internal.h"

#include <strings.h>

static const char *const flavours[] = {"open", "proprietary", NULL};

/* Rows read as rows. */
/* clang-format off */
static const struct spec_field driver_fields[] = {
    {.name = "branch", .type = SPEC_TEXT, .offset = offsetof(struct spec_driver, branch), .def_doc = "auto",
     .doc = "the branch, or one exact version; `auto` is the newest that fits the GPU, the system and the kernel",
     .example = "580", .pattern = SPEC_BRANCH_PATTERN, .pattern_doc = SPEC_BRANCH_DOC, .effect = SPEC_REPEATED},
    {.name = "flavour", .type = SPEC_TEXT, .offset = offsetof(struct spec_driver, flavour),
     .def_doc = "open where the GPU allows it", .doc = "the kernel modules", .example = "proprietary",
     .choices = flavours, .effect = SPEC_REPEATED},
    {.name = "source", .type = SPEC_TEXT, .offset = offsetof(struct spec_driver, source), .def_doc = "nvidia",
     .doc = "where it is installed from: NVIDIA's repository, the distribution itself, or a mirror of "
            "`developer.download.nvidia.com/compute/cuda/repos`. A mirror with a key of its own has the hash of its "
            "keyring package behind it: `URL#sha256=HASH`", .example = "distro",
     .pattern = "^(nvidia|distro|https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~%+-]*)*(#sha256=[0-9a-f]{64})?)$",
     .pattern_doc = "nvidia, distro or the URL of a mirror", .effect = SPEC_REPEATED},
    {.name = "replace", .type = SPEC_BOOL, .offset = offsetof(struct spec_driver, replace), .def = "false",
     .doc = "whether a driver that was installed in another way, such as by a runfile, is removed; without it such a "
            "node fails", .example = "true", .effect = SPEC_REPEATED},
    {0}};
const struct spec_block spec_driver_block = {
    .path = "bootstrap.driver", .doc = "The NVIDIA driver; in short `driver: 580`, `driver: none`.",
    .fields = driver_fields};

static const struct spec_field cuda_fields[] = {
    {.name = "version", .type = SPEC_TEXT, .offset = offsetof(struct spec_cuda, version), .def_doc = "auto",
     .doc = "the toolkit of that version; `auto` is the newest runtime libraries that fit", .example = "13.0",
     .pattern = SPEC_CUDA_PATTERN, .pattern_doc = SPEC_CUDA_DOC, .effect = SPEC_REPEATED},
    {.name = "runtime", .type = SPEC_TEXTS, .offset = offsetof(struct spec_cuda, runtime),
     .doc = "versions of which only the runtime libraries are installed, side by side", .example = "[13.0, 12.9]",
     .pattern = "^[0-9]{2}[.][0-9]{1,2}$", .pattern_doc = "a version such as 13.0", .min_items = 1,
     .effect = SPEC_REPEATED},
    {0}};
const struct spec_block spec_cuda_block = {
    .path = "bootstrap.cuda",
    .doc = "CUDA; in short `cuda: 13.0` for the toolkit, `cuda: none`. The map has one of these keys.",
    .fields = cuda_fields, .rules = spec_rule_cuda};

/* clang-format on */

static void set_text(struct spec_ctx *c, const struct yaml_node *at, const char *key, const char *pattern,
                     const char *doc, char **to) {
    if (!spec_match(pattern, at->value)) {
        spec_complain(c, at, "'%s' must be %s, not '%.60s'", key, doc, spec_shown(at, at->value));
        return;
    }
    free(*to);
    *to = xstrdup(at->value);
}

void spec_driver_from_text(struct spec_ctx *c, const struct yaml_node *at, void *to) {
    struct spec_driver *d = to;
    set_text(c, at, "driver", SPEC_BRANCH_PATTERN, SPEC_BRANCH_DOC, &d->branch);
}

void spec_cuda_from_text(struct spec_ctx *c, const struct yaml_node *at, void *to) {
    struct spec_cuda *cuda = to;
    set_text(c, at, "cuda", SPEC_CUDA_PATTERN, SPEC_CUDA_DOC, &cuda->version);
}

void spec_rule_cuda(struct spec_ctx *c, const struct yaml_node *map, void *to) {
    const struct spec_cuda *cuda = to;
    if (map == NULL || cuda->version == NULL || cuda->runtime.n == 0) return;
    spec_complain(c, yaml_get(map, "runtime"), "'cuda' has both 'version' and 'runtime': keep one");
}

/* --- the wish --- */

bool spec_driver_written(const struct spec *s) {
    const struct spec_driver *d = &s->software.driver;
    return d->branch != NULL || d->flavour != NULL || d->source != NULL || d->replace;
}

bool spec_software_written(const struct spec *s) {
    const struct spec_software *w = &s->software;
    return spec_driver_written(s) || w->cuda.version != NULL || w->cuda.runtime.n > 0 || w->cudnn != NULL ||
           w->nccl != NULL;
}

bool spec_offer_launched(const struct spec_offer *o) {
    const struct spec_provider *p = spec_provider_find(o->provider);
    return p != NULL && !p->container && spec_provider_key(p, "image") != NULL;
}

/* Whether a package of python.packages, "tensorflow==2.19", is this one. */
static bool is_package(const char *text, const char *name) {
    size_t n = strlen(name);
    return strncasecmp(text, name, n) == 0 && (text[n] == '\0' || strchr("=<>!~[", text[n]) != NULL);
}

/* Its version: "" for any, NULL if it is not in the list. */
static const char *package(const struct spec *s, const char *name) {
    for (size_t i = 0; i < s->python.packages.n; i++) {
        const char *text = s->python.packages.v[i], *exact = strstr(text, "==");
        if (is_package(text, name)) return exact != NULL ? exact + 2 : "";
    }
    return NULL;
}

/* A release that the tables do not know is not judged: new ones of PyTorch appear every few months. Of python.packages
 * only one with its build counts, "torch==2.11.0+cu128": the index chooses the build of any other. */
static const char *torch_wish(const struct spec *s) {
    const char *text = s->python.torch, *exact = package(s, "torch");
    if ((text == NULL || str_eq(text, "none")) && exact != NULL && strchr(exact, '+') != NULL) text = exact;
    if (text == NULL) return NULL;
    struct software_wish only = {.driver = "none", .cuda = "none", .cudnn = "none", .nccl = "none", .torch = text};
    GP_AUTO_SOFTWARE_SET struct software_set set = {0};
    return software_solve(&only, &set, NULL) == 0 ? text : "none";
}

struct software_wish spec_software_wish(const struct spec *s, size_t offer, bool launched, size_t runtime) {
    const struct spec_software *w = &s->software;
    const char *unwritten = launched ? NULL : "none";
    struct software_wish wish = {.gpus = s->gpu.count, .nvswitches = -1};
    if (s->gpu.model != NULL) software_gpu_named(s->gpu.model, &wish.gpu);
    if (offer < s->offers.len && spec_offer_launched(&s->offers.items[offer]))
        wish.os = spec_effective(s, offer).image->os;
    wish.driver = w->driver.branch;
    if (wish.driver == NULL && !spec_driver_written(s)) wish.driver = unwritten;
    wish.flavour = w->driver.flavour;
    wish.source = w->driver.source;
    if (wish.source != NULL && str_starts(wish.source, "http")) wish.source = "nvidia";
    wish.cuda = w->cuda.version != NULL ? w->cuda.version : unwritten;
    if (runtime < w->cuda.runtime.n) wish.cuda = w->cuda.runtime.v[runtime];
    wish.cudnn = w->cudnn != NULL ? w->cudnn : unwritten;
    wish.nccl = w->nccl != NULL ? w->nccl : unwritten;
    wish.toolkit = w->cuda.version != NULL && !str_eq(w->cuda.version, "auto") && !str_eq(w->cuda.version, "none");
    wish.torch = torch_wish(s);
    wish.python = s->python.version;
    wish.tensorflow = package(s, "tensorflow");
    wish.horovod = package(s, "horovod");
    wish.deepspeed = package(s, "deepspeed");
    return wish;
}

/* --- the rule --- */

static const struct yaml_node *inner(const struct yaml_node *at, const char *key) {
    return at != NULL && at->kind == YAML_MAP ? yaml_get(at, key) : NULL;
}

static const struct yaml_node *python_package(const struct yaml_node *bootstrap, const char *name) {
    const struct yaml_node *list = inner(inner(bootstrap, "python"), "packages");
    for (size_t i = 0; list != NULL && list->kind == YAML_LIST && i < list->items.len; i++)
        if (is_package(list->items.items[i]->value, name)) return list->items.items[i];
    return NULL;
}

/* The value in the spec that stands for a key of the solver; NULL: it is not written. */
static const struct yaml_node *place(const struct yaml_node *root, enum software_key k, size_t offer, size_t runtime) {
    const struct yaml_node *b = yaml_get(root, "bootstrap");
    const struct yaml_node *driver = inner(b, "driver"), *cuda = inner(b, "cuda"), *found = NULL;
    const struct yaml_node *offers = yaml_get(root, "offers"), *one = NULL;
    switch (k) {
    case SOFTWARE_DRIVER: found = inner(driver, "branch"); return found != NULL ? found : driver;
    case SOFTWARE_FLAVOUR: return inner(driver, "flavour");
    case SOFTWARE_SOURCE: return inner(driver, "source");
    case SOFTWARE_CUDA:
        found = inner(cuda, "runtime");
        if (found != NULL && found->kind == YAML_LIST && runtime < found->items.len) return found->items.items[runtime];
        found = inner(cuda, "version");
        return found != NULL ? found : cuda;
    case SOFTWARE_CUDNN: return inner(b, "cudnn");
    case SOFTWARE_NCCL: return inner(b, "nccl");
    case SOFTWARE_TORCH:
        found = inner(inner(b, "python"), "torch");
        return found != NULL && !str_eq(found->value, "none") ? found : python_package(b, "torch");
    case SOFTWARE_OS:
        if (offers != NULL && offers->kind == YAML_LIST && offer < offers->items.len) one = offers->items.items[offer];
        found = inner(inner(one, "image"), "os");
        return found != NULL ? found : inner(yaml_get(root, "image"), "os");
    case SOFTWARE_GPU:
        found = yaml_get(root, "gpu");
        return inner(found, "model") != NULL ? inner(found, "model") : found;
    case SOFTWARE_TENSORFLOW: return python_package(b, "tensorflow");
    case SOFTWARE_HOROVOD: return python_package(b, "horovod");
    case SOFTWARE_DEEPSPEED: return python_package(b, "deepspeed");
    case SOFTWARE_PYTHON: return inner(inner(b, "python"), "version");
    default: return NULL;
    }
}

/* One error per clash that was not told for an earlier offer or version. */
static void tell(struct spec_ctx *c, const struct yaml_node *root, const struct software_clash *clash, size_t offer,
                 size_t runtime, struct strv *told) {
    const struct yaml_node *at = place(root, clash->key, offer, runtime);
    for (int k = 0; at == NULL && k < SOFTWARE_ALL; k++)
        if ((clash->keys & (1u << k)) != 0) at = place(root, (enum software_key)k, offer, runtime);
    if (at == NULL) at = root;
    GP_AUTO_FREE char *id = xasprintf("%u:%u:%s", at->line, at->column, clash->facts);
    if (strv_has(told, id)) return;
    strv_add(told, id);
    spec_complain_at(c, at->line, at->column, "%s%s%s", clash->facts,
                     clash->nearest[0] != '\0' ? "; the nearest set that works: " : "", clash->nearest);
}

/* An image whose CUDA runs neither on the GPU nor on the driver of this offer. */
static void judge_images(struct spec_ctx *c, const struct yaml_node *root, const struct spec *s,
                         const struct software_wish *wish, const struct software_set *set, struct strv *told) {
    const struct yaml_node *list = inner(inner(yaml_get(root, "bootstrap"), "container"), "images");
    char why[300];
    if (list == NULL || list->kind != YAML_LIST || s->gpu.count == 0) return;
    for (size_t i = 0; i < list->items.len; i++) {
        const struct yaml_node *at = list->items.items[i];
        if (software_image_runs(at->value, set, &wish->gpu, why, sizeof why) != SOFTWARE_CONTAINER_NOT) continue;
        const char *driver = set->at[SOFTWARE_DRIVER].text;
        GP_AUTO_FREE char *facts =
            xasprintf("GPU %s%s%s and image '%.100s': %s; choose an image of another CUDA", s->gpu.model,
                      driver[0] != '\0' ? ", driver " : "", driver, spec_shown(at, at->value), why);
        GP_AUTO_FREE char *id = xasprintf("%u:%u:%s", at->line, at->column, facts);
        if (strv_has(told, id)) continue;
        strv_add(told, id);
        spec_complain_at(c, at->line, at->column, "%s", facts);
    }
}

void spec_rule_software(struct spec_ctx *c, const struct yaml_node *root, const struct spec *s) {
    GP_AUTO_STRV struct strv told = {0};
    if (c->names == NULL || c->problems->list.len > 0) return; /* a value with an error is not there to be judged */
    size_t versions = GP_MAX(s->software.cuda.runtime.n, (size_t)1);
    for (size_t offer = 0; offer < s->offers.len; offer++) {
        for (size_t runtime = 0; runtime < versions && c->dropped == 0; runtime++) { /* no more are shown */
            struct software_wish wish =
                spec_software_wish(s, offer, spec_offer_launched(&s->offers.items[offer]), runtime);
            GP_AUTO_SOFTWARE_SET struct software_set set = {0};
            struct software_clashes clashes = {0};
            if (software_solve(&wish, &set, &clashes) == 0) {
                if (runtime == 0) judge_images(c, root, s, &wish, &set, &told);
                continue;
            }
            for (size_t i = 0; i < clashes.n; i++) tell(c, root, &clashes.at[i], offer, runtime, &told);
        }
    }
}

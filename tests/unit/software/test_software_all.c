/* SPDX-License-Identifier: Apache-2.0 */
/* The solver against a judge of its own: every answer satisfies every rule, a wish is refused only if trying everything
 * finds nothing, and a clash is one that cannot be made smaller. The judge reads the tables, and shares no code with
 * the solver. */
#include "base/gp_base.h"

#include "software/rows.h"

#include <ctype.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

/* --- the judge --- */

/* Versions of at most four numbers as one, in the order of versions. */
static uint64_t number(const char *text) {
    unsigned part[4] = {0};
    size_t n = 0;
    for (const char *p = text; n < 4 && *p != '\0'; n++) {
        while (*p != '\0' && (*p < '0' || *p > '9')) p++;
        for (; *p >= '0' && *p <= '9'; p++) part[n] = part[n] * 10 + (unsigned)(*p - '0');
    }
    return ((uint64_t)part[0] << 48) | ((uint64_t)part[1] << 32) | ((uint64_t)part[2] << 16) | part[3];
}

static unsigned major(const char *text) { return (unsigned)(number(text) >> 48); }

/* What is asked of a node, with unknown facts absent. */
struct ask {
    int cc; /* 0: not known */
    bool grace;
    const struct os_row *os;
    const char *python;                  /* of the interpreter */
    const char *kernel, *loaded, *exact; /* exact: full version of the driver */
};

/* The oldest version that an installed driver of the branch can be made to have at least. b NULL: left alone. */
static bool driver_reaches(const struct ask *a, const struct branch_row *b, const char *least) {
    if (a->exact != NULL) return number(a->exact) >= number(least);
    return b == NULL || major(b->name) >= major(least); /* later versions of a branch count */
}

/* In words of its own: the row of a kernel that counts. */
static const struct kernel_row *kernel_row(const char *kernel, const char *branch) {
    for (const struct kernel_row *k = software_kernels; k->name != NULL; k++) {
        bool series = number(k->name) % ((uint64_t)1 << 32) != 0; /* has a third number */
        for (const char *p = k->name, *dots = p; !series && (p = strchr(dots, '.')) != NULL; dots = p + 1)
            series = strchr(p + 1, '.') != NULL;
        if (strcmp(k->branch, branch) != 0 || number(kernel) < number(k->name)) continue;
        if (series && number(kernel) >> 32 != number(k->name) >> 32) continue;
        return k;
    }
    return NULL;
}

static bool word(const char *list, const char *one) {
    GP_AUTO_FREE char *all = xasprintf(" %s ", list), *it = xasprintf(" %s ", one);
    return strstr(all, it) != NULL;
}

static bool ok_driver(const struct ask *a, const struct branch_row *b, const char *flavour, const char *source) {
    bool open = flavour != NULL && strcmp(flavour, "open") == 0,
         distro = source != NULL && strcmp(source, "distro") == 0;
    if (a->loaded != NULL && strncmp(a->loaded, b->name, 3) != 0) return false;
    if (a->cc != 0 && (a->cc < b->cc_min || a->cc > b->cc_max)) return false;
    if (a->cc != 0 && a->grace && major(b->name) < (a->cc >= 100 ? 570u : 535u)) return false;
    if (flavour != NULL && a->cc != 0 && open && a->cc < 75) return false;
    if (flavour != NULL && a->cc != 0 && !open && (a->cc >= 100 || a->grace)) return false;
    if (flavour != NULL && !open && major(b->name) >= 620) return false;
    const struct kernel_row *k = a->kernel != NULL ? kernel_row(a->kernel, b->name) : NULL;
    if (k != NULL && (k->fixed == NULL || (a->exact != NULL && number(a->exact) < number(k->fixed)))) return false;
    if (a->os == NULL || source == NULL) return true;
    if (distro) return word(a->os->distro, b->name) && (!open || a->os->distro_open);
    return a->os->repository[0] != '\0' && major(b->name) >= major(a->os->branch_min) &&
           (a->os->branch_max == NULL || major(b->name) <= major(a->os->branch_max));
}

static bool ok_cuda(const struct ask *a, const struct branch_row *b, const struct cuda_row *c) {
    if (!driver_reaches(a, b, c->driver_min)) return false;
    if (a->cc != 0 && (a->cc < c->cc_min || a->cc > c->cc_max)) return false;
    return a->os == NULL || (a->os->repository[0] != '\0' && number(c->name) >= number(a->os->cuda_min) &&
                             number(c->name) <= number(a->os->cuda_max));
}

static const char *least_driver(unsigned cuda_major) {
    return cuda_major >= 13 ? "580.65.06" : cuda_major == 12 ? "525.60.13" : "450.80.02";
}

static bool ok_cudnn(const struct ask *a, const struct branch_row *b, const struct cuda_row *c,
                     const struct cudnn_row *d) {
    if (c != NULL && (number(c->name) < number(d->cuda_min) || number(c->name) > number(d->cuda_max))) return false;
    if (!driver_reaches(a, b, least_driver((unsigned)d->cuda_major))) return false;
    return a->cc == 0 || a->cc >= d->cc_min;
}

static bool ok_nccl(const struct ask *a, const struct branch_row *b, const struct cuda_row *c,
                    const struct nccl_row *n) {
    if (c != NULL && major(c->name) != major(n->cuda)) return false;
    if (!driver_reaches(a, b, major(n->cuda) >= 13 ? "580.65.06" : "525.60.13")) return false;
    return a->cc == 0 || (a->cc >= n->cc_min && a->cc <= n->cc_max);
}

static bool ok_torch(const struct ask *a, const struct branch_row *b, const struct torch_row *t) {
    bool code = a->cc == 0 || (t->ptx > 0 && a->cc >= t->ptx);
    for (size_t i = 0; !code && i < GP_ARRAY_LEN(t->cc); i++)
        code = t->cc[i] > 0 && t->cc[i] / 10 == a->cc / 10 && a->cc >= t->cc[i];
    if (!code || !driver_reaches(a, b, t->driver_min)) return false;
    if (a->python != NULL && number(a->python) < number(t->python)) return false;
    return a->os == NULL || number(a->os->glibc) >= number(t->glibc);
}

/* What is known of the packages: up to these versions. */
static bool ok_tensorflow(const struct ask *a, const struct branch_row *b, const char *version) {
    if (number(version) >= number("2.22")) return true;
    return (a->cc == 0 || (a->cc >= 60 && a->cc <= 90)) && driver_reaches(a, b, "525.60.13");
}

static bool ok_packages(const struct software_wish *w, const struct cuda_row *c, const struct torch_row *t) {
    if (w->horovod != NULL && number(w->horovod) <= number("0.28.1") && t != NULL && number(t->name) >= number("2.1"))
        return false;
    return w->deepspeed == NULL || !w->toolkit || c == NULL || t == NULL || major(c->name) == major(t->cuda);
}

/* --- wishes --- */

static bool none(const char *wish) { return wish != NULL && strcmp(wish, "none") == 0; }
static bool any(const char *wish) { return wish == NULL || strcmp(wish, "auto") == 0; }

/* Whether a row is what a wish names: either begins with the numbers of the other. */
static bool named(const char *wish, const char *name) {
    if (any(wish)) return true;
    size_t n = GP_MIN(strlen(wish), strlen(name));
    if (strncmp(wish, name, n) != 0) return false;
    char next = strlen(wish) > n ? wish[n] : name[n];
    return next < '0' || next > '9';
}

static bool torch_named(const char *wish, const struct torch_row *t) {
    GP_AUTO_FREE char *whole = xasprintf("%s+%s", t->name, t->tag);
    if (any(wish) || strcmp(wish, t->tag) == 0 || strcmp(wish, whole) == 0) return true;
    size_t n = strlen(wish);
    return strchr(wish, '+') == NULL && strncmp(t->name, wish, n) == 0 && (t->name[n] == '\0' || t->name[n] == '.');
}

static struct ask ask_of(const struct software_wish *w) {
    struct ask a = {
        .cc = w->gpu.cc, .grace = w->gpu.grace, .kernel = w->kernel, .loaded = w->loaded, .python = w->python};
    for (const struct os_row *o = software_systems; w->os != NULL && o->name != NULL; o++)
        if (strncmp(w->os, o->name, strlen(o->name)) == 0 && !isdigit((unsigned char)w->os[strlen(o->name)])) a.os = o;
    if (w->loaded != NULL) a.exact = w->loaded;
    else if (!any(w->driver) && !none(w->driver) && strchr(w->driver, '.') != NULL) a.exact = w->driver;
    return a;
}

/* Tries everything. */
static bool libraries(const struct software_wish *w, const struct ask *a, const struct branch_row *b,
                      const struct cuda_row *c) {
    bool dnn = w->cudnn == NULL || none(w->cudnn), nccl = w->nccl == NULL || none(w->nccl);
    for (const struct cudnn_row *d = software_cudnns; !dnn && d->name != NULL; d++)
        dnn = named(w->cudnn, d->name) && ok_cudnn(a, b, c, d);
    for (const struct nccl_row *n = software_nccls; !nccl && n->name != NULL; n++)
        nccl = named(w->nccl, n->name) && ok_nccl(a, b, c, n);
    return dnn && nccl;
}

static bool torches_fit(const struct software_wish *w, const struct ask *a, const struct branch_row *b,
                        const struct cuda_row *c) {
    if (w->torch == NULL || none(w->torch)) return true;
    for (const struct torch_row *t = software_torches; t->name != NULL; t++)
        if (torch_named(w->torch, t) && ok_torch(a, b, t) && ok_packages(w, c, t)) return true;
    return false;
}

static bool rest(const struct software_wish *w, const struct ask *a, const struct branch_row *b) {
    if (w->tensorflow != NULL && !ok_tensorflow(a, b, w->tensorflow)) return false;
    if ((w->cuda == NULL || none(w->cuda)) && libraries(w, a, b, NULL) && torches_fit(w, a, b, NULL)) return true;
    for (const struct cuda_row *c = software_cudas; !none(w->cuda) && c->name != NULL; c++)
        if (named(w->cuda, c->name) && ok_cuda(a, b, c) && libraries(w, a, b, c) && torches_fit(w, a, b, c))
            return true;
    return false;
}

static bool possible(const struct software_wish *w) {
    static const char *const flavours[] = {"open", "proprietary"}, *const sources[] = {"nvidia", "distro"};
    struct ask a = ask_of(w);
    bool stays = none(w->driver) || (w->loaded != NULL && any(w->driver)), row = false;
    for (const struct branch_row *b = software_branches; b->name != NULL; b++)
        row = row || (w->loaded != NULL && strncmp(w->loaded, b->name, 3) == 0);
    if (stays && !row) return rest(w, &a, NULL);
    for (const struct branch_row *b = software_branches; b->name != NULL; b++) {
        if (!stays && !named(w->driver, b->name)) continue;
        for (size_t f = 0; f < 2; f++) {
            for (size_t s = 0; s < 2; s++) {
                if (!stays && (!named(w->flavour, flavours[f]) || !named(w->source, sources[s]))) continue;
                if (ok_driver(&a, b, stays ? NULL : flavours[f], stays ? NULL : sources[s]) && rest(w, &a, b))
                    return true;
            }
        }
    }
    return false;
}

/* --- checking one wish --- */

#define WISH                                                                                             \
    "gpu %s os %s kernel %s loaded %s driver %s flavour %s source %s cuda %s cudnn %s nccl %s torch %s " \
    "tensorflow %s horovod %s deepspeed %s python %s toolkit %d"
#define T(x) ((x) != NULL ? (x) : "-")
#define VALUES(w)                                                                                                  \
    T((w)->gpu.name), T((w)->os), T((w)->kernel), T((w)->loaded), T((w)->driver), T((w)->flavour), T((w)->source), \
        T((w)->cuda), T((w)->cudnn), T((w)->nccl), T((w)->torch), T((w)->tensorflow), T((w)->horovod),             \
        T((w)->deepspeed), T((w)->python), (int)(w)->toolkit

#define FIND(row, table, text_)                         \
    for ((row) = (table); (row)->name != NULL; (row)++) \
        if (strcmp((row)->name, (text_)) == 0) break;   \
    if ((row)->name == NULL) (row) = NULL

static void check_answer(const struct software_wish *w, const struct software_set *s) {
    struct ask a = ask_of(w);
    const struct branch_row *b = NULL;
    const struct cuda_row *c = NULL;
    const char *flavour = s->at[SOFTWARE_FLAVOUR].text, *source = s->at[SOFTWARE_SOURCE].text;
    FIND(b, software_branches, s->at[SOFTWARE_DRIVER].text);
    FIND(c, software_cudas, s->at[SOFTWARE_CUDA].text);
    for (int k = 0; k < SOFTWARE_KEYS; k++)
        if (s->at[k].why[0] == '\0')
            fail_msg(WISH ": no reason for %s", VALUES(w), software_key_name((enum software_key)k));
    bool fine = b == NULL || ok_driver(&a, b, flavour[0] ? flavour : NULL, source[0] ? source : NULL);
    fine = fine && (b == NULL || number(s->driver_minimum) >= number(b->first));
    fine = fine && (c == NULL || ok_cuda(&a, b, c));
    bool dnn = s->at[SOFTWARE_CUDNN].text[0] == '\0', nccl = s->at[SOFTWARE_NCCL].text[0] == '\0';
    for (const struct cudnn_row *d = software_cudnns; !dnn && d->name != NULL; d++)
        dnn = strcmp(d->name, s->at[SOFTWARE_CUDNN].text) == 0 && ok_cudnn(&a, b, c, d) && named(w->cudnn, d->name) &&
              strcmp(d->package, s->cudnn_package) == 0;
    for (const struct nccl_row *n = software_nccls; !nccl && n->name != NULL; n++)
        nccl = strcmp(n->name, s->at[SOFTWARE_NCCL].text) == 0 && strcmp(n->cuda, s->nccl_cuda) == 0 &&
               ok_nccl(&a, b, c, n) && named(w->nccl, n->name);
    bool torch = s->at[SOFTWARE_TORCH].text[0] == '\0';
    for (const struct torch_row *t = software_torches; !torch && t->name != NULL; t++)
        torch = strcmp(t->name, s->at[SOFTWARE_TORCH].text) == 0 && strcmp(t->tag, s->torch_tag) == 0 &&
                torch_named(w->torch, t) && ok_torch(&a, b, t) && ok_packages(w, c, t);
    fine = fine && (w->tensorflow == NULL || ok_tensorflow(&a, b, w->tensorflow));
    if (!fine || !dnn || !nccl || !torch)
        fail_msg(WISH ": the answer %s %s %s %s %s %s %s+%s breaks a rule", VALUES(w), s->at[0].text, flavour, source,
                 s->at[SOFTWARE_CUDA].text, s->at[SOFTWARE_CUDNN].text, s->at[SOFTWARE_NCCL].text,
                 s->at[SOFTWARE_TORCH].text, s->torch_tag);
    if ((!any(w->driver) && !none(w->driver) && b == NULL) || (!any(w->cuda) && !none(w->cuda) && c == NULL))
        fail_msg(WISH ": a wish was left out", VALUES(w));
}

/* The wish with only the elements of a clash. */
static struct software_wish only(const struct software_wish *w, unsigned keys) {
    struct software_wish r = *w;
    const char **const wishes[] = {&r.driver, &r.flavour, &r.source, &r.cuda, &r.cudnn, &r.nccl, &r.torch};
    for (size_t k = 0; k < GP_ARRAY_LEN(wishes); k++)
        if ((keys & (1u << k)) == 0 && !any(*wishes[k]) && !none(*wishes[k])) *wishes[k] = NULL;
    if ((keys & (1u << SOFTWARE_GPU)) == 0) r.gpu = (struct software_gpu){.name = ""};
    if ((keys & (1u << SOFTWARE_OS)) == 0) r.os = NULL;
    if ((keys & (1u << SOFTWARE_KERNEL)) == 0) r.kernel = NULL;
    if ((keys & (1u << SOFTWARE_TENSORFLOW)) == 0) r.tensorflow = NULL;
    if ((keys & (1u << SOFTWARE_HOROVOD)) == 0) r.horovod = NULL;
    if ((keys & (1u << SOFTWARE_DEEPSPEED)) == 0) r.deepspeed = NULL;
    if ((keys & (1u << SOFTWARE_PYTHON)) == 0) r.python = NULL;
    if (r.loaded != NULL && (keys & (1u << SOFTWARE_LOADED)) == 0) {
        if (any(r.driver)) r.driver = "none"; /* there is a driver still, of which nothing is known */
        r.loaded = NULL;
    }
    return r;
}

static void check_refusal(const struct software_wish *w, const struct software_clashes *c) {
    if (c->n == 0) fail_msg(WISH ": refused without a clash", VALUES(w));
    for (size_t i = 0; i < c->n; i++) {
        struct software_wish these = only(w, c->at[i].keys);
        if (possible(&these)) fail_msg(WISH ": clash '%s' is possible", VALUES(w), c->at[i].facts);
        for (int k = 0; k < SOFTWARE_ALL; k++) {
            if ((c->at[i].keys & (1u << k)) == 0) continue;
            struct software_wish less = only(w, c->at[i].keys & ~(1u << k));
            if (!possible(&less))
                fail_msg(WISH ": '%s' without %s is a clash too", VALUES(w), c->at[i].facts,
                         software_key_name((enum software_key)k));
        }
        if (c->at[i].facts[0] == '\0' || strstr(c->at[i].facts, "no set of the table") != NULL)
            fail_msg(WISH ": '%s' gives no reason", VALUES(w), c->at[i].facts);
        if (c->at[i].nearest[0] == '\0') fail_msg(WISH ": '%s' has no nearest set", VALUES(w), c->at[i].facts);
    }
}

static bool check(const struct software_wish *w, bool clashes) {
    GP_AUTO_SOFTWARE_SET struct software_set s = {0};
    struct software_clashes c = {0};
    bool solved = software_solve(w, &s, clashes ? &c : NULL) == 0, can = possible(w);
    if (solved != can)
        fail_msg(WISH ": %s, but trying everything %s", VALUES(w), solved ? "solved" : "refused",
                 can ? "finds a set" : "finds none");
    if (solved) check_answer(w, &s);
    else if (clashes) check_refusal(w, &c);
    return solved;
}

/* --- wishes to check --- */

static const char *const gpus[] = {NULL,   "P100",  "V100", "T4",    "A100", "A10G",    "L4",
                                   "H100", "GH200", "B200", "GB200", "B300", "RTX 5090"};
static const char *const systems[] = {NULL,        "ubuntu-26.04", "ubuntu-24.04", "ubuntu-22.04", "ubuntu-20.04",
                                      "debian-13", "debian-12",    "rhel-10.1",    "rhel-9.4",     "rhel-8.10",
                                      "amzn-2023", "amzn-2",       "arch-rolling"};
static const char *const kernels[] = {
    NULL, "6.8.0-1020-aws", "7.0.0-1011-gcp", "6.17.9-generic", "5.14.0-687.el9", "5.14.0-427.el9", "6.1.0-56-amd64"};
static const char *const loadeds[] = {NULL,        NULL,        NULL,         "535.183.01",
                                      "580.65.06", "590.48.01", "470.256.02", "565.57.01"};
static const char *const drivers[] = {NULL,        "auto",       "none", "620", "610", "595", "590", "580",
                                      "580.65.06", "580.159.04", "575",  "570", "560", "550", "535", "525"};
static const char *const flavours[] = {NULL, "auto", "open", "proprietary"};
static const char *const sources[] = {NULL, "auto", "nvidia", "distro"};
static const char *const cudas[] = {NULL,   "auto",   "none", "13",   "13.3", "13.0", "12",
                                    "12.9", "12.8.1", "12.6", "12.4", "12.0", "11.8"};
static const char *const cudnns[] = {NULL, "auto", "none", "9", "9.17.0", "9.10.2.21"};
static const char *const nccls[] = {NULL, "auto", "none", "2.30.7", "2.28", "2.28.3", "2.21.5"};
static const char *const torches[] = {NULL,  "auto",  "none",  "2.14.0",      "2.9.1+cu130",
                                      "2.9", "cu128", "cu126", "2.8.0+cu128", "2.5.1"};

static const char *const pythons[] = {"3.8", "3.9", "3.12"};

#define PICK(list, n) (list)[(n) % GP_ARRAY_LEN(list)]

static unsigned state_of_dice = 12345;
static unsigned dice(void) {
    state_of_dice = state_of_dice * 1664525u + 1013904223u;
    return state_of_dice >> 8;
}

static void set_gpu(struct software_wish *w, const char *name) {
    if (name != NULL) assert_true(software_gpu_named(name, &w->gpu));
}

/* GPUs, systems and kernels with each single wish, and two wishes together. */
static void every_pair(void **state) {
    (void)state;
    size_t solved = 0, refused = 0;
    for (size_t g = 0; g < GP_ARRAY_LEN(gpus); g++) {
        for (size_t o = 0; o < GP_ARRAY_LEN(systems); o++) {
            struct software_wish w = {.os = systems[o], .nvswitches = -1, .gpus = 8};
            set_gpu(&w, gpus[g]);
            for (size_t i = 0; i < GP_ARRAY_LEN(drivers); i++) {
                w.driver = drivers[i];
                for (size_t k = 0; k < GP_ARRAY_LEN(cudas); k++) {
                    w.cuda = cudas[k];
                    check(&w, false) ? solved++ : refused++;
                }
                w.cuda = NULL;
                for (size_t k = 0; k < GP_ARRAY_LEN(torches); k++) {
                    w.torch = torches[k];
                    check(&w, false) ? solved++ : refused++;
                }
                w.torch = NULL;
            }
        }
    }
    assert_true(solved > 5000 && refused > 5000);
}

static void samples(void **state) {
    (void)state;
    size_t solved = 0, refused = 0;
    for (int i = 0; i < 6000; i++) {
        struct software_wish w = {.nvswitches = -1, .gpus = 8};
        set_gpu(&w, PICK(gpus, dice()));
        w.os = PICK(systems, dice());
        w.kernel = PICK(kernels, dice());
        w.loaded = PICK(loadeds, dice());
        /* Few wishes at a time: with all of them nearly everything is refused by the first. */
        unsigned which = dice();
        if ((which & 1) != 0) w.driver = PICK(drivers, dice());
        if ((which & 6) == 2) w.flavour = PICK(flavours, dice());
        if ((which & 24) == 8) w.source = PICK(sources, dice());
        if ((which & 32) != 0) w.cuda = PICK(cudas, dice());
        if ((which & 192) == 64) w.cudnn = PICK(cudnns, dice());
        if ((which & 768) == 256) w.nccl = PICK(nccls, dice());
        if ((which & 3072) == 1024) w.torch = PICK(torches, dice());
        unsigned more = dice();
        if ((more & 7) == 1) w.tensorflow = (more & 8) != 0 ? "2.19.0" : (more & 16) != 0 ? "" : "2.22.0";
        if ((more & 224) == 32) w.horovod = (more & 8) != 0 ? "" : "0.29.0";
        if ((more & 1792) == 256) w.deepspeed = "";
        w.toolkit = (more & 2048) != 0;
        if ((more & 12288) == 4096) w.python = PICK(pythons, dice());
        check(&w, true) ? solved++ : refused++;
    }
    assert_true(solved > 1000 && refused > 1000);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_pair), cmocka_unit_test(samples)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

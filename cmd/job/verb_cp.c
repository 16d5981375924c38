/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov cp SRC... DST: copies files and folders to a node or from it. */
#include "base/gp_base.h"

#include "cmd/app.h"

#include "base/clock.h"
#include "base/form.h"
#include "base/json.h"

struct opts {
    bool ignore, mirror, by_hash;
    int64_t fetch_ms;
};
static const struct opt options[] = {
    {.name = "ignore",
     .type = OPT_FLAG,
     .offset = offsetof(struct opts, ignore),
     .help = "to a node: leave out .git and what .gpuprovignore files name (as .gitignore)"},
    {.name = "mirror",
     .type = OPT_FLAG,
     .offset = offsetof(struct opts, mirror),
     .help = "remove what the source does not have from the copied folders"},
    {.name = "checksum",
     .type = OPT_FLAG,
     .offset = offsetof(struct opts, by_hash),
     .help = "compare files of equal size and time by their hash too"},
    FETCH_ROW(struct opts, fetch_ms),
    {0}};

/* "STACK[/N|/all]:PATH": *ret_target and *ret_path, the latter borrowed. A path of this machine with a ':' begins with
 * '/' or "./". Caller frees *ret_target. */
static bool is_remote(const char *arg, char **ret_target, const char **ret_path) {
    const char *colon = strchr(arg, ':');
    if (colon == NULL) return false;
    GP_AUTO_FREE char *target = xstrndup(arg, (size_t)(colon - arg));
    size_t name = strcspn(target, "/");
    int64_t slot = 0;
    bool all = str_eq(target + name, "/all");
    if (target[name] == '/' && !all && !str_to_i64(target + name + 1, 0, INT32_MAX, &slot)) return false;
    GP_AUTO_FREE char *stack = xstrndup(target, name);
    if (!form_stack(stack)) return false;
    *ret_target = GP_STEAL(target);
    *ret_path = colon[1] != '\0' ? colon + 1 : ".";
    return true;
}

/* Sorts the arguments into the request: one side is a node, and always the same one. *ret_target: caller frees. */
static int decode(const struct invocation *inv, struct cp_req *req, struct strv *from, char **ret_target,
                  struct gp_error *err) {
    const char *last = inv->args[inv->n_args - 1], *path = NULL;
    req->up = is_remote(last, ret_target, &path);
    req->to = req->up ? path : last;
    for (int i = 0; i < inv->n_args - 1; i++) {
        GP_AUTO_FREE char *target = NULL;
        bool remote = is_remote(inv->args[i], &target, &path);
        if (remote && req->up)
            return gp_fail(err, GP_EUSAGE, "'%s' and '%s' are both on nodes: copy to this machine first", inv->args[i],
                           last);
        if (!remote && !req->up)
            return gp_fail(err, GP_EUSAGE, "neither '%s' nor '%s' is on a node: name one as STACK/N:PATH", inv->args[i],
                           last);
        if (remote && *ret_target != NULL && !str_eq(*ret_target, target))
            return gp_fail(err, GP_EUSAGE, "'%s': all sources must be on one node", inv->args[i]);
        if (remote && *ret_target == NULL) *ret_target = GP_STEAL(target);
        strv_add(from, remote ? path : inv->args[i]);
    }
    req->from = from;
    return 0;
}

/* "llm/0", "llm" for all nodes. */
static const char *label(const struct cp_req *req, char dst[80]) {
    if (req->slot < 0) snprintf(dst, 80, "%s", req->name);
    else snprintf(dst, 80, "%s/%d", req->name, req->slot);
    return dst;
}

static json_t *stats_json(const struct cp_req *req, const struct tree_stats *s) {
    json_t *notes = json_array();
    for (size_t i = 0; i < s->notes.n; i++) json_array_append_new(notes, json_any_text(s->notes.v[i]));
    json_t *node = req->slot >= 0 ? json_integer(req->slot) : json_null();
    return json_pack("{s:s, s:o, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}", "stack", req->name, "node", node,
                     "bytes_fetched", (json_int_t)s->bytes_fetched, "files", (json_int_t)s->files, "bytes",
                     (json_int_t)s->bytes, "files_sent", (json_int_t)s->files_sent, "bytes_sent",
                     (json_int_t)s->bytes_sent, "removed", (json_int_t)s->removed, "left_out", (json_int_t)s->left_out,
                     "notes", notes);
}

static void show(const struct cp_req *req, const struct tree_stats *s, int64_t took_ms) {
    char took[32], to[80], sent[24], all[24], passed[24];
    uint64_t same = s->files - GP_MIN(s->files, s->files_sent);
    duration_format(took, sizeof took, took_ms);
    bytes_format(sent, sizeof sent, s->bytes_sent);
    bytes_format(all, sizeof all, s->bytes);
    bytes_format(passed, sizeof passed, s->bytes_fetched);
    if (s->files_sent == 0 && s->files > 0)
        printf("%s: %llu file%s (%s), unchanged, in %s", label(req, to), (unsigned long long)s->files,
               s->files == 1 ? "" : "s", all, took);
    else
        printf("%s: copied %llu file%s, %s, in %s", label(req, to), (unsigned long long)s->files_sent,
               s->files_sent == 1 ? "" : "s", sent, took);
    if (s->files_sent > 0 && same > 0) printf(", %llu unchanged", (unsigned long long)same);
    if (s->bytes_fetched > 0) printf(", %s from node to node", passed);
    if (s->removed > 0) printf(", removed %llu", (unsigned long long)s->removed);
    printf("\n");
}

static int copy(struct invocation *inv, struct cp_req *req, struct gp_error *err) {
    struct engine *e = NULL;
    struct progress *p = NULL;
    GP_AUTO_TREE_STATS struct tree_stats stats = {0};
    struct gp_error why = {0};
    char to[80];
    int64_t start = clock_ms();
    int r = app_engine(inv, &e, err);
    if (r == 0) r = app_progress(inv, e, req->name, 1, &p, err);
    if (r != 0) return r;
    r = engine_cp(e, req, &stats, &why);
    app_progress_end(e, &p);
    for (size_t i = 0; i < stats.notes.n && !inv->common->json; i++)
        fprintf(stderr, "warning: %s: %s\n", label(req, to), stats.notes.v[i]);
    if (r == 0 && stats.left_out > 0)
        r = gp_fail(&why, GP_EIO, "%s: %llu files, folders or links were not copied: see the warnings", label(req, to),
                    (unsigned long long)stats.left_out);
    if (inv->common->json) {
        json_t *j = stats_json(req, &stats);
        if (r != 0) result_error(inv, j, &why);
        print_json(j);
    } else if (r == 0 || stats.left_out > 0) show(req, &stats, clock_ms() - start);
    if (r != 0) *err = why;
    return r;
}

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    struct cp_req req = {.ignore = o->ignore, .mirror = o->mirror, .by_hash = o->by_hash, .fetch_ms = o->fetch_ms};
    GP_AUTO_STRV struct strv from = {0};
    GP_AUTO_FREE char *target = NULL, *name = NULL;
    GP_AUTO_SPEC struct spec *spec = NULL;
    int r = decode(inv, &req, &from, &target, err);
    if (r == 0 && o->ignore && !req.up) r = gp_fail(err, GP_EUSAGE, "--ignore is for copies to a node");
    if (r == 0 && o->fetch_ms > 0 && req.up) r = gp_fail(err, GP_EUSAGE, "--fetch-timeout is for copies from a node");
    bool all = r == 0 && target != NULL && str_ends(target, "/all");
    if (all && !req.up) r = gp_fail(err, GP_EUSAGE, "'%s' is for copies to nodes: name one node to copy from", target);
    if (all) target[strlen(target) - strlen("/all")] = '\0';
    if (r == 0) r = app_stack_slot(inv, target, &name, &req.slot, &spec, err);
    if (r != 0) return r;
    if (!all && req.slot < 0) req.slot = 0;
    req.name = name;
    req.spec = spec;
    return copy(inv, &req, err);
}

const struct verb verb_cp = {
    .name = "cp",
    .argspec = "SRC... DST",
    .help = "copies files and folders to a node or from it",
    .details = "  One side is STACK/N:PATH, PATH relative to the home folder there; STACK:PATH is on node 0. DST may\n"
               "  be STACK/all:PATH: the first node gets a folder from this machine, the others from each other.\n"
               "  A path of this machine with a ':' begins with './'. A folder SRC becomes DST/NAME, with or without\n"
               "  a slash at its end; SRC/. copies its content into DST. A file becomes DST, or DST/NAME if DST is a\n"
               "  folder, ends in '/', or there are several SRC.\n"
               "  Only files that differ are sent: by size and time, else by hash. Each is checked by its hash and\n"
               "  replaced at once. After a lost connection it goes on; after a crash or a full disk, repeat it.\n"
               "  Links are copied as links; from a node, links that lead out of the copied folder are left out.\n"
               "  Owners, hard links and extended attributes are not copied, sockets and devices are left out.\n"
               "  Exit 1 if anything was left out.\n",
    .examples = "  gpuprov cp data try/0:             # the folder data, into the home folder of node 0\n"
                "  gpuprov cp --ignore . try/all:src      # the content of this folder, without .git, into src\n"
                "  gpuprov cp try/1:out/model.pt .    # a file of node 1\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .min_args = 2,
    .max_args = 1000,
};

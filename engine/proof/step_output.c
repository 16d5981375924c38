/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps, reads and shortens the outputs of failed steps. The text was cleaned when it was read from the node. */
#include "base/gp_base.h"

#include "engine/proof/step_output.h"

#include "base/fs.h"
#include "engine/run/stack_dir.h"

enum { TAIL_LINES = 20, TAIL_BYTES = 8192, LINE_BYTES = 400 };
enum { TAIL_NODES = 1, KEEP_NODES = 16, KEEP_BYTES = 65536 }; /* further nodes: no lines; only the end is kept */
#define KEPT_MAX ((size_t)4 << 20)

static int output_dir(const struct run *run, int slot, char **ret, struct gp_error *err) {
    GP_AUTO_FREE char *dir = NULL;
    int r = stack_dir_path(run->e, run->stack.uid, &dir, err);
    if (r == 0) *ret = xasprintf("%s/output/%d", dir, slot);
    return r;
}

/* The form of a step's name (core/spec/spec_tables.c), which is a file name here. */
static bool is_file_name(const char *step) {
    return step[0] != '\0' && step[0] != '.' && strlen(step) <= 40 &&
           strspn(step, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") == strlen(step);
}

static int output_path(const struct run *run, int slot, const char *step, char **ret, struct gp_error *err) {
    GP_AUTO_FREE char *dir = NULL;
    if (!is_file_name(step)) return gp_fail(err, GP_EUSAGE, "'%.80s' is not the name of a step", step);
    int r = output_dir(run, slot, &dir, err);
    if (r == 0) *ret = xasprintf("%s/%s.log", dir, step);
    return r;
}

static int keep(const struct run *run, int slot, const char *step, const char *text, char **ret, struct gp_error *err) {
    GP_AUTO_FREE char *dir = NULL;
    GP_AUTO_FREE char *path = NULL;
    int r = output_path(run, slot, step, &path, err);
    if (r == 0) r = output_dir(run, slot, &dir, err);
    if (r == 0) r = fs_mkdirs(dir, 0700, err);
    if (r == 0) r = fs_write_atomic(path, text, strlen(text), 0600, err);
    if (r == 0) *ret = GP_STEAL(path);
    return r;
}

static void add_lines(const char *lines, struct str *out) {
    for (const char *s = lines; *s != '\0';) {
        size_t n = strcspn(s, "\n");
        str_addf(out, "| %.*s%s\n", (int)GP_MIN(n, (size_t)LINE_BYTES), s, n > LINE_BYTES ? "..." : "");
        s += n + (s[n] == '\n');
    }
}

bool step_output_stays(const struct run *run) { return !run->e->opts.scratch; }

int step_output_keep(struct run *run, int slot, const struct bootstrap_output *o, struct str *tail,
                     struct gp_error *err) {
    const char *all = o->text.s != NULL ? o->text.s : "", *kept = all;
    int before = atomic_fetch_add(&run->failed_steps, 1);
    if (before >= KEEP_NODES) kept = str_last_lines(all, SIZE_MAX, KEEP_BYTES);
    GP_AUTO_FREE char *path = NULL;
    bool stays = step_output_stays(run);
    int r = stays ? keep(run, slot, o->step, kept, &path, err) : 0;
    const char *last = str_last_lines(all, TAIL_LINES, TAIL_BYTES);
    if (before < TAIL_NODES) add_lines(last, tail);
    if (all[0] == '\0') str_add(tail, "it printed nothing\n");
    else if (path != NULL) str_addf(tail, "%s: %s\n", kept > all ? "the end of its output" : "its output", path);
    str_addf(tail, "on the node: %s\n", o->node_path);
    return r;
}

int step_output_of_gone(const struct engine *e, const char *name, int slot, const char *step, struct str *ret,
                        struct gp_error *err) {
    GP_AUTO_FREE char *dir = stack_dir_kept_outputs(e, name, e->opts.owner);
    if (!is_file_name(step)) return gp_fail(err, GP_EUSAGE, "'%.80s' is not the name of a step", step);
    GP_AUTO_FREE char *path = dir != NULL ? xasprintf("%s/%d/%s.log", dir, slot, step) : NULL;
    if (path == NULL || !fs_exists(path)) return gp_fail(err, GP_ENOTFOUND, "no output of step '%s' was kept", step);
    return fs_read(path, KEPT_MAX, ret, err);
}

int step_output_kept(const struct run *run, int slot, const char *step, struct str *ret, struct gp_error *err) {
    GP_AUTO_FREE char *path = NULL;
    int r = output_path(run, slot, step, &path, err);
    if (r != 0) return r;
    if (!fs_exists(path)) return gp_fail(err, GP_ENOTFOUND, "no output of step '%s' was kept", step);
    return fs_read(path, KEPT_MAX, ret, err);
}

void step_output_forget(const struct run *run, int slot) {
    GP_AUTO_FREE char *dir = NULL;
    struct gp_error ignored = {0}; /* an outdated file is replaced by the next failure */
    if (output_dir(run, slot, &dir, &ignored) == 0 && fs_exists(dir)) (void)fs_remove_tree(dir, &ignored);
}

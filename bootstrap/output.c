/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the kept output of a step from its node. It is foreign text: cleaned, bounded, without secrets. The node's own
 * thread. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

#include "base/log.h"

#define OUTPUT_MS 30000
#define OUTPUT_MAX ((size_t)2 << 20) /* job.sh keeps less */

void bootstrap_output_clear(struct bootstrap_output *o) {
    free(o->step);
    free(o->node_path);
    str_clear(&o->text);
    *o = (struct bootstrap_output){0};
}

enum { ID_HASH = 9 }; /* characters after the name in a step's folder */

static int not_there(const char *out, struct gp_error *err) {
    GP_AUTO_STR struct str names = {.max = 400};
    for (const char *p = out; (p = strstr(p, "\n::ran ")) != NULL;) {
        p += strlen("\n::ran ");
        size_t n = strcspn(p, "\n");
        if (n > ID_HASH) str_addf(&names, "%s%.*s", names.len > 0 ? ", " : "", (int)(n - ID_HASH), p);
    }
    return gp_fail(err, GP_ENOTFOUND, "it has not run on this node%s%s", names.len > 0 ? "; steps that have: " : "",
                   names.len > 0 ? names.s : "");
}

static int parse(const char *out, size_t n, struct bootstrap_output *ret, struct gp_error *err) {
    const char *mark = strstr(out, "\n::output ");
    if (mark == NULL) return not_there(out, err);
    const char *path = mark + strlen("\n::output "), *text = path + strcspn(path, "\n");
    GP_AUTO_FREE char *raw_path = xstrndup(path, (size_t)(text - path));
    GP_AUTO_FREE char *raw = xstrndup(text, n - (size_t)(text - out));
    GP_AUTO_FREE char *clean = log_cleaned(raw[0] == '\n' ? raw + 1 : raw);
    str_one_line(raw_path);
    ret->node_path = GP_STEAL(raw_path);
    ret->text.max = OUTPUT_MAX;
    str_add(&ret->text, clean);
    struct str *t = &ret->text;
    while (t->len > 0 && t->s[t->len - 1] == '\n' && (t->len == 1 || t->s[t->len - 2] == '\n')) t->s[--t->len] = '\0';
    return 0;
}

static int read_output(struct node_link *l, const char *step, bool user, struct bootstrap_output *ret,
                       struct gp_error *err) {
    GP_AUTO_STR struct str script = {0};
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    char id[64];
    boot_step_id(step, user, id);
    str_add(&script, "echo\n"); /* ends a line that a start-up file printed without a newline */
    int rc = boot_file("run/lib", &script, err);
    boot_var(&script, "STEP", id);
    if (!rc) rc = boot_file("run/output", &script, err);
    struct ssh_exec_opts opts = {.deadline_ms = clock_deadline(OUTPUT_MS), .max_output = OUTPUT_MAX};
    if (!rc) rc = node_link_exec(l, &script, &opts, &r, err);
    if (rc) return rc;
    if (r.end != SSH_EXITED) return gp_fail(err, GP_ELOST, "the connection was lost");
    for (size_t i = 0; i < r.out.len; i++)
        if (r.out.s[i] == '\0') r.out.s[i] = '?';
    return parse(r.out.s ? r.out.s : "", r.out.len, ret, err);
}

/* A step of gpuprov's own that no script applies has no output. */
static bool is_silent(const char *step) {
    for (const struct boot_step *s = boot_steps; s->file; s++)
        if (s->name && s->apply && strcmp(s->name, step) == 0) return true;
    return false;
}

int bootstrap_output_read(struct node_link *l, const char *step, struct bootstrap_output *ret, struct gp_error *err) {
    struct gp_error why = {0};
    int rc = read_output(l, step, true, ret, &why);
    if (rc == -GP_ENOTFOUND) {
        gp_error_clear(&why);
        rc = read_output(l, step, false, ret, &why); /* a step of gpuprov's own */
    }
    if (rc == -GP_ENOTFOUND && is_silent(step))
        return gp_fail(err, GP_ENOTFOUND,
                       "%s: step '%s' is applied by gpuprov itself and has no output: 'gpuprov logs' "
                       "without --step has its events",
                       l->target.label, step);
    if (rc == 0) ret->step = xstrdup(step);
    else (void)gp_fail(err, why.code, "%s: could not read the output of step '%s': %s", l->target.label, step, why.msg);
    return rc;
}

void bootstrap_result_clear(struct bootstrap_result *r) {
    strv_clear(&r->steps);
    bootstrap_output_clear(&r->failed);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Selects the baseline of a run (--baseline, validate.baseline, or the one in the state folder), applies it, and writes
 * one (--calibrate). Runs in the verb's thread. */
#include "base/gp_base.h"

#include "engine/proof/run_baseline.h"

#include "base/fs.h"

/* *ret_named: the option or the spec names it, so it is required. Caller frees; NULL: none, without a state folder. */
static char *path_of(const struct engine *e, const struct spec *spec, bool *ret_named) {
    const char *own = spec->validate.baseline;
    *ret_named = e->baseline != NULL || own != NULL;
    if (e->baseline != NULL) return fs_expand_home(e->baseline);
    if (own != NULL) return xstrdup(own);
    return e->opts.scratch ? NULL : fs_join(e->state_dir, "baseline.json");
}

int run_baseline_open(const struct engine *e, const struct spec *spec, struct baseline *ret, struct gp_error *err) {
    if (e->calibrate) return 0; /* a calibration is compared with nothing */
    bool named = false;
    GP_AUTO_FREE char *path = path_of(e, spec, &named);
    if (path == NULL || (!named && !fs_exists(path))) return 0;
    int r = baseline_load(path, ret, err);
    return r == -GP_ENOTFOUND ? gp_wrap(err, "the baseline is missing ('gpuprov validate --calibrate' writes one)") : r;
}

void run_baseline_hold(const struct baseline *b, const struct validate_env *env, struct report *report, bool gang) {
    if (b->path == NULL) return;
    baseline_judge(b, env, report, gang);
    GP_AUTO_FREE char *unknown = gang ? NULL : baseline_unknown(b, report);
    if (unknown != NULL)
        event_emit(env->sink, -1, NODE_CHECKING, EVENT_INFO, "baseline",
                   "%s has no rates of %s: "
                   "'gpuprov validate --calibrate' adds it",
                   b->path, unknown);
}

/* An existing file keeps its rates of other models and drivers. */
int run_baseline_write(const struct engine *e, const struct validate_env *env, struct report *report,
                       struct gp_error *err) {
    bool named = false;
    size_t n = 0;
    GP_AUTO_FREE char *path = path_of(e, env->spec, &named);
    GP_CLEANUP(baseline_clear) struct baseline b = {0};
    if (path == NULL) return gp_fail(err, GP_EUSAGE, "--calibrate without a stack requires --baseline FILE");
    int r = fs_exists(path) ? baseline_load(path, &b, err) : 0;
    if (r == 0) r = baseline_calibrate(&b, report, &n, err);
    if (r == 0) r = baseline_save(&b, path, err);
    if (r == 0)
        event_emit(env->sink, -1, NODE_READY, EVENT_DONE, "baseline", "%zu figure%s written to %s", n,
                   n == 1 ? "" : "s", path);
    return r;
}

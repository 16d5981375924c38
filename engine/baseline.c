/* SPDX-License-Identifier: Apache-2.0 */
/* Which baseline a run is held against (--baseline, validate.baseline, or the one in the state folder),
 * and making one of a run (--calibrate). The verb's thread. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "engine/run.h"

/* *ret_named: somebody asked for it, so it must be there. Caller frees. */
static char *path_of(const struct run *run, bool *ret_named) {
    const char *option = run->e->baseline, *own = run->spec->validate.baseline;
    *ret_named = option != NULL || own != NULL;
    if (option != NULL) return fs_expand_home(option);
    return own != NULL ? xstrdup(own) : fs_join(run->e->state_dir, "baseline.json");
}

int baseline_open(struct run *run, struct gp_error *err) {
    if (run->e->calibrate) return 0; /* what is measured now is the measure */
    bool named = false;
    GP_AUTO_FREE char *path = path_of(run, &named);
    if (!named && !fs_exists(path)) return 0;
    int r = baseline_load(path, &run->baseline, err);
    return r == -GP_ENOTFOUND ? gp_wrap(err, "'gpuprov validate STACK --calibrate' writes one") : r;
}

void baseline_hold(struct run *run, struct report *report, bool gang) {
    if (run->baseline.path == NULL) return;
    baseline_judge(&run->baseline, &run->venv, report, gang);
    GP_AUTO_FREE char *unknown = gang ? NULL : baseline_unknown(&run->baseline, report);
    if (unknown != NULL)
        run_event(run, -1, NODE_CHECKING, EVENT_INFO, "baseline", "%s has nothing about %s: 'gpuprov "
                  "validate %s --calibrate' adds it", run->baseline.path, unknown, run->stack.name);
}

/* An older file keeps what it says about other models and drivers. */
int baseline_write(struct run *run, struct report *report, struct gp_error *err) {
    bool named = false;
    size_t n = 0;
    GP_AUTO_FREE char *path = path_of(run, &named);
    GP_CLEANUP(baseline_clear) struct baseline b = {0};
    int r = fs_exists(path) ? baseline_load(path, &b, err) : 0;
    if (r == 0) r = baseline_calibrate(&b, report, &n, err);
    if (r == 0) r = baseline_save(&b, path, err);
    if (r == 0)
        run_event(run, -1, NODE_READY, EVENT_DONE, "baseline", "%zu figure%s written to %s", n,
                  n == 1 ? "" : "s", path);
    return r;
}

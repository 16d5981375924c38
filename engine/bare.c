/* SPDX-License-Identifier: Apache-2.0 */
/* Validates without a stack: this machine, or the machines of a hosts file. Launches, claims and stores nothing. Hosts
 * are validated by engine_up with a journal in memory, so that they use the same code as launched nodes. Runs in the
 * verb's thread. */
#include "base/gp_base.h"

#include "engine/engine.h"

#include "base/fs.h"
#include "base/json.h"
#include "engine/certificate/machine.h"
#include "engine/internal.h"
#include "engine/proof/run_baseline.h"
#include "providers/ssh/hosts.h"

#include <unistd.h>

enum { DEFAULT_MS = 5 * 60 * 1000 };

/* Decodes a spec in memory like a file, so that its rules apply. The time is set afterwards, because a scheduler may
 * give one that the spec's rules refuse. */
static int make_spec(json_t *j, const struct bare_req *req, struct spec **ret, struct gp_error *err) {
    if (req->gpu != NULL) json_object_set_new(j, "gpu", json_any_text(req->gpu));
    GP_AUTO_FREE char *text = json_text(j, 0);
    struct spec_problems problems = {0};
    int r = spec_load_text("(no spec)", text, strlen(text), validate_names(), ret, &problems, err);
    if (r != 0 && problems.list.len > 0) {
        gp_error_clear(err);
        gp_fail(err, GP_EUSAGE, "%s", problems.list.items[0].message);
    }
    spec_problems_clear(&problems);
    if (r != 0) return r;
    (*ret)->validate.time_ms = req->time_ms > 0 ? req->time_ms : DEFAULT_MS;
    (*ret)->validate.strict = req->strict;
    return 0;
}

/* Some GPUs are in no table, so an unknown model is only warned of, if it looks like a typing error. */
static void warn_of_gpu(const struct engine *e, const struct spec *spec) {
    GP_AUTO_FREE char *near = spec_gpu_near(spec->gpu.model, validate_names());
    if (near != NULL)
        event_emit(&e->sink, -1, NODE_CHECKING, EVENT_WARN, "gpu", "unknown GPU model '%s'; did you mean '%s'?",
                   spec->gpu.model, near);
}

/* --- this machine --- */

static int local_spec(const struct bare_req *req, struct spec **ret, struct gp_error *err) {
    GP_AUTO_JSON json_t *j = json_pack("{s:s}", "name", "local");
    int r = make_spec(j, req, ret, err);
    if (r == 0 && req->gpu == NULL) (*ret)->gpu.count = machine_gpu_count();
    return r;
}

static void name_node(struct report_node *rn) {
    char host[256] = "";
    if (gethostname(host, sizeof host - 1) != 0) str_put(host, sizeof host, "localhost");
    rn->id = xstrdup(host);
    rn->place = xstrdup("this machine");
    rn->address = xstrdup("");
}

int engine_validate_local(struct engine *e, const struct bare_req *req, struct report *ret, struct gp_error *err) {
    GP_AUTO_SPEC struct spec *spec = NULL;
    GP_CLEANUP(validate_plan_clear) struct validate_plan plan = {0};
    GP_CLEANUP(baseline_clear) struct baseline baseline = {0};
    char run_id[17];
    int r = local_spec(req, &spec, err);
    if (r == 0) warn_of_gpu(e, spec);
    if (r == 0) r = validate_choose_local(spec, &plan, err);
    if (r == 0) r = fs_random_hex(run_id, 8, err);
    if (r == 0) r = run_baseline_open(e, spec, &baseline, err);
    if (r != 0) return r;
    struct validate_env env = {.spec = spec,
                               .plan = &plan,
                               .stack = "local",
                               .uid = "",
                               .run = run_id,
                               .nvidia_expected = spec->gpu.count > 0,
                               .gpus_expected = spec->gpu.count,
                               .all = e->opts.check_all,
                               .cancel = &e->cancel,
                               .sink = &e->sink};
    struct report_node rn = {0};
    ret->stack = xstrdup("local");
    ret->uid = xstrdup("");
    ret->run = xstrdup(run_id);
    ret->strict = spec->validate.strict;
    ret->started_s = clock_wall_s();
    int64_t began_ms = clock_ms();
    name_node(&rn);
    r = validate_local(&env, &rn, err);
    vec_push(&ret->nodes, rn);
    ret->took_ms = clock_ms() - began_ms;
    run_baseline_hold(&baseline, &env, ret, false);
    report_judge(ret);
    if (r == 0) return e->calibrate ? run_baseline_write(e, &env, ret, err) : 0;
    ret->ready = ret->nodes.items[0].ready = false;
    return r;
}

/* --- the machines of a hosts file --- */

/* The GPU key that all hosts of the file have. Caller frees; NULL: none. */
static int gpu_of_all(const struct ssh_host_list *hosts, char **ret, struct gp_error *err) {
    const struct ssh_host *first = &hosts->list.items[0];
    for (size_t i = 1; i < hosts->list.len; i++) {
        const struct ssh_host *h = &hosts->list.items[i];
        if (h->gpus != first->gpus || !str_eq(h->gpu_model, first->gpu_model))
            return gp_fail(err, GP_EUSAGE,
                           "the hosts have different GPUs (%s and %s): use one file per GPU model, "
                           "or give --gpu MODEL:N if the file is wrong",
                           first->address, h->address);
    }
    *ret = first->gpus > 0 && first->gpu_model != NULL ? xasprintf("%s:%d", first->gpu_model, first->gpus) : NULL;
    return 0;
}

static int hosts_spec(const struct engine *e, const char *path, const struct bare_req *req, struct spec **ret,
                      struct gp_error *err) {
    GP_AUTO_SSH_HOSTS struct ssh_host_list hosts = {0};
    GP_AUTO_FREE char *gpu = NULL;
    int r = ssh_hosts_load(path, &e->cancel, &hosts, err);
    if (r == 0 && hosts.list.len == 0) r = gp_fail(err, GP_EUSAGE, "'%s' names no host", path);
    if (r == 0 && req->gpu == NULL) r = gpu_of_all(&hosts, &gpu, err);
    if (r != 0) return r;
    GP_AUTO_FREE char *absolute = ssh_hosts_absolute(path);
    GP_AUTO_FREE char *escaped = spec_escape(absolute, false); /* a path may have "${" in it */
    GP_AUTO_JSON json_t *j =
        json_pack("{s:s, s:i, s:[{s:s}]}", "name", "hosts", "nodes", (int)hosts.list.len, "offers", "provider", "ssh");
    json_object_set_new(json_at(j, "offers.0"), "hosts", json_any_text(escaped));
    struct bare_req own = *req;
    if (own.gpu == NULL) own.gpu = gpu;
    return make_spec(j, &own, ret, err);
}

int engine_validate_hosts(struct engine *e, const char *hosts, const struct bare_req *req, struct report *ret,
                          struct gp_error *err) {
    GP_AUTO_SPEC struct spec *spec = NULL;
    int r = hosts_spec(e, hosts, req, &spec, err);
    if (r == 0) warn_of_gpu(e, spec);
    if (r == 0) r = engine_scratch_folder(e, err);
    if (r != 0) return r;
    struct up_result up = {0};
    r = engine_up(e, spec, &up, err);
    *ret = up.report;
    up.report = (struct report){0};
    up_result_clear(&up);
    return r;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Options of `run`, and the checks that they select. Starts nothing. One thread. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "suite_run.h"

#include "gang_local.h"

#include <sys/utsname.h>
#include <time.h>

static int64_t wall_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Whether this program has the check and it applies here. Others are not reported as left out. */
static bool applies(const struct suite_run *run, const struct check_info *c) {
    bool gpus = run->ctx.gpus_expected > 0 || agent_dev_nvidia_count() > 0;
    if (!agent_check_ops(c->id)) return false;
    if (c->python != NULL || c->images) return false; /* only by name: it is about software that nobody asked for */
    if (c->level == CHECK_GANG) return !(c->needs & NEED_PEERS) && gang_local_ranks(run->gpus) >= 2;
    if ((c->level == CHECK_GPU || (c->needs & NEED_GPU)) && !gpus) return false;
    return !(c->needs & NEED_GPUS) || GP_MAX(run->gpus, run->ctx.gpus_expected) >= 2;
}

static void add(struct suite_run *run, const struct check_info *info) {
    if (run->n_picks < GP_ARRAY_LEN(run->picks))
        run->picks[run->n_picks++] = (struct pick){.info = info,
                                                   .gpus = GP_MAX(run->gpus, run->ctx.gpus_expected),
                                                   .core = info->core,
                                                   .required = info->required};
}

/* With --checks: those, in that order, whatever their time. */
static int take_named(struct suite_run *run, const char *ids, struct gp_error *err) {
    struct check_list list = {.n = 0};
    GP_AUTO_STRV struct strv names = {0};
    GP_AUTO_STR struct str node = {0};
    GP_AUTO_STR struct str gang = {0};
    strv_split(&names, ids, ",");
    for (size_t i = 0; i < names.n; i++) {
        const struct check_info *c = check_find(names.v[i]);
        /* a node with several GPUs is a gang by itself, but has no pairs of nodes */
        struct str *to = c && c->level == CHECK_GANG && !(c->needs & NEED_PEERS) ? &gang : &node;
        str_addf(to, "%s%s", to->len ? "," : "", names.v[i]);
    }
    int rc = gang.len ? check_list_parse(gang.s, true, &run->gang, err) : 0;
    if (rc == 0 && (node.len || !gang.len)) rc = check_list_parse(node.len ? node.s : ids, false, &list, err);
    for (size_t i = 0; rc == 0 && i < list.n; i++) {
        add(run, &check_table[list.items[i]]);
        run->picks[i].taken = true;
    }
    return rc;
}

static bool is_this_boot(const char *id) {
    GP_AUTO_STR struct str own = {0};
    return *id && fs_read("/proc/sys/kernel/random/boot_id", 64, &own, NULL) == 0 && str_eq(str_trim(own.s), id);
}

int run_setup(struct suite_run *run, int argc, char **argv, struct gp_error *err) {
    const char *ids = NULL, *floors = NULL, *now_boot = "";
    int64_t gpus = -1, rdma = 0, now_ms = -1;
    bool json = false;
    run->time_ms = 60000;
    run->load_limit_ms = RUN_LOAD_MS;
    const struct arg args[] = {{"--time", ARG_MS, false, &run->time_ms},
                               {"--checks", ARG_TEXT, false, &ids},
                               {"--all", ARG_FLAG, false, &run->all},
                               {"--unjudged", ARG_FLAG, false, &run->unjudged},
                               {"--floors", ARG_TEXT, false, &floors},
                               {"--gpus", ARG_INT, false, &gpus},
                               {"--rdma", ARG_INT, false, &rdma},
                               {"--gpu-model", ARG_TEXT, false, &run->ctx.gpu_model_bought},
                               {"--container-engine", ARG_TEXT, false, &run->ctx.container_engine},
                               {"--load-limit", ARG_MS, false, &run->load_limit_ms},
                               {"--now-ms", ARG_INT, false, &now_ms},
                               {"--now-boot", ARG_TEXT, false, &now_boot},
                               {"--same-clock", ARG_FLAG, false, &run->ctx.same_clock},
                               {"--json", ARG_FLAG, false, &json},
                               {"--text", ARG_FLAG, false, &run->emit.text},
                               {.name = NULL}};
    int64_t now = wall_ms();
    int rc = args_parse(argc, argv, args, err);
    if (rc) return rc;
    const char *engine = run->ctx.container_engine;
    if (engine && !str_eq(engine, "docker") && !str_eq(engine, "podman") && !str_eq(engine, "containerd"))
        return gp_fail(err, GP_EUSAGE, "--container-engine: '%s' is not docker, podman or containerd", engine);
    if (json && run->emit.text) return gp_fail(err, GP_EUSAGE, "--json and --text exclude each other");
    run->ctx.gpu = -1;
    run->ctx.gpus_expected = (int)GP_MAX(-1, GP_MIN(gpus, RUN_MAX_GPUS));
    run->ctx.rdma_expected = (int)GP_MAX(0, GP_MIN(rdma, 1024));
    run->ctx.same_clock = run->ctx.same_clock || is_this_boot(now_boot);
    run->ctx.has_controller_now = now_ms >= 0 && !run->ctx.same_clock;
    run->ctx.clock_offset_ms = now_ms >= 0 ? now - now_ms : 0;
    run->gpus = agent_kind.gpu_count ? GP_MIN(agent_kind.gpu_count(), RUN_MAX_GPUS) : 0;
    run->ctx.gpus = run->gpus;
    struct utsname u;
    if (uname(&u) == 0) str_put(run->host, sizeof run->host, u.nodename);
    run->ctx.host = run->host;
    if (floors) rc = check_list_parse(floors, false, &run->own_floors, err);
    run->named = ids != NULL;
    if (rc == 0 && ids) rc = take_named(run, ids, err);
    if (rc) return rc;
    for (size_t i = 0; !ids && check_table[i].id; i++)
        if (applies(run, &check_table[i])) add(run, &check_table[i]);
    if (!ids) pick_take(run->picks, run->n_picks, run->time_ms);
    pick_share(run->picks, run->n_picks, run->time_ms);
    return 0;
}

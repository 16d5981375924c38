/* SPDX-License-Identifier: Apache-2.0 */
/* Chooses the checks of a spec: all that apply and fit validate.time, required ones first, then the cheapest and
 * most telling (pick.h). Pure; any thread. */
#include "base/gp_base.h"

#include "validate/judge.h"
#include "validate/validate.h"

#include "base/clock.h"
#include "validate/suite/pick.h"

struct pick_list {
    VEC_OF(struct pick) list;
};

static void pick_list_clear(struct pick_list *c) { vec_free(&c->list); }

/* Why this check cannot run for this spec at all; NULL when it can. */
static const char *cannot(const struct spec *spec, const struct check_info *info) {
    if ((info->level == CHECK_GPU || (info->needs & NEED_GPU)) && spec->gpu.count <= 0)
        return str_eq(spec->path, "(no spec)") ? "no GPU was found, and none was given" : "the spec has no gpu";
    if ((info->needs & NEED_PEERS) && spec->nodes < 2) return "needs two nodes or more";
    int gpus = spec->gpu.count * (info->level == CHECK_GANG ? GP_MAX(spec->nodes, 1) : 1);
    if ((info->needs & NEED_GPUS) && gpus < 2) return "needs two GPUs or more";
    if (info->python && !spec->python.wanted) return "the spec has no bootstrap.python";
    if (info->images && spec->container.images.n == 0) return "the spec has no bootstrap.container.images";
    return NULL;
}

static void leave_out(struct validate_plan *p, const struct check_info *info, const char *why) {
    strv_take(&p->left_out, xasprintf("%s (%s)", info->id, why));
}

/* The names in validate.require must exist and apply. */
static int check_required(const struct spec *spec, struct gp_error *err) {
    for (size_t i = 0; i < spec->validate.require.n; i++) {
        const char *id = spec->validate.require.v[i];
        const struct check_info *info = check_find(id);
        if (!info) {
            const char *names[64] = {NULL};
            for (size_t k = 0; k < check_count() && k + 1 < GP_ARRAY_LEN(names); k++) names[k] = check_table[k].id;
            const char *near = str_closest(id, names);
            return gp_fail(err, GP_EUSAGE, "validate.require: there is no check '%s'%s%s%s", id,
                           near ? "; did you mean '" : "; see 'gpuprov checks'", near ? near : "", near ? "'?" : "");
        }
        const char *why = cannot(spec, info);
        if (why) return gp_fail(err, GP_EUSAGE, "validate.require: %s cannot run: %s", id, why);
    }
    return 0;
}

/* A floor of a check that cannot run can never be met. The decoder has checked its name. */
static int check_floors(const struct spec *spec, struct gp_error *err) {
    for (size_t i = 0; i < spec->validate.floors.len; i++) {
        const char *id = spec->validate.floors.items[i].check;
        const struct check_info *info = check_find(id);
        const char *why = info ? cannot(spec, info) : "there is no such check";
        if (why) return gp_fail(err, GP_EUSAGE, "validate.floors: %s cannot run: %s", id, why);
    }
    return 0;
}

static void take(struct validate_plan *p, const struct check_info *info) {
    if (info->level == CHECK_GANG) vec_push(&p->gang_checks, info);
    else vec_push(&p->node_checks, info);
}

static int too_short(const struct spec *spec, const struct pick_list *all, int64_t need_s, struct gp_error *err) {
    GP_AUTO_STR struct str names = {.max = 300};
    for (size_t i = 0; i < all->list.len && all->list.items[i].core; i++)
        str_addf(&names, "%s%s %ds", i ? ", " : "", all->list.items[i].info->id, pick_stated(&all->list.items[i]));
    char have[32], need[32];
    duration_format(have, sizeof have, spec->validate.time_ms);
    duration_format(need, sizeof need, need_s * 1000);
    return gp_fail(err, GP_EUSAGE, "validate.time: %s is too short for the required checks, which take %s (%s)", have,
                   need, names.s);
}

static void plan_add(struct validate_plan *p, const struct spec *spec, const struct pick_list *all) {
    char have[32];
    duration_format(have, sizeof have, spec->validate.time_ms);
    for (size_t i = 0; i < all->list.len; i++) {
        const struct pick *c = &all->list.items[i];
        if (c->taken) {
            p->short_gang = p->short_gang || (c->info->longer > 0 && !c->full);
            take(p, c->info);
            continue;
        }
        GP_AUTO_FREE char *why = xasprintf("takes %d s, more than the rest of the time of %s", pick_stated(c), have);
        leave_out(p, c->info, why);
    }
}

/* Node checks that can run longer get half of the time beyond the stated seconds, or all of it without gang checks;
 * gang checks get the rest. */
static int64_t node_time_ms(const struct spec *spec, const struct validate_plan *p) {
    int64_t node_ms = 0, gang_ms = 0;
    bool stretch = false;
    for (size_t i = 0; i < p->node_checks.len; i++) {
        node_ms += (int64_t)check_stated(p->node_checks.items[i], spec->gpu.count) * 1000;
        stretch = stretch || p->node_checks.items[i]->stretch;
    }
    for (size_t i = 0; i < p->gang_checks.len; i++) {
        const struct check_info *c = p->gang_checks.items[i];
        gang_ms += (int64_t)(check_stated(c, spec->gpu.count) + (p->short_gang ? 0 : c->longer)) * 1000;
    }
    int64_t spare_ms = GP_MAX(spec->validate.time_ms - node_ms - gang_ms, 0);
    int64_t longer_ms = !stretch ? 0 : gang_ms ? spare_ms / 2 : spare_ms;
    return node_ms + longer_ms;
}

int validate_choose(const struct spec *spec, struct validate_plan *ret, struct gp_error *err) {
    int rc = check_required(spec, err);
    if (rc == 0) rc = check_floors(spec, err);
    if (rc < 0) return rc;
    GP_CLEANUP(pick_list_clear) struct pick_list all = {0};
    GP_CLEANUP(validate_plan_clear) struct validate_plan p = {0};
    for (size_t i = 0; i < check_count(); i++) {
        const struct check_info *info = &check_table[i];
        const char *why = cannot(spec, info);
        if (why) {
            leave_out(&p, info, why);
            continue;
        }
        struct pick c = {.info = info,
                         .gpus = spec->gpu.count,
                         .core = info->core || validate_demanded(spec, info->id),
                         .required = info->required};
        vec_push(&all.list, c);
    }
    int64_t need_s = pick_take(all.list.items, all.list.len, spec->validate.time_ms);
    if (need_s * 1000 > spec->validate.time_ms) return too_short(spec, &all, need_s, err);
    plan_add(&p, spec, &all);
    p.node_time_ms = node_time_ms(spec, &p);
    *ret = p;
    p = (struct validate_plan){0};
    return 0;
}

int validate_choose_local(const struct spec *spec, struct validate_plan *ret, struct gp_error *err) {
    GP_CLEANUP(pick_list_clear) struct pick_list all = {0};
    for (size_t i = 0; i < check_count(); i++) {
        const struct check_info *info = &check_table[i];
        /* The agent itself runs the gang checks between the GPUs of one machine. */
        const char *why =
            info->level == CHECK_GANG && spec->gpu.count < 2 ? "needs two GPUs or nodes" : cannot(spec, info);
        struct pick c = {.info = info, .gpus = spec->gpu.count, .core = info->identifies}; /* results of GPUs need it */
        if (why) leave_out(ret, info, why);
        else vec_push(&all.list, c);
    }
    int64_t need_s = pick_take(all.list.items, all.list.len, spec->validate.time_ms);
    if (need_s * 1000 > spec->validate.time_ms) return too_short(spec, &all, need_s, err);
    plan_add(ret, spec, &all);
    for (size_t i = 0; i < ret->gang_checks.len; i++) vec_push(&ret->node_checks, ret->gang_checks.items[i]);
    ret->gang_checks.len = 0;
    ret->node_time_ms = GP_MAX(node_time_ms(spec, ret), 1000);
    return 0;
}

void validate_plan_clear(struct validate_plan *p) {
    vec_free(&p->node_checks);
    vec_free(&p->gang_checks);
    strv_clear(&p->left_out);
}

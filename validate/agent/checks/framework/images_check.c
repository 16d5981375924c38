/* SPDX-License-Identifier: Apache-2.0 */
/* framework.images: PyTorch of each container image of the spec, one image after the other, through the spec's engine.
 * The program is framework.torch's. One thread; ranks call in lock-step. */
#include "base/gp_base.h"

#include "framework.h"
#include "validate/agent/gang/gang.h"

#include "base/clock.h"

struct tally {
    struct str list;    /* data.images without brackets */
    struct str passed;  /* "A: torch 2.9.1...; " */
    struct str skipped; /* "A: the image has no python3; " */
    size_t n, n_passed;
};

static void copy_culprits(struct agent_result *to, const struct agent_result *from) {
    GP_AUTO_STRV struct strv ranks = {0};
    strv_split(&ranks, from->culprits.s != NULL ? from->culprits.s : "", ",");
    for (size_t i = 0; i < ranks.n; i++) agent_culprit(to, (int)strtol(ranks.v[i], NULL, 10));
}

static void take(struct tally *t, const char *image, struct agent_result *one, struct agent_result *r) {
    struct agent_result about = {.gpu = -1};
    bool passed = one->verdict == VERDICT_PASS || one->verdict == VERDICT_DEGRADED;
    agent_data_str(&about, "image", image);
    agent_data_str(&about, "verdict", verdict_name(one->verdict));
    agent_data_str(&about, "message", one->message);
    str_addf(&t->list, "%s{%s,%s}", t->n++ > 0 ? "," : "", about.data.s, one->data.s);
    str_clear(&about.data);
    t->n_passed += passed;
    if (one->verdict == VERDICT_SKIPPED) str_addf(&t->skipped, "; %s: %s", image, one->message);
    else if (one->verdict == VERDICT_PASS) str_addf(&t->passed, "; %s: %s", image, one->message);
    if (one->verdict == VERDICT_SKIPPED || one->verdict == VERDICT_PASS) return;
    bool worse = one->verdict > r->verdict;
    agent_set(r, one->verdict, one->code, "%s: %s", image, one->message);
    if (worse) agent_suggest(r, "%s", one->suggestion);
    copy_culprits(r, one);
}

/* The image's share of the time is that of those that are left. */
static void try_image(struct check_ctx *c, const char *image, size_t left, struct tally *t, struct agent_result *r) {
    struct agent_result one;
    int64_t whole_ms = c->deadline_ms;
    agent_result_init(&one, r->check);
    one.rank = c->rank;
    c->deadline_ms = clock_deadline(clock_left_ms(whole_ms) / (int64_t)left);
    framework_run(&framework_torch, image, c, &one);
    c->deadline_ms = whole_ms;
    for (size_t i = 0; i < one.n_metrics; i++) agent_metric_worst(r, &one.metrics[i]);
    take(t, image, &one, r);
    agent_result_clear(&one);
}

void framework_images_run(struct check_ctx *c, struct agent_result *r) {
    GP_AUTO_STRV struct strv images = {0};
    struct tally t = {.passed = {.max = 300}, .skipped = {.max = 300}};
    strv_split(&images, c->images != NULL ? c->images : "", ",");
    if (images.n == 0 || c->container_engine == NULL) {
        agent_set(r, VERDICT_SKIPPED, "no_image", "no container image was given");
        return;
    }
    agent_data_str(r, "engine", c->container_engine);
    for (size_t i = 0; i < images.n && c->comm_err.code == GP_OK; i++) try_image(c, images.v[i], images.n - i, &t, r);
    str_addf(&r->data, ",\"images\":[%s]", t.list.s != NULL ? t.list.s : "");
    if (t.n_passed > 0) {
        agent_say(r, "torch trains in %zu of %zu image%s%s%s", t.n_passed, images.n, images.n == 1 ? "" : "s",
                  t.passed.s != NULL ? t.passed.s : "", t.skipped.s != NULL ? t.skipped.s : "");
    } else if (t.n == images.n) {
        agent_set(r, VERDICT_SKIPPED, "no_torch", "no image has torch%s", t.skipped.s != NULL ? t.skipped.s : "");
        agent_suggest(r, "add an image with torch to bootstrap.container.images, or remove this check from "
                         "validate.require");
    }
    str_clear(&t.list);
    str_clear(&t.passed);
    str_clear(&t.skipped);
}

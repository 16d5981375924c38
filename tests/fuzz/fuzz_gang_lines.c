/* SPDX-License-Identifier: Apache-2.0 */
/* What the nodes of a gang may send: lines of one place (its first byte: which) fed as `follow` would, in two commands.
 * Whatever comes, each check of the gang gets a result, and none passes unless every rank ended with it passed. */
#include "base/gp_base.h"

#include "validate/gang_session.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define NODES 2
#define PER 2

static void must(bool holds) {
    if (!holds) abort();
}

static void feed(struct gang *g, const char *p, const char *end) {
    bool more[NODES] = {true, true};
    while (p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((nl != NULL ? nl : end) - p), which = n > 0 ? (size_t)(p[0] & 1) : 0;
        struct gang_place *place = &g->places[which];
        if (n > 0 && p[0] == '!') { /* the next command */
            for (size_t i = 0; i < NODES; i++) place_stream(&g->places[i])->at = more[i] = false;
            for (size_t i = 0; i < NODES; i++) more[i] = true;
        } else if (n > 0 && more[which]) {
            GP_AUTO_FREE char *line = xstrndup(p + 1, n - 1);
            more[which] = gang_line(place, false, line, strlen(line));
        }
        must(place_stream(place)->offset >= 0);
        p += n + 1;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static struct spec spec = {0};
    static const char *const ids[] = {"train.ddp", "net.pair"};
    struct validate_plan plan = {0};
    for (size_t i = 0; i < GP_ARRAY_LEN(ids); i++) vec_push(&plan.gang_checks, check_find(ids[i]));
    struct validate_env env = {.spec = &spec, .plan = &plan, .run = "0123456789abcdef", .nvidia_expected = true};
    env.gpus_expected = PER;
    struct node_link links[NODES] = {{.slot = 0}, {.slot = 1}};
    struct report report = {0};
    struct gang_node nodes[NODES];
    for (size_t i = 0; i < NODES; i++) {
        struct report_node row = {0};
        vec_push(&report.nodes, row);
    }
    for (size_t i = 0; i < NODES; i++) {
        links[i].target.label = i == 0 ? (char[]){"llm/0"} : (char[]){"llm/1"};
        nodes[i] = (struct gang_node){&links[i], "10.0.0.1", &report.nodes.items[i]};
    }
    struct gang g = {0};
    must(gang_open(&g, nodes, NODES, &env, NULL) == 0 && g.n == (size_t)NODES * PER);
    for (size_t i = 0; i < NODES; i++) {
        g.places[i].following = true;
        g.places[i].state = PLACE_RUNNING;
    }
    feed(&g, (const char *)data, (const char *)data + size);
    bool sound = true;
    for (size_t i = 0; i < g.n; i++) {
        sound = sound && g.ranks[i].stream.ended && g.ranks[i].stream.bad.code == GP_OK;
        if (!g.ranks[i].stream.ended) place_lose(g.ranks[i].place, "the input ended");
    }
    gang_merge(&g, NULL, &report);
    must(report.gang.len == GP_ARRAY_LEN(ids));
    for (size_t i = 0; i < report.gang.len; i++)
        must(sound ||
             (report.gang.items[i].verdict != VERDICT_PASS && report.gang.items[i].verdict != VERDICT_DEGRADED));
    gang_close(&g);
    report_clear(&report);
    vec_free(&plan.gang_checks);
    return 0;
}

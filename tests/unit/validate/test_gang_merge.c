/* SPDX-License-Identifier: Apache-2.0 */
/* Merging the ranks' results into the nodes': who is to blame when the ranks name different ones. Without a node. */
#include "base/gp_base.h"

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

#include "base/json.h"
#include "validate/gang_session.h"
#include "validate/judge.h"

enum { NODES_MAX = 4, PER_MAX = 2 };

struct fixture {
    struct gang g;
    const struct check_info *check;
    struct gang_rank ranks[NODES_MAX * PER_MAX];
    struct gang_place places[NODES_MAX];
    struct gang_node nodes[NODES_MAX];
    struct node_link links[NODES_MAX];
    struct report_node rns[NODES_MAX];
    struct report report;
    char labels[NODES_MAX][16];
};

static void tell(struct agent_stream *s, const char *line) {
    if (!agent_stream_line(s, false, line, strlen(line)) && s->bad.code) fail_msg("%s: %s", line, s->bad.msg);
}

/* names[i]: the rank that rank i blames because it is silent; -1: it sends no result, because it is stopped. */
static void merge(struct fixture *f, size_t nodes, size_t per, const int *names) {
    *f = (struct fixture){.check = check_find("train.ddp")};
    f->g = (struct gang){.n = nodes * per,
                         .n_places = nodes,
                         .n_checks = 1,
                         .checks = &f->check,
                         .places = f->places,
                         .ranks = f->ranks};
    for (size_t p = 0; p < nodes; p++) {
        snprintf(f->labels[p], sizeof f->labels[p], "llm/%zu", p);
        f->links[p].target.label = f->labels[p];
        f->nodes[p] = (struct gang_node){.link = &f->links[p], .rn = &f->rns[p]};
        f->places[p] = (struct gang_place){
            .gang = &f->g, .node = &f->nodes[p], .first = p * per, .count = per, .state = PLACE_DONE};
    }
    for (size_t i = 0; i < nodes * per; i++) {
        struct gang_rank *r = &f->ranks[i];
        *r = (struct gang_rank){.place = &f->places[i / per], .index = i, .gpu = per > 1 ? (int)(i % per) : -1};
        agent_stream_init(&r->stream, &f->check, 1);
        tell(&r->stream, "{\"v\":1,\"type\":\"hello\"}");
        tell(&r->stream, "{\"type\":\"start\",\"check\":\"train.ddp\"}");
        GP_AUTO_FREE char *line = xasprintf(
            "{\"type\":\"result\",\"check\":\"train.ddp\",\"verdict\":\"fail\",\"code\":\"rank_lost\",\"message\":\"rank "
            "%d has not answered for 41 s\",\"data\":{\"culprits\":[%d]}}",
            names[i], names[i]);
        if (names[i] >= 0) tell(&r->stream, line);
        tell(&r->stream, "{\"type\":\"end\",\"verdict\":\"fail\"}");
    }
    gang_merge(&f->g, NULL, &f->report);
}

static void clear(struct fixture *f) {
    for (size_t i = 0; i < f->g.n; i++) agent_stream_clear(&f->ranks[i].stream);
    for (size_t p = 0; p < f->g.n_places; p++) {
        for (size_t k = 0; k < f->rns[p].checks.len; k++) check_result_clear(&f->rns[p].checks.items[k]);
        vec_free(&f->rns[p].checks);
    }
    for (size_t k = 0; k < f->report.gang.len; k++) check_result_clear(&f->report.gang.items[k]);
    vec_free(&f->report.gang);
}

/* verdicts: a letter per node, F fail or E error. */
static void expect(const struct fixture *f, const char *verdicts, const char *says) {
    assert_string_equal(f->report.gang.items[0].message, says);
    for (size_t p = 0; p < f->g.n_places; p++) {
        const struct check_result *r = &f->rns[p].checks.items[0];
        enum verdict want = verdicts[p] == 'F' ? VERDICT_FAIL : VERDICT_ERROR;
        if (r->verdict != want) fail_msg("llm/%zu: %s: %s", p, verdict_name(r->verdict), r->message);
    }
}

/* A node whose network ends hears nobody, and names the sound rank that it waited for. */
static void test_a_node_that_is_cut_off_is_outvoted(void **state) {
    (void)state;
    struct fixture f;
    merge(&f, 4, 1, (int[]){2, 2, 1, 2});
    expect(&f, "EEFE", "rank 2 has not answered for 41 s (to blame: llm/2); 3 other ranks stopped because of it");
    assert_string_equal(f.rns[2].checks.items[0].message, "rank 2 has not answered for 41 s");
    assert_string_equal(f.rns[1].checks.items[0].message, "stopped because of llm/2");
    clear(&f);
    /* nodes vote, not ranks: all ranks of llm/0 repeat what one of them saw, and so do the others' */
    merge(&f, 3, 2, (int[]){5, 5, 1, 1, 1, 1});
    expect(&f, "FEE", "rank 1 has not answered for 41 s (to blame: llm/0 gpu 1); 5 other ranks stopped because of it");
    clear(&f);
}

/* Two nodes that name each other: nobody can decide. Two that hang: nobody's word against them. */
static void test_without_a_majority_all_that_are_named_are_blamed(void **state) {
    (void)state;
    struct fixture f;
    merge(&f, 2, 1, (int[]){1, 0});
    expect(&f, "FF", "rank 0 has not answered for 41 s (to blame: llm/0, llm/1)");
    clear(&f);
    merge(&f, 4, 1, (int[]){1, -1, 3, -1});
    expect(&f, "EFEF",
           "rank 1 has not answered for 41 s (to blame: llm/1, llm/3); 2 other ranks stopped because of it");
    clear(&f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_node_that_is_cut_off_is_outvoted),
        cmocka_unit_test(test_without_a_majority_all_that_are_named_are_blamed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Merges the ranks' results into the gang's results and each node's share. The gang's verdict is that of its worst
 * rank. A rank without a result is an error that names its node. A fail blames the ranks that it names, an error only
 * suspects them. A rank that only suffered from another one's fault is not blamed, and repeats no message. No I/O. */
#include "base/gp_base.h"

#include "validate/gang_session.h"

#include "base/json.h"
#include "validate/judge.h"

bool gang_began(const struct gang *g) {
    for (size_t i = 0; i < g->n; i++)
        if (g->ranks[i].began) return true;
    return false;
}

static void result_copy(struct check_result *to, const struct check_result *from) {
    *to = (struct check_result){0};
    GP_AUTO_JSON json_t *j = check_result_to_json(from);
    if (check_result_from_json(j, to, NULL) < 0)
        check_result_make(to, from->check, VERDICT_ERROR, "no_result", "cannot read its result");
    to->required = from->required;
}

/* The gang ended there because of another rank: not a finding of this one. */
static bool suffered(const struct check_result *r) {
    return str_eq(r->code, "rank_lost") || str_eq(r->code, "comm_failed") || str_eq(r->code, "no_time");
}

static bool accuses(const struct check_result *r) { return r->verdict == VERDICT_FAIL || r->verdict == VERDICT_ERROR; }

/* Reads "culprits", the ranks that this result blames. *ret_known false: it names none. */
static bool blames(const struct check_result *r, size_t rank, bool *ret_known) {
    const json_t *list = json_at(r->data, "culprits");
    bool found = false;
    *ret_known = json_array_size(list) > 0;
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        found = found || (json_is_integer(item) && json_integer_value(item) == (json_int_t)rank);
    }
    return found;
}

/* What the gang's results of one check have against a rank. */
struct blame {
    bool known;       /* they name some rank */
    bool blamed;      /* a fail names this one */
    bool suspected;   /* only an error does */
    const char *text; /* the first message that names it */
};

/* A node that is cut off hears nobody, and names a sound rank: it is outvoted when more nodes name it than the one
 * that it names. votes: per place, the number of other places that name one of its ranks. */
static bool outvoted(const struct gang *g, size_t check, const size_t *votes, size_t by, const struct gang_place *of) {
    const struct gang_place *p = g->ranks[by].place;
    return p != of && suffered(&g->ranks[by].stream.checks.items[check].result) &&
           votes[p - g->places] > votes[of - g->places];
}

static size_t *count_votes(const struct gang *g, size_t check) {
    size_t *votes = xcalloc(g->n_places, sizeof *votes);
    for (size_t of = 0; of < g->n_places; of++)
        for (size_t i = 0, last = g->n_places; i < g->n; i++) {
            const struct gang_place *p = &g->places[of], *by = g->ranks[i].place;
            const struct check_result *r = &g->ranks[i].stream.checks.items[check].result;
            bool ignored = false, names = false;
            if (by == p || (size_t)(by - g->places) == last || !accuses(r)) continue;
            for (size_t k = p->first; k < p->first + p->count && !names; k++) names = blames(r, k, &ignored);
            votes[of] += names;
            if (names) last = (size_t)(by - g->places);
        }
    return votes;
}

static struct blame find_blame(const struct gang *g, size_t check, const size_t *votes, size_t rank) {
    struct blame b = {.text = ""};
    for (size_t i = 0; i < g->n; i++) {
        const struct check_result *r = &g->ranks[i].stream.checks.items[check].result;
        bool known = false;
        if (!accuses(r)) continue;
        bool fail = r->verdict == VERDICT_FAIL;
        bool named = blames(r, rank, &known) && !outvoted(g, check, votes, i, g->ranks[rank].place);
        if (named && (fail ? !b.blamed : !b.blamed && !b.suspected)) b.text = r->message;
        b.blamed = b.blamed || (named && fail);
        b.suspected = b.suspected || named;
        b.known = b.known || known;
    }
    b.suspected = b.suspected && !b.blamed;
    return b;
}

/* One check's findings. */
struct findings {
    struct blame *of;         /* per rank */
    size_t *votes;            /* per place */
    char *blamed, *suspected; /* "llm/1, llm/4 gpu 2"; "": none. suspected only where nobody is blamed */
};

static char *names_of(const struct gang *g, const struct findings *f, bool blamed) {
    GP_AUTO_STR struct str names = {.max = 200};
    for (size_t i = 0; i < g->n; i++) {
        if (blamed ? !f->of[i].blamed : !f->of[i].suspected) continue;
        GP_AUTO_FREE char *label = gang_rank_label(&g->ranks[i]);
        str_addf(&names, "%s%s", names.len ? ", " : "", label);
    }
    return xstrdup(names.s ? names.s : "");
}

static struct findings findings_of(const struct gang *g, size_t check) {
    struct findings f = {.of = xcalloc(g->n, sizeof *f.of), .votes = count_votes(g, check)};
    for (size_t i = 0; i < g->n; i++) f.of[i] = find_blame(g, check, f.votes, i);
    f.blamed = names_of(g, &f, true);
    f.suspected = *f.blamed ? xstrdup("") : names_of(g, &f, false);
    return f;
}

static void findings_clear(struct findings *f) {
    free(f->of);
    free(f->votes);
    free(f->blamed);
    free(f->suspected);
}

/* A rank's own result in view of all others: blamed by them, or only suffering from another one's fault. */
static void rank_result(const struct gang *g, size_t check, const struct findings *f, size_t rank,
                        struct check_result *ret) {
    const struct check_result *r = &g->ranks[rank].stream.checks.items[check].result;
    struct blame b = f->of[rank];
    result_copy(ret, r);
    if ((b.blamed || b.suspected) && suffered(r)) ret->verdict = VERDICT_PASS; /* its own words name another one */
    if (b.blamed || b.suspected)
        check_result_worsen(ret, b.blamed ? VERDICT_FAIL : VERDICT_ERROR, "blamed", b.text, r->suggestion);
    bool hurt = ret->verdict == VERDICT_FAIL || (ret->verdict == VERDICT_ERROR && suffered(ret));
    if (!b.known || b.blamed || b.suspected || !hurt) return;
    GP_AUTO_FREE char *text =
        suffered(r) ? xasprintf("stopped because of %s", *f->blamed ? f->blamed : f->suspected) : NULL;
    ret->verdict = VERDICT_PASS;
    check_result_worsen(ret, VERDICT_ERROR, "peer", text ? text : r->message, "another node is to blame");
}

/* A node's share: the worst of its ranks; with several ranks each one's result is in data.ranks_here. */
static void share(struct gang *g, size_t check, const struct findings *f, struct gang_place *p) {
    struct check_result all;
    rank_result(g, check, f, p->first, &all);
    json_t *here = p->count > 1 ? json_array() : NULL;
    for (size_t i = 0; here && i < p->count; i++) {
        const struct gang_rank *rank = &g->ranks[p->first + i];
        struct check_result one;
        rank_result(g, check, f, rank->index, &one);
        json_array_append_new(here, json_pack("{s:i, s:i, s:s, s:s, s:s}", "rank", (int)rank->index, "gpu", rank->gpu,
                                              "verdict", verdict_name(one.verdict), "code", one.code, "message",
                                              one.message));
        GP_AUTO_FREE char *text = xasprintf("gpu %d: %s", rank->gpu, one.message);
        check_result_worsen(&all, one.verdict, one.code, text, one.suggestion);
        check_result_clear(&one);
    }
    if (here && !all.data) all.data = json_object();
    if (here) json_object_set_new(all.data, "ranks_here", here);
    vec_push(&p->node->rn->checks, all);
}

/* Agents name ranks; reports name the node and the GPU: one sentence, and how many ranks stopped because of it. */
static void name_culprits(const struct gang *g, size_t check, const struct findings *f, struct check_result *all) {
    bool proven = *f->blamed != '\0';
    GP_AUTO_JSON json_t *who = json_array();
    const char *text = "";
    size_t stopped = 0;
    for (size_t i = 0; i < g->n; i++) {
        struct blame b = f->of[i];
        const struct gang_rank *r = &g->ranks[i];
        stopped += !b.blamed && !b.suspected && suffered(&r->stream.checks.items[check].result);
        if (proven ? !b.blamed : !b.suspected) continue;
        if (!*text) text = b.text;
        json_t *one = json_pack("{s:i, s:s}", "rank", (int)i, "node", r->place->node->link->target.label);
        if (r->gpu >= 0) json_object_set_new(one, "gpu", json_integer(r->gpu));
        json_array_append_new(who, one);
    }
    if (!*text) return;
    if (!all->data) all->data = json_object();
    json_object_set(all->data, proven ? "blamed" : "suspected", who);
    GP_AUTO_FREE char *others =
        stopped ? xasprintf("; %zu other rank%s stopped because of it", stopped, stopped == 1 ? "" : "s") : xstrdup("");
    char *sentence =
        xasprintf("%s (%s: %s)%s", text, proven ? "to blame" : "suspected", proven ? f->blamed : f->suspected, others);
    free(all->message);
    all->message = sentence;
}

static void merge_check(struct gang *g, size_t check, struct report *report) {
    struct check_result all;
    result_copy(&all, &g->ranks[0].stream.checks.items[check].result);
    for (size_t i = 0; i < g->n; i++) {
        const struct gang_rank *r = &g->ranks[i];
        const struct check_result *one = &r->stream.checks.items[check].result;
        GP_AUTO_FREE char *label = gang_rank_label(r);
        GP_AUTO_FREE char *text = xasprintf("%s: %s", label, one->message);
        check_result_worsen(&all, one->verdict, one->code, text, one->suggestion);
        all.took_ms = GP_MAX(all.took_ms, one->took_ms);
    }
    GP_CLEANUP(findings_clear) struct findings f = findings_of(g, check);
    name_culprits(g, check, &f, &all);
    vec_push(&report->gang, all);
    for (size_t i = 0; i < g->n_places; i++) share(g, check, &f, &g->places[i]);
}

void gang_merge(struct gang *g, const char *why, struct report *report) {
    for (size_t i = 0; i < g->n; i++) {
        struct gang_rank *r = &g->ranks[i];
        r->began = agent_stream_began(&r->stream);
        const struct gang_place *p = r->place;
        for (size_t k = 0; p->state == PLACE_GONE && k < g->n_checks; k++)
            if (r->stream.checks.items[k].state == AGENT_CHECK_WAITING)
                r->stream.checks.items[k].state = AGENT_CHECK_RUNNING; /* it was started: an error */
        const char *reason = why ? why : p->reason ? p->reason : "the rank did not begin";
        agent_stream_finish(&r->stream, reason);
        if (p->state == PLACE_GONE) agent_stream_doubt(&r->stream, reason);
    }
    for (size_t k = 0; k < g->n_checks; k++) merge_check(g, k, report);
}

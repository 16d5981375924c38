/* SPDX-License-Identifier: Apache-2.0 */
/* Finds the rank or link that makes a gang wrong, slow or stuck. All ranks are split in halves, repeatedly, all
 * groups of a level side by side. Then suspects are paired with good ranks. If only the whole was bad, halves of
 * both sides are joined until two ranks and the link between them are left. About 3 log2(n) rounds. Decisions use
 * all ranks' records only, so all ranks decide alike. One thread. */
#include "base/gp_base.h"

#include "nccl_check_cuda.h"

#include "base/clock.h"

#define SLOW_SHARE 0.75 /* of the best group of its size and kind in the round */
#define PCIE_SHARE 0.3  /* instead of both: through two switches and between sockets a pair keeps a third and more */
#define OTHER_SHARE 0.6 /* of the best one of any size and round: NCCL may use another path there (NVLS) */
enum {
    TIMED = 5,
    ROUND_LEAST_MS = 5000 /* NCCL's start among the GPUs of a group takes up to some seconds */
};

struct span { /* ranks [first, first + n) */
    int first, n;
};
struct search {
    struct check_ctx *c;
    struct nccl_buffers *b;
    enum nccl_trouble trouble;
    size_t bytes;
    int64_t until_ms, stall_ms; /* stall_ms: of a group */
    int rounds;
    bool broken, out_of_time;
    bool spread;            /* some trouble shows in larger groups only */
    double best[2];         /* GB/s of the best group of any round: within a node, between nodes */
    int *color;             /* of the next round, per rank; -1: none */
    struct nccl_trial *all; /* of the last round */
    struct span suspects[64], next[64];
    size_t n_suspects, n_next;
    struct {
        struct span a, b;
    } cross[16];
    size_t n_cross;
    bool *guilty; /* per rank */
    int link_a, link_b;
    struct str notes;
};

/* --- one round --- */

static bool is_slow(const struct search *s) { return s->trouble == NCCL_SLOW || s->trouble == NCCL_SLOW_PCIE; }

static double share_of(const struct search *s, double usual) {
    return s->trouble == NCCL_SLOW_PCIE ? GP_MIN(usual, PCIE_SHARE) : usual;
}

static void try_group(struct search *s, struct comm *g, int rank, struct nccl_trial *ret) {
    struct gp_error err = {0};
    struct nccl_wrong w = {0};
    int size = nccl_size(g);
    if (is_slow(s)) {
        size_t count = nccl_elements(NCCL_ALL_REDUCE, COMM_F32, s->bytes, size, NULL);
        double spent = 0;
        nccl_queue_plain(s->b, g, NCCL_ALL_REDUCE, COMM_F32, count, 0);
        nccl_mark(g, 0);
        for (int i = 0; i < TIMED; i++) nccl_queue_plain(s->b, g, NCCL_ALL_REDUCE, COMM_F32, count, 0);
        nccl_mark(g, 1);
        ret->failed = nccl_wait(g, 5000, &err) != 0 || nccl_elapsed(g, &spent, &err) != 0;
        if (!ret->failed && spent > 0)
            ret->gb_s = (double)s->bytes * TIMED * nccl_bus_factor(NCCL_ALL_REDUCE, size) / spent / 1e9;
        return;
    }
    for (int type = COMM_F32; type <= COMM_I32 && !ret->failed; type++) {
        struct nccl_trial_args a = {.comm = g,
                                    .op = NCCL_ALL_REDUCE,
                                    .type = (enum comm_type)type,
                                    .bytes = s->bytes,
                                    .rank = rank,
                                    .size = size,
                                    .seed = (s->c->seed << 24) + (uint64_t)(s->rounds * 8 + type)};
        ret->failed = nccl_known_values(s->b, &a, &w, &err) != 0;
        ret->wrong += w.wrong;
    }
    ret->failed = ret->failed || nccl_wait(g, 0, &err) != 0;
}

/* --- the result of a group in a round --- */

static bool spans_nodes(const struct search *s, int color) {
    int node = -1;
    for (int i = 0; i < s->c->size; i++) {
        if (s->color[i] != color) continue;
        if (node >= 0 && node != s->c->who[i].node) return true;
        node = s->c->who[i].node;
    }
    return false;
}

static int members(const struct search *s, int color) {
    int n = 0;
    for (int i = 0; i < s->c->size; i++) n += s->color[i] == color;
    return n;
}

static double group_rate(const struct search *s, int color) {
    double gb_s = -1;
    for (int i = 0; i < s->c->size; i++)
        if (s->color[i] == color && (gb_s < 0 || s->all[i].gb_s < gb_s)) gb_s = s->all[i].gb_s;
    return gb_s;
}

static void remember(struct search *s) {
    for (int color = 0; color < s->c->size; color++)
        if (members(s, color) > 1) {
            bool far = spans_nodes(s, color);
            s->best[far] = GP_MAX(s->best[far], group_rate(s, color));
        }
}

static bool bad(const struct search *s, int color) {
    int n = members(s, color);
    if (n < 2) return false; /* a single rank: no result */
    for (int i = 0; i < s->c->size; i++)
        if (s->color[i] == color && (s->all[i].failed || s->all[i].wrong > 0)) return true;
    if (!is_slow(s)) return false;
    bool far = spans_nodes(s, color);
    double least = s->best[far] * share_of(s, OTHER_SHARE);
    for (int other = 0; other < s->c->size; other++)
        if (members(s, other) == n && spans_nodes(s, other) == far)
            least = GP_MAX(least, group_rate(s, other) * share_of(s, SLOW_SHARE));
    return group_rate(s, color) < least;
}

/* Runs the groups of s->color. False: no more rounds. */
static bool run_round(struct search *s) {
    struct check_ctx *c = s->c;
    struct nccl_trial mine = {0};
    struct comm *g = NULL;
    struct gp_error err = {0};
    int own = s->color[c->rank], rank = 0;
    s->rounds++;
    for (int i = 0; i < c->rank; i++) rank += own >= 0 && s->color[i] == own;
    if (nccl_group(c->data, own, s->stall_ms, &g, &err) != 0) mine.failed = 1;
    else if (g != NULL) try_group(s, g, rank, &mine);
    mine.ran = own >= 0;
    mine.late = clock_left_ms(s->until_ms) < s->stall_ms; /* another round may outlast the gang's deadline */
    nccl_group_free(g, mine.failed);
    struct gp_error told = {0};
    if (comm_tcp.all_gather(c->comm, (dev_addr)(uintptr_t)&mine, (dev_addr)(uintptr_t)s->all, sizeof mine, &told) !=
        0) {
        c->comm_err = told;
        s->broken = true;
        return false;
    }
    remember(s);
    for (int i = 0; i < c->size; i++) s->out_of_time = s->out_of_time || s->all[i].late;
    return true;
}

/* --- halves --- */

static struct span half(struct span x, int which) {
    int low = x.n / 2;
    return which == 0 ? (struct span){x.first, low} : (struct span){x.first + low, x.n - low};
}

static void paint(struct search *s, struct span x, int color) {
    for (int i = 0; i < x.n; i++) s->color[x.first + i] = color;
}

static void clear_colors(struct search *s) {
    for (int i = 0; i < s->c->size; i++) s->color[i] = -1;
}

/* All parts of one size, not only the suspects' halves, because slow is relative. */
static int paint_level(struct search *s, struct span x, int depth, int color) {
    if (depth == 0 || x.n < 2) {
        paint(s, x, color);
        return color + 1;
    }
    return paint_level(s, half(x, 1), depth - 1, paint_level(s, half(x, 0), depth - 1, color));
}

static void push(struct search *s, struct span x) {
    if (s->n_next < GP_ARRAY_LEN(s->next)) s->next[s->n_next++] = x;
}

static bool halve(struct search *s) {
    struct span whole = {0, s->c->size};
    s->suspects[0] = whole;
    s->n_suspects = 1;
    for (int depth = 1; whole.n >> depth >= 1; depth++) {
        bool more = false;
        for (size_t i = 0; i < s->n_suspects; i++) more = more || s->suspects[i].n > 2;
        if (!more) return true;
        clear_colors(s);
        paint_level(s, whole, depth, 0);
        if (!run_round(s)) return false;
        s->n_next = 0;
        for (size_t i = 0; i < s->n_suspects; i++) {
            struct span x = s->suspects[i], a = half(x, 0), b = half(x, 1);
            if (x.n <= 2) {
                push(s, x);
                continue;
            }
            bool bad_a = bad(s, s->color[a.first]), bad_b = bad(s, s->color[b.first]);
            if (bad_a) push(s, a);
            if (bad_b) push(s, b);
            if (!bad_a && !bad_b && s->n_cross < GP_ARRAY_LEN(s->cross)) {
                s->cross[s->n_cross].a = a;
                s->cross[s->n_cross++].b = b;
            }
        }
        memcpy(s->suspects, s->next, sizeof s->next);
        s->n_suspects = s->n_next;
        if (s->out_of_time) return false;
    }
    return true;
}

/* --- pairs --- */

static bool suspect(const struct search *s, int rank) {
    for (size_t i = 0; i < s->n_suspects; i++)
        if (rank >= s->suspects[i].first && rank < s->suspects[i].first + s->suspects[i].n) return true;
    return false;
}

/* A rank that is in no bad group, preferably of the same node. */
static int helper(const struct search *s, int for_rank, int not_this) {
    int found = -1;
    for (int i = 0; i < s->c->size; i++) {
        if (suspect(s, i) || i == not_this) continue;
        if (s->c->who[i].node == s->c->who[for_rank].node) return i;
        if (found < 0) found = i;
    }
    return found;
}

static void name_link(struct search *s, int a, int b) {
    char x[120], y[120];
    s->link_a = a;
    s->link_b = b;
    s->guilty[a] = s->guilty[b] = true;
    gang_name(s->c, a, x, sizeof x);
    gang_name(s->c, b, y, sizeof y);
    str_addf(&s->notes, "%sthe link between %s and %s", s->notes.len ? ", " : "", x, y);
}

static void cannot_tell(struct search *s, int a, int b) {
    char x[120], y[120];
    gang_name(s->c, a, x, sizeof x);
    gang_name(s->c, b, y, sizeof y);
    str_addf(&s->notes, "%s%s or %s, which cannot be distinguished", s->notes.len ? ", " : "", x, y);
}

/* A slow pair is compared with two good pairs of the same round. */
static void paint_good_pair(struct search *s, int color, const int used[4]) {
    int first = -1;
    for (int i = 0; i < s->c->size; i++) {
        bool taken = suspect(s, i);
        for (int k = 0; k < 4; k++) taken = taken || used[k] == i;
        if (taken) continue;
        if (first < 0) {
            first = i;
            continue;
        }
        s->color[first] = s->color[i] = color;
        return;
    }
}

static bool tell_pair(struct search *s, struct span pair) {
    int a = pair.first, b = pair.first + 1, helpers[2];
    bool bad_one[2] = {false, false};
    helpers[0] = helper(s, a, -1);
    helpers[1] = helper(s, b, helpers[0]);
    if (helpers[0] < 0) {
        cannot_tell(s, a, b);
        return true;
    }
    bool together = helpers[1] >= 0;
    if (!together) helpers[1] = helpers[0];
    for (int turn = 0; turn < (together ? 1 : 2); turn++) {
        int used[4] = {a, b, helpers[0], helpers[1]};
        clear_colors(s);
        if (together || turn == 0) s->color[a] = s->color[helpers[0]] = 0;
        if (together || turn == 1) s->color[b] = s->color[helpers[1]] = 1;
        paint_good_pair(s, 2, used);
        if (!run_round(s)) return false;
        if (together || turn == 0) bad_one[0] = bad(s, 0);
        if (together || turn == 1) bad_one[1] = bad(s, 1);
    }
    if (!bad_one[0] && !bad_one[1]) name_link(s, a, b);
    s->guilty[a] = s->guilty[a] || bad_one[0];
    s->guilty[b] = s->guilty[b] || bad_one[1];
    return !s->out_of_time;
}

/* a's halves with b's, straight (turn 0) and then crosswise; a side of one rank is with one half a turn. */
static bool join_halves(struct search *s, struct span a, struct span b, int turn) {
    clear_colors(s);
    for (int k = 0; k < 2; k++) {
        int other = k ^ turn;
        if ((a.n == 1 && k == 1) || (b.n == 1 && other == 1)) continue;
        paint(s, a.n == 1 ? a : half(a, k), k);
        paint(s, b.n == 1 ? b : half(b, other), k);
    }
    return run_round(s);
}

/* Both sides are good alone and bad together. */
static bool narrow_cross(struct search *s, struct span a, struct span b) {
    while (a.n > 1 || b.n > 1) {
        int bad_at = -1, bads = 0;
        for (int turn = 0; turn < 2; turn++) {
            if (!join_halves(s, a, b, turn)) return false;
            for (int k = 0; k < 2; k++) {
                if (!bad(s, k)) continue;
                bads++;
                bad_at = turn * 2 + k;
            }
        }
        bool lone = a.n == 1 || b.n == 1;
        if (bads == 2 && lone) {
            s->guilty[a.n == 1 ? a.first : b.first] = true; /* bad with every rank */
            return true;
        }
        if (bad_at < 0) {
            s->spread = true;
            return true;
        }
        int k = bad_at & 1, other = k ^ (bad_at >> 1);
        a = a.n == 1 ? a : half(a, k);
        b = b.n == 1 ? b : half(b, other);
        if (s->out_of_time) return false;
    }
    name_link(s, a.first, b.first);
    return true;
}

/* Three ranks have no two groups to compare in one round: all pairs, one after the other. */
static bool three(struct search *s) {
    double rate[3], best = 0;
    bool wrong[3];
    for (int without = 0; without < 3; without++) {
        int a = without == 0 ? 1 : 0, b = without == 2 ? 1 : 2;
        clear_colors(s);
        s->color[a] = s->color[b] = 0;
        if (!run_round(s)) return false;
        rate[without] = group_rate(s, 0);
        wrong[without] = bad(s, 0);
        best = GP_MAX(best, rate[without]);
    }
    int n = 0, good = -1, only = -1;
    for (int i = 0; i < 3; i++) {
        wrong[i] = wrong[i] || (is_slow(s) && rate[i] < share_of(s, SLOW_SHARE) * best);
        n += wrong[i];
        if (wrong[i]) only = i;
        else good = i;
    }
    if (n == 2) s->guilty[good] = true; /* the pair without it is the good one */
    else if (n == 1) name_link(s, only == 0 ? 1 : 0, only == 2 ? 1 : 2);
    else if (n == 3) str_add(&s->notes, "at least two of the three ranks, because every pair of them shows the fault");
    else s->spread = true;
    return true;
}

/* --- findings --- */

static void report_blame(struct search *s, struct agent_result *r, bool finished, struct str *text) {
    char name[120];
    GP_AUTO_STR struct str who = {.max = 250};
    for (int i = 0; i < s->c->size; i++) {
        if (!s->guilty[i]) continue;
        agent_culprit(r, i);
        if (i == s->link_a || i == s->link_b) continue;
        gang_name(s->c, i, name, sizeof name);
        str_addf(&who, "%s%s", who.len ? ", " : "", name);
    }
    if (s->link_a >= 0) {
        int ends[2] = {s->link_a, s->link_b};
        str_addf(&r->data, "%s\"link\":[%d,%d]", r->data.len ? "," : "", ends[0], ends[1]);
    }
    agent_data_int(r, "rounds", s->rounds);
    if (who.len || s->notes.len)
        str_addf(text, "; to blame: %s%s%s", who.len ? who.s : "", who.len && s->notes.len ? ", " : "",
                 s->notes.len ? s->notes.s : "");
    else
        str_addf(text, "; no rank or link identified%s",
                 s->broken   ? ": the ranks lost their connections during the search"
                 : !finished ? ": the time was over"
                 : s->spread ? ": only larger groups of ranks show the fault"
                             : ": no smaller group of ranks shows the fault");
}

static int most_rounds(int size) {
    int levels = 1;
    while (1 << levels < size) levels++;
    return 3 * levels;
}

/* Each round with the stuck rank takes its whole limit: the search gets the time for all of them, and the limit
 * becomes shorter where the gang's deadline leaves less. */
static void give_time(struct search *s) {
    int rounds = most_rounds(s->c->size);
    int64_t share = clock_left_ms(s->c->deadline_ms) / (2 * rounds);
    s->stall_ms = GP_MIN(s->c->stall_ms, GP_MAX(ROUND_LEAST_MS, share));
    s->until_ms = GP_MIN(s->c->deadline_ms, clock_deadline(2 * rounds * s->stall_ms));
}

void nccl_isolate(struct check_ctx *c, struct agent_result *r, struct nccl_buffers *b, enum nccl_trouble trouble,
                  size_t bytes, int64_t until_ms, struct str *text) {
    struct search *s = xcalloc(1, sizeof *s);
    *s = (struct search){
        .c = c, .b = b, .trouble = trouble, .bytes = bytes, .until_ms = until_ms, .link_a = -1, .link_b = -1};
    s->stall_ms = c->stall_ms;
    if (trouble == NCCL_STUCK) give_time(s);
    str_init(&s->notes, 300);
    s->color = xcalloc((size_t)c->size, sizeof *s->color);
    s->all = xcalloc((size_t)c->size, sizeof *s->all);
    s->guilty = xcalloc((size_t)c->size, sizeof *s->guilty);
    bool ok = c->size == 3 ? three(s) : halve(s);
    for (size_t i = 0; i < s->n_suspects && ok; i++)
        if (s->suspects[i].n == 2) ok = tell_pair(s, s->suspects[i]);
    for (size_t i = 0; i < s->n_cross && ok; i++) ok = narrow_cross(s, s->cross[i].a, s->cross[i].b);
    report_blame(s, r, ok, text);
    str_clear(&s->notes);
    free(s->color);
    free(s->all);
    free(s->guilty);
    free(s);
}

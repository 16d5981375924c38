/* SPDX-License-Identifier: Apache-2.0 */
/* Connects to the nodes of a stack and asks their agents about jobs. The verb's thread; only connections are opened in
 * the pool's threads. */
#include "base/gp_base.h"

#include "engine/job/job_nodes.h"

#include "engine/proof/node_target.h"
#include "engine/run/login_key.h"
#include "engine/run/pool.h"
#include "engine/trust/trust.h"

#define LOOK_MS 30000
#define AGAIN_MS 20000 /* for one reconnect of a question */
#define TRIES 3

static void connect_one(struct run_node *n) {
    struct ssh_open_opts opts = {.deadline_ms = clock_deadline(n->limit_ms), .cancel = &n->run->e->cancel};
    ssh_target_clear(&n->link.target);
    n->rc = node_target(n->run, n, &n->link.target, &n->err);
    n->link.slot = n->slot;
    n->link.cancel = &n->run->e->cancel;
    n->link.sink = NULL; /* a lost connection is the follower's to report */
    n->link.reach_timeout_ms = AGAIN_MS;
    if (n->rc == 0) n->rc = ssh_open(&n->link.target, &opts, &n->link.session, &n->err);
}

int job_nodes_open(struct run *run, int64_t ms, struct job_nodes *ret, struct gp_error *err) {
    if (run->spec != NULL) run_nodes_alloc(run, run->spec->nodes); /* a machine that is gone may be in no record here */
    int n = run->spec != NULL ? run->spec->nodes : run->n_nodes, there = 0;
    int r = login_key_get(run, false, err);
    if (r != 0) return r;
    for (int i = 0; i < run->n_nodes; i++) {
        struct run_node *one = &run->nodes[i];
        one->skip = !one->exists || one->link.session != NULL;
        one->limit_ms = ms;
        there += i < n && one->exists;
    }
    if (there == 0 && trust_no_node(run, err) != 0) return -(int)GP_ENOTFOUND;
    if (there == 0)
        return gp_fail(err, GP_ENOTFOUND, "there is no stack '%s' with nodes: run 'gpuprov up' to launch it",
                       run->stack.name);
    r = pool_run(run, connect_one, err);
    if (r == 0 && gp_cancelled(&run->e->cancel)) r = gp_fail(err, GP_ECANCELLED, "cancelled");
    if (r != 0) return r;
    *ret = (struct job_nodes){.run = run,
                              .len = (size_t)n,
                              .known = (size_t)run->n_nodes,
                              .items = xcalloc((size_t)run->n_nodes + 1, sizeof *ret->items)};
    for (int i = 0; i < run->n_nodes; i++) {
        struct job_node *j = &ret->items[i];
        j->n = &run->nodes[i];
        j->used = i < n;
        j->gone = !j->n->exists;
        if (j->gone && j->n->rc == 0)
            j->n->rc = gp_fail(&j->n->err, GP_EREACH, "%s/%d: its machine does not exist", run->stack.name, i);
    }
    return 0;
}

bool job_nodes_several(const struct job_nodes *all) {
    size_t n = 0;
    for (size_t i = 0; i < all->len; i++) n += all->items[i].used;
    return n > 1;
}

void job_nodes_clear(struct job_nodes *all) {
    free(all->items);
    *all = (struct job_nodes){0};
}

int job_nodes_missing(const struct job_nodes *all, struct gp_error *err) {
    for (size_t i = 0; i < all->len; i++) {
        const struct run_node *n = all->items[i].n;
        if (!all->items[i].used || n->rc == 0) continue;
        if (err != NULL) *err = n->err;
        return n->rc;
    }
    return 0;
}

void job_command(struct str *cmd, const char *words) {
    GP_AUTO_FREE char *script = xasprintf("echo; echo " JOB_MARK "; a=" GP_NODE_DIR "/agent/gpuprov-agent; test -x "
                                          "\"$a\" || { echo \"there is no agent at $a\" >&2; exit 3; }; exec \"$a\" %s",
                                          words);
    str_add(cmd, "exec sh -c ");
    str_add_shquoted(cmd, script);
}

/* --- questions --- */

/* What one command prints: a reply behind the mark, and the last line of stderr. */
struct reply {
    struct job_ask *ask;
    const struct job_look_in *look; /* not NULL: its lines, and no reply */
    bool marked, replied;
    char said[300];
};

static bool hear(void *ctx, bool is_stderr, const char *line, size_t len) {
    struct reply *p = ctx;
    if (is_stderr) {
        if (len > 0) str_put(p->said, sizeof p->said, line);
        return true;
    }
    if (!p->marked) {
        p->marked = strcmp(line, JOB_MARK) == 0;
        return true;
    }
    if (p->look != NULL) {
        job_look_line(p->look, line);
        return true;
    }
    if (p->replied || len == 0) return true;
    p->replied = true;
    gp_error_clear(&p->ask->err);
    p->ask->rc = job_state_parse(line, len, &p->ask->state, &p->ask->err);
    return true;
}

/* The result of a command that gave no reply. */
static void no_reply(struct reply *p, const struct ssh_job *job) {
    struct job_ask *a = p->ask;
    const char *label = a->node->n->link.target.label;
    str_one_line(p->said);
    gp_error_clear(&a->err);
    if (job->rc < 0) {
        a->err = job->err;
        a->rc = job->rc;
    } else if (job->result.end == SSH_LOST || job->result.end == SSH_SIGNALED) {
        a->rc = gp_fail(&a->err, GP_ELOST, "%s: the connection was lost", label);
    } else if (job->result.end == SSH_TIMED_OUT) {
        a->rc = gp_fail(&a->err, GP_ETIMEOUT, "%s: the agent did not answer in time", label);
    } else if (job->result.status == 3 && strstr(p->said, "is not a member of") != NULL) {
        a->rc = gp_fail(&a->err, GP_EJOB,
                        "%s: %s: its agent has another version: 'gpuprov bootstrap --only agent %s' brings the one of "
                        "this gpuprov",
                        label, p->said, a->node->n->run->stack.name);
    } else if (job->result.status == 3) {
        a->rc = gp_fail(&a->err, GP_EJOB, "%s: %s", label, p->said[0] != '\0' ? p->said : "the agent refused");
    } else {
        a->rc =
            gp_fail(&a->err, GP_EJOB,
                    "%s: its agent has no jobs (exit status %d%s%s): 'gpuprov bootstrap --only agent %s' brings "
                    "the one of this version",
                    label, job->result.status, p->said[0] != '\0' ? ": " : "", p->said, a->node->n->run->stack.name);
    }
}

static bool again(const struct job_ask *a) {
    return a->rc == -GP_ELOST || a->rc == -GP_ETIMEOUT || a->rc == -GP_EREACH;
}

/* One round over the questions that have no reply. */
static int round_of(struct job_asks *asks, const char *command, int64_t deadline_ms, const struct gp_cancel *cancel,
                    struct gp_error *err) {
    struct ssh_job *jobs = xcalloc(asks->list.len + 1, sizeof *jobs);
    struct reply *replies = xcalloc(asks->list.len + 1, sizeof *replies);
    size_t n = 0;
    for (size_t i = 0; i < asks->list.len; i++) {
        struct job_ask *a = &asks->list.items[i];
        if (!again(a) || a->node->n->link.session == NULL) continue;
        replies[n] = (struct reply){.ask = a};
        jobs[n] = (struct ssh_job){.session = a->node->n->link.session, .command = command};
        jobs[n].opts = (struct ssh_exec_opts){.in = a->in,
                                              .in_len = a->in_len,
                                              .deadline_ms = deadline_ms,
                                              .max_output = 4096,
                                              .on_line = hear,
                                              .ctx = &replies[n]};
        n++;
    }
    int r = ssh_exec_many(jobs, n, cancel, err);
    for (size_t i = 0; i < n; i++) {
        if (!replies[i].replied) no_reply(&replies[i], &jobs[i]);
        if (jobs[i].rc < 0 || jobs[i].result.end == SSH_LOST) node_link_close(&replies[i].ask->node->n->link);
        ssh_result_clear(&jobs[i].result);
    }
    free(jobs);
    free(replies);
    return r;
}

/* In the pool's manner: all at once, because each may block. */
static void reconnect(void *ctx, size_t i) {
    struct job_asks *asks = ctx;
    struct job_ask *a = &asks->list.items[i];
    struct node_link *l = &a->node->n->link;
    if (!again(a) || l->session != NULL) return;
    struct gp_error why = {0};
    struct ssh_open_opts opts = {.deadline_ms = clock_deadline(AGAIN_MS), .cancel = l->cancel};
    a->rc = l->target.host != NULL ? ssh_open(&l->target, &opts, &l->session, &why) : -GP_EREACH;
    if (a->rc == 0) {
        a->rc = -GP_ELOST; /* the question is still open */
        return;
    }
    if (why.code != GP_OK) a->err = why;
}

int job_ask_all(struct job_asks *asks, const char *words, int64_t ms, const struct gp_cancel *cancel,
                struct gp_error *err) {
    GP_AUTO_STR struct str command = {0};
    GP_AUTO_FREE char *job = xasprintf("job %s", words);
    job_command(&command, job);
    for (size_t i = 0; i < asks->list.len; i++) asks->list.items[i].rc = -GP_ELOST;
    int64_t deadline_ms = clock_deadline(ms);
    for (int try = 0; try < TRIES && clock_left_ms(deadline_ms) > 0; try++) {
        size_t open = 0, apart = 0;
        for (size_t i = 0; i < asks->list.len; i++) {
            const struct job_ask *a = &asks->list.items[i];
            open += again(a);
            apart += again(a) && a->node->n->link.session == NULL;
        }
        if (open == 0) break;
        if (apart > 0) pool_each(asks->list.len, reconnect, asks);
        int r = round_of(asks, command.s, deadline_ms, cancel, err);
        if (r != 0) return r;
    }
    return 0;
}

/* --- the nodes themselves --- */

static int look_at(struct job_nodes *all, struct gp_error *err) {
    struct ssh_job *jobs = xcalloc(all->len + 1, sizeof *jobs);
    struct reply *replies = xcalloc(all->len + 1, sizeof *replies);
    struct job_look_in *looks = xcalloc(all->len + 1, sizeof *looks);
    struct job_ask none = {0};
    size_t n = 0;
    GP_AUTO_STR struct str command = {0};
    str_add(&command, "exec sh -c ");
    GP_AUTO_FREE char *script = xasprintf("echo; echo " JOB_MARK "\n%s", job_look_script);
    str_add_shquoted(&command, script);
    for (size_t i = 0; i < all->len; i++) {
        struct job_node *j = &all->items[i];
        if (j->n->link.session == NULL) continue;
        looks[n] = (struct job_look_in){.ret = &j->look, .wanted = node_target_peer_address(j->n)};
        replies[n] = (struct reply){.ask = &none, .look = &looks[n]};
        jobs[n] = (struct ssh_job){.session = j->n->link.session, .command = command.s};
        jobs[n].opts = (struct ssh_exec_opts){
            .deadline_ms = clock_deadline(LOOK_MS), .max_output = 4096, .on_line = hear, .ctx = &replies[n]};
        n++;
    }
    int r = ssh_exec_many(jobs, n, &all->run->e->cancel, err);
    for (size_t i = 0; i < n; i++) ssh_result_clear(&jobs[i].result);
    free(jobs);
    free(replies);
    free(looks);
    return r;
}

int job_nodes_look(struct job_nodes *all, struct gp_error *err) {
    struct job_asks asks = {0};
    int r = look_at(all, err);
    for (size_t i = 0; i < all->known; i++) {
        struct job_ask a = {.node = &all->items[i]};
        if (all->items[i].n->link.session != NULL) vec_push(&asks.list, a);
    }
    if (r == 0) r = job_ask_all(&asks, "state", LOOK_MS, &all->run->e->cancel, err);
    for (size_t i = 0; r == 0 && i < asks.list.len; i++) {
        struct job_ask *a = &asks.list.items[i];
        a->node->state = a->state;
        if (a->rc == 0) continue;
        a->node->n->rc = a->rc;
        a->node->n->err = a->err;
    }
    vec_free(&asks.list);
    return r;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The work on one node, in its own thread: reach, trust, bootstrap, node checks. A failure does not stop the other
 * nodes. */
#include "base/gp_base.h"

#include "engine/proof/node_run.h"

#include "base/form.h"
#include "engine/proof/console.h"
#include "engine/proof/node_target.h"
#include "engine/proof/run_cache.h"
#include "engine/proof/step_output.h"
#include "engine/proof/watch.h"
#include "engine/run/run_event.h"
#include "engine/run/run_node.h"

#define LOGIN_GRACE_MS (120 * 1000)
#define BOOTSTRAP_MS (45 * 60 * 1000)
#define REBOOT_MS (20 * 60 * 1000)
#define ROTATE_MS (120 * 1000)
#define HAND_OVER_MS (180 * 1000)
#define LOOK_MS (20 * 1000)
#define CLOCKS_DIFFER_MS (5 * 1000)

static const struct provider_ops *ops_of(const struct run_node *n) { return provider_find(n->res.provider); }

/* The limit of a phase, or the deadline if that is earlier. Machines that gpuprov does not terminate have none. */
static int64_t limit_of(const struct run_node *n, int64_t phase_ms) {
    return ops_of(n)->lent ? phase_ms : GP_MIN(phase_ms, GP_MAX(clock_left_ms(n->ends_ms), (int64_t)1));
}

/* Reports the same reason once, not at each attempt. */
static void say_waiting(void *ctx, const char *why) {
    struct run_node *n = ctx;
    if (strcmp(n->said, why) == 0) return;
    str_put(n->said, sizeof n->said, why);
    run_event(n->run, n->slot, NODE_REACHING, EVENT_PROGRESS, "ssh", "%s", why);
}

/* Waits until the machine runs, and connects to its sshd. */
static int connect_to(struct run_node *n, int64_t timeout_ms, int64_t login_grace_ms, struct gp_error *err) {
    struct run *run = n->run;
    const struct provider_ops *ops = ops_of(n);
    int64_t deadline = clock_deadline(timeout_ms);
    int r = watch_wait_running(n, deadline, err);
    if (r == 0) {
        ssh_target_clear(&n->link.target);
        r = node_target(run, n, &n->link.target, err);
    }
    if (r == 0 && ops->key_rotation && n->link.target.host_keys.n == 0)
        r = gp_fail(err, GP_EREACH,
                    "%s/%d: %s was launched by another run, and its host key is not known "
                    "yet: repeat 'gpuprov up' when that run has finished; if it was cut, "
                    "run 'gpuprov down %s' first",
                    run->stack.name, n->slot, n->res.id, run->stack.name);
    if (r != 0) return r;
    n->link.slot = n->slot;
    n->link.cancel = &n->cancel;
    n->link.sink = &run->sink;
    n->link.reach_timeout_ms = console_access_ms(run, &n->res);
    struct ssh_open_opts opts = {.deadline_ms = deadline,
                                 .login_grace_ms = login_grace_ms,
                                 .late_host_key = ops->late_host_key && run_node_has_first_key(n),
                                 .cancel = &n->cancel,
                                 .waiting = say_waiting,
                                 .ctx = n};
    n->link.beats = run->spec != NULL && run->spec->controller_ms > 0;
    r = ssh_open(&n->link.target, &opts, &n->link.session, err);
    if (r == 0 && n->link.beats) ssh_beat(n->link.session, &n->cancel);
    return r;
}

/* A cloud without private addresses in its API: the node knows its own. The first one counts, because interfaces that
 * software makes come after those of the machine. A node that is alone needs none. */
static int find_private_address(struct run_node *n, struct gp_error *err) {
    GP_AUTO_STR struct str out = {0};
    if (n->res.private_ip[0] != '\0' || n->res.kind != RES_INSTANCE || ops_of(n)->node_shape != NODE_VM) return 0;
    if (n->run->spec == NULL || n->run->spec->nodes < 2) return 0;
    struct ssh_exec_opts opts = {.deadline_ms = clock_deadline(LOOK_MS), .cancel = &n->cancel};
    int r = ssh_run(n->link.session, "reading the private address", "ip -o -4 addr show up scope global || true", &opts,
                    &out, err);
    const char *p = r == 0 && out.s != NULL ? strstr(out.s, " inet ") : NULL;
    for (; p != NULL; p = strstr(p + 1, " inet ")) {
        GP_AUTO_FREE char *address = xstrndup(p + 6, strcspn(p + 6, "/ \n"));
        if (!form_address(address) || str_eq(address, n->res.public_ip)) continue;
        resource_set(&n->res.private_ip, address);
        break;
    }
    return r;
}

static int reach(struct run_node *n, struct gp_error *err) {
    const struct provider_ops *ops = ops_of(n);
    int64_t access_ms = console_access_ms(n->run, &n->res);
    int64_t limit_ms = limit_of(n, access_ms);
    n->limit_ms = limit_ms;
    int r = run_node_phase(n, NODE_REACHING, err);
    if (r != 0) return r;
    int64_t began = clock_ms();
    r = connect_to(n, limit_ms, ops->user_data ? LOGIN_GRACE_MS : 0, err);
    n->unreached = r == -GP_EREACH || r == -GP_EAUTH;
    if (r == 0) r = find_private_address(n, err);
    bool access = r == -GP_EREACH && limit_ms == access_ms;             /* add_cause() names a deadline that passed */
    if (access && (err->retryable || clock_ms() - began >= limit_ms)) { /* the time was too short for it */
        char limit[32];
        duration_format(limit, sizeof limit, limit_ms);
        size_t len = strlen(err->msg);
        snprintf(err->msg + len, sizeof err->msg - len, "; access.timeout is %s", limit);
    }
    return r;
}

static int commit_next_key(void *ctx, const char *next_public, struct gp_error *err) {
    struct run_node *n = ctx;
    resource_set(&n->rec.host_key_next, next_public);
    return run_node_save(n, err);
}

/* After this, rec.host_key is the only trusted key. */
static int trust(struct run_node *n, struct gp_error *err) {
    if (n->rec.host_key != NULL && n->rec.host_key[0] != '\0') return 0;
    bool burned = ops_of(n)->key_rotation && run_node_has_first_key(n); /* independent of the tags */
    if (burned) {
        char *key = NULL;
        int r = bootstrap_rotate_host_key(&n->link, clock_deadline(ROTATE_MS), commit_next_key, n, &key, err);
        if (r != 0) return r;
        resource_set(&n->rec.host_key, key);
        free(key);
    } else {
        resource_set(&n->rec.host_key, ssh_host_key(n->link.session));
    }
    resource_set(&n->rec.host_key_first, "");
    resource_set(&n->rec.host_key_next, "");
    return run_node_save(n, err);
}

/* The image of the first offer that can have launched the node; "" for a machine that existed before. */
static const char *image_text(const struct spec *spec, const struct resource *node) {
    if (node->kind == RES_HOST) return "";
    const struct spec_image *image = &spec->image;
    for (size_t i = 0; i < spec->offers.len; i++) {
        const struct spec_offer *o = &spec->offers.items[i];
        bool here = o->regions.n == 0 || (node->region != NULL && strv_has(&o->regions, node->region));
        if (!here || !str_eq(o->provider, node->provider)) continue;
        image = spec_effective(spec, i).image;
        break;
    }
    return image->id != NULL ? image->id : image->os != NULL ? image->os : "auto";
}

static bool was_set_up(const struct run_node *n) { return n->rec.boot_id != NULL && n->rec.boot_id[0] != '\0'; }

/* What the spec gives a node until its first login, it gives it after a reboot; machines that run already have 30 s by
 * default, and a reboot takes longer. */
static int64_t reboot_ms(const struct run_node *n) {
    int64_t own_ms = n->run->spec->access.timeout_ms;
    return own_ms > 0 ? own_ms : GP_MAX(console_access_ms(n->run, &n->res), (int64_t)REBOOT_MS);
}

/* Gives the node its credential, or shows that it still has it: a reboot removes it from the node. */
static int hand_over(struct run_node *n, int64_t limit_ms, struct gp_error *err) {
    n->end_given = false;
    if (n->end_credential.len == 0) return 0;
    struct bootstrap_end end = {.uid = n->run->stack.uid,
                                .script = ops_of(n)->end_script,
                                .credential = &n->end_credential,
                                .expires_s = n->run->stack.expires_s,
                                .ttl_s = n->ttl_s,
                                .idle_s = n->run->spec->idle_ms / 1000,
                                .controller_s = n->run->spec->controller_ms / 1000};
    int r = bootstrap_hand_over(&n->link, &end, clock_deadline(limit_ms), err);
    n->end_given = r == 0;
    return r;
}

static int bootstrap(struct run_node *n, struct gp_error *err) {
    struct run *run = n->run;
    const struct bootstrap_pick *pick = run->pick;
    bool partly = pick != NULL && (pick->dry_run || pick->from != NULL || (pick->only != NULL && pick->only->n > 0));
    bool complete = !partly || was_set_up(n);
    if (!partly) resource_set(&n->rec.boot_id, ""); /* set again when the bootstrap is complete */
    int64_t limit_ms = limit_of(n, BOOTSTRAP_MS);
    n->limit_ms = limit_ms;
    if (pick == NULL || !pick->dry_run) step_output_forget(run, n->slot);
    int r = run_node_phase(n, NODE_BOOTSTRAPPING, err);
    if (r != 0) return r;
    const struct provider_ops *ops = ops_of(n);
    const char *refusal = NULL;
    bool packages = ops->packages == NULL || ops->packages(&refusal);
    struct bootstrap_req req = {.pick = pick,
                                .spec = run->spec,
                                .stack = run->stack.name,
                                .uid = run->stack.uid,
                                .launched = !ops->lent,
                                .wait_cloud_init = ops->user_data && ops->node_shape == NODE_VM,
                                .container = ops->node_shape == NODE_CONTAINER,
                                .ends_itself =
                                    ops->guest_end == GUEST_POWEROFF || (n->res.ends_itself && ops->self_end == NULL),
                                .end_script = ops->end_script,
                                .expires_s = run->stack.expires_s,
                                .ttl_s = n->ttl_s,
                                .idle_s = run->spec->idle_ms / 1000,
                                .controller_s = run->spec->controller_ms / 1000,
                                .packages_allowed = packages,
                                .packages_refusal = refusal,
                                .cache = run_cache_of(n),
                                .image_name = image_text(run->spec, &n->res),
                                .secrets = run->secrets,
                                .n_secrets = run->n_secrets,
                                .reboot_ms = reboot_ms(n),
                                .deadline_ms = clock_deadline(limit_ms)};
    bool dry = pick != NULL && pick->dry_run;
    if (!dry) r = hand_over(n, HAND_OVER_MS, err); /* before the steps: a controller that ends here may not come back */
    if (r != 0) return r;
    r = bootstrap_run(&n->link, &req, &n->boot, err);
    struct gp_error why = {0};
    if (r != 0 && n->end_given) hand_over(n, LOOK_MS, &why); /* the step's own failure counts */
    if (r != 0 || dry) return r;
    if (n->boot.applied > 0) r = hand_over(n, HAND_OVER_MS, err);
    if (r != 0) return r;
    if (complete) resource_set(&n->rec.boot_id, n->boot.boot_id);
    run_event(run, n->slot, NODE_BOOTSTRAPPING, EVENT_DONE, "", "%d step%s applied", n->boot.applied,
              n->boot.applied == 1 ? "" : "s");
    return run_node_save(n, err);
}

static int check(struct run_node *n, struct gp_error *err) {
    int r = run_node_phase(n, NODE_CHECKING, err);
    struct validate_env env = n->run->validation.env;
    env.rdma_expected = n->run->spec->fabric != FABRIC_NONE ? n->res.rdma : 0;
    if (r == 0) r = validate_node(&n->link, &env, &n->report, err);
    return r;
}

/* At the deadline the machine ends, its login breaks and its step is killed, in any order: one text for all of them.
 * The machine ends by its own clock. */
static bool is_over(const struct run_node *n) {
    const struct provider_ops *ops = ops_of(n);
    return ops != NULL && !ops->lent && clock_left_ms(n->ends_ms) <= CLOCKS_DIFFER_MS;
}

static void name_deadline(struct run_node *n) {
    char ttl[32];
    duration_format(ttl, sizeof ttl, n->run->spec->ttl_ms);
    GP_AUTO_FREE char *node = xasprintf("%s/%d: ", n->run->stack.name, n->slot);
    struct gp_error last = n->err;
    gp_error_clear(&n->err);
    gp_fail(&n->err, last.code,
            "%sits deadline passed in phase '%s' (limits.ttl is %s): set a longer ttl, then run 'gpuprov down %s' "
            "and 'gpuprov up'; last: %.220s",
            node, node_phase_name(n->rec.phase), ttl, n->run->stack.name,
            last.msg + (str_starts(last.msg, node) ? strlen(node) : 0));
    str_one_line(n->err.msg);
}

/* Adds a cause that only the provider knows. The error is shortened, so that there is room for it. */
static void add_cause(struct run_node *n) {
    const struct provider_ops *ops = ops_of(n);
    GP_AUTO_FREE char *cause = ops != NULL && ops->trouble != NULL ? ops->trouble(&n->res) : NULL;
    if (cause == NULL) return;
    GP_AUTO_FREE char *text = xasprintf("%.280s; possible cause: %s: run 'gpuprov down %s', then 'gpuprov up' again",
                                        n->err.msg, cause, n->run->stack.name);
    str_put(n->err.msg, sizeof n->err.msg, text);
    str_one_line(n->err.msg);
}

/* Adds where the whole output of the failed step is. */
static void add_output_place(struct run_node *n) {
    const struct bootstrap_output *o = &n->boot.failed;
    const struct ssh_target *t = &n->link.target;
    if (o->text.len == 0) gp_append(&n->err, "; it printed nothing");
    else if (step_output_stays(n->run))
        gp_append(&n->err, "; 'gpuprov logs %s/%d --step %s' prints the output", n->run->stack.name, n->slot, o->step);
    else gp_append(&n->err, "; the output is in %s on %s@%s", o->node_path, t->user, t->host);
}

/* With the end of the failed step's output, which is kept. */
static void report_failure(struct run_node *n) {
    struct run *run = n->run;
    const struct bootstrap_output *o = &n->boot.failed;
    GP_AUTO_STR struct str tail = {0};
    struct gp_error why = {0};
    if (o->step != NULL && step_output_keep(run, n->slot, o, &tail, &why) != 0)
        run_event(run, n->slot, n->rec.phase, EVENT_WARN, o->step, "could not keep the step's output: %s", why.msg);
    if (o->step != NULL) add_output_place(n);
    event_send(&run->sink,
               (struct event){
                   .node = n->slot, .phase = n->rec.phase, .status = EVENT_FAIL, .text = n->err.msg, .output = tail.s});
}

/* Reports and records a failure. A machine that terminated is not reported as "cancelled". */
static void end_node(struct run_node *n, int rc) {
    struct run *run = n->run;
    if (rc == 0) {
        struct gp_error err = {0};
        n->rc = run_node_phase(n, NODE_WAITING, &err);
        if (n->rc != 0) n->err = err;
        return;
    }
    if (n->err.code == GP_ECANCELLED && !gp_cancelled(&run->e->cancel)) {
        gp_error_clear(&n->err);
        n->ended = true;
        rc = gp_fail(&n->err, GP_EREACH, "%s/%d: %s terminated in phase '%s'", run->stack.name, n->slot,
                     n->rec.resource_id, node_phase_name(n->rec.phase));
    }
    n->rc = rc;
    node_link_close(&n->link);
    if (n->err.code == GP_ECANCELLED) return; /* the phase stays, so that the next run resumes it */
    if (is_over(n)) name_deadline(n);
    else add_cause(n);
    report_failure(n);
    resource_set(&n->rec.note, n->err.msg);
    n->rec.phase = NODE_FAILED;
    struct gp_error second = {0};
    if (run_node_save(n, &second) != 0) run_event(run, n->slot, NODE_FAILED, EVENT_WARN, "journal", "%s", second.msg);
}

void node_run_up(struct run_node *n) {
    int r = reach(n, &n->err);
    if (r == 0) r = trust(n, &n->err);
    if (r == 0) r = bootstrap(n, &n->err);
    if (r == 0) r = check(n, &n->err);
    end_node(n, r);
}

/* The machine is stopped next, so the record stays in NODE_REACHING. Its note is kept before anything is removed:
 * nobody logs in to a cleaned node any more. */
void node_run_clean(struct run_node *n) {
    int r = reach(n, &n->err);
    if (r == 0) r = trust(n, &n->err);
    if (r == 0) resource_set(&n->rec.note, NODE_CLEANED);
    if (r == 0) r = run_node_save(n, &n->err);
    if (r == 0) run_event(n->run, n->slot, NODE_REACHING, EVENT_PROGRESS, "clean", "cleans the node for its image");
    if (r == 0) r = bootstrap_clean(&n->link, &n->clean, &n->err);
    node_link_close(&n->link);
    n->rc = r;
}

void node_run_bootstrap(struct run_node *n) {
    int r = reach(n, &n->err);
    if (r == 0) r = trust(n, &n->err);
    if (r == 0) r = bootstrap(n, &n->err);
    node_link_close(&n->link);
    if (r != 0) end_node(n, r);
}

void node_run_validate(struct run_node *n) {
    int r = was_set_up(n) ? 0
                          : gp_fail(&n->err, GP_EBOOTSTRAP,
                                    "%s/%d: the bootstrap is not complete: "
                                    "run 'gpuprov up' to continue it",
                                    n->run->stack.name, n->slot);
    if (r == 0) r = reach(n, &n->err);
    if (r == 0) r = trust(n, &n->err);
    if (r == 0) r = check(n, &n->err);
    end_node(n, r);
}

/* Compares the boot ids: a node that was rebooted since its bootstrap must be validated again. */
static int same_boot(struct run_node *n, struct gp_error *err) {
    struct ssh_exec_opts opts = {.deadline_ms = clock_deadline(LOOK_MS), .cancel = &n->cancel};
    GP_AUTO_STR struct str out = {0};
    int r = ssh_run(n->link.session, "reading boot_id", "cat /proc/sys/kernel/random/boot_id", &opts, &out, err);
    if (r != 0 || str_eq(str_trim(out.s), n->rec.boot_id)) return r;
    return gp_fail(err, GP_EREACH, "%s/%d was rebooted since it was validated", n->run->stack.name, n->slot);
}

int node_run_connect(struct run_node *n, int64_t timeout_ms, struct gp_error *err) {
    return connect_to(n, GP_MIN(timeout_ms, console_access_ms(n->run, &n->res)), 0, err);
}

int node_run_hand_over(struct run_node *n, struct gp_error *err) { return hand_over(n, HAND_OVER_MS, err); }

void node_run_look(struct run_node *n) {
    int r = connect_to(n, GP_MIN((int64_t)LOOK_MS, console_access_ms(n->run, &n->res)), 0, &n->err);
    if (r == 0) r = same_boot(n, &n->err);
    n->rc = r;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The engine's interface for the verbs. Each engine_VERB function does one verb's whole work: it blocks on the network
 * and on local files, emits events to e->sink, and returns 0 or -GP_E* with one line in err. Results are plain data.
 * The caller initialises them with {0} and frees them with their _clear function, also after an error. One thread uses
 * an engine; only engine_cancel and engine_billed_ids may be called from others. */
#ifndef GP_ENGINE_H
#define GP_ENGINE_H

#include "base/clock.h"
#include "base/error.h"
#include "journal/journal.h"
#include "model/coverage.h"
#include "model/estimate.h"
#include "model/event.h"
#include "model/export.h"
#include "model/offer.h"
#include "model/report.h"
#include "model/stack.h"
#include "spec/spec.h"
#include "ssh/ssh.h"
#include "tree/tree.h"

#define LOCK_TIMEOUT_MS ((int64_t)3600 * 1000)

struct engine_opts {
    const char *owner;        /* --owner or GPUPROV_OWNER; NULL: the provider's principal */
    int jobs;                 /* --jobs: nodes processed in parallel; default 64 */
    bool accept_new_host_key; /* --accept-new-host-key, ssh provider */
    bool check_all;           /* validate --all: a node's checks continue after a certain failure */
    const struct strv *only;  /* --in: the places to look at, "aws" or "aws/us-east-1"; NULL or empty: all */
    int64_t lock_timeout_ms;  /* --lock-timeout: how long a run waits for another one; 0: LOCK_TIMEOUT_MS */
    bool even_if_changed;     /* up: continues a stack that another run destroyed or changed while this one waited */
    const char *unit;         /* up of a folder: stacks are launched as part of it; NULL: no unit */
    bool scratch;             /* for machines without a stack: journal in memory, no state folder */
};

struct plan;
struct validate_plan;
struct engine {
    struct engine_opts opts;
    char *state_dir;
    struct journal *journal;
    struct gp_cancel cancel;
    struct event_sink sink; /* emit may be NULL */
    const char *baseline;   /* --baseline FILE, borrowed; NULL: the spec's, else the state folder's */
    bool calibrate;         /* --calibrate: a validation writes a baseline instead of comparing with one */
    /* Of `up`, once, before it changes anything at a provider; an error ends the run with it. NULL: everything is
     * approved. Verb's thread. */
    int (*approve)(void *ctx, const struct plan *plan, struct gp_error *err);
    /* Of `up` and `plan`: whether an offer may be used at all; the caller reports why not. NULL: each may. */
    bool (*may_use)(void *ctx, const struct offer *offer);
    void *approve_ctx; /* of both */
    /* Of `up`: the uid of the stack that it continues, also if all its machines are gone. Its deadline stays. Another
     * stack of that name, or one that was destroyed, is refused (-GP_EBUSY). NULL: any. */
    const char *continues;
    bool destroys;        /* of `up`: its caller destroys the nodes after a failure of an approved run */
    bool journal_damaged; /* set aside at open; stacks are found again by their tags */
    /* The events of runs go to the receivers that their spec names (`notify`). Verbs that only look leave it false, and
     * so does one that waits for an approval, because a command of the spec would run on this machine. */
    bool notifies;
    /* The plan that the verb shows has the commands of the spec's `notify`, so all of them may run. Else only those run
     * that the journal's spec of the stack has. */
    bool shows_plan;
    struct notify *notify;
};
/* 0 if every place was looked at; else -GP_EBILLED if something may be billed there, or the reason's own code. Does
 * not block. */
int look_gap_error(const struct coverage *looked, const char *what, struct gp_error *err);
/* -GP_EUSAGE unless each of `places` (--in) names a provider, or one and a region. */
int look_check_places(const struct strv *places, struct gp_error *err);
/* Opens the state folder and the journal; blocks on local files. The caller owns *ret; engine_close frees it and
 * accepts NULL. */
int engine_open(const struct engine_opts *opts, struct engine **ret, struct gp_error *err);
void engine_close(struct engine *e);
/* At the end of a verb, in its thread: waits until the receivers have what is queued for them, at most 10 s in the life
 * of the engine, or until engine_cancel; then drops the rest. Emits a warning for what was not delivered. */
void engine_settle(struct engine *e);
/* Sends the end of a job of a stack to the receivers; text: how it ended. Verb's thread. Does not block. */
void engine_job_ended(struct engine *e, const char *stack, const char *text);
/* Callable from any thread: blocking calls return soon with -GP_ECANCELLED. */
void engine_cancel(struct engine *e);
/* After a cancelled call: the verb cleans up with the same engine. Verb's thread, while no other call runs. */
void engine_go_on(struct engine *e);
/* *ret: the journal has a stack of that name, of any owner. */
int engine_knows(struct engine *e, const char *name, bool *ret, struct gp_error *err);
/* For the second Ctrl-C: ids of what may be billed, one per line, without locks that a worker may hold during I/O.
 * Callable from any thread. Caller frees. */
char *engine_billed_ids(struct engine *e);
/* The same as text for people: each node that exists, billed or not, with its deadline as it was last read and the
 * command that destroys it; then whatever else may be billed. "": nothing is known. Caller frees. */
char *engine_left_text(struct engine *e);

/* One change of one field, or of a whole resource, that `up` makes. */
enum change_action {
    CHANGE_CREATE,
    CHANGE_UPDATE,  /* written to what exists */
    CHANGE_RESUME,  /* a node goes on to `ready` */
    CHANGE_REPAIR,  /* it was changed by hand, and `up` restores it */
    CHANGE_REPLACE, /* the machine is destroyed, and another one launched */
    CHANGE_DESTROY,
    CHANGE_SETTLE, /* a launch whose outcome is not known */
    CHANGE_REFUSE  /* it was changed by hand, and `up` leaves it: the reason has the next step */
};
struct plan_change {
    enum change_action action;
    char *resource;       /* "spec", "stack", "claim", "node", "launch", or a kind of resource: "group" */
    char *id;             /* the provider's; NULL: it has none yet */
    int node;             /* -1: not one node */
    char *key;            /* "limits.ttl", "state", "tag expires"; NULL: the whole resource */
    char *before, *after; /* NULL: there is none, or it is not shown */
    char *reason;
};
struct plan_changes {
    VEC_OF(struct plan_change) list;
};
void plan_changes_clear(struct plan_changes *c);

/* A node as the verbs show it. The view owns all strings. */
struct node_view {
    int slot;
    enum node_phase phase;
    char *id, *place, *type, *address, *state; /* address: for `gpuprov ssh`; state: the provider's */
    double price_usd_per_h;                    /* negative: not known */
    char *verdict;                             /* "ready", "not validated: ...", "failed: ..." */
    bool billed;
};
/* The newest job of a stack as this machine last saw it; the nodes were not asked. */
struct job_seen {
    char id[17];               /* "": it saw none */
    char state[12];            /* "running", "succeeded", "failed", "stopped", "lost" */
    int64_t started_s, seen_s; /* wall clock of this machine */
    int nodes;                 /* that run it */
    bool fetched;              /* its outputs are here, or it has none */
    char why[200];             /* of "failed" and "lost"; "" */
};
struct stack_view {
    struct stack stack;
    struct job_seen job;
    char *phase; /* "ready", "partial", "not ready", "empty", "gone", "not known" */
    VEC_OF(struct node_view) nodes;
    struct resource_list others;       /* groups, keys, holder: everything that is not a node */
    double price_usd_per_h, spent_usd; /* negative: not known */
    int64_t clock_skew_s;              /* of its provider's clock: the deadline is in that time */
    char *ends;                        /* "server", "guest", "gc-only", "never" */
    struct intent_list unknown;        /* outcome not known yet */
    struct coverage looked;            /* the basis: places looked at, and not looked at */
    struct resource_list unreadable;   /* with the stack's name, but unreadable tags */
    struct plan_changes drift;         /* what was changed by hand, field by field */
    bool remembered;                   /* all or part of it is from the journal: it was not looked at */
    struct strv notes;                 /* about its deadline and its cost, a sentence each */
};
void stack_view_clear(struct stack_view *v);
struct str;
/* Appends a line about v->job, which is there. */
void engine_job_text(const struct stack_view *v, struct str *out);
struct stack_view_list {
    VEC_OF(struct stack_view) list;
    struct resource_list images;     /* of such a search: baked images and their snapshots */
    struct coverage looked;          /* of a search without a name: places looked at, and not looked at */
    struct resource_list unreadable; /* of such a search: with this owner's tag, but other tags unreadable */
};
void stack_view_list_clear(struct stack_view_list *l);

/* --- check, and before plan and up --- */
/* Checks what the spec needs on this machine: required checks and floors (ret: the chosen checks), baseline,
 * access.key, hosts files. e NULL: only what the spec names. Contacts no provider; blocks on local files, or on the SSH
 * agent. */
int engine_preflight(const struct engine *e, const struct spec *spec, struct validate_plan *ret, struct gp_error *err);

/* --- offers --- */
struct offers_req {
    const struct spec *spec;
    const struct strv *keys; /* keys of offers[] that every provider must take; NULL: none */
    const struct strv *only; /* providers; NULL: all that the spec names */
};
struct offers_gap {
    size_t index; /* of the first entry of spec->offers without an offer */
    char *provider;
    struct gp_error why;
};
struct offers_result {
    struct offer_list offers; /* cheapest first; `ends` is set */
    VEC_OF(struct offers_gap) gaps;
};
void offers_result_clear(struct offers_result *r);
/* Everything that could be bought for the spec now: the providers are queried side by side, and nothing is bought. An
 * error only if no provider has an offer, or after engine_cancel. */
int engine_offers(struct engine *e, const struct offers_req *req, struct offers_result *ret, struct gp_error *err);

/* --- plan --- */
enum plan_action { PLAN_CREATE, PLAN_KEEP, PLAN_RESUME, PLAN_DESTROY, PLAN_SETTLE };
struct plan_item {
    enum plan_action action;
    int slot_first, slot_count;
    char *what; /* "2 x p5.48xlarge spot in us-east-2a", "security group gpuprov-me-llm" */
    char *why;
};
/* The state that a plan is based on, without the spec. */
struct plan_node {
    int slot;
    char *id, *phase, *place, *type;
};
struct plan_state {
    char *owner;     /* NULL: not known */
    char *uid;       /* NULL: the stack does not exist */
    char *spec_hash; /* of the nodes that are there; NULL */
    VEC_OF(struct plan_node) nodes;
    struct strv extras; /* ids of machines that the spec does not include */
    int unknown;        /* launches whose outcome is not known */
};
struct plan {
    VEC_OF(struct plan_item) items;
    struct plan_changes resource_changes;
    struct plan_state state;
    struct offer_list offers; /* ranked; the first is what `up` tries first */
    double price_usd_per_h;   /* of the whole stack, at the first offer; negative: not known */
    double dearest_usd_per_h; /* the same at the dearest offer; negative: not known */
    double max_usd;           /* of the whole stack until its deadline, at the dearest offer; negative: not known */
    int64_t ttl_ms;           /* of the spec */
    int64_t expires_s;        /* the deadline of nodes that are there; 0: none, ttl_ms from the launch on */
    char *ends;               /* who enforces the deadline */
    struct coverage looked;   /* the basis: places looked at, and not looked at */
    struct strv notes;        /* "local: nodes share this machine's kernel: no security boundary" */
    struct spec_changes spec_changes; /* since the nodes that are there were launched */
    bool changes;                     /* exit 2 */
    bool new_commands; /* the spec's `notify` has a command that the journal's spec of the stack does not have */
    bool has_estimate;
    struct estimate estimate; /* of the training that the spec names */
};
void plan_clear(struct plan *p);
int engine_plan(struct engine *e, const struct spec *spec, struct plan *ret, struct gp_error *err);

/* --- the other verbs --- */
struct up_result {
    struct stack_view view;
    struct report report;
    bool nothing_to_do;  /* all nodes were ready already */
    bool deadline_moved; /* to what the spec says now */
    int approval;        /* of its plan: 1 given, or not needed; -1 refused; 0: it did not come to that */
    struct coverage looked;
};
void up_result_clear(struct up_result *r);
/* Launches, bootstraps and validates the nodes; resumes an earlier run. On failure ret has the part that was done. */
int engine_up(struct engine *e, const struct spec *spec, struct up_result *ret, struct gp_error *err);

struct down_req {
    const char *name; /* of the stack, if spec is NULL: found in the journal, else at every provider that opens */
    const struct spec *spec;
    bool dry_run; /* only lists: ret->would */
    bool yes;     /* the spec need not be one of the stack */
    /* NULL, or the unit that everything of the stack must belong to: else nothing is destroyed (-GP_EUSAGE). */
    const char *unit;
    /* NULL, or the uid that the stack must have: only that one is destroyed, and another one with its name, which was
     * launched meanwhile, is left alone (-GP_EBUSY). */
    const char *uid;
    /* Called, under the stack's lock, if the spec has no offer of a provider where the stack has something: 0 goes on.
     * NULL: that is -GP_EUSAGE. */
    int (*confirm)(void *ctx, const char *question, struct gp_error *err);
    void *ctx;
};
struct down_result {
    int destroyed;                   /* resources destroyed now */
    int released;                    /* hosts released: they keep running */
    struct strv asked;               /* ids of all of these */
    struct resource_list left;       /* what may still be there (billed ones make exit 8) */
    struct resource_list unreadable; /* with the stack's name, but unreadable tags: left alone */
    struct coverage looked;          /* "nothing is left" holds for the places that were looked at */
    char *owner;                     /* of the stack; NULL: no provider opened and none was given */
    struct resource_list would;      /* dry_run: would be destroyed */
    char *elsewhere;                 /* dry_run: places of these that the spec has no offer for; NULL: none */
};
void down_result_clear(struct down_result *r);
/* Destroys everything the stack owns and verifies that it is gone. */
int engine_down(struct engine *e, const struct down_req *req, struct down_result *ret, struct gp_error *err);

struct extend_req {
    const char *name;        /* of the stack, if spec is NULL */
    const struct spec *spec; /* used only where the journal does not have the stack's own */
    int64_t by_ms;
    bool add; /* to the present deadline; else from now on */
};
struct extend_result {
    char *stack;
    int64_t was_s, expires_s; /* wall, the cloud's clock */
    int64_t left_s;           /* from now on */
    char *ends;               /* who enforces it */
    double max_usd;           /* of the whole stack until then; negative: not known */
};
void extend_result_clear(struct extend_result *r);
/* Moves the deadline of a stack with nodes, to an earlier time too: on the nodes, in the tags, in the journal. It may
 * be killed anywhere and run again; until then the earlier deadline counts. Refuses (-GP_EUSAGE, -GP_EMONEY) deadlines
 * that have passed or are over 30 days from now, costs over limits.max_cost, and providers that cannot move one. If a
 * node does not take it, nothing has moved. */
int engine_extend(struct engine *e, const struct extend_req *req, struct extend_result *ret, struct gp_error *err);

/* name NULL: every stack of the journal and, with refresh, every other stack that the tags at the providers name.
 * refresh: queries the providers, else shows the journal. A stack that could not be queried is shown from the journal
 * and makes the result an error (-GP_EBILLED if it may be billed). So does a place that could not be searched, unless
 * this machine has no credentials for it at all. */
int engine_status(struct engine *e, const char *name, const struct spec *spec, bool refresh,
                  struct stack_view_list *ret, struct gp_error *err);

/* Destroys resources past their deadline, and those of tombstones, in every region. dry_run: only lists them. */
struct gc_result {
    struct resource_list ended, kept; /* kept: of live stacks within their deadline */
    struct resource_list unreadable;  /* with this owner's tag, but other tags unreadable: left alone */
    struct coverage looked;           /* places looked at, and not looked at */
};
void gc_result_clear(struct gc_result *r);
int engine_gc(struct engine *e, const char *provider, bool dry_run, struct gc_result *ret, struct gp_error *err);

/* --- baked images --- */
struct bake_req {
    const struct spec *spec;
    bool again; /* also if an image that fits exists */
};
struct bake_result {
    struct resource image; /* id NULL: none */
    bool reused;           /* it fits, and existed before */
    char *stack;           /* the stack of its node, which is destroyed at the end */
    struct report report;  /* of the node */
    struct coverage looked;
};
void bake_result_clear(struct bake_result *r);
/* Makes an image of one bootstrapped and validated node of the spec, in a stack of its own that it destroys. */
int engine_bake(struct engine *e, const struct bake_req *req, struct bake_result *ret, struct gp_error *err);
char *bake_stack_name(const char *name); /* of the bake of a spec of that name; caller frees */

struct images_req {
    const struct strv *ids;
    bool yes;
    /* 0 goes on. NULL: without `yes` that is -GP_EUSAGE. */
    int (*confirm)(void *ctx, const char *question, struct gp_error *err);
    void *ctx;
};
struct images_result {
    struct resource_list images, removed; /* images and snapshots */
    struct resource_list unreadable;      /* with this owner's tag, but other tags unreadable: left alone */
    struct coverage looked;
};
void images_result_clear(struct images_result *r);
/* Lists the baked images of this owner and their snapshots, in every region of every provider that opens. */
int engine_images(struct engine *e, struct images_result *ret, struct gp_error *err);
/* Removes images with their snapshots, and verifies that they are gone. All ids must be listed, or nothing is
 * removed. */
int engine_images_remove(struct engine *e, const struct images_req *req, struct images_result *ret,
                         struct gp_error *err);

/* Runs the checks on the nodes of an existing stack. */
int engine_validate(struct engine *e, const char *name, const struct spec *spec, struct report *ret,
                    struct gp_error *err);
/* A validation without a stack launches and stores nothing; its result is the report. */
struct bare_req {
    const char *gpu; /* "H100:8" of each machine; NULL: the GPUs found (local), those in the file (hosts) */
    int64_t time_ms; /* for the checks; 0: 5 minutes */
    bool strict;
};
/* Validates this machine: node checks, by the agent as a child process. */
int engine_validate_local(struct engine *e, const struct bare_req *req, struct report *ret, struct gp_error *err);
/* Validates every machine of a hosts file (providers/ssh/hosts.h) over SSH, gang checks too. The engine must be opened
 * with `scratch`. Only the agent stays on a host, in ~/.gpuprov. */
int engine_validate_hosts(struct engine *e, const char *hosts, const struct bare_req *req, struct report *ret,
                          struct gp_error *err);
/* --- bootstrap --- */
struct bootstrap_opts {
    struct strv only; /* names of steps; empty: all */
    const char *from; /* this step and the later ones; NULL: all */
    bool dry_run;     /* only probe; changes no node and no record */
};
struct bootstrapped_node {
    int slot;
    struct strv steps; /* that changed the node; dry_run: that would run */
    char *error;       /* NULL: none */
};
struct bootstrapped {
    char *stack;
    VEC_OF(struct bootstrapped_node) nodes;
    bool changes; /* any node has such steps */
};
void bootstrapped_clear(struct bootstrapped *b);
/* Bootstraps the existing nodes of a stack by its spec (NULL: that of the journal). Nodes that were changed must be
 * validated again. On failure ret has the part that was done. */
int engine_bootstrap(struct engine *e, const char *name, const struct spec *spec, const struct bootstrap_opts *opts,
                     struct bootstrapped *ret, struct gp_error *err);
/* The same for every machine of a hosts file, which replace the spec's offers and nodes. The engine must be opened with
 * `scratch`. */
int engine_bootstrap_hosts(struct engine *e, const char *hosts, struct spec *spec, const struct bootstrap_opts *opts,
                           struct bootstrapped *ret, struct gp_error *err);
/* Appends one step as an sh script. os: the system of its node, NULL: the spec's. -GP_EUSAGE: no such step, or the
 * step depends on a system that is not known. */
int engine_step_script(const struct spec *spec, const char *step, const char *os, struct str *ret,
                       struct gp_error *err);

/* Reads the last report from the journal; of a destroyed stack, the kept one. -GP_ENOTFOUND: there is none; err has the
 * next step. */
int engine_report(struct engine *e, const char *name, struct report *ret, struct gp_error *err);
/* The figures of the stack's runs, oldest first: {"schema": "gpuprov/history/v1", "stack", "runs": [{"run",
 * "uid", "started", "took_ms", "ready", "nodes", "figures": [{"check", "metric", "unit", "n", "median", "worst",
 * "worst_node", "worst_gpu"}]}]}. New reference. -GP_ENOTFOUND: none was kept. */
int engine_history(struct engine *e, const char *name, json_t **ret, struct gp_error *err);
/* Writes the events of a stack to `to`, newest last; json: as JSON lines. slot -1: all. follow: goes on with new events
 * until no gpuprov works on the stack any more, or until the engine is cancelled. -GP_ENOTFOUND: no events. */
int engine_logs(struct engine *e, const char *name, int slot, FILE *to, bool json, bool follow, struct gp_error *err);
/* Appends the output of a step of a node: the one that was kept when it failed, else as the node has it now. It cannot
 * steer a terminal. -GP_ENOTFOUND: no such stack or node, or the step has not run there. */
int engine_step_output(struct engine *e, const char *name, int slot, const char *step, struct str *ret,
                       struct gp_error *err);

/* --- cp --- */
struct cp_req {
    const char *name;        /* of the stack */
    const struct spec *spec; /* of it, for a machine whose journal has none; NULL */
    int slot;                /* its node; -1: all nodes (up only), which give folders to each other */
    bool up;                 /* to the node; else from it */
    const struct strv
        *from;      /* at least one. A folder goes to `to`/NAME, one that ends in "/." has its content in `to` */
    const char *to; /* of one file: its new path, or a folder that exists or ends in '/' */
    bool ignore, mirror, by_hash; /* see engine/transfer/transfer.h; ignore: up only */
    int64_t fetch_ms;             /* for all of it, from a node; 0: what engine/transfer/pace.h allows */
};
/* Copies files and folders between this machine and a node, or to all nodes: only what differs, checked by hash. Goes
 * on after a lost connection; a repetition goes on after a crash. Blocks; progress goes to e->sink. ret: also after an
 * error. */
int engine_cp(struct engine *e, const struct cp_req *req, struct tree_stats *ret, struct gp_error *err);

/* Writes an OpenSSH config for all nodes of the stack, with the aliases NAME-SLOT, below the state folder. *ret_path is
 * the config's path; caller frees. spec: of the stack, for a machine whose journal has none; NULL. */
int engine_ssh_config(struct engine *e, const struct spec *spec, const char *name, const char *self_exe,
                      char **ret_path, struct gp_error *err);
/* The nodes of a stack with an SSH address, as the providers and the last validation have them, and that config. ret:
 * zeroed by the caller, who clears it also after an error. */
int engine_export(struct engine *e, const char *name, const char *self_exe, struct export_stack *ret,
                  struct gp_error *err);

#endif

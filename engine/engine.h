/* SPDX-License-Identifier: Apache-2.0 */
/* What the verbs call. Each function is one verb's whole work: it blocks, emits events, returns 0 or
 * a negative code with one line in err; results for stdout come back as plain data. */
#ifndef GP_ENGINE_H
#define GP_ENGINE_H

#include "base/clock.h"
#include "base/error.h"
#include "journal/journal.h"
#include "model/coverage.h"
#include "model/event.h"
#include "model/offer.h"
#include "model/report.h"
#include "model/spec.h"
#include "model/stack.h"
#include "ssh/ssh.h"

struct engine_opts {
    const char *owner;        /* --owner or GPUPROV_OWNER; NULL: the provider's principal */
    int jobs;                 /* --jobs: nodes worked on at once; default 64 */
    bool accept_new_host_key; /* --accept-new-host-key, ssh provider */
    bool check_all;           /* validate --all: a node's checks go on after a certain failure */
    const struct strv *only;  /* --in: the places to look at, "aws" or "aws/us-east-1"; NULL or empty: all */
    bool scratch;             /* for machines without a stack: journal in memory, no state folder */
};

struct engine {
    struct engine_opts opts;
    char *state_dir;
    struct journal *journal;
    struct gp_cancel cancel;
    struct event_sink sink; /* emit may be NULL */
    const char *baseline;   /* --baseline FILE, borrowed; NULL: the spec's, else the state folder's */
    bool calibrate;         /* --calibrate: a validation makes a baseline instead of being held against one */
    bool journal_damaged;   /* it was set aside at open; what it knew is found again by tags */
};
/* 0 when all was looked at; else -GP_EBILLED where something billed may be, or the reason's own code. */
int look_gap_error(const struct coverage *looked, const char *what, struct gp_error *err);
/* -GP_EUSAGE unless each of `places` (--in) names a provider, or one and a region. */
int look_check_places(const struct strv *places, struct gp_error *err);
/* Opens the state folder and the journal. Allocates; close frees. */
int engine_open(const struct engine_opts *opts, struct engine **ret, struct gp_error *err);
void engine_close(struct engine *e);
/* Safe from the signal thread: everything blocking returns soon with GP_ECANCELLED. */
void engine_cancel(struct engine *e);
/* For the second Ctrl-C: ids of what may be billed, one per line, from memory without locks that
 * a worker might hold across I/O. Caller frees. */
char *engine_billed_ids(struct engine *e);

/* How a node is shown at the end of every verb. All strings owned. */
struct node_view {
    int slot;
    enum node_phase phase;
    char *id, *place, *type, *address, *state; /* address: what `gpuprov ssh` reaches; state: the cloud's word */
    double price_usd_per_h;                    /* negative: not known */
    char *verdict;                             /* "ready", "not proven: ...", "failed: ..." */
    bool billed;
};
struct stack_view {
    struct stack stack;
    char *phase; /* "ready", "partial", "not ready", "empty", "gone", "not known" */
    VEC_OF(struct node_view) nodes;
    struct resource_list others;       /* groups, keys, holder: everything that is not a node */
    double price_usd_per_h, spent_usd; /* negative: not known */
    char *ends;                        /* "server", "guest", "gc-only", "never" */
    struct intent_list unknown;        /* outcome not known yet */
    struct coverage looked;            /* what this rests on */
    struct resource_list unreadable;   /* bears the stack's name with tags that were not understood */
    bool remembered;                   /* all or some of it is from this machine's memory: it was not looked at */
};
void stack_view_clear(struct stack_view *v);
struct stack_view_list {
    VEC_OF(struct stack_view) list;
};
void stack_view_list_clear(struct stack_view_list *l);

/* --- plan --- */
enum plan_action { PLAN_CREATE, PLAN_KEEP, PLAN_RESUME, PLAN_DESTROY, PLAN_SETTLE };
struct plan_item {
    enum plan_action action;
    int slot_first, slot_count;
    char *what; /* "2 x p5.48xlarge spot in us-east-2a", "security group gpuprov-me-llm" */
    char *why;
};
struct plan {
    VEC_OF(struct plan_item) items;
    struct offer_list offers; /* ranked; the first is what `up` tries first */
    double price_usd_per_h;   /* of the whole stack; negative: not known */
    int64_t ttl_ms;
    char *ends;             /* who ends it */
    struct coverage looked; /* what this rests on */
    struct strv notes;      /* "local: nodes share this machine's kernel: no security boundary" */
    bool changes;           /* exit 2 */
};
void plan_clear(struct plan *p);
int engine_plan(struct engine *e, const struct spec *spec, struct plan *ret, struct gp_error *err);

/* --- the story --- */
struct up_result {
    struct stack_view view;
    struct report report;
    bool nothing_to_do; /* all nodes were ready already */
    struct coverage looked;
};
void up_result_clear(struct up_result *r);
/* Makes it so; resumes what an earlier run left. ret is filled as far as it got, also on failure. */
int engine_up(struct engine *e, const struct spec *spec, struct up_result *ret, struct gp_error *err);

/* Destroys everything the stack owns and proves that it is gone. spec NULL: by name through the
 * journal, else through every provider in `providers` (NULL: those that have credentials). */
struct down_result {
    int destroyed;                   /* resources ended now */
    int released;                    /* hosts given back: they go on running */
    struct strv asked;               /* ids of all of these */
    struct resource_list left;       /* what may still be there (billed ones make exit 8) */
    struct resource_list unreadable; /* bears the stack's name with tags that were not understood: left alone */
    struct coverage looked;          /* where was looked, and where not: "nothing is left" is true of the first */
    char *owner;                     /* whose stack; NULL: no provider opened and none was given */
};
void down_result_clear(struct down_result *r);
int engine_down(struct engine *e, const char *name, const struct spec *spec, struct down_result *ret,
                struct gp_error *err);

/* name NULL: every stack of the journal. refresh: ask the clouds (else the journal's memory). What could not
 * be asked is shown from memory and makes the result an error (-GP_EBILLED where it may be billed). */
int engine_status(struct engine *e, const char *name, const struct spec *spec, bool refresh,
                  struct stack_view_list *ret, struct gp_error *err);

/* Ends what outlived its deadline (dry_run: only lists), tombstones and leftovers, every region. */
struct gc_result {
    struct resource_list ended, kept; /* kept: of live stacks within their deadline */
    struct resource_list unreadable;  /* of this owner by its tag, but whose is not understood: left alone */
    struct coverage looked;           /* where was looked, and where not */
};
void gc_result_clear(struct gc_result *r);
int engine_gc(struct engine *e, const char *provider, bool dry_run, struct gc_result *ret, struct gp_error *err);

/* Runs the suite again on the nodes of a stack. */
int engine_validate(struct engine *e, const char *name, const struct spec *spec, struct report *ret,
                    struct gp_error *err);
/* What is validated without a stack: nothing is made, billed or kept but the report. */
struct bare_req {
    const char *gpu; /* "H100:8" of each machine; NULL: what is there (local), what the file says (hosts) */
    int64_t time_ms; /* for the checks; 0: 5 minutes */
    bool strict;
};
/* The machine that this runs on: node checks, by the agent as a child. */
int engine_validate_local(struct engine *e, const struct bare_req *req, struct report *ret, struct gp_error *err);
/* Every machine of a hosts file (providers/ssh/hosts.h), over SSH, gang checks too. The engine was opened
 * with `scratch`. What stays on a host is the agent in ~/.gpuprov. */
int engine_validate_hosts(struct engine *e, const char *hosts, const struct bare_req *req, struct report *ret,
                          struct gp_error *err);
/* The last report. -GP_ENOTFOUND with what to do. */
int engine_report(struct engine *e, const char *name, struct report *ret, struct gp_error *err);
/* The figures of the stack's runs, oldest first: {"schema": "gpuprov/history/v1", "stack", "runs": [{"run",
 * "uid", "started", "took_ms", "ready", "nodes", "figures": [{"check", "metric", "unit", "n", "median", "worst",
 * "worst_node", "worst_gpu"}]}]}. New reference. -GP_ENOTFOUND: none was kept. */
int engine_history(struct engine *e, const char *name, json_t **ret, struct gp_error *err);
/* Events of a stack (JSON lines, newest last) to `to`; slot -1: all. */
int engine_logs(struct engine *e, const char *name, int slot, FILE *to, bool json, struct gp_error *err);

/* Everything `ssh` needs: an OpenSSH config for all nodes of the stack, aliases NAME-SLOT, written
 * below the state folder. *ret_path is the config's path; caller frees. */
int engine_ssh_config(struct engine *e, const char *name, const char *self_exe, char **ret_path, struct gp_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Private to engine/: one run over one stack: what up, validate, down and status share. */
#ifndef GP_ENGINE_RUN_H
#define GP_ENGINE_RUN_H

#include "bootstrap/bootstrap.h"
#include "engine/engine.h"
#include "engine/eventlog.h"
#include "providers/provider.h"
#include "validate/baseline.h"
#include "validate/validate.h"

#include <pthread.h>

#define RUN_MAX_PROVIDERS 8
#define RUN_MAX_SLOTS 4096 /* a tag that says more is not believed */

/* One slot of the stack. Owned by its node thread while the pool runs, by the coordinator otherwise;
 * `live` is the watcher's and is read through watch_*. */
struct run_node {
    int slot;
    struct node_record rec;
    struct resource res; /* as of the last reconcile or watch; kind RES_INSTANCE or RES_HOST */
    bool exists;         /* the cloud has it and it is not gone */
    bool skip;           /* nothing to do for it (READY already) */
    struct node_link link;
    struct gp_cancel cancel;     /* set when the whole run is cancelled or this machine died */
    char said[GP_ERROR_MSG_MAX]; /* why ssh waits, as last said */
    struct bootstrap_result boot;
    struct report_node report;
    int rc;
    struct gp_error err;
    struct run *run;
};

struct run {
    struct engine *e;
    const struct spec *spec; /* NULL for gc and for a stack known by its name only */
    struct spec *spec_owned; /* when it came out of the journal */
    char *owner;             /* after the first provider was opened */
    struct stack stack;
    struct provider *providers[RUN_MAX_PROVIDERS];
    size_t n_providers;
    struct event_sink sink; /* forwards to e->sink and to the stack's event log */
    struct event_log log;   /* under log_lock; path NULL: no stack, no log */
    bool log_failed;        /* said already */
    pthread_mutex_t log_lock;
    int lock_fd; /* -1: not held */
    char *lock_path;
    bool ending;                     /* down, gc: what stands in the way of one thing spares no other */
    bool looking;                    /* status: what cannot be asked is shown from memory */
    struct coverage looked;          /* where was looked so far, and where not */
    char *said_gaps;                 /* as last reported */
    bool said_unreadable;            /* likewise */
    struct resource_list unreadable; /* with the stack's name, but with tags that say whose it is no more */
    struct strv scope;               /* regions that the claim names: nothing of the stack is elsewhere... */
    char *scope_provider;            /* ...at this provider; NULL: no such claim was seen */
    bool adopted;                    /* the journal did not know the stack when the run began */
    struct gp_error unwritten;       /* ending: the first record that could not be written */
    bool verdict;                    /* ending: the last error is ending_verdict's, which names all there is */
    char id[17];                     /* of this run: 16 hex digits */
    struct run_node *nodes;
    int n_nodes;
    int64_t end_ms;              /* how long machines may take to end */
    struct offer_list offers;    /* of up: ranked, asked once */
    struct resource_list others; /* everything of the stack that is not a node in use */
    int others_unwanted;         /* of these: second machines and stopped ones */
    struct watch *watch;
    struct secret login_key; /* private key in memory; empty: path or agent */
    char *login_key_path;
    char *login_pubkey;
    struct bootstrap_secret *secrets; /* read before anything is bought */
    size_t n_secrets;
    int64_t started_ms; /* monotonic: when the work on the nodes began */
    struct validate_plan vplan;
    struct validate_env venv;
    struct baseline baseline; /* path NULL: none */
};

/* --- run.c --- */
int run_open(struct engine *e, const struct spec *spec, const char *name, struct run **ret, struct gp_error *err);
/* For a stack that should exist: spec and owner from the journal where not given, and every provider
 * that may hold it opened: the spec's, the journal's, else all that open (with said reasons). */
int run_open_known(struct engine *e, const struct spec *spec, const char *name, struct run **ret, struct gp_error *err);
/* The same to end it: a provider that does not open is noted in run->looked. */
int run_open_ending(struct engine *e, const struct spec *spec, const char *name, struct run **ret,
                    struct gp_error *err);
/* The journal's memory of it alone: no provider is opened. */
int run_open_remembered(struct engine *e, const struct spec *spec, const char *name, struct run **ret,
                        struct gp_error *err);
/* The same to show it: likewise noted. */
int run_open_looking(struct engine *e, const struct spec *spec, const char *name, struct run **ret,
                     struct gp_error *err);
void run_close(struct run *run);
/* Once per engine: that the journal was set aside. For verbs that open no run. */
void run_say_damaged(struct engine *e, const struct event_sink *sink);
/* Opens a provider once per run; the first decides the owner. */
int run_provider(struct run *run, const char *name, struct provider **ret, struct gp_error *err);
/* The further providers of the spec: nodes may be there too. One that does not open is reported and noted in
 * run->looked. */
void run_open_further(struct run *run);
void run_event(struct run *run, int node, enum node_phase phase, enum event_status status, const char *step,
               const char *fmt, ...) GP_PRINTF(6, 7);
/* The longest time that a list of the open providers may lag, and the pause between two lists. */
int64_t run_settle_ms(const struct run *run);
int64_t run_pause_ms(const struct run *run);
int64_t run_cloud_s(const struct run *run, const char *provider); /* that provider's clock, wall seconds */
/* state/stacks/UID, the stack's own folder; caller frees. A uid without its form is refused (-GP_EENV): this is
 * the one place that makes a path of it. */
int run_stack_dir(const struct engine *e, const char *uid, char **ret, struct gp_error *err);
/* Removes it. A uid without its form (somebody edited the journal) has no folder: success. */
int run_stack_dir_remove(const struct engine *e, const char *uid, struct gp_error *err);
void run_nodes_alloc(struct run *run, int n);
bool run_any_exists(const struct run *run); /* any node has a machine */
/* Starts a node's story again at NODE_REACHING (validate, a changed spec, a crash in between). */
int run_node_restart(struct run_node *n, struct gp_error *err);
int run_node_save(struct run_node *n, struct gp_error *err);
/* Moves a node on (legal moves only), saves it and says so. */
int run_node_phase(struct run_node *n, enum node_phase phase, struct gp_error *err);

/* --- baseline.c --- */
/* Reads the baseline that this run is held against, where there is one, before anything is bought. */
int baseline_open(const struct engine *e, const struct spec *spec, struct baseline *ret, struct gp_error *err);
/* Holds the nodes' rates (gang: those of all together) against it, and says when it knows nothing of them. */
void baseline_hold(const struct baseline *b, const struct validate_env *env, struct report *report, bool gang);
/* --calibrate: writes one of a report in which all is well. */
int baseline_write(const struct engine *e, const struct validate_env *env, struct report *report, struct gp_error *err);

/* --- history.c --- */
/* Adds the report's figures to the stack's history. Never fails: what could not be kept is said. */
void history_add(struct run *run, struct report *report);
/* Removes histories of stacks that are not known and had no run for half a year. Never fails. */
void history_tidy(const char *state_dir, const struct stack_list *known, int64_t now_s);

/* --- lock.c --- */
/* One run at a time works on a stack from this machine: waits, saying for whom. A lock that the
 * kernel drops with its process. */
int run_lock(struct run *run, struct gp_error *err);
void run_unlock(struct run *run); /* accepts one that is not held */
/* Removes lock files that nobody holds: what a killed process left. */
void locks_tidy(const char *state_dir);

/* --- look.c --- */
/* p->list for this run: what is understood and of the wanted owner and stack comes back in ret, each once;
 * run->looked and run->unreadable are brought up to date. On an error ret holds what was seen. */
int look_list(struct run *run, struct provider *p, const struct list_req *wanted, struct resource_list *ret,
              struct gp_error *err);
/* All that the provider has of the run's stack, wherever it may be: the regions of spec, claim and journal;
 * where that is not sure (the journal did not know the stack, its claim is not seen), every region. Fails when
 * one of the regions that are known to matter could not be looked at, or nothing could. */
int look_for_stack(struct run *run, struct provider *p, struct resource_list *seen, struct gp_error *err);
/* Why a place was not looked at, in short, and what to do; *ret_next is static. */
void look_gap_text(const struct look *gap, struct str *reason, const char **ret_next);
int look_left_out(struct gp_error *err); /* the error of a place that --in leaves out; err not NULL */
/* The resource is where the provider's credentials lead, as far as is known. */
bool look_is_in_account(const struct provider *p, const struct resource *r);
/* Emits which places are not looked at, when that changed. */
void look_report(struct run *run);
/* -GP_EBILLED with the ids when some of these may be billed: they are neither ended nor called gone. Else 0. */
int look_unreadable_error(const struct resource_list *unreadable, const char *what, struct gp_error *err);
/* Whether --in lets the place be looked at; region "": some region of it. */
bool look_allows(const struct engine *e, const char *provider, const char *region);

/* --- ending.c --- */
/* Opens a provider that may hold something; when ending, one that does not open is noted as not looked at
 * instead. */
int ending_provider(struct run *run, const char *name, struct gp_error *err);
/* It is open and its last list of that region was whole: only then does "not listed" mean anything. */
bool ending_is_seen(const struct run *run, const char *provider, const char *region);
/* Passes r on; when ending, a record that could not be written is remembered and said, and 0 returned:
 * ending what is billed comes before writing it down. err must not be NULL. */
int ending_wrote(struct run *run, int r, struct gp_error *err);
/* After everything that could be seen is gone: -GP_EBILLED for what could not be looked at, -GP_EIO for what
 * could not be written down, else 0. */
int ending_verdict(struct run *run, const struct down_result *done, struct gp_error *err);

/* --- keys.c --- */
int keys_login(struct run *run, bool make, struct gp_error *err);

/* --- claim.c --- */
/* Refuses (-GP_EUSAGE) to go on with machines that were bought for another spec or are past their
 * deadline. */
int claim_may_go_on(struct run *run, struct gp_error *err);
/* Ends what an expired stack without machines left. */
int claim_retire_expired(struct run *run, struct gp_error *err);
/* Identity and claim of a stack without machines: the one that is there, or a new one. */
int claim_take(struct run *run, struct gp_error *err);
/* The journal's stack and spec are what the nodes will be made into from here on. */
int claim_remember(struct run *run, struct gp_error *err);
/* Removes a claim that this journal made and under which nobody has machines; says when it cannot. */
void claim_take_back(struct run *run);
/* The stack `uid` that the journal knew was ended by somebody else: its open launches become tombstones,
 * the rest is forgotten, its login key too. */
int claim_leave_behind(struct run *run, const char *uid, struct gp_error *err);

/* --- plan.c --- */
int plan_offers(struct run *run, struct offer_list *ret, struct gp_error *err);

/* --- reconcile.c --- */
/* Reads the cloud and makes journal and run agree: resources, nodes by slot, duplicates. */
int reconcile(struct run *run, struct gp_error *err);
/* Launches whose outcome nobody knows: found by tags, replayed with their own token and body, or, when
 * too old for that, left as a tombstone (up only). */
int reconcile_settle(struct run *run, struct gp_error *err);
/* What every open provider has for this stack (look_for_stack). When ending, one that cannot be listed is
 * only noted in run->looked. */
int reconcile_list(struct run *run, struct resource_list *seen, struct gp_error *err);
/* Merges one listing into run->nodes / run->others and the journal. */
int reconcile_listing(struct run *run, const struct resource_list *seen, struct gp_error *err);

/* --- launch.c --- */
/* Creates what is missing of slots [0, n), gang-wise, offer after offer. */
int launch_missing(struct run *run, const struct offer_list *offers, struct gp_error *err);
int launch_replay(struct run *run, const struct intent *intent, struct gp_error *err);

/* --- watch.c --- */
int watch_start(struct run *run, struct gp_error *err);
void watch_stop(struct run *run); /* joins; safe when not started */
/* Waits until the node runs and has an address; res is copied out. */
int watch_wait_running(struct run_node *n, int64_t deadline_ms, struct gp_error *err);

/* --- pool.c --- */
/* work(n) for every node that is not skipped, at most `jobs` at once; returns when all are done. */
int pool_run(struct run *run, void (*work)(struct run_node *n), struct gp_error *err);

/* --- interrupt.c --- */
/* After Ctrl-C, r: what the run ended with. Looks for launches that were under way; -GP_EUNKNOWN (exit
 * 8) when one of them cannot be settled. Blocks for the provider's settling time at most. */
int interrupt_settle(struct run *run, int r, struct gp_error *err);

/* --- work.c --- */
void work_begin(struct run *run); /* what the checks are told about this run */
/* work(n) for every wanted node that has a machine, from its beginning, under the watcher. */
int work_on_nodes(struct run *run, void (*work)(struct run_node *n), struct gp_error *err);
/* Whether nodes that were READY answer and were not rebooted since; each that differs is said. */
int work_look_again(struct run *run, bool *ret_same, struct gp_error *err);
/* The one late tag: the fingerprint of each node's own host key. */
int work_tag_host_keys(struct run *run, struct gp_error *err);

/* --- report.c --- */
int report_stored(struct engine *e, const char *uid, struct report *ret, struct gp_error *err);
/* Whether the report proves exactly the nodes that the run wants and has. */
bool report_proves(const struct run *run, const struct report *report);
/* What the journal's records no longer bear out is not ready any more, and report->outdated says why. */
int report_compare(struct engine *e, const char *uid, struct report *report, struct gp_error *err);

/* --- target.c --- */
int target_for(struct run *run, const struct run_node *n, struct ssh_target *ret, struct gp_error *err);
/* This journal holds a host key that came with user-data (or the one that replaces it), so that tags say
 * nothing about the node's key and it must be rotated. */
bool target_has_first_key(const struct run_node *n);
const char *target_peer_address(const struct resource *r); /* where other nodes reach it */

/* --- node_run.c --- */
void node_run_up(struct run_node *n);
void node_run_validate(struct run_node *n);
/* Only looks: n->rc and n->err say whether it is still what was proven. Changes no record. */
void node_run_look(struct run_node *n);

/* --- gang.c --- */
/* After the pool: the gang checks (only when every node came through), the verdict, the report. */
int gang_run(struct run *run, struct report *report, struct gp_error *err);

/* --- verdict.c --- */
/* report->nodes[i] is node i of the spec, also where there is no machine or nothing ran. */
void verdict_collect(struct run *run, struct report *report);
/* Adds what was planned for all nodes and did not run (gang_why), then judges. */
void verdict_judge(struct run *run, struct report *report, const char *gang_why);
/* Each node's phase and the report, on disk. */
int verdict_record(struct run *run, const struct report *report, struct gp_error *err);
/* Names the first check that keeps a node from being READY: -GP_EVALIDATE. */
int verdict_error(const struct run *run, const struct report *report, struct gp_error *err);

/* --- view.c --- */
const char *view_ends_name(enum provider_ends ends); /* "server", "guest", "gc-only", "never" */
int view_fill(struct run *run, struct stack_view *v, struct gp_error *err);

/* --- teardown.c --- */
/* Ends everything of run->stack and proves it: two reads apart, the claim last; then forgets it. */
int teardown(struct run *run, struct down_result *ret, struct gp_error *err);
/* What is left as one line with its ids: -GP_EBILLED when any of it is billed, else why's code; 0 when it
 * costs nothing and nothing went wrong (gc's work then). */
int teardown_left(const char *name, const struct down_result *ret, const struct gp_error *why, struct gp_error *err);
/* The note of tombstones that `down` left: what belongs to them may be ended by gc. */
#define TEARDOWN_NOTE "ended by down"
/* Ends what up does not want: second machines, stopped ones, slots past the spec. Waits until gone. */
int teardown_extras(struct run *run, struct gp_error *err);

/* A private folder in place of the state folder, for an engine that was opened with `scratch`; removed when it
 * is closed. */
int engine_scratch_folder(struct engine *e, struct gp_error *err);
/* Remembers for the second Ctrl-C. */
void engine_note_billed(struct engine *e, const char *id, bool billed);
/* Removes what the state folder need not keep: locks that nobody holds, event logs of stacks that are
 * gone, a month after their last line. Never fails. */
void engine_tidy(struct engine *e);

#endif

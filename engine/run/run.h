/* SPDX-License-Identifier: Apache-2.0 */
/* Private to engine/: one run over one stack, the state that up, validate, down, status and gc share. */
#ifndef GP_ENGINE_RUN_H
#define GP_ENGINE_RUN_H

#include "bootstrap/bootstrap.h"
#include "engine/engine.h"
#include "engine/run/eventlog.h"
#include "providers/provider.h"
#include "validate/baseline.h"
#include "validate/validate.h"

#include <pthread.h>
#include <stdatomic.h>

struct run_node;
struct run_cache;
struct watch;

/* The stack's event log. */
struct run_log {
    struct event_log file; /* path NULL: no stack, no log */
    bool failed;           /* reported already */
    pthread_mutex_t lock;  /* guards both */
};
/* The stack's lock on this machine. */
struct run_lock {
    int fd; /* -1: not held */
    char *path;
    int64_t holder;  /* pid of the process that this run waited for; 0: none, or not known */
    bool behind_end; /* this run waited for one that destroys the stack */
};
/* The places that were looked at so far, and the resources with unreadable tags (look.h). */
struct run_look {
    struct coverage covered;         /* places looked at so far, and not looked at */
    struct resource_list unreadable; /* with the stack's name, but unreadable tags */
    struct strv scope;               /* regions that the claim names: nothing of the stack is elsewhere... */
    char *scope_provider;            /* ...at this provider; NULL: no such claim was seen */
    char *said_gaps;                 /* as last reported */
    bool said_unreadable;            /* likewise */
};
/* The key that logs in to the nodes (login_key.h). */
struct run_login {
    struct secret key; /* private key in memory; empty: key_path or the agent */
    char *key_path, *pubkey;
};
/* The validation of the nodes. */
struct run_validation {
    struct validate_plan plan;
    struct validate_env env;
    struct baseline baseline; /* path NULL: none */
    int64_t started_ms;       /* monotonic: when the work on the nodes began */
};

struct run {
    /* identity */
    struct engine *e;
    char id[17];             /* of this run: 16 hex digits */
    const struct spec *spec; /* NULL for gc and for a stack known by its name only */
    struct spec *spec_owned; /* when it came out of the journal */
    char *owner;             /* NULL until it is known: before the first provider was opened */
    struct stack stack;
    bool adopted;             /* the journal did not know the stack when the run began */
    struct proof_key proof;   /* proof.h; not known until it is needed */
    struct gp_error no_proof; /* why it could not be had */
    /* of the spec, since the stack with machines was recorded (claim_may_go_on) */
    struct spec_changes changes;
    int64_t moved_expires_s;   /* the deadline that its ttl gives; 0: it does not move */
    int64_t journal_expires_s; /* the journal's, where the tags have another deadline; 0: they agree */
    bool own_uid;              /* this journal, or a proof, shows that the stack's uid is no other's (trust_uid) */
    bool takes_deadline;       /* the stack was adopted in this run: its deadline is that of its machines */
    bool keeps_deadline;       /* adopted: its deadline is not the spec's, and cannot move */
    bool launch_unknown;       /* nodes of another spec, which is not in the journal */
    bool shares_claim;         /* another run took the claim, and may be launching under it now */

    /* how the verb treats failures (ending.h) */
    bool ending;               /* down, gc: a failure does not stop the destruction of the rest */
    bool takes_late;           /* down, of whatever has the name: also what shows while it looks */
    bool named_only;           /* down, of an earlier stack: only resources whose tags have the stack's name */
    bool plans;                /* plan: it changes nothing */
    bool shows_unproven;       /* as of the last reconcile: unproven machines are nodes where there is no other */
    bool looking;              /* status: a place that cannot be queried is shown from the journal */
    bool recalled;             /* the resources are the journal's own: they are not recorded again */
    struct gp_error unwritten; /* ending, or without the lock: the first record that could not be written */
    bool verdict;              /* ending: the last error is ending_verdict's, which names everything */

    /* what it works with */
    VEC_OF(struct provider *) providers; /* open ones */
    struct provider *home;               /* the first offer's, where the claim is made; NULL but for up and plan */
    struct event_sink sink;              /* forwards to e->sink and to the stack's event log */
    struct run_log log;
    struct run_lock lock;
    const struct bootstrap_pick *pick; /* of the verb bootstrap; NULL: every step */
    struct offer_list offers;          /* of up: ranked, queried once */
    struct run_login login;
    struct bootstrap_secret *secrets; /* read before anything is launched */
    size_t n_secrets;

    /* the stack's resources, as of the last reconcile */
    struct run_look look;
    struct run_node *nodes; /* by slot */
    int n_nodes;
    struct resource_list others;   /* everything of the stack that is not a node in use */
    const struct strv *only;       /* borrowed: `ending` destroys these ids alone, and forgets nothing; NULL: all */
    struct resource_list unproven; /* of these, machines that nothing proves to be the stack's (trust.h) */
    struct strv said_unproven;     /* their ids, as reported */
    /* down: called in the verb's thread when a list takes long, for each provider that has answered, with what it
       listed. Changes nothing but `early`, because other threads read the run. NULL: none */
    void (*on_slow)(struct run *run, struct provider *p, const struct resource_list *seen);
    struct strv early; /* ids of machines that it has ended */

    /* the work on the nodes */
    struct watch *watch;     /* while it runs */
    struct run_cache *cache; /* likewise; NULL: the spec has none */
    int64_t end_ms;          /* time limit for the termination of machines */
    int64_t blind_ms;        /* and for a place that cannot be listed, once nothing else is left; at least two lists */
    atomic_int failed_steps; /* nodes whose step failed: the first ones are kept in full */
    struct run_validation validation;
};

/* For the stack `name` (NULL: none, gc). Opens no provider and reads no journal. Close with run_close. */
int run_open(struct engine *e, const struct spec *spec, const char *name, struct run **ret, struct gp_error *err);
/* Reads the secrets of run->spec into run->secrets. */
int run_read_secrets(struct run *run, struct gp_error *err);
/* Closes the providers, drops the lock, frees all. Accepts NULL. */
void run_close(struct run *run);

#endif

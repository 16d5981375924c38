/* SPDX-License-Identifier: Apache-2.0 */
/* The journal: the record of intents and known resources; the cloud itself is the truth. SQLite, one connection,
 * one mutex inside (the one lock held across I/O). Any thread may call every function; it returns
 * once the change is on disk (synchronous=EXTRA). Several processes may use one file: SQLite locks
 * it per transaction, with a busy time-out of 10 s. */
#ifndef GP_JOURNAL_H
#define GP_JOURNAL_H

#include "base/error.h"
#include "base/vec.h"
#include "model/event.h"
#include "model/stack.h"

struct journal;

/* path NULL: ":memory:". Creates the file with mode 0600, migrates an older schema and refuses a newer one.
 * *ret_damaged: the file was damaged, was renamed to NAME.damaged-TIME, and the journal is empty. */
int journal_open(const char *path, struct journal **ret, bool *ret_damaged, struct gp_error *err);
void journal_close(struct journal *j);
const char *journal_aside(const struct journal *j); /* where a damaged file is now; NULL: it was sound */

/* --- stacks --- */
int journal_stack_put(struct journal *j, const struct stack *s, const char *spec_canonical,
                      struct gp_error *err); /* insert or update by (owner, name) */
/* -GP_ENOTFOUND when absent. ret_spec may be NULL; caller frees. */
int journal_stack_get(struct journal *j, const char *owner, const char *name, struct stack *ret, char **ret_spec,
                      struct gp_error *err);
struct stack_list {
    VEC_OF(struct stack) list;
};
void stack_list_clear(struct stack_list *l);
int journal_stacks(struct journal *j, struct stack_list *ret, struct gp_error *err);
/* Deletes a stack and all its records. Call it only when all its resources are gone. */
int journal_stack_forget(struct journal *j, const char *uid, struct gp_error *err);

/* --- intents: committed before any call that creates something --- */
enum intent_state {
    INTENT_OPEN,     /* the call may be in progress, or its outcome is unknown */
    INTENT_DONE,     /* the created ids are in resources */
    INTENT_FAILED,   /* the cloud refused: nothing was created */
    INTENT_TOMBSTONE /* `down` could not settle it: gc checks again */
};
struct intent {
    int64_t id;      /* set by journal_intent */
    char *uid;       /* stack uid */
    char *spec_hash; /* of the spec of the request; "" or NULL: unknown (schema 1), or not a node */
    char *provider, *region, *zone;
    enum resource_kind kind;
    int slot_first, slot_count, attempt; /* -1, 0, 0 when it is not a node */
    char *token;
    char *body;                    /* the whole request body, as sent */
    char *offer;                   /* offer as JSON; "" */
    char *operation;               /* the cloud's operation of an accepted request; "" */
    bool claim;                    /* it creates the stack's claim */
    int64_t created_s, deadline_s; /* wall */
    enum intent_state state;
    char *note; /* last error code; "" */
};
void intent_clear(struct intent *i);
struct intent_list {
    VEC_OF(struct intent) list;
};
void intent_list_clear(struct intent_list *l);
/* The call makes machines, or the placement that they go to: its result may be billed. */
bool intent_launches(const struct intent *i);
/* Commits all intents in one transaction, or none; sets each id. */
int journal_intents_put(struct journal *j, struct intent_list *list, struct gp_error *err);
/* The same for one. */
int journal_intent(struct journal *j, struct intent *i, struct gp_error *err);
/* Records the cloud's operation of an open intent, before the caller waits for it. -GP_ENOTFOUND: no such intent
 * is open. */
int journal_intent_operation(struct journal *j, int64_t id, const char *operation, struct gp_error *err);
/* Records the ids of the reply and ends the intent, in one transaction. */
int journal_intent_done(struct journal *j, int64_t id, const struct resource_list *made, struct gp_error *err);
int journal_intent_end(struct journal *j, int64_t id, enum intent_state state, const char *note, struct gp_error *err);
/* Lists the intents of a stack (uid NULL: of all) in one of the states, a bit set of (1 << state). */
int journal_intents(struct journal *j, const char *uid, unsigned states, struct intent_list *ret, struct gp_error *err);

/* --- resources --- */
int journal_resource_put(struct journal *j, const struct resource *r, struct gp_error *err);
int journal_resources(struct journal *j, const char *uid, struct resource_list *ret, struct gp_error *err);
/* Marks a resource as gone, if the record of that id is of that kind. Gone is terminal: a later put of the same id does
 * not change it. */
int journal_resource_gone(struct journal *j, const char *provider, enum resource_kind kind, const char *id,
                          struct gp_error *err);

/* --- nodes: the phase of each slot, for resuming --- */
struct node_record {
    int slot, attempt;
    char *resource_id;
    enum node_phase phase;
    char *host_key_first; /* first-contact public key line; "" once dropped */
    char *host_key_next;  /* committed before sshd switches; "" */
    char *host_key;       /* pinned; "" */
    char *boot_id;        /* of the last bootstrap; "" */
    char *note;           /* last error; "" */
};
void node_record_clear(struct node_record *n);
struct node_record_list {
    VEC_OF(struct node_record) list;
};
void node_record_list_clear(struct node_record_list *l);
int journal_node_put(struct journal *j, const char *uid, const struct node_record *n, struct gp_error *err);
int journal_nodes(struct journal *j, const char *uid, struct node_record_list *ret, struct gp_error *err);

/* --- the last validation report of a stack (JSON text) --- */
int journal_report_put(struct journal *j, const char *uid, const char *json, struct gp_error *err);
int journal_report_get(struct journal *j, const char *uid, char **ret_json, struct gp_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The spec of a stack, decoded and checked. Plain data, no I/O except spec_load. */
#ifndef GP_SPEC_SPEC_H
#define GP_SPEC_SPEC_H

#include "base/error.h"
#include "base/secret.h"
#include "base/str.h"
#include "base/vec.h"
#include "spec/spec_container.h"
#include "spec/spec_job.h"
#include "spec/spec_notify.h"
#include "spec/spec_python.h"
#include "spec/spec_software.h"
#include "spec/spec_storage.h"

#define SPEC_TERRAFORM "terraform:"     /* in front of `hosts` */
#define SPEC_TEXT_MAX ((size_t)1 << 20) /* bytes of a spec */

struct spec_pos {
    unsigned line, column; /* 1-based; 0 when the value is a default */
};

enum spec_order { ORDER_CHEAPEST, ORDER_LISTED };
enum spec_unattended { UNATTENDED_REFUSE, UNATTENDED_ACCEPT };
enum spec_market { MARKET_ON_DEMAND, MARKET_SPOT };

/* bootstrap.cache: whether the nodes of a run fetch packages once, through one of them. */
enum spec_cache { CACHE_NONE, CACHE_FIRST_NODE };
extern const char *const spec_cache_names[]; /* NULL-ended */
/* bootstrap.fabric: the network between nodes whose software is installed. */
enum spec_fabric { FABRIC_NONE, FABRIC_AUTO, FABRIC_EFA, FABRIC_INFINIBAND };
extern const char *const spec_fabric_names[]; /* NULL-ended */

struct spec_gpu {
    char *model; /* "H100"; NULL: nodes without GPUs */
    int count;   /* per node; 0 without a GPU */
    struct spec_pos pos;
};

#define BAKED_REQUIRE "require" /* no baked image fits: an error */
#define BAKED_PREFER "prefer"   /* no baked image fits: os, id or auto */
struct spec_image {
    char *os, *id; /* "ubuntu-24.04", or an image id; both NULL: auto */
    char *baked;   /* nodes boot the newest image of `gpuprov bake` that fits; NULL: they do not */
};

struct spec_offer {
    char *provider;      /* of a registered row (spec_provider.h), which lists the keys that it takes */
    struct strv regions; /* empty: the provider's default region */
    struct strv zones;   /* empty: every zone of the region */
    enum spec_market market;
    char *instance_type;  /* NULL: chosen from gpu */
    char *subnet;         /* NULL: the default subnet of the zone */
    char *network;        /* the network of the nodes, by name or id; NULL: the provider's choice */
    struct strv networks; /* further ones, for traffic between GPUs; empty: none */
    char *project;        /* the project at the provider; NULL: that of the credentials or the environment */
    char *role;           /* permissions of the nodes at the provider; NULL: none */
    char *reservation;    /* id of capacity that was reserved before; NULL: none */
    char *hosts;          /* absolute path of the hosts file (written relative to the spec), or SPEC_TERRAFORM and the
                             absolute path of a folder of Terraform or of a file with its outputs */
    /* Override the stack's values: read them through spec_effective. */
    struct spec_image image; /* both NULL: the stack's */
    struct strv ssh_from;    /* empty: the stack's */
    struct spec_pos pos;
};

struct spec_access {
    bool public_ip;       /* default true */
    char *bastion;        /* "[user@]host[:port]"; NULL: none */
    struct strv ssh_from; /* CIDRs; empty: this controller's own public address */
    int64_t timeout_ms;   /* from a running machine to a login; 0: the provider's, by the type */
    char *key;            /* absolute private key path, or "agent"; NULL: a key created per stack */
};

struct spec_step {
    char *name, *run, *check; /* check may be NULL: then the step runs once per node (a mark is kept) */
    int64_t timeout_ms;       /* of each run; 0: none but that of the bootstrap */
    int tries;                /* how often `run` may run if it fails; 0: once */
    struct spec_pos pos;
};

struct spec_floor {
    char *check;  /* "net.pair" */
    char *metric; /* "bandwidth"; key in the spec is check.metric or check (its first fitting figure) */
    double value; /* in `unit`, which is the metric's own when spec_names were given */
    char *unit;   /* "GB/s"; "" for a plain count */
    struct spec_pos pos;
};

/* A VEC_OF with a name. */
struct spec_floors {
    struct spec_floor *items;
    size_t len, cap;
};

struct spec_validate {
    int64_t time_ms;     /* 1m | 5m | 20m; default 5m */
    struct strv require; /* check ids; the defaults of the table are added at use */
    struct spec_floors floors;
    bool strict;
    char *baseline; /* absolute path; NULL: the state folder's, where there is one */
};

struct spec_secret {
    char *env;  /* variable name on the node */
    char *from; /* "file:PATH" (absolute) | "env:NAME", read at use, never stored */
    struct spec_pos pos;
};

/* A replacement of the spec: `shown` is "${env:NAME}", or the whole text of a value that has one. */
struct spec_replaced {
    char *shown, *value;
};

/* The size of a training, from which `plan` computes GPU hours and cost. Texts as the spec has them; all NULL without
 * the block. */
struct spec_estimate {
    char *params; /* "7B": parameters that each token passes through */
    char *tokens; /* "300B", of the whole training */
    char *mfu;    /* "0.4"; NULL: of the model table */
    char *gpu;    /* a model; NULL: that of the spec, else that of the offer */
};
/* The number in "300B" (K, M, B, T: 10^3, 10^6, 10^9, 10^12), or in "0.4". 0: NULL, or not such a text. Pure. */
double spec_estimate_number(const char *text);

struct spec {
    char *path;    /* as given */
    char *text;    /* the file's own text */
    char hash[65]; /* sha256 of the decoded form (not of the text; of local files only the base
                         name, so that it is the same in every checkout): hex */
    char *name;    /* the stack: [a-z][a-z0-9-]{0,39} */
    int nodes;     /* 1..4096, default 1 */
    struct spec_gpu gpu;
    int cpus, memory_gib; /* least of each node; 0: any */
    int disk_gib;         /* size of the root disk of each node; 0: the image's */
    enum spec_order order;
    VEC_OF(struct spec_offer) offers; /* at least one; default: the provider with by_default */
    int64_t ttl_ms;                   /* default 4h, at least 1m */
    bool ttl_is_default;              /* the spec has none: max_cost may make it shorter */
    int64_t idle_ms, controller_ms;   /* 0: none. A node that is unused, or without a gpuprov, for so long ends */
    int64_t max_price, max_cost;      /* millionths of a USD: per node-hour, of the stack until its deadline; 0: none */
    enum spec_unattended unattended;  /* nodes that only gc would terminate */
    struct spec_image image;
    struct spec_access access;
    struct spec_software software;
    struct strv packages;
    VEC_OF(struct spec_step) steps;
    struct spec_storage storage; /* of `bootstrap` */
    struct spec_python python;
    struct spec_container container;
    enum spec_cache cache;
    enum spec_fabric fabric;
    struct spec_validate validate;
    VEC_OF(struct spec_secret) secrets;
    struct spec_job job;
    struct spec_estimate estimate;
    VEC_OF(struct spec_replaced) replaced;
    VEC_OF(struct spec_notify) notify; /* at most SPEC_NOTIFY_MAX; no part of the hash, and no change */
};

/* All errors found in a spec, in file order. */
struct spec_problem {
    struct spec_pos pos;
    char *message; /* one line, with "did you mean" where there is one */
};
struct spec_problems {
    VEC_OF(struct spec_problem) list;
};
void spec_problems_clear(struct spec_problems *p);
/* "file:line:column: error: message", the line itself and a caret, for each. */
void spec_problems_format(const struct spec_problems *p, const char *path, const char *text, bool colour,
                          struct str *out);

/* The check names, figures and GPU models that a spec may use: this folder defines none itself. Callers
 * pass validate_names() (validate/validate.h). */
struct spec_names {
    const char *(*check)(size_t i); /* id of check i; NULL after the last */
    /* Figure i of a check: its name and unit. False after the last. */
    bool (*metric)(const char *check, size_t i, const char **ret_name, const char **ret_unit);
    const char *(*gpu)(size_t i);        /* name i of a GPU model; NULL after the last */
    bool (*gpu_known)(const char *text); /* in any spelling that the table accepts */
};
/* The model that is probably meant by one that neither the GPU table nor a provider lists; NULL: it is listed, or no
 * name is close. Caller frees. */
char *spec_gpu_near(const char *model, const struct spec_names *table);

/* Reads, substitutes ${env:NAME} and ${file:path}, decodes and checks. names NULL: for a canonical form
 * from the journal: checks, figures and hosts files are not checked. On wrong specs:
 * -GP_EUSAGE with err "spec.yaml: 3 errors" and the list in problems (never NULL). A file that
 * cannot be read: problems stays empty. Buys nothing and reads only the spec and the files that it
 * names. */
int spec_load(const char *path, const struct spec_names *names, struct spec **ret, struct spec_problems *problems,
              struct gp_error *err);
/* path: named in messages; relative file names are resolved against its folder. */
int spec_load_text(const char *path, const char *text, size_t n, const struct spec_names *names, struct spec **ret,
                   struct spec_problems *problems, struct gp_error *err);
/* A canonical form with names: the labels of replaced values are read only in such forms. */
int spec_load_form(const char *path, const char *text, const struct spec_names *names, struct spec **ret,
                   struct spec_problems *problems, struct gp_error *err);
/* Escapes text so that spec_load_text decodes it unchanged, without a substitution. shell: a script. Caller frees. */
char *spec_escape(const char *text, bool shell);
/* The spec's nodes become the n machines of a hosts file: its only offer. */
void spec_only_hosts(struct spec *spec, const char *hosts, int n);
void spec_free(struct spec *spec);
void spec_cleanup(struct spec **spec);
#define GP_AUTO_SPEC GP_CLEANUP(spec_cleanup)

/* The settings of nodes of offers.items[index]: the offer's own value where set, else the stack's. */
struct spec_effective {
    const struct spec_image *image;
    const struct strv *ssh_from;
    const char *role;
};
struct spec_effective spec_effective(const struct spec *spec, size_t index);

/* The decoded spec as canonical JSON, which is a spec again: spec_load_text of it gives the same spec
 * and the same hash on this machine (the journal keeps it). Caller frees. It has no value of
 * `secrets`, but the replacements of ${env:..} and ${file:..}. */
char *spec_canonical(const struct spec *spec);
/* sha256 in hex of the decoded `bootstrap`: what a baked image must have been made with. */
void spec_bootstrap_hash(const struct spec *spec, char dst[65]);
/* The canonical form of the spec that `bake` launches: this one with that name, one node, on demand, from the image
 * that `image` names without `baked`. alone(): whether one node can run a check, by its id or by the key of a floor;
 * others are not required of it. Caller frees. */
char *spec_bake_form(const struct spec *spec, const char *name, bool (*alone)(const char *check));

/* The effect of another value of a key on a stack that has nodes, declared in the key's row. */
enum spec_effect {
    SPEC_UNDECLARED, /* rows of a block whose own row declares it */
    SPEC_REFUSED,    /* needs other machines: refused while nodes exist */
    SPEC_REPEATED,   /* nodes are bootstrapped and validated again; earlier steps are not undone */
    SPEC_SCALED,     /* nodes are launched or destroyed, and all are validated again */
    SPEC_DEADLINE,   /* the deadline moves where the provider can move it, else refused; nodes stay ready */
    SPEC_ACCESS,     /* written to the running machines; nodes stay ready */
    SPEC_LATER,      /* counts from the next connection or launch on; nodes stay ready */
    SPEC_STACK       /* names another stack */
};
const char *spec_effect_name(enum spec_effect e); /* "refused", "repeated", ... for JSON */
bool spec_effect_keeps_ready(enum spec_effect e); /* nodes that were validated stay so */
struct spec_change {
    char *key;       /* "limits.ttl", "offers[0].market", "bootstrap.steps[data].run" */
    char *old, *now; /* values as in a spec, or "(none)", "(DEFAULT IN WORDS)". NULL: not shown, because a script may
                        have a substituted secret */
    enum spec_effect effect;
};
struct spec_changes {
    VEC_OF(struct spec_change) list;
};
/* Compares the canonical form of an earlier spec with this one, in the tables' order. Offers in another order are one
 * change of "offers". Nothing if old is not JSON. */
void spec_changes_find(const char *old_canonical, const struct spec *now, struct spec_changes *ret);
void spec_changes_clear(struct spec_changes *c);
#define GP_AUTO_CHANGES GP_CLEANUP(spec_changes_clear)
/* The first change that is refused; NULL: none. */
const struct spec_change *spec_changes_refused(const struct spec_changes *c);
/* "limits.ttl: 30m -> 2h". */
void spec_change_text(const struct spec_change *c, struct str *out);

/* Reads the value of a secret now. Errors name the variable, never the value. */
int spec_secret_read(const struct spec_secret *s, const char *spec_path, struct secret *ret, struct gp_error *err);

/* From the same decode tables: JSON Schema (draft 2020-12) and docs/spec.md. Caller frees. */
char *spec_json_schema(void);
char *spec_man(void);      /* gpuprov.yaml(5), in roff */
char *spec_markdown(void); /* docs/spec.md; a test keeps the file equal to it */

const char *spec_market_name(enum spec_market m); /* "on-demand", "spot" */
/* "60 USD/h" from millionths. */
void spec_money_text(char *dst, size_t n, int64_t micro, const char *unit);
/* "466 GiB" from GiB. */
void spec_size_text(char *dst, size_t n, int gib);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The spec's decode tables and the functions that the spec_*.c files share. Not for other folders.
 * One struct spec_field is one key. Decoding, its errors, the canonical form, the hash, freeing, the
 * JSON Schema and docs/spec.md all use it. */
#ifndef GP_SPEC_SPEC_INTERNAL_H
#define GP_SPEC_SPEC_INTERNAL_H

#include "base/json.h"
#include "base/yaml.h"
#include "spec/spec.h"
#include "spec/spec_provider.h"

#define SPEC_VALUE_MAX ((size_t)64 << 10)   /* bytes of one value, and of a substituted file */
#define SPEC_REPLACED_MAX ((size_t)1 << 20) /* bytes of all values with a replacement */
#define SPEC_FORM_MAX ((size_t)8 << 20) /* bytes of a canonical form: both, the table of replacements, and escapes */
#define SPEC_PROBLEMS_MAX 100
#define SPEC_ITEMS_MAX 1000 /* entries of one list */
#define SPEC_API_VERSION "gpuprov/v1"

/* One run of the decoder. */
struct spec_ctx {
    const char *path;
    const struct spec_names *names; /* may be NULL */
    bool form;                      /* a canonical form, which has SPEC_REPLACED_KEY */
    struct spec *spec;
    struct spec_problems *problems;
    size_t dropped;                       /* problems beyond the maximum */
    size_t replaced;                      /* bytes of values with a replacement */
    VEC_OF(const struct yaml_node *) bad; /* values with an error */
};

enum spec_type {
    SPEC_TEXT,     /* char *: pattern, check */
    SPEC_INT,      /* int: min..max */
    SPEC_BOOL,     /* bool */
    SPEC_DURATION, /* int64_t ms: min..max, or one of choices */
    SPEC_MONEY,    /* int64_t millionths of a USD, in `unit`: min..max; 0: absent */
    SPEC_SIZE,     /* int GiB, rounded up: min..max; 0: absent */
    SPEC_ENUM,     /* an enum whose values are the indexes of choices */
    SPEC_TEXTS,    /* struct strv: pattern and check for each */
    SPEC_BLOCK,    /* a map, decoded by block at offset */
    SPEC_SHORT,    /* a map, or text that from_text decodes */
    SPEC_LIST,     /* a list of maps: a VEC_OF(the block's struct) */
    SPEC_FLOORS,   /* struct spec_floors */
    SPEC_VARS      /* a map of variables: struct strv of "NAME=VALUE" */
};

struct spec_block;
struct spec_field {
    const char *name;
    enum spec_type type;
    size_t offset; /* within the block's struct */
    bool required;
    const char *def;           /* the default, as text; NULL: none */
    const char *def_doc;       /* the default in words, where `def` is NULL */
    const char *doc, *example; /* example NULL: the providers' (spec_example) */
    const char *pattern;       /* POSIX extended and ECMA alike, anchored; NULL: any text */
    const char *pattern_doc;   /* "lower-case letters, digits and '-'" */
    const char *const *choices;
    const char *const *(*names)(void); /* choices that are known only when the program runs */
    int64_t min, max;
    const char *unit; /* "USD/h" */
    /* Further checks of one text; reports its own errors. */
    void (*check)(struct spec_ctx *c, const struct yaml_node *at);
    const struct spec_block *block;
    void (*from_text)(struct spec_ctx *c, const struct yaml_node *at, void *to);
    size_t min_items;
    bool is_public;          /* an accepted value is no secret, even from ${env:..}: it names things that all see */
    bool script;             /* text for a shell: ${...} is the shell's, but for ${env:NAME} and ${file:PATH} */
    bool basename_in_hash;   /* a path of this machine: the same spec in another folder has the same hash */
    enum spec_effect effect; /* of another value on a stack that has nodes; rows of a block: each its own, unless
                                the row of the block has one. A test refuses a row without one. */
    /* The default is part of the hash. Only for rows of the first version: a row without it changes no
     * hash of specs that do not use it, so that running stacks keep theirs. */
    bool default_in_hash;
    /* No effect on nodes: no part of the hash, and another value is no change. Not for rows of a block. */
    bool apart;
};

struct spec_block {
    const char *path; /* "limits", "offers[]"; "" for the whole spec */
    const char *doc;
    const struct spec_field *fields; /* name NULL ends */
    size_t size;                     /* of its struct, for SPEC_LIST */
    bool has_pos;
    size_t pos_offset; /* of a struct spec_pos */
    /* Whether this decoded struct takes the key. NULL: every struct takes every key. */
    bool (*takes)(const void *at, const char *key);
    /* Checks rules over several keys; map is NULL when the block is absent. */
    void (*rules)(struct spec_ctx *c, const struct yaml_node *map, void *to);
};

/* Any VEC_OF, its elements as bytes. */
struct spec_vec {
    char *items;
    size_t len, cap;
};

/* spec_tables.c */
extern const struct spec_block spec_root;
bool spec_key_is_script(const char *key); /* a row of that name, in any block, is a script */
extern const struct spec_block spec_offer_block;
extern const struct spec_block spec_bootstrap_block; /* spec_bootstrap.c */

/* spec_storage.c */
extern const struct spec_block spec_file_block, spec_mount_block, spec_node_limits_block;
void spec_rule_mount_secrets(struct spec_ctx *c, const struct yaml_node *root); /* after all keys are decoded */
void spec_limits_from_text(struct spec_ctx *c, const struct yaml_node *at, void *to);
/* spec_python.c */
extern const struct spec_block spec_python_block;
void spec_rule_python(struct spec_ctx *c, const struct yaml_node *map, void *to);
void spec_rule_python_secret(struct spec_ctx *c, const struct yaml_node *map, const struct spec *s);
/* spec_software.c */
#define SPEC_BRANCH_PATTERN "^(auto|none|[0-9]{3}([.][0-9]{1,3}){0,2})$"
#define SPEC_BRANCH_DOC "auto, none, a branch such as 580 or a version such as 580.95.05"
#define SPEC_CUDA_PATTERN "^(auto|none|[0-9]{2}([.][0-9]{1,2}){0,2})$"
#define SPEC_CUDA_DOC "auto, none or a version such as 13.0"
extern const struct spec_block spec_driver_block, spec_cuda_block;
void spec_driver_from_text(struct spec_ctx *c, const struct yaml_node *at, void *to);
void spec_cuda_from_text(struct spec_ctx *c, const struct yaml_node *at, void *to);
void spec_rule_cuda(struct spec_ctx *c, const struct yaml_node *map, void *to);
/* Versions that cannot work together; at the end of the root's rules, because it looks at several blocks. */
void spec_rule_software(struct spec_ctx *c, const struct yaml_node *root, const struct spec *s);
/* spec_container.c */
#define SPEC_IMAGE_NAME "[a-z0-9][a-z0-9._-]*"
#define SPEC_IMAGE_DIGEST "@sha256:[0-9a-f]{64}"
#define SPEC_IMAGE_PATTERN                                                        \
    "^([A-Za-z0-9.-]+(:[0-9]{1,5})?/)?" SPEC_IMAGE_NAME "(/" SPEC_IMAGE_NAME ")*" \
    "(:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}(" SPEC_IMAGE_DIGEST ")?|" SPEC_IMAGE_DIGEST ")$"
#define SPEC_IMAGE_DOC "an image with its tag or digest, such as docker.io/library/busybox:1.36"
extern const struct spec_block spec_container_block;
void spec_rule_container_system(struct spec_ctx *c, const struct yaml_node *map, const struct spec *s);
void spec_rule_container_secret(struct spec_ctx *c, const struct yaml_node *map, const struct spec *s);

/* spec_estimate.c */
extern const struct spec_block spec_estimate_block;
/* spec_job.c */
extern const struct spec_block spec_job_block;
void spec_rule_job_root(struct spec_ctx *c, const struct yaml_node *root, const struct spec *s); /* after all keys */
void spec_vars_decode(struct spec_ctx *c, const struct spec_field *f, const struct yaml_node *map, struct strv *to);
json_t *spec_vars_json(const struct strv *vars); /* NULL: none */
json_t *spec_vars_schema(void);

/* spec_notify.c */
extern const struct spec_block spec_notify_block;
void spec_notify_before(struct spec_ctx *c, const struct yaml_node *root); /* before substitution */
/* Sets hidden[i] for each byte of a spec's line that may be secret: shown problems end in logs. n of them, zeroed. */
void spec_notify_hide(const char *line, size_t n, bool *hidden);
void spec_rule_notify_root(struct spec_ctx *c, const struct yaml_node *root);

/* spec_provider.c */
const char *const *spec_provider_names(void);
bool spec_offer_takes(const void *offer, const char *key);
const char *spec_example(const struct spec_field *f); /* never NULL */
/* The form of a value: "duration, 1m to 7d"; words of the language are in backticks. */
void spec_form(const struct spec_field *f, struct str *out);
bool spec_is_top_level(const struct spec_block *b); /* a key of the spec itself leads to it */
extern const char spec_rules_text[];                /* the rules that are in no table: lines of "* ..." */
extern const char spec_changes_text[];   /* the effects: a title, text, rows of "| effect | meaning |", text */
bool spec_is_image_id(const char *text); /* by the form that a provider's ids have */
void spec_rule_offer(struct spec_ctx *c, const struct yaml_node *map, void *to);
void spec_default_offer(struct spec_ctx *c, const struct yaml_node *map);
void spec_check_gpu(struct spec_ctx *c, const struct yaml_node *at);
void spec_check_systems(struct spec_ctx *c, const struct yaml_node *root);
/* spec_container_nodes.c: keys that nodes of an offer cannot have */
void spec_rule_shapes(struct spec_ctx *c, const struct yaml_node *root);

/* spec_decode.c */
void spec_complain(struct spec_ctx *c, const struct yaml_node *at, const char *fmt, ...) GP_PRINTF(3, 4);
void spec_complain_at(struct spec_ctx *c, unsigned line, unsigned column, const char *fmt, ...) GP_PRINTF(4, 5);
/* The text that a message quotes for `part`, which is the value at `at` or came from it: what the file has, if `at` has
 * a replacement of ${env:..} or ${file:..}, because that may be a secret. Every complaint about a value uses it. */
const char *spec_shown(const struct yaml_node *at, const char *part);
/* True when `at` already has an error: report no other. */
bool spec_is_bad(const struct spec_ctx *c, const struct yaml_node *at);
/* map NULL: only defaults. */
void spec_decode(struct spec_ctx *c, const struct spec_block *b, const struct yaml_node *map, void *to);
/* Text of a scalar, or NULL after an error (not text, no value, too long, control characters). */
const char *spec_text_of(struct spec_ctx *c, const struct yaml_node *at, const char *key);
bool spec_int_of(struct spec_ctx *c, const struct spec_field *f, const struct yaml_node *at, int64_t *ret);
bool spec_match(const char *pattern, const char *text);
/* "; did you mean 'x'?" or "; valid: a, b, c"; caller frees. */
char *spec_hint(const char *word, const char *const *names);
const char *const *spec_choices(const struct spec_field *f); /* NULL: none */

/* spec_subst.c: replaces ${env:NAME} and ${file:path} in all values below node, and notes them in c->spec. */
void spec_substitute(struct spec_ctx *c, struct yaml_node *node, bool shell);

/* The replacements of a spec, and how they are shown. In the canonical form they are a map of their
 * own under this key, {"${env:NAME}": VALUE}, so that a spec from the journal or a plan file is shown as its file. A
 * label ("${env:NAME}", "a-${file:PATH}") states nothing of its own: it has a replacement, and else only text of its
 * value. A user's spec has no such key. */
#define SPEC_REPLACED_KEY "${}"
/* Takes the map out of a canonical form. Before spec_substitute. */
void spec_replaced_take(struct spec_ctx *c, struct yaml_node *root);
/* Notes one replacement, or a whole value that has one, and registers it with the redactor. */
void spec_replaced_add(struct spec *s, const char *shown, const char *value);
/* The text of a note whose value this is; NULL: none. */
const char *spec_replaced_shown(const struct spec *s, const char *value);
/* The value at a node is no secret: it is public or has the form of a number. */
void spec_replaced_reveal(struct spec_ctx *c, const struct yaml_node *at);
json_t *spec_replaced_json(const struct spec *s);     /* NULL: none */
void spec_replaced_register(const json_t *canonical); /* those of a canonical form */
void spec_replaced_clear(struct spec *s);

/* spec_rules.c: functions that the tables point to. */
void spec_absolute(const struct spec_ctx *c, char **path); /* relative to the spec; made absolute */
void spec_rule_root(struct spec_ctx *c, const struct yaml_node *map, void *to);
void spec_rule_gpu(struct spec_ctx *c, const struct yaml_node *map, void *to);
void spec_rule_image(struct spec_ctx *c, const struct yaml_node *map, void *to);
void spec_rule_limits(struct spec_ctx *c, const struct yaml_node *map, void *to);
void spec_rule_access(struct spec_ctx *c, const struct yaml_node *map, void *to);
void spec_rule_bootstrap(struct spec_ctx *c, const struct yaml_node *map, void *to);
void spec_rule_secret(struct spec_ctx *c, const struct yaml_node *map, void *to);
void spec_rule_validate(struct spec_ctx *c, const struct yaml_node *map, void *to);
void spec_gpu_from_text(struct spec_ctx *c, const struct yaml_node *at, void *to);
void spec_image_from_text(struct spec_ctx *c, const struct yaml_node *at, void *to);
void spec_check_cidr(struct spec_ctx *c, const struct yaml_node *at);
void spec_check_bastion(struct spec_ctx *c, const struct yaml_node *at);
void spec_check_env(struct spec_ctx *c, const struct yaml_node *at);
void spec_check_known(struct spec_ctx *c, const struct yaml_node *at); /* a check's id */

/* spec_canonical.c: the text that is hashed. Caller frees. */
char *spec_hash_form(const struct spec *spec);
json_t *spec_json(const struct spec *spec); /* spec_canonical as JSON; new reference */
/* The value of an absent key; NULL: none. New reference. */
json_t *spec_default_json(const struct spec_field *f);

/* spec_money.c */
void spec_money_decode(struct spec_ctx *c, const struct spec_field *f, const struct yaml_node *at, int64_t *to);
#define SPEC_SIZE_PATTERN "[0-9]+([.][0-9]{1,6})? *(GB|GiB|TB|TiB)"
void spec_size_decode(struct spec_ctx *c, const struct spec_field *f, const struct yaml_node *at, int *to);

/* spec_floors.c */
void spec_floors_decode(struct spec_ctx *c, const struct yaml_node *map, struct spec_floors *to);
/* hash: values in their units' bases (bytes/s, s, bytes...). */
json_t *spec_floors_json(const struct spec_floors *v, bool hash);
void spec_floors_clear(struct spec_floors *v);
extern const char *const spec_floor_units[];

#endif

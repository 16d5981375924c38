/* SPDX-License-Identifier: Apache-2.0 */
/* A plan in a file: `plan -o FILE` writes it, and `up FILE` does exactly that, or refuses. It has the canonical spec,
 * the state that was seen, and the offers with their prices:
 *   {"schema": "gpuprov-plan/v1", "sha256": HEX, "note": TEXT, "plan": {...}}
 * The hash is over the member `plan`, written compactly. It detects a file that was cut, edited or damaged; it is no
 * signature, because whoever can write the file can write the hash. The spec has the replacements of ${env:..} and
 * ${file:..}, and no value of `secrets`, so the file is written for its owner only (0600). */
#ifndef GP_ENGINE_PLAN_FILE_H
#define GP_ENGINE_PLAN_FILE_H

#include "base/json.h"
#include "engine/engine.h"

#define PLAN_FILE_SCHEMA "gpuprov-plan/v1"
#define PLAN_FILE_MAX_AGE_S ((int64_t)30 * 86400) /* an older one is refused */

struct plan_file {
    char *path;           /* of the file */
    char *id;             /* 16 random hex digits: a plan is applied once from this state folder */
    char *spec_path;      /* as given to `plan`; "": standard input */
    char *unit;           /* NULL: none */
    int64_t created_s;    /* wall */
    struct spec *spec;    /* of the file, not of spec_path */
    struct strv left_out; /* offers that plan_file_may_use refused: "OFFER: why" */
    json_t *plan;         /* the whole member */
};
void plan_file_clear(struct plan_file *f);
#define GP_AUTO_PLAN_FILE GP_CLEANUP(plan_file_clear)

/* Writes the file, 0600, as a whole or not at all. spec_path: as given; NULL: standard input. unit: of the stack;
 * NULL: none. */
int plan_file_write(const char *path, const char *spec_path, const char *unit, const struct spec *spec,
                    const struct plan *plan, struct gp_error *err);
/* Whether a file's first bytes are those of a plan file, in any spacing; a cut or edited one included. */
bool plan_file_is(const char *path);
/* Reads and checks a file: -GP_EUSAGE if it is cut, edited, of another schema or version of gpuprov, too old, from
 * the future, has a number that no plan has, or if its
 * spec does not decode to the hash that it names. */
int plan_file_read(const char *path, struct plan_file *ret, struct gp_error *err);

/* One field that moved since the plan. */
struct plan_move {
    char *field, *planned, *now;
};
struct plan_moves {
    VEC_OF(struct plan_move) list;
};
void plan_moves_clear(struct plan_moves *m);
#define GP_AUTO_MOVES GP_CLEANUP(plan_moves_clear)
/* Compares the spec's own file, where that is there, with the spec of the plan. Reads files. */
void plan_file_spec_moves(const struct plan_file *f, struct plan_moves *ret);
/* Compares owner, uid, nodes, phases, deadline, and the offer that is tried first, with those of a plan of now. */
void plan_file_moves(const struct plan_file *f, const struct plan *now, struct plan_moves *ret);
/* For engine.may_use, with a struct plan_file as ctx: the offer is in the plan, and not dearer. Each one of a plan
 * without offers may be used: then a missing node has moved. */
bool plan_file_may_use(void *ctx, const struct offer *offer);
/* -GP_EUSAGE "N things moved since ...: FIELD: planned A, now B; ...". */
int plan_moves_error(const struct plan_file *f, const struct plan_moves *m, struct gp_error *err);

/* Notes that the plan is applied now, in the state folder. -GP_EUSAGE: it was applied before. */
int plan_file_begin(const struct plan_file *f, const char *state_dir, struct gp_error *err);
/* Takes the note back: nothing was launched. */
void plan_file_undo(const struct plan_file *f, const char *state_dir);
/* Removes notes of plans that are too old to be applied. */
void plan_file_tidy(const char *state_dir);

#endif

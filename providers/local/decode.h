/* SPDX-License-Identifier: Apache-2.0 */
/* The strict reading of what lies in the state folder and of what a holder answers. Another program, an
 * older version or a hand may have written it; its words become paths, addresses and pids, so nothing
 * that has not its form gets in. Pure; any thread. Internal to providers/local. */
#ifndef GP_LOCAL_DECODE_H
#define GP_LOCAL_DECODE_H

#include "base/error.h"
#include "base/json.h"
#include "providers/local/holder.h"
#include "providers/local/local_claim.h"

/* claim.json; path: named in the error. ret->dir stays NULL. */
int local_decode_claim(const json_t *j, const char *path, struct local_claim *ret, struct gp_error *err);
/* holder.json. False: it is no record. */
bool local_decode_record(const json_t *j, struct local_record *ret);
/* The first line of a holder's input: fills base, uid, name, times and nodes (caller frees). */
int local_decode_start(const json_t *j, struct holder_config *ret, struct gp_error *err);

/* One node in a holder's answer; the words belong to j. */
struct local_seen {
    const char *id, *ip, *state, *why; /* state: one of enum local_state's words */
    const char *host_key;              /* "ssh-ed25519 BASE64", or "" before it is known */
    const char *image;                 /* uid of its baked image; "" */
    int slot, attempt, gpus;
    int64_t created_s;
};
/* uid: of the stack that was asked. */
int local_decode_node(const json_t *j, const char *uid, struct local_seen *ret, struct gp_error *err);

/* What a create request asks for; the words belong to j. */
struct local_wanted {
    const char *token, *login_pubkey, *image; /* image: uid of a baked image; "" */
    int slot_first, slot_count, attempt, gpus, nodes;
};
int local_decode_wanted(const json_t *j, struct local_wanted *ret, struct gp_error *err);

#endif

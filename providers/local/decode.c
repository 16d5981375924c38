/* SPDX-License-Identifier: Apache-2.0 */
/* Strict decoding for the local provider. Pure; any thread. */
#include "base/gp_base.h"

#include "providers/local/decode.h"

#include "base/clock.h"
#include "base/form.h"
#include "base/json.h"
#include "providers/local/ns/netns.h"

#define PID_MAX 4194304 /* Linux's own limit */
#define GPUS_MAX 1024
#define BASE64 "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"

/* The number at key, if it is one and in range. */
static bool number(const json_t *j, const char *key, int64_t min, int64_t max, int64_t *ret) {
    const json_t *v = json_object_get(j, key);
    if (!json_is_integer(v)) return false;
    int64_t n = json_integer_value(v);
    if (n < min || n > max) return false;
    *ret = n;
    return true;
}

static bool small(const json_t *j, const char *key, int min, int max, int *ret) {
    int64_t n = 0;
    if (!number(j, key, min, max, &n)) return false;
    *ret = (int)n;
    return true;
}

/* The string at key, or NULL. One that holds a NUL is none: jansson refuses it when it parses. */
static const char *word(const json_t *j, const char *key) { return json_string_value(json_object_get(j, key)); }

static bool is_hash_or_empty(const char *s) { return s != NULL && (s[0] == '\0' || form_spec_hash(s)); }

int local_decode_claim(const json_t *j, const char *path, struct local_claim *ret, struct gp_error *err) {
    const char *owner = word(j, "owner"), *name = word(j, "name"), *uid = word(j, "uid"), *hash = word(j, "spec_hash"),
               *bad = NULL;
    const json_t *unit = json_object_get(j, "unit"); /* a stack of no unit has none */
    int64_t created = 0, expires = 0;
    if (!form_uid(uid)) bad = "uid";
    else if (!form_stack(name)) bad = "name";
    else if (!form_owner(owner)) bad = "owner";
    else if (!is_hash_or_empty(hash)) bad = "spec_hash";
    else if (unit != NULL && !form_stack(json_string_value(unit))) bad = "unit";
    else if (!number(j, "created", 1, CLOCK_WALL_MAX_S, &created)) bad = "created";
    else if (!number(j, "expires", 1, CLOCK_WALL_MAX_S, &expires)) bad = "expires";
    if (bad != NULL)
        return gp_fail(err, GP_EIO, "'%s' is not the claim of a local stack: its '%s' is malformed", path, bad);
    *ret = (struct local_claim){.owner = xstrdup(owner),
                                .name = xstrdup(name),
                                .uid = xstrdup(uid),
                                .spec_hash = xstrdup(hash),
                                .unit = xstrdup(unit != NULL ? json_string_value(unit) : ""),
                                .created_s = created,
                                .expires_s = expires};
    return 0;
}

bool local_decode_record(const json_t *j, struct local_record *ret) {
    struct local_record r = {0};
    int64_t pid = 0, start = 0, pidns = 0;
    const char *boot = word(j, "boot_id");
    if (!number(j, "pid", 2, PID_MAX, &pid) || !number(j, "start", 1, INT64_MAX, &start) ||
        !number(j, "pidns", 0, INT64_MAX, &pidns))
        return false;
    if (boot == NULL || strlen(boot) != 36 || boot[strspn(boot, "0123456789abcdef-")] != '\0') return false;
    r.pid = (pid_t)pid;
    r.start = (uint64_t)start;
    r.pidns = (uint64_t)pidns;
    str_put(r.boot_id, sizeof r.boot_id, boot);
    *ret = r;
    return true;
}

int local_decode_start(const json_t *j, struct holder_config *ret, struct gp_error *err) {
    const char *base = word(j, "base"), *uid = word(j, "uid"), *name = word(j, "name");
    int64_t created = 0, expires = 0;
    const json_t *indexes = json_object_get(j, "indexes");
    bool urls = json_is_array(indexes);
    for (size_t i = 0; urls && i < json_array_size(indexes); i++) urls = json_is_string(json_array_get(indexes, i));
    int nodes = 0;
    if (base == NULL || base[0] != '/' || !form_uid(uid) || !form_stack(name) || !urls ||
        !number(j, "created", 1, CLOCK_WALL_MAX_S, &created) || !number(j, "expires", 1, CLOCK_WALL_MAX_S, &expires) ||
        !small(j, "nodes", 1, LOCAL_SLOTS_MAX, &nodes))
        return gp_fail(err, GP_EUSAGE, "the holder's input is malformed");
    ret->base = xstrdup(base);
    ret->uid = xstrdup(uid);
    ret->name = xstrdup(name);
    ret->created_s = created;
    ret->expires_s = expires;
    ret->nodes = nodes;
    for (size_t i = 0; i < json_array_size(indexes); i++)
        strv_add(&ret->indexes, json_string_value(json_array_get(indexes, i)));
    return 0;
}

/* "ssh-ed25519 " and 68 of base64, which is what 51 bytes make. */
static bool is_host_key(const char *s) {
    static const char type[] = "ssh-ed25519 ";
    return str_starts(s, type) && strlen(s) == sizeof type - 1 + 68 && strspn(s + sizeof type - 1, BASE64) == 68;
}

/* "local-UID-SLOT-" and 8 hex digits (holder_nodes.c). */
static bool is_node_id(const char *s, const char *uid, int slot) {
    GP_AUTO_FREE char *prefix = xasprintf("local-%s-%d-", uid, slot);
    size_t n = strlen(prefix);
    return str_starts(s, prefix) && strlen(s) == n + 8 && strspn(s + n, "0123456789abcdef") == 8;
}

static bool is_state(const char *s) {
    static const char *const states[] = {"starting", "running", "off", "failed", "ended"};
    for (size_t i = 0; i < GP_ARRAY_LEN(states); i++)
        if (strcmp(s, states[i]) == 0) return true;
    return false;
}

int local_decode_node(const json_t *j, const char *uid, struct local_seen *ret, struct gp_error *err) {
    struct local_seen n = {.id = word(j, "id"),
                           .ip = word(j, "ip"),
                           .state = word(j, "state"),
                           .why = word(j, "why"),
                           .host_key = word(j, "host_key"),
                           .image = word(j, "image")};
    const char *bad = NULL;
    if (!small(j, "slot", 0, LOCAL_SLOTS_MAX - 1, &n.slot)) bad = "slot";
    else if (n.id == NULL || !is_node_id(n.id, uid, n.slot)) bad = "id";
    else if (!form_address(n.ip)) bad = "ip";
    else if (n.state == NULL || !is_state(n.state)) bad = "state";
    else if (n.host_key == NULL || (n.host_key[0] != '\0' && !is_host_key(n.host_key))) bad = "host_key";
    else if (strcmp(n.state, "running") == 0 && n.host_key[0] == '\0') bad = "host_key";
    else if (!small(j, "attempt", 0, INT32_MAX, &n.attempt)) bad = "attempt";
    else if (!small(j, "gpus", 0, GPUS_MAX, &n.gpus)) bad = "gpus";
    else if (!number(j, "created", 1, CLOCK_WALL_MAX_S, &n.created_s)) bad = "created";
    else if (n.image != NULL && n.image[0] != '\0' && !form_uid(n.image)) bad = "image";
    if (bad != NULL)
        return gp_fail(err, GP_EPROTO, "the holder of stack %s lists a node whose '%s' is malformed", uid, bad);
    if (n.why == NULL) n.why = "";
    if (n.image == NULL) n.image = ""; /* a holder of an earlier version */
    *ret = n;
    return 0;
}

static bool is_one_line(const char *s, size_t max) {
    if (s == NULL || strlen(s) > max) return false;
    for (; *s != '\0'; s++)
        if ((unsigned char)*s < ' ' || *s == 127) return false;
    return true;
}

int local_decode_wanted(const json_t *j, struct local_wanted *ret, struct gp_error *err) {
    struct local_wanted w = {
        .token = word(j, "token"), .login_pubkey = word(j, "login_pubkey"), .image = word(j, "image")};
    const char *bad = NULL;
    if (!small(j, "slot_first", 0, LOCAL_SLOTS_MAX - 1, &w.slot_first)) bad = "slot_first";
    else if (!small(j, "slot_count", 1, LOCAL_SLOTS_MAX - w.slot_first, &w.slot_count)) bad = "slot_count";
    else if (!small(j, "attempt", 0, INT32_MAX, &w.attempt)) bad = "attempt";
    else if (!small(j, "gpus", 0, GPUS_MAX, &w.gpus)) bad = "gpus";
    else if (!small(j, "nodes", 1, LOCAL_SLOTS_MAX, &w.nodes)) bad = "nodes";
    else if (!is_one_line(w.token, 64)) bad = "token";
    else if (!is_one_line(w.login_pubkey, 16384)) bad = "login_pubkey";
    else if (w.image != NULL && w.image[0] != '\0' && !form_uid(w.image)) bad = "image";
    if (bad != NULL)
        return gp_fail(err, GP_EUSAGE,
                       "the requested nodes are not possible (a local stack has at most %d): "
                       "'%s' is malformed",
                       LOCAL_SLOTS_MAX, bad);
    if (w.image == NULL) w.image = ""; /* an intent of an earlier version */
    *ret = w;
    return 0;
}

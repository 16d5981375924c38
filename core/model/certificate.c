/* SPDX-License-Identifier: Apache-2.0 */
/* Certificates: created from one node's part of a report, decoded, compared with a machine. No I/O, no
 * clock: the caller checks expiry and whether it trusts the key. */
#include "base/gp_base.h"

#include "model/certificate.h"

#include "base/clock.h"
#include "base/hash.h"
#include "base/json.h"

void certificate_clear(struct certificate *c) {
    char *all[] = {c->stack, c->uid, c->run, c->instance, c->host, c->boot_id, c->driver, c->gpuprov};
    for (size_t i = 0; i < GP_ARRAY_LEN(all); i++) free(all[i]);
    strv_clear(&c->gpus);
    json_decref(c->payload);
    *c = (struct certificate){0};
}

void machine_clear(struct machine *m) {
    strv_clear(&m->gpus);
    *m = (struct machine){0};
}

/* --- create --- */

static void set_text(json_t *j, const char *name, const char *text) {
    json_object_set_new(j, name, json_any_text(text != NULL ? text : ""));
}

static void set_time(json_t *j, const char *name, int64_t wall_s) {
    char text[32];
    time_format_utc(text, sizeof text, wall_s);
    set_text(j, name, text);
}

/* Figures and verdicts, without the long data beside them. */
static void add_checks(json_t *list, const struct check_result *checks, size_t n) {
    for (size_t i = 0; i < n; i++) {
        json_t *full = check_result_to_json(&checks[i]);
        json_object_del(full, "data");
        json_object_del(full, "suggestion");
        json_array_append_new(list, full);
    }
}

static json_t *gpus_of(const struct report_node *n) {
    json_t *list = json_array();
    for (int i = 0;; i++) {
        const char *uuid = report_node_gpu(n, i, "uuid");
        if (uuid[0] == '\0') return list;
        json_t *g = json_object();
        set_text(g, "uuid", uuid);
        set_text(g, "name", report_node_gpu(n, i, "name"));
        set_text(g, "serial", report_node_gpu(n, i, "serial"));
        json_array_append_new(list, g);
    }
}

static bool all_pass(const struct check_result *list, size_t n) {
    for (size_t i = 0; i < n; i++)
        if (list[i].required && list[i].verdict != VERDICT_PASS) return false;
    return true;
}

static json_t *payload_of(const struct report *r, const struct report_node *n, int64_t ttl_s,
                          const struct sign_key *key) {
    bool pass = all_pass(n->checks.items, n->checks.len) && all_pass(r->gang.items, r->gang.len);
    json_t *j = json_object();
    set_text(j, "schema", CERTIFICATE_SCHEMA);
    set_text(j, "gpuprov", GP_VERSION);
    set_text(j, "stack", r->stack);
    set_text(j, "uid", r->uid);
    set_text(j, "run", r->run);
    json_object_set_new(j, "node", json_integer(n->slot));
    set_text(j, "instance", n->id);
    set_text(j, "place", n->place);
    set_text(j, "host", n->host);
    set_text(j, "boot_id", n->boot_id);
    set_text(j, "driver", report_node_driver(n));
    json_object_set_new(j, "gpus", gpus_of(n));
    set_text(j, "verdict", verdict_name(pass ? VERDICT_PASS : VERDICT_DEGRADED));
    set_time(j, "validated", r->started_s);
    set_time(j, "expires", r->started_s + ttl_s);
    json_t *checks = json_array();
    add_checks(checks, n->checks.items, n->checks.len);
    json_object_set_new(j, "checks", checks);
    json_t *gang = json_array();
    add_checks(gang, r->gang.items, r->gang.len);
    json_object_set_new(j, "gang", gang);
    json_object_set_new(j, "key",
                        json_pack("{s:s, s:s, s:s}", "algorithm", "ed25519", "public", key->pub.base64, "fingerprint",
                                  key->pub.fingerprint));
    return j;
}

/* DSSE's pre-authentication encoding: the bytes that are signed. */
static void signed_bytes(struct str *out, const char *payload, size_t n) {
    str_addf(out, "DSSEv1 %zu %s %zu ", sizeof CERTIFICATE_TYPE - 1, CERTIFICATE_TYPE, n);
    str_add_mem(out, payload, n);
}

int certificate_sign(const char *payload, size_t n, const struct sign_key *key, char **ret, struct gp_error *err) {
    GP_AUTO_STR struct str bytes = {0};
    signed_bytes(&bytes, payload, n);
    unsigned char sig[SIGN_BYTES];
    int rc = sign_data(key, bytes.s, bytes.len, sig, err);
    if (rc != 0) return rc;
    GP_AUTO_FREE char *body = base64_text(payload, n), *sig64 = base64_text(sig, sizeof sig);
    GP_AUTO_JSON json_t *envelope = json_pack("{s:s, s:s, s:[{s:s, s:s}]}", "payloadType", CERTIFICATE_TYPE, "payload",
                                              body, "signatures", "keyid", key->pub.fingerprint, "sig", sig64);
    GP_AUTO_FREE char *text = json_text(envelope, 1);
    *ret = xasprintf("%s\n", text);
    return 0;
}

int certificate_make(const struct report *r, size_t i, int64_t ttl_s, const struct sign_key *key, char **ret,
                     struct gp_error *err) {
    const struct report_node *n = &r->nodes.items[i];
    if (!n->ready)
        return gp_fail(err, GP_EVALIDATE, "%s/%d is not ready: only a ready node gets a certificate", r->stack,
                       n->slot);
    if (n->boot_id[0] == '\0')
        return gp_fail(err, GP_EVALIDATE,
                       "%s/%d: its report does not name the boot that was validated: "
                       "validate the node again",
                       r->stack, n->slot);
    GP_AUTO_JSON json_t *j = payload_of(r, n, ttl_s, key);
    GP_AUTO_FREE char *payload = json_text(j, 0);
    return certificate_sign(payload, strlen(payload), key, ret, err);
}

/* --- reading --- */

static int malformed(struct gp_error *err, const char *what) {
    return gp_fail(err, GP_EPROTO, "not a certificate: %s", what);
}

static int check_signature(const struct str *payload, const json_t *envelope, struct certificate *c,
                           struct gp_error *err) {
    const char *sig64 = json_str(envelope, "signatures.0.sig", "");
    GP_AUTO_STR struct str sig = {0}, bytes = {0};
    if (json_array_size(json_object_get(envelope, "signatures")) != 1 || !base64_bytes(sig64, strlen(sig64), &sig))
        return malformed(err, "it does not have exactly one signature");
    signed_bytes(&bytes, payload->s, payload->len);
    if (!bytes.truncated && sign_holds(&c->key, bytes.s, bytes.len, (unsigned char *)sig.s, sig.len)) return 0;
    gp_fail(err, GP_EPROTO, "the signature is not valid: the certificate was changed after it was signed");
    if (err != NULL) str_put(err->detail, sizeof err->detail, "SIGNATURE");
    return -GP_EPROTO;
}

static int take_gpus(struct certificate *c, struct gp_error *err) {
    const json_t *list = json_object_get(c->payload, "gpus");
    if (!json_is_array(list)) return malformed(err, "it has no list of GPUs");
    for (size_t i = 0; i < json_array_size(list); i++) {
        const char *uuid = json_str(json_array_get(list, i), "uuid", "");
        if (uuid[0] == '\0') return malformed(err, "one of its GPUs has no UUID");
        strv_add(&c->gpus, uuid);
    }
    return 0;
}

static int take_fields(struct certificate *c, struct gp_error *err) {
    const struct {
        const char *name;
        char **field;
        bool needed;
    } texts[] = {{"stack", &c->stack, false},       {"uid", &c->uid, false},       {"run", &c->run, true},
                 {"instance", &c->instance, false}, {"host", &c->host, false},     {"boot_id", &c->boot_id, true},
                 {"driver", &c->driver, false},     {"gpuprov", &c->gpuprov, true}};
    for (size_t i = 0; i < GP_ARRAY_LEN(texts); i++) {
        const char *text = json_str(c->payload, texts[i].name, "");
        if (texts[i].needed && text[0] == '\0') {
            GP_AUTO_FREE char *why = xasprintf("it has no %s", texts[i].name);
            return malformed(err, why);
        }
        *texts[i].field = xstrdup(text);
        str_one_line(*texts[i].field);
    }
    c->node = (int)json_int(c->payload, "node", -1);
    if (!verdict_parse(json_str(c->payload, "verdict", ""), &c->verdict) || c->verdict > VERDICT_DEGRADED)
        return malformed(err, "its verdict is neither pass nor degraded");
    if (!time_parse_utc(json_str(c->payload, "validated", ""), &c->validated_s) ||
        !time_parse_utc(json_str(c->payload, "expires", ""), &c->expires_s))
        return malformed(err, "it has no validity period");
    return take_gpus(c, err);
}

static int read_payload(const struct str *text, const json_t *envelope, struct certificate *c, struct gp_error *err) {
    int r = json_parse(text->s, text->len, "the certificate's payload", &c->payload, err);
    if (r != 0) return r;
    const char *schema = json_str(c->payload, "schema", "");
    if (strcmp(schema, CERTIFICATE_SCHEMA) != 0)
        return gp_fail(err, GP_EPROTO, "the certificate's version is not supported (schema '%s', expected '%s')",
                       schema, CERTIFICATE_SCHEMA);
    if (!sign_public_parse(json_str(c->payload, "key.public", ""), &c->key))
        return malformed(err, "it has no Ed25519 key");
    r = check_signature(text, envelope, c, err);
    return r == 0 ? take_fields(c, err) : r;
}

int certificate_read(const char *text, size_t n, struct certificate *ret, struct gp_error *err) {
    GP_AUTO_JSON json_t *envelope = NULL;
    if (n > CERTIFICATE_MAX) return malformed(err, "it is larger than 4 MiB");
    if (n == 0) return malformed(err, "the file is empty: name another one");
    int r = json_parse(text, n, "the certificate", &envelope, err);
    if (r != 0) return -GP_EPROTO;
    if (strcmp(json_str(envelope, "payloadType", ""), CERTIFICATE_TYPE) != 0)
        return malformed(err, "its payloadType is not " CERTIFICATE_TYPE);
    const char *body = json_str(envelope, "payload", "");
    GP_AUTO_STR struct str payload = {0};
    if (!base64_bytes(body, strlen(body), &payload)) return malformed(err, "its payload is not base64");
    struct certificate c = {0};
    r = read_payload(&payload, envelope, &c, err);
    if (r == 0) *ret = c;
    else certificate_clear(&c);
    return r;
}

/* --- the machine --- */

static int same_gpus(const struct certificate *c, const struct machine *m, struct gp_error *err) {
    for (size_t i = 0; i < m->gpus.n; i++)
        if (strchr(m->gpus.v[i], '?') != NULL)
            return gp_fail(err, GP_EENV,
                           "the driver reports no GPU UUIDs until a program has used the "
                           "GPUs: run 'nvidia-smi -L' once, or keep nvidia-persistenced running");
    for (size_t i = 0; i < c->gpus.n; i++)
        if (!strv_has(&m->gpus, c->gpus.v[i]))
            return gp_fail(err, GP_EVALIDATE, "%s was validated and is not in this machine", c->gpus.v[i]);
    for (size_t i = 0; i < m->gpus.n; i++)
        if (!strv_has(&c->gpus, m->gpus.v[i]))
            return gp_fail(err, GP_EVALIDATE, "%s is in this machine and was not validated", m->gpus.v[i]);
    return 0;
}

int certificate_same_machine(const struct certificate *c, const struct machine *m, struct gp_error *err) {
    if (!str_eq(c->boot_id, m->boot_id))
        return gp_fail(err, GP_EVALIDATE,
                       "another machine, or rebooted since: boot %s was validated, this is "
                       "boot %s",
                       c->boot_id, m->boot_id);
    int r = same_gpus(c, m, err);
    if (r != 0) return r;
    if (c->driver[0] != '\0' && !str_eq(c->driver, m->driver))
        return gp_fail(err, GP_EVALIDATE, "the driver is now %s, %s was validated",
                       m->driver[0] != '\0' ? m->driver : "gone", c->driver);
    return 0;
}

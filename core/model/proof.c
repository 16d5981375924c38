/* SPDX-License-Identifier: Apache-2.0 */
/* Proofs (proof.h) by OpenSSL's HMAC. Every field of a message has its length before it, so that no two messages of
 * different fields are the same bytes. Pure; any thread. */
#include "base/gp_base.h"

#include "model/proof.h"

#include "base/hash.h"
#include "base/secret.h"
#include "base/str.h"

#define PROOF_BYTES 16

void proof_key_make(struct proof_key *ret, const char *purpose, const void *secret, size_t n) {
    sha256_hmac(secret, n, purpose, strlen(purpose), ret->bytes);
    ret->known = true;
}

void proof_key_clear(struct proof_key *k) {
    explicit_bzero(k->bytes, sizeof k->bytes);
    k->known = false;
}

static void add_text(struct str *m, const char *text) { str_addf(m, "%zu:%s", strlen(text), text); }
static void add_number(struct str *m, int64_t n) {
    char text[24];
    snprintf(text, sizeof text, "%lld", (long long)n);
    add_text(m, text);
}

void proof_key_bind(struct proof_key *k, const char *owner, const char *stack) {
    GP_AUTO_STR struct str m = {0};
    unsigned char bound[SHA256_BYTES];
    add_text(&m, "stack");
    add_text(&m, owner);
    add_text(&m, stack);
    sha256_hmac(k->bytes, sizeof k->bytes, m.s, m.len, bound);
    memcpy(k->bytes, bound, sizeof k->bytes);
    explicit_bzero(bound, sizeof bound);
}

static void finish(const struct proof_key *k, const struct str *m, size_t bytes, char *ret) {
    unsigned char mac[SHA256_BYTES];
    sha256_hmac(k->bytes, sizeof k->bytes, m->s, m->len, mac);
    str_hex(ret, mac, bytes);
}

/* In constant time: a guess learns nothing from how long a refusal takes. */
static bool same(const char *text, const char *want) {
    GP_AUTO_SECRET struct secret s = {0};
    secret_set(&s, want, strlen(want));
    return secret_equal(&s, text, strlen(text));
}

void proof_token(const struct proof_key *k, const char *text, char ret[PROOF_TOKEN_SIZE]) {
    GP_AUTO_STR struct str m = {0};
    add_text(&m, "token");
    add_text(&m, text);
    finish(k, &m, SHA256_BYTES, ret);
}

void proof_of_launch(const struct proof_key *k, const char *uid, int slot_first, int slot_count, int attempt,
                     char ret[PROOF_SIZE]) {
    GP_AUTO_STR struct str m = {0};
    add_text(&m, "launch");
    add_text(&m, uid);
    add_number(&m, slot_first);
    add_number(&m, slot_count);
    add_number(&m, attempt);
    finish(k, &m, PROOF_BYTES, ret);
}

bool proof_launch_holds(const struct proof_key *k, const struct resource *r) {
    char want[PROOF_SIZE];
    bool within = r->slot >= r->slot_first && r->slot < r->slot_first + r->slot_count;
    if (!k->known || r->launch[0] == '\0' || r->slot_first < 0 || !within) return false;
    proof_of_launch(k, r->uid, r->slot_first, r->slot_count, r->attempt, want);
    return same(r->launch, want);
}

void proof_of_machine(const struct proof_key *k, const char *uid, const char *provider, const char *id, int slot,
                      const char *fingerprint, char ret[PROOF_SIZE]) {
    GP_AUTO_STR struct str m = {0};
    add_text(&m, "machine");
    add_text(&m, uid);
    add_text(&m, provider);
    add_text(&m, id);
    add_number(&m, slot);
    add_text(&m, fingerprint);
    finish(k, &m, PROOF_BYTES, ret);
}

bool proof_machine_holds(const struct proof_key *k, const struct resource *r) {
    char want[PROOF_SIZE];
    if (!k->known || r->proof[0] == '\0' || r->host_keys[0] == '\0' || r->slot < 0) return false;
    proof_of_machine(k, r->uid, r->provider, r->id, r->slot, r->host_keys, want);
    return same(r->proof, want);
}

void proof_of_deadline(const struct proof_key *k, const char *uid, int64_t expires_s, char ret[PROOF_SIZE]) {
    GP_AUTO_STR struct str m = {0};
    add_text(&m, "deadline");
    add_text(&m, uid);
    add_number(&m, expires_s);
    finish(k, &m, PROOF_BYTES, ret);
}

bool proof_deadline_holds(const struct proof_key *k, const struct resource *r) {
    char want[PROOF_SIZE];
    if (!k->known || r->deadline[0] == '\0' || r->expires_s <= 0) return false;
    proof_of_deadline(k, r->uid, r->expires_s, want);
    return same(r->deadline, want);
}

void proof_of_image(const struct proof_key *k, const struct resource *image, char ret[PROOF_SIZE]) {
    GP_AUTO_STR struct str m = {0};
    add_text(&m, "image");
    add_text(&m, image->owner);
    add_text(&m, image->uid);
    add_text(&m, image->provider);
    add_text(&m, image->region);
    add_text(&m, image->id);
    add_text(&m, image->image);
    finish(k, &m, PROOF_BYTES, ret);
}

bool proof_image_holds(const struct proof_key *k, const struct resource *image) {
    char want[PROOF_SIZE];
    if (!k->known || image->proof[0] == '\0' || image->image[0] == '\0') return false;
    proof_of_image(k, image, want);
    return same(image->proof, want);
}

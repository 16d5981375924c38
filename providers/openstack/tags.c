// SPDX-License-Identifier: Apache-2.0
/* Identity at OpenStack. A server has all tags in its metadata. Groups and floating addresses have a description of 255
 * characters, a key pair the comment of its public key; both are read back strictly. Pure. */
#include "base/gp_base.h"

#include "providers/openstack/os_int.h"

#include "base/form.h"
#include "base/hash.h"

#define DESCRIPTION_MAX 255
#define MARK "gpuprov"

bool os_uuid(const char *s) {
    size_t n = s != NULL ? strlen(s) : 0;
    if (n != 36) return false;
    for (size_t i = 0; i < n; i++) {
        bool dash = i == 8 || i == 13 || i == 18 || i == 23;
        if (dash ? s[i] != '-' : strchr("0123456789abcdef", s[i]) == NULL) return false;
    }
    return true;
}

bool os_name(const char *s) {
    size_t n = strlen(s);
    for (size_t i = 0; i < n; i++)
        if (s[i] < ' ' || s[i] > '~' || s[i] == '"' || s[i] == '\\') return false;
    return n > 0 && n <= 255;
}

void os_tags_of_server(const json_t *server, struct tags *ret) {
    GP_AUTO_LABELS struct label_list labels = {0};
    json_t *all = json_object_get(server, "metadata"), *value = NULL;
    const char *key = NULL;
    json_object_foreach(all, key, value) {
        /* a text that is none is kept as a tag that does not decode */
        if (str_starts(key, labels_openstack.prefix))
            labels_add(&labels, key, json_is_string(value) ? json_string_value(value) : "\x01");
    }
    labels_read(&labels_openstack, &labels, ret);
}

json_t *os_metadata(const struct tags *t) {
    GP_AUTO_LABELS struct label_list labels = {0};
    if (!labels_write(&labels_openstack, t, &labels)) return NULL;
    json_t *all = json_object();
    for (size_t i = 0; i < labels.list.len; i++)
        json_object_set_new(all, labels.list.items[i].key, json_string(labels.list.items[i].value));
    return all;
}

/* --- one line of words "key=value" --- */

/* Only `regions` has blanks, between words without a comma. */
static void swap(char *text, char from, char to) {
    for (char *p = text; *p != '\0'; p++)
        if (*p == from) *p = to;
}

static void add_word(void *ctx, const char *key, const char *value) {
    struct str *out = ctx;
    GP_AUTO_FREE char *word = xstrdup(value);
    swap(word, ' ', ',');
    if (value[0] != '\0') str_addf(out, " %s=%s", key, word);
}

bool os_description(const struct tags *t, struct str *ret) {
    struct tags some;
    char slots[32];
    tags_init(&some);
    resource_set(&some.owner, t->owner);
    resource_set(&some.stack, t->stack);
    resource_set(&some.uid, t->uid);
    some.expires_s = t->expires_s;
    str_add(ret, MARK);
    tags_each(&some, add_word, ret);
    tags_clear(&some);
    if (t->slot_count > 0) { /* of an address: its node */
        tags_slots_text(slots, sizeof slots, t->slot_first, t->slot_count);
        str_addf(ret, " slots=%s attempt=%d", slots, t->attempt);
    }
    return ret->len <= DESCRIPTION_MAX;
}

static bool read_words(const char *text, struct tags *ret) {
    GP_AUTO_STRV struct strv words = {0};
    tags_init(ret);
    if (strncmp(text, MARK " ", strlen(MARK) + 1) != 0) return false;
    strv_split(&words, text, " ");
    for (size_t i = 1; i < words.n; i++) {
        char *eq = strchr(words.v[i], '=');
        if (eq == NULL) {
            tags_complain(ret, "description", "of words KEY=VALUE");
            continue;
        }
        *eq = '\0';
        if (strcmp(words.v[i], "regions") == 0) swap(eq + 1, ',', ' ');
        tags_read(ret, words.v[i], eq + 1);
    }
    return true;
}

bool os_description_read(const char *text, struct tags *ret) { return read_words(text, ret); }

/* --- the claim --- */

char *os_claim_name(const char *owner, const char *stack) {
    char hex[65];
    GP_AUTO_FREE char *text = xasprintf("%s/%s", owner, stack);
    sha256_hex(text, strlen(text), hex);
    return xasprintf(MARK "-%s-%.24s", stack, hex);
}

/* nova takes any 32 bytes as a key of Ed25519. Those of a hash have no private key that anybody knows. */
char *os_claim_key(const struct tags *t) {
    static const unsigned char head[] = {0,   0,   0,   11,  's', 's', 'h', '-', 'e', 'd',
                                         '2', '5', '5', '1', '9', 0,   0,   0,   32};
    unsigned char blob[sizeof head + SHA256_BYTES];
    GP_AUTO_STR struct str words = {0};
    GP_AUTO_FREE char *seed = xasprintf(MARK " claim %s", t->uid);
    memcpy(blob, head, sizeof head);
    sha256_bytes(seed, strlen(seed), blob + sizeof head);
    GP_AUTO_FREE char *text = base64_text(blob, sizeof blob);
    str_add(&words, MARK);
    tags_each(t, add_word, &words);
    return xasprintf("ssh-ed25519 %s %s", text, words.s);
}

bool os_claim_read(const char *name, const char *public_key, struct tags *ret) {
    const char *blob = strchr(public_key, ' ');
    const char *comment = blob != NULL ? strchr(blob + 1, ' ') : NULL;
    GP_AUTO_FREE char *words = xstrdup(comment != NULL ? comment + 1 : "");
    tags_init(ret);
    if (!str_starts(name, MARK "-")) return false;
    words[strcspn(words, "\r\n")] = '\0';
    tags_clear(ret);
    if (!read_words(words, ret) || ret->owner[0] == '\0' || ret->stack[0] == '\0') return false;
    GP_AUTO_FREE char *own = os_claim_name(ret->owner, ret->stack);
    return strcmp(own, name) == 0;
}

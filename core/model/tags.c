/* SPDX-License-Identifier: Apache-2.0 */
/* Decodes and encodes the tags of cloud resources. Each key is one row; a decoder stores only what has the
 * exact form that the encoder writes. Pure; any thread. */
#include "base/gp_base.h"

#include "model/tags.h"

#include "base/clock.h"
#include "base/form.h"
#include "model/image.h"
#include "model/proof.h"

#define TIME_MIN_S ((int64_t)1577836800) /* 2020-01-01 */
#define TIME_MAX_S ((int64_t)4102444800) /* 2100-01-01 */
#define PRICE_MAX_USD 100000.0
#define ATTEMPT_MAX 1000000

/* --- decoders: true when the value was stored --- */

static bool store(char **to, const char *value, bool ok) {
    if (ok) resource_set(to, value);
    return ok;
}

static bool read_owner(struct tags *t, const char *v) { return store(&t->owner, v, form_owner(v)); }
static bool read_stack(struct tags *t, const char *v) { return store(&t->stack, v, form_stack(v)); }
static bool read_uid(struct tags *t, const char *v) { return store(&t->uid, v, form_uid(v)); }
static bool read_spec(struct tags *t, const char *v) { return store(&t->spec_hash, v, form_spec_hash(v)); }
static bool read_unit(struct tags *t, const char *v) { return store(&t->unit, v, form_stack(v)); }
static bool read_hostkey(struct tags *t, const char *v) { return store(&t->hostkey, v, form_fingerprint(v)); }

static bool read_launch(struct tags *t, const char *v) { return store(&t->launch, v, form_proof(v)); }
static bool read_proof(struct tags *t, const char *v) { return store(&t->proof, v, form_proof(v)); }
static bool read_deadline(struct tags *t, const char *v) { return store(&t->deadline, v, form_proof(v)); }

/* Only the form that time_format_utc writes: "2026-11-22T08:00:00Z". */
static bool read_time(const char *v, int64_t *ret_s) {
    int64_t s = 0;
    char again[32];
    if (strlen(v) != 20 || !time_parse_utc(v, &s) || s < TIME_MIN_S || s > TIME_MAX_S) return false;
    time_format_utc(again, sizeof again, s);
    if (strcmp(again, v) != 0) return false;
    *ret_s = s;
    return true;
}

static bool read_created(struct tags *t, const char *v) { return read_time(v, &t->created_s); }
static bool read_expires(struct tags *t, const char *v) { return read_time(v, &t->expires_s); }

static bool read_slots(struct tags *t, const char *v) {
    int64_t first = 0, count = 0;
    char again[32];
    const char *plus = strchr(v, '+');
    if (plus == NULL || strlen(v) > 20) return false;
    GP_AUTO_FREE char *head = xstrndup(v, (size_t)(plus - v));
    if (!str_to_i64(head, 0, TAGS_SLOTS_MAX - 1, &first)) return false;
    if (!str_to_i64(plus + 1, 1, TAGS_SLOTS_MAX - first, &count)) return false;
    tags_slots_text(again, sizeof again, (int)first, (int)count);
    if (strcmp(again, v) != 0) return false;
    t->slot_first = (int)first;
    t->slot_count = (int)count;
    return true;
}

static bool read_attempt(struct tags *t, const char *v) {
    int64_t n = 0;
    char again[16];
    if (!str_to_i64(v, 0, ATTEMPT_MAX, &n)) return false;
    snprintf(again, sizeof again, "%d", (int)n);
    if (strcmp(again, v) != 0) return false;
    t->attempt = (int)n;
    return true;
}

static bool read_price(struct tags *t, const char *v) {
    double usd = 0;
    if (v[0] == '\0') return true; /* unknown when it was bought */
    if (strlen(v) > 20 || !str_to_double(v, &usd) || !(usd >= 0) || usd > PRICE_MAX_USD) return false;
    t->price_usd_per_h = usd;
    return true;
}

static bool read_claim(struct tags *t, const char *v) {
    t->claim = strcmp(v, TAGS_YES) == 0;
    return t->claim;
}

static bool read_regions(struct tags *t, const char *v) {
    GP_AUTO_STRV struct strv names = {0};
    if (strcmp(v, TAGS_EVERYWHERE) == 0) return store(&t->regions, v, true);
    if (v[0] == '\0' || strlen(v) > TAGS_VALUE_MAX) return false;
    strv_split(&names, v, " ");
    for (size_t i = 0; i < names.n; i++)
        if (!form_word(names.v[i])) return false;
    GP_AUTO_FREE char *again = tags_regions_text(&names);
    return store(&t->regions, v, strcmp(again, v) == 0);
}

static bool read_image(struct tags *t, const char *v) {
    struct image_facts facts;
    return store(&t->image, v, image_facts_parse(&facts, v));
}

static const struct {
    const char *key;
    bool (*read)(struct tags *t, const char *value);
    const char *want; /* the expected form, for errors */
} rows[] = {
    {"owner", read_owner, "an owner's name"},
    {"stack", read_stack, "a stack's name"},
    {"uid", read_uid, "16 hex digits"},
    {"spec", read_spec, "64 hex digits"},
    {"hostkey", read_hostkey, "a SHA256 fingerprint"},
    {"created", read_created, "a UTC time"},
    {"expires", read_expires, "a UTC time"},
    {"slots", read_slots, "FIRST+COUNT"},
    {"attempt", read_attempt, "a number"},
    {"price", read_price, "a price"},
    {"claim", read_claim, "1"},
    {"regions", read_regions, "region names in order"},
    {"image", read_image, "what a baked image has"},
    {"unit", read_unit, "a unit's name"},
    {"launch", read_launch, "32 hex digits"},
    {"proof", read_proof, "32 hex digits"},
    {"deadline", read_deadline, "32 hex digits"},
};

void tags_init(struct tags *t) {
    *t = (struct tags){.slot_first = -1, .price_usd_per_h = -1};
    char **texts[] = {&t->owner,   &t->stack,        &t->uid,   &t->spec_hash, &t->hostkey, &t->launch,
                      &t->regions, &t->more_regions, &t->image, &t->unit,      &t->proof,   &t->deadline};
    for (size_t i = 0; i < GP_ARRAY_LEN(texts); i++) resource_set(texts[i], "");
}

void tags_clear(struct tags *t) {
    char *texts[] = {t->owner,   t->stack,        t->uid,   t->spec_hash, t->hostkey, t->launch,
                     t->regions, t->more_regions, t->image, t->unit,      t->proof,   t->deadline};
    for (size_t i = 0; i < GP_ARRAY_LEN(texts); i++) free(texts[i]);
    *t = (struct tags){.slot_first = -1, .price_usd_per_h = -1};
}

void tags_complain(struct tags *t, const char *key, const char *why) {
    if (t->bad[0] != '\0') return;
    snprintf(t->bad, sizeof t->bad, "its tag '%s' is not %s", key, why);
}

static void read_one_more_region(struct tags *t, const char *name, const char *value) {
    GP_AUTO_STRV struct strv all = {0};
    if (!form_word(name) || strcmp(value, TAGS_YES) != 0) {
        tags_complain(t, TAGS_REGION, "the name of a region with the value 1");
        return;
    }
    if (strcmp(t->more_regions, TAGS_EVERYWHERE) == 0) return; /* more than one value can hold */
    tags_regions_split(t->more_regions, &all);
    strv_add(&all, name);
    GP_AUTO_FREE char *text = tags_regions_text(&all);
    resource_set(&t->more_regions, text);
}

void tags_read(struct tags *t, const char *key, const char *value) {
    if (str_starts(key, TAGS_REGION)) read_one_more_region(t, key + strlen(TAGS_REGION), value);
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        if (strcmp(rows[i].key, key) != 0) continue;
        if (t->seen & 1u << i) tags_complain(t, key, "set only once");
        else if (!rows[i].read(t, value)) tags_complain(t, key, rows[i].want);
        t->seen |= 1u << i;
    }
}

bool tags_identify(const struct tags *t) { return t->owner[0] != '\0' && t->stack[0] != '\0' && t->uid[0] != '\0'; }

void tags_to_resource(const struct tags *t, int launch_index, struct resource *r) {
    bool known = tags_identify(t);
    resource_set(&r->owner, known ? t->owner : "");
    resource_set(&r->stack, known ? t->stack : "");
    resource_set(&r->uid, known ? t->uid : "");
    resource_set(&r->unit, known ? t->unit : "");
    resource_set(&r->spec_hash, t->spec_hash);
    resource_set(&r->host_keys, t->hostkey);
    resource_set(&r->launch, t->launch);
    resource_set(&r->proof, t->proof);
    resource_set(&r->deadline, t->deadline);
    r->slot_first = t->slot_first;
    r->slot_count = t->slot_count;
    GP_AUTO_FREE char *regions = tags_regions(t);
    resource_set(&r->regions, t->claim ? regions : "");
    if (t->image[0] != '\0') resource_set(&r->image, t->image);
    r->attempt = t->attempt;
    r->claim = t->claim;
    r->expires_s = t->expires_s;
    if (t->created_s > 0) r->created_s = t->created_s;
    if (t->price_usd_per_h >= 0) r->price_usd_per_h = t->price_usd_per_h;
    bool within = launch_index >= 0 && launch_index < t->slot_count;
    r->slot = within ? t->slot_first + launch_index : -1;
    const char *why = t->bad;
    if (why[0] == '\0' && !known) why = "it has no tags of a stack";
    if (why[0] == '\0' && launch_index >= t->slot_count && t->slot_count > 0)
        why = "its launch index is not within its tag 'slots'";
    resource_set(&r->unreadable, why);
}

bool tags_is_key(const char *key) {
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++)
        if (strcmp(rows[i].key, key) == 0) return true;
    return false;
}

/* --- encoding --- */

void tags_of_stack(struct tags *t, const struct stack *s) {
    tags_init(t);
    resource_set(&t->owner, s->owner);
    resource_set(&t->stack, s->name);
    resource_set(&t->uid, s->uid);
    resource_set(&t->spec_hash, s->spec_hash);
    resource_set(&t->unit, s->unit);
    t->expires_s = s->expires_s;
}

void tags_of_launch(struct tags *t, const struct stack *s, const struct proof_key *key, int slot_first, int slot_count,
                    int attempt, double price_usd_per_h) {
    char launch[PROOF_SIZE], deadline[PROOF_SIZE];
    tags_of_stack(t, s);
    t->slot_first = slot_first;
    t->slot_count = slot_count;
    t->attempt = attempt;
    t->price_usd_per_h = price_usd_per_h;
    proof_of_launch(key, s->uid, slot_first, slot_count, attempt, launch);
    proof_of_deadline(key, s->uid, s->expires_s, deadline);
    resource_set(&t->launch, launch);
    resource_set(&t->deadline, deadline);
}

void tags_each(const struct tags *t, void (*each)(void *ctx, const char *key, const char *value), void *ctx) {
    char text[32];
    GP_AUTO_STRV struct strv more = {0};
    const struct {
        const char *key, *value;
    } texts[] = {{"owner", t->owner},     {"stack", t->stack},     {"uid", t->uid},          {"spec", t->spec_hash},
                 {"hostkey", t->hostkey}, {"regions", t->regions}, {"image", t->image},      {"unit", t->unit},
                 {"launch", t->launch},   {"proof", t->proof},     {"deadline", t->deadline}};
    for (size_t i = 0; i < GP_ARRAY_LEN(texts); i++)
        if (texts[i].value[0] != '\0') each(ctx, texts[i].key, texts[i].value);
    const struct {
        const char *key;
        int64_t at_s;
    } times[] = {{"created", t->created_s}, {"expires", t->expires_s}};
    for (size_t i = 0; i < GP_ARRAY_LEN(times); i++) {
        if (times[i].at_s <= 0) continue;
        time_format_utc(text, sizeof text, times[i].at_s);
        each(ctx, times[i].key, text);
    }
    if (t->slot_count > 0) {
        tags_slots_text(text, sizeof text, t->slot_first, t->slot_count);
        each(ctx, "slots", text);
    }
    if (t->slot_count > 0 || t->attempt > 0) {
        snprintf(text, sizeof text, "%d", t->attempt);
        each(ctx, "attempt", text);
    }
    if (t->slot_count > 0 || t->price_usd_per_h >= 0) {
        tags_price_text(text, sizeof text, t->price_usd_per_h);
        each(ctx, "price", text);
    }
    if (t->claim) each(ctx, "claim", TAGS_YES);
    if (strcmp(t->more_regions, TAGS_EVERYWHERE) == 0) return; /* too many to store: only a reader has that */
    tags_regions_split(t->more_regions, &more);
    for (size_t i = 0; i < more.n; i++) {
        GP_AUTO_FREE char *key = xasprintf(TAGS_REGION "%s", more.v[i]);
        each(ctx, key, TAGS_YES);
    }
}

void tags_slots_text(char *dst, size_t n, int first, int count) { snprintf(dst, n, "%d+%d", first, count); }

void tags_price_text(char *dst, size_t n, double usd_per_h) {
    if (usd_per_h >= 0 && usd_per_h <= PRICE_MAX_USD) snprintf(dst, n, "%.6g", usd_per_h);
    else str_put(dst, n, "");
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

char *tags_regions(const struct tags *t) {
    GP_AUTO_STRV struct strv all = {0};
    bool some = tags_regions_split(t->regions, &all);
    if (!some || t->more_regions[0] == '\0') return xstrdup(t->regions);
    return tags_regions_split(t->more_regions, &all) ? tags_regions_text(&all) : xstrdup(TAGS_EVERYWHERE);
}

char *tags_regions_text(const struct strv *regions) {
    GP_AUTO_STRV struct strv sorted = {0};
    for (size_t i = 0; i < regions->n; i++)
        if (!strv_has(&sorted, regions->v[i])) strv_add(&sorted, regions->v[i]);
    if (sorted.n > 1) qsort(sorted.v, sorted.n, sizeof *sorted.v, by_name);
    char *text = sorted.n > 0 ? strv_join(&sorted, " ") : xstrdup(TAGS_EVERYWHERE);
    if (strlen(text) <= TAGS_VALUE_MAX) return text;
    free(text);
    return xstrdup(TAGS_EVERYWHERE);
}

bool tags_regions_split(const char *text, struct strv *ret) {
    if (text == NULL || text[0] == '\0' || strcmp(text, TAGS_EVERYWHERE) == 0) return false;
    strv_split(ret, text, " ");
    return true;
}

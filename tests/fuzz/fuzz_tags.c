/* SPDX-License-Identifier: Apache-2.0 */
/* The tags codec with tags that anybody wrote: lines "KEY=VALUE", read as tags and as labels of each cloud. What comes
 * out has its form or is not there, so that no path, shell word or host key can be made of anything else; and what
 * was read in full is the same after it went through a cloud's labels. */
#include "base/gp_base.h"

#include "base/form.h"
#include "model/labels.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds) {
    if (!holds) abort();
}

static void look(const struct tags *t, int index) {
    struct resource r;
    resource_init(&r, RES_INSTANCE, "aws");
    tags_to_resource(t, index, &r);
    bool who = r.uid[0] != '\0';
    must(who == (r.owner[0] != '\0') && who == (r.stack[0] != '\0'));
    must(!who || (form_uid(r.uid) && form_owner(r.owner) && form_stack(r.stack)));
    must(who || r.unreadable[0] != '\0');
    must(r.spec_hash[0] == '\0' || form_spec_hash(r.spec_hash));
    must(r.host_keys[0] == '\0' || form_fingerprint(r.host_keys));
    must(r.slot >= -1 && r.slot < TAGS_SLOTS_MAX && r.attempt >= 0);
    must(r.price_usd_per_h == r.price_usd_per_h && r.expires_s >= 0 && r.created_s >= 0);
    for (const char *p = r.unreadable; *p != '\0'; p++) must((unsigned char)*p >= ' ' && (unsigned char)*p < 0x7f);
    GP_AUTO_STRV struct strv names = {0};
    if (tags_regions_split(r.regions, &names))
        for (size_t i = 0; i < names.n; i++) must(form_word(names.v[i]));
    strv_clear(&names);
    GP_AUTO_FREE char *all = tags_regions(t);
    if (tags_regions_split(all, &names))
        for (size_t i = 0; i < names.n; i++) must(form_word(names.v[i]));
    resource_clear(&r);
}

static void same(const struct tags *a, const struct tags *b) {
    must(str_eq(a->owner, b->owner) && str_eq(a->stack, b->stack) && str_eq(a->uid, b->uid));
    must(str_eq(a->spec_hash, b->spec_hash) && str_eq(a->hostkey, b->hostkey) && str_eq(a->regions, b->regions));
    must(str_eq(a->unit, b->unit));
    must(str_eq(a->more_regions, b->more_regions) && a->claim == b->claim && a->attempt == b->attempt);
    must(a->created_s == b->created_s && a->expires_s == b->expires_s);
    must(a->slot_first == b->slot_first && a->slot_count == b->slot_count);
}

static void through(const struct label_limits *limits, const struct tags *t) {
    GP_AUTO_LABELS struct label_list labels = {0};
    struct tags again;
    if (t->bad[0] != '\0' || strcmp(t->more_regions, TAGS_EVERYWHERE) == 0) return;
    bool fits = labels_write(limits, t, &labels);
    labels_read(limits, &labels, &again);
    must(again.bad[0] == '\0');
    same(t, &again);
    for (size_t i = 0; i < labels.list.len && fits && limits->coded; i++)
        must(strspn(labels.list.items[i].value, "abcdefghijklmnopqrstuvwxyz0123456789_-") ==
             strlen(labels.list.items[i].value));
    tags_clear(&again);
}

static const struct label_limits *const clouds[] = {&labels_ec2, &labels_gcp};

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    GP_AUTO_LABELS struct label_list lines = {0};
    GP_AUTO_FREE char *text = xstrndup((const char *)data, size);
    struct tags t;
    tags_init(&t);
    for (char *line = text, *next = NULL; line != NULL && *line != '\0'; line = next) {
        next = strchr(line, '\n');
        if (next != NULL) *next++ = '\0';
        char *eq = strchr(line, '=');
        if (eq == NULL) continue;
        *eq = '\0';
        tags_read(&t, line, eq + 1);
        if (lines.list.len < 200) labels_add(&lines, line, eq + 1);
    }
    for (int i = -1; i < 3; i++) look(&t, i);
    for (size_t c = 0; c < GP_ARRAY_LEN(clouds); c++) {
        struct tags of_labels;
        through(clouds[c], &t);
        labels_read(clouds[c], &lines, &of_labels);
        look(&of_labels, 0);
        through(clouds[c], &of_labels);
        tags_clear(&of_labels);
    }
    tags_clear(&t);
    return 0;
}

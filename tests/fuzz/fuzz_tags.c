/* SPDX-License-Identifier: Apache-2.0 */
/* The tags codec with tags that anybody wrote: lines "KEY=VALUE". What comes out has its form or is not there,
 * so that no path, shell word or host key can be made of anything else. */
#include "base/gp_base.h"

#include "base/form.h"
#include "model/tags.h"

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
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
    }
    for (int i = -1; i < 3; i++) look(&t, i);
    tags_clear(&t);
    return 0;
}

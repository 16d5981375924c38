/* SPDX-License-Identifier: Apache-2.0 */
/* Credentials files of AWS, Alibaba Cloud and gcloud as another program could leave them. */
#include "base/gp_base.h"

#include "base/error.h"
#include "base/ini.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    GP_AUTO_FREE char *text = xstrndup((const char *)data, size);
    GP_AUTO_INI struct ini ini = {0};
    struct gp_error err = {0};
    if (ini_parse("fuzz", text, &ini, &err) != 0) return 0;
    (void)ini_get(&ini, "default", "aws_access_key_id");
    for (size_t i = 0; i < ini.entries.len; i++) {
        const struct ini_entry *e = &ini.entries.items[i];
        if (!ini_has_section(&ini, e->section)) abort();
        if (e->key[0] != '\0' && ini_get(&ini, e->section, e->key) == NULL) abort();
    }
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The certificate decoder: the input as a file, and the input as a payload that somebody who holds a key
 * signed, so that what lies behind the signature is reached too. What is read names a boot, a run, a
 * verdict that certifies something, and is compared with a machine without harm. */
#include "base/gp_base.h"

#include "base/json.h"
#include "model/certificate.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* The same key in every process: findings repeat. */
static const char key_pem[] = "-----BEGIN PRIVATE KEY-----\n"
                              "MC4CAQAwBQYDK2VwBCIEIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f\n"
                              "-----END PRIVATE KEY-----\n";

static void look(const char *text, size_t n, bool must_read_if_signed) {
    struct certificate c = {0};
    struct gp_error err = {0};
    int r = certificate_read(text, n, &c, &err);
    if (r != 0) {
        if (r != -GP_EPROTO || err.code != GP_EPROTO || c.payload != NULL) abort();
        if (must_read_if_signed && str_eq(err.detail, "SIGNATURE")) abort();
        return;
    }
    if (c.boot_id[0] == '\0' || c.run[0] == '\0' || c.verdict > VERDICT_DEGRADED || c.key.base64[0] == '\0') abort();
    struct machine m = {0};
    str_put(m.boot_id, sizeof m.boot_id, c.boot_id);
    strv_add(&m.gpus, "GPU-0");
    struct gp_error why = {0};
    if (certificate_same_machine(&c, &m, &why) == 0 && (c.gpus.n == 0 || c.driver[0] != '\0')) abort();
    machine_clear(&m);
    certificate_clear(&c);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    GP_AUTO_FREE char *text = xstrndup((const char *)data, size); /* for strlen's sake inside */
    look((const char *)data, size, false);
    static struct sign_key key;
    struct gp_error err = {0};
    if (key.pem.len == 0 && sign_key_load(key_pem, sizeof key_pem - 1, &key, &err) != 0) abort();
    GP_AUTO_JSON json_t *j = json_loadb(text, strlen(text), 0, NULL);
    if (!json_is_object(j)) return 0;
    json_object_set_new(j, "key", json_pack("{s:s}", "public", key.pub.base64));
    GP_AUTO_FREE char *payload = json_text(j, 0), *file = NULL;
    if (payload == NULL || certificate_sign(payload, strlen(payload), &key, &file, &err) != 0) abort();
    look(file, strlen(file), true);
    return 0;
}

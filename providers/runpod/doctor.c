/* SPDX-License-Identifier: Apache-2.0 */
/* What the verb doctor reports of runpod: the key's source, and whether it may list pods, by the list itself, which is
 * free. One thread. */
#include "base/gp_base.h"

#include "providers/runpod/runpod_int.h"

int runpod_doctor(struct str *text, bool *ret_usable, struct gp_error *err) {
    struct provider_env env = {.state_dir = ""};
    struct provider *p = NULL;
    struct gp_error why = {0};
    GP_AUTO_RESOURCES struct resource_list pods = {0};
    *ret_usable = false;
    int rc = provider_runpod.open(&env, &p, &why);
    if (rc != 0 && provider_no_credentials(&why)) {
        str_add(text, why.msg);
        return 0;
    }
    struct list_req req = {.owner = p != NULL ? p->owner : ""};
    if (rc == 0) rc = runpod_list(p, &req, &pods, &why);
    if (rc == 0) {
        str_addf(text, "API key of %s\nowner %s, %zu pod%s of gpuprov", runpod_of(p)->key.source, p->owner,
                 pods.list.len, pods.list.len == 1 ? "" : "s");
        *ret_usable = true;
    } else if (err != NULL) {
        *err = why;
    }
    provider_runpod.close(p);
    return rc;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Terminates pods: their disks and addresses go with them. A missing pod is success. One thread. */
#include "base/gp_base.h"

#include "providers/runpod/runpod_int.h"

#include "base/form.h"
#include "providers/common/ownership.h"

int runpod_destroy(struct provider *p, const struct resource_list *what, struct gp_error *err) {
    struct runpod *r = runpod_of(p);
    struct gp_error first = {0};
    size_t n = 0;
    struct rest_call *calls = xcalloc(what->list.len + 1, sizeof *calls);
    struct rest_result *results = xcalloc(what->list.len + 1, sizeof *results);
    char **texts = xcalloc(2 * what->list.len + 1, sizeof *texts);
    for (size_t i = 0; i < what->list.len; i++) {
        const struct resource *one = &what->list.items[i];
        struct gp_error e = {0};
        if (one->kind != RES_INSTANCE || one->state == RES_GONE) continue;
        if (!cloud_is_ours(p, one)) {
            gp_fail(&e, GP_EUSAGE, "runpod: %s belongs to '%s', not to '%s': left alone", one->id, one->owner,
                    p->owner);
        } else if (!form_word(one->id)) { /* it becomes a URL */
            gp_fail(&e, GP_EUSAGE, "runpod: '%.60s' is not the id of a pod: left alone", one->id);
        } else {
            texts[2 * n] = xasprintf("runpod terminate pod %s", one->id);
            texts[2 * n + 1] = xasprintf("%s/pods/%s", r->url, one->id);
            calls[n] = (struct rest_call){
                .what = texts[2 * n], .method = "DELETE", .url = texts[2 * n + 1], .flags = REST_MISSING};
            n++;
        }
        if (e.code != GP_OK && first.code == GP_OK) first = e;
    }
    rest_call_many(&r->rest, calls, n, RUNPOD_AT_ONCE, results);
    for (size_t i = 0; i < n; i++) {
        if (results[i].rc != 0 && first.code == GP_OK) first = results[i].err;
        rest_reply_clear(&results[i].reply);
        free(texts[2 * i]);
        free(texts[2 * i + 1]);
    }
    free(texts);
    free(results);
    free(calls);
    if (first.code == GP_OK) return 0;
    if (err != NULL) *err = first;
    return -(int)first.code;
}

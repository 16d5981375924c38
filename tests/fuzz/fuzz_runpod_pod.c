// SPDX-License-Identifier: Apache-2.0
/* RunPod's replies as a hostile or broken server could send them: lists of pods, and errors. */
#include "base/gp_base.h"

#include "providers/runpod/runpod_int.h"

#include "base/form.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Whatever a pod has: an id that may become a path, an address that may become an argument. */
static void read_pod(const json_t *pod) {
    struct runpod_pod p;
    struct gp_error err = {0};
    if (runpod_pod_read(pod, &p, &err) == 0) {
        const struct resource *r = &p.res;
        if (!form_word(r->id) || !form_word(r->region)) abort();
        if (r->public_ip[0] != '\0' && (!form_host(r->public_ip) || r->ssh_port == 0)) abort();
        if (r->private_ip[0] != '\0' && !form_address(r->private_ip)) abort();
        if (r->billed != (r->state != RES_GONE)) abort();
        if (r->unreadable[0] != '\0' && r->uid[0] != '\0' && !form_uid(r->uid)) abort();
    }
    runpod_pod_clear(&p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    GP_AUTO_JSON json_t *j = NULL;
    struct http_resp resp = {.status = 400};
    struct cloud_said said = {"", "", ""};
    struct gp_error err = {0};
    size_t i = 0;
    json_t *pod = NULL;
    if (json_parse((const char *)data, size, "the reply", &j, NULL) != 0) return 0;
    read_pod(j);
    json_array_foreach(json_at(j, "pods"), i, pod) read_pod(pod);
    runpod_said(&resp, j, &said);
    if (said.code[0] != '\0')
        cloud_fail(&err, "fuzz", &said, cloud_error_find(runpod_errors, runpod_error_count, &said));
    return 0;
}

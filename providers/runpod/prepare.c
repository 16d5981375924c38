/* SPDX-License-Identifier: Apache-2.0 */
/* The claim of a stack: RunPod keeps no name unique, so the stack's pods carry its uid. A stack that has pods
 * gets the uid of its pods. A stack without pods gets the uid of the journal, else a new one. After the launch create.c
 * settles which of two simultaneous runs keeps its pods. One thread. */
#include "base/gp_base.h"

#include "providers/runpod/runpod_int.h"

#include "base/clock.h"
#include "base/form.h"
#include "base/fs.h"

/* The uid of the oldest pod; "": the stack has none. */
static int uid_of_pods(struct runpod *r, const struct stack *s, char ret[17], struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list pods = {0};
    const struct resource *first = NULL;
    int rc = runpod_list_stack(r, s->owner, s->name, &pods, err);
    for (size_t i = 0; rc == 0 && i < pods.list.len; i++) {
        const struct resource *p = &pods.list.items[i];
        bool older = first == NULL || p->created_s < first->created_s ||
                     (p->created_s == first->created_s && strcmp(p->id, first->id) < 0);
        if (older) first = p;
    }
    ret[0] = '\0';
    if (first != NULL) str_put(ret, 17, first->uid);
    return rc;
}

/* Of a stack without pods: what this machine remembers, or a new uid, which is written at once. */
static int own_uid(struct runpod *r, struct stack *s, struct gp_error *err) {
    struct stack known = {0};
    struct gp_error why = {0};
    char uid[17];
    int rc = journal_stack_get(r->journal, s->owner, s->name, &known, NULL, &why);
    if (rc == 0 && form_uid(known.uid)) s->uid = xstrdup(known.uid);
    stack_clear(&known);
    if (s->uid != NULL) return 0;
    if (rc != 0 && rc != -GP_ENOTFOUND) return gp_fail(err, why.code, "%s", why.msg);
    rc = fs_random_hex(uid, 8, err);
    if (rc != 0) return rc;
    s->uid = xstrdup(uid);
    s->created_s = clock_wall_s() + r->base.clock_skew_s;
    return journal_stack_put(r->journal, s, NULL, err);
}

/* The home: the first data center of the spec. */
static void set_region(const struct prepare_req *req) {
    struct stack *s = req->stack;
    const char *region = RUNPOD_ANYWHERE;
    if (s->region != NULL && s->region[0] != '\0') return;
    for (size_t i = req->spec->offers.len; i-- > 0;) {
        const struct spec_offer *o = &req->spec->offers.items[i];
        if (str_eq(o->provider, "runpod") && o->regions.n > 0) region = o->regions.v[0];
    }
    free(s->region);
    s->region = xstrdup(region);
}

int runpod_prepare(struct provider *p, const struct prepare_req *req, struct gp_error *err) {
    struct runpod *r = runpod_of(p);
    struct stack *s = req->stack;
    char uid[17];
    if (req->known != NULL) return 0; /* nobody can be kept from a pod's port, and its variables are fixed */
    set_region(req);
    int rc = uid_of_pods(r, s, uid, err);
    if (rc != 0) return gp_wrap(err, "claim of stack '%s'", s->name);
    if (uid[0] != '\0') {
        free(s->uid);
        s->uid = xstrdup(uid);
        return 0;
    }
    return s->uid != NULL ? 0 : own_uid(r, s, err);
}

// SPDX-License-Identifier: Apache-2.0
/* Baked images: made of a stopped instance with CreateImage, listed by their tags, chosen for a spec. An image's name
 * is unique in its account and region and has the stack's uid, so a repeated request cannot make a second image. It
 * also has a part that only the owner's key can make, so nobody else can take the name first. One thread. */
#include "base/gp_base.h"

#include "providers/aws/aws_int.h"

#include "base/clock.h"
#include "base/form.h"
#include "base/json.h"
#include "model/image.h"
#include "providers/common/intents.h"

#define STOP_MS (10 * 60 * 1000)
#define POLL_MS 3000

/* --- list --- */

struct listing {
    const char *region;
    struct resource_list *out;
};

static int read_common(struct listing *l, const struct xml_node *item, enum resource_kind kind, const char *id_path,
                       const char *prefix, struct resource *ret, struct gp_error *err) {
    struct tags tags;
    const char *id = xml_str(item, id_path, "");
    resource_init(ret, kind, "aws");
    aws_tags_decode(item, &tags);
    tags_to_resource(&tags, -1, ret);
    tags_clear(&tags);
    resource_set(&ret->region, l->region);
    resource_set(&ret->id, id);
    if (ret->unreadable[0] == '\0' && ret->image[0] == '\0')
        resource_set(&ret->unreadable, "it has no tag of what it has");
    if (ret->unreadable[0] != '\0') { /* never used, never removed */
        resource_set(&ret->owner, "");
        resource_set(&ret->stack, "");
        resource_set(&ret->uid, "");
    }
    if (form_ec2_id(id, prefix)) return 0;
    return gp_fail(err, GP_EPROTO, "ec2 in %s: a reply has an id that is not an EC2 id (%s...)", l->region, prefix);
}

static void push(struct listing *l, struct resource *r, int rc) {
    if (rc == 0) vec_push(&l->out->list, *r);
    else resource_clear(r);
}

/* The disks of the image. */
static void read_snapshots(const struct xml_node *item, struct resource *ret) {
    GP_AUTO_STRV struct strv ids = {0};
    const struct xml_node *set = xml_find(item, "blockDeviceMapping");
    for (size_t i = 0; set != NULL && i < set->children.len; i++) {
        const char *id = xml_str(set->children.items[i], "ebs/snapshotId", "");
        if (form_ec2_id(id, "snap-") && ids.n < AWS_DISKS_MAX + 1) strv_add(&ids, id);
    }
    GP_AUTO_FREE char *all = strv_join(&ids, " ");
    resource_set(&ret->snapshots, all);
}

/* EC2 describes the snapshots of CreateImage: "Created by CreateImage(i-0123) for ami-0456". */
static void read_of_image(const struct xml_node *item, struct resource *ret) {
    static const char begin[] = "Created by CreateImage(", middle[] = ") for ";
    const char *text = xml_str(item, "description", ""), *at = strstr(text, middle);
    if (!str_starts(text, begin) || at == NULL) return;
    at += strlen(middle);
    GP_AUTO_FREE char *id = xstrndup(at, strcspn(at, " "));
    if (form_ec2_id(id, "ami-")) resource_set(&ret->of_image, id);
}

static int on_image(void *ctx, const struct xml_node *item, struct gp_error *err) {
    struct listing *l = ctx;
    struct resource r;
    const char *state = xml_str(item, "imageState", "");
    int rc = read_common(l, item, RES_IMAGE, "imageId", "ami-", &r, err);
    static const char *const of_no_use[] = {"failed", "error", "invalid", NULL}; /* gc removes them */
    bool failed = false;
    for (size_t i = 0; of_no_use[i] != NULL; i++) failed = failed || strcmp(state, of_no_use[i]) == 0;
    r.state = strcmp(state, "available") == 0      ? RES_RUNNING
              : strcmp(state, "deregistered") == 0 ? RES_GONE
              : failed                             ? RES_STOPPED
                                                   : RES_PENDING; /* also transient, disabled and unknown ones */
    const char *reason = xml_str(item, "stateReason/message", "");
    bool plain = r.state == RES_RUNNING || strcmp(state, "pending") == 0;
    resource_set(&r.state_reason, !plain && reason[0] == '\0' ? state : reason);
    str_one_line(r.state_reason);
    r.billed = r.state != RES_GONE;
    r.price_usd_per_h = -1;
    int64_t made_s = 0; /* not the tag: the newest image is chosen */
    if (time_parse_utc(xml_str(item, "creationDate", ""), &made_s)) r.created_s = made_s;
    read_snapshots(item, &r);
    push(l, &r, rc);
    return rc;
}

static int on_snapshot(void *ctx, const struct xml_node *item, struct gp_error *err) {
    struct listing *l = ctx;
    struct resource r;
    const char *status = xml_str(item, "status", "");
    int rc = read_common(l, item, RES_SNAPSHOT, "snapshotId", "snap-", &r, err);
    r.state = strcmp(status, "pending") == 0 ? RES_PENDING : strcmp(status, "error") == 0 ? RES_STOPPED : RES_RUNNING;
    r.billed = true;
    r.price_usd_per_h = -1;
    read_of_image(item, &r);
    push(l, &r, rc);
    return rc;
}

/* What the list shows is a claim: the journal and the proofs decide. */
static int mark_ours(const struct aws *a, struct resource_list *listed, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list records = {0};
    int r = a->journal != NULL ? journal_resources(a->journal, IMAGE_RECORD_UID, &records, err) : 0;
    if (r == 0) image_mark_ours(listed, &records, &a->image_key);
    return r;
}

int aws_list_images(struct aws *a, const char *region, const char *owner, struct resource_list *ret,
                    struct gp_error *err) {
    struct listing l = {.region = region, .out = ret};
    struct aws_wanted w = {.owner = owner};
    GP_AUTO_STR struct str images = {0}, snapshots = {0};
    aws_begin(&images, "DescribeImages");
    aws_param(&images, "Owner.1", "self");
    aws_tag_filters(&images, 1, &w);
    int r = aws_describe(a, region, "DescribeImages", &images, 0, "imagesSet", on_image, &l, err);
    if (r != 0) return r;
    aws_begin(&snapshots, "DescribeSnapshots");
    aws_param(&snapshots, "Owner.1", "self");
    aws_tag_filters(&snapshots, 1, &w);
    r = aws_describe(a, region, "DescribeSnapshots", &snapshots, 1000, "snapshotSet", on_snapshot, &l, err);
    return r == 0 ? mark_ours(a, ret, err) : r;
}

/* --- choice --- */

int aws_image_baked(struct aws *a, const char *region, const struct spec *spec, const struct spec_image *want,
                    const struct aws_type *type, char **ret_id, char **ret_why, struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list all = {0};
    struct image_facts facts;
    int r = aws_list_images(a, region, a->base.owner, &all, err);
    if (r != 0) return r;
    for (size_t i = 0; i < all.list.len; i++) /* a filter that the endpoint ignored shows others' images */
        if (!str_eq(all.list.items[i].owner, a->base.owner)) all.list.items[i].state = RES_GONE;
    image_facts_wanted(spec, want, strcmp(type->arch, "arm64") == 0 ? "aarch64" : type->arch, &facts);
    const struct resource *best = image_choose(&all, &facts, "aws", region, spec->name, NULL, ret_why);
    if (best != NULL) *ret_id = xstrdup(best->id);
    return 0;
}

/* --- make --- */

#define NAME_PROOF 16 /* hex digits of the token in an image's name */

/* 3 to 128 of letters, digits and ()[] ./-'@_ . A name that only holders of the key can know: an image that has it
 * came of this request. */
static char *image_name(const struct aws *a, const struct image_req *q) {
    char token[PROOF_TOKEN_SIZE];
    GP_AUTO_FREE char *text = xasprintf("image %s %s", q->name, q->stack->uid);
    proof_token(&a->image_key, text, token);
    return xasprintf("gpuprov-%s-%s-%.*s", q->name, q->stack->uid, NAME_PROOF, token);
}

static void add_tags(struct str *body, int n, const char *type, const char *name, const struct image_req *q,
                     int64_t now_s) {
    struct tags tags;
    tags_of_stack(&tags, q->stack);
    resource_set(&tags.stack, q->name);
    resource_set(&tags.image, q->facts);
    tags.created_s = now_s;
    tags.expires_s = 0; /* it outlives its stack */
    aws_tags_encode(body, n, type, name, &tags);
    tags_clear(&tags);
}

/* EC2 stops an instance that a shutdown from inside would terminate; its disk is at rest then. */
static int stop(struct aws *a, const struct resource *node, struct gp_error *err) {
    GP_AUTO_STR struct str body = {0};
    GP_AUTO_REPLY struct aws_reply reply = {0};
    int64_t until = clock_deadline(STOP_MS);
    aws_begin(&body, "StopInstances");
    aws_param(&body, "InstanceId.1", node->id);
    int r = aws_ec2(a, node->region, "StopInstances", &body, 0, &reply, err);
    while (r == 0) {
        GP_AUTO_RESOURCES struct resource_list seen = {0};
        struct aws_wanted w = {.owner = node->owner, .uid = node->uid};
        r = aws_list_instances(a, node->region, &w, &seen, err);
        for (size_t i = 0; r == 0 && i < seen.list.len; i++) {
            const struct resource *s = &seen.list.items[i];
            if (strcmp(s->id, node->id) != 0) continue;
            if (s->state == RES_STOPPED) return 0;
            if (s->state == RES_GONE)
                return gp_fail(err, GP_EREACH, "aws: %s terminated before its image was made", node->id);
        }
        if (r == 0 && clock_left_ms(until) == 0)
            r = gp_fail(err, GP_ETIMEOUT, "aws: %s did not stop within 10 minutes: its image was not requested",
                        node->id);
        if (r == 0) r = gp_sleep(POLL_MS, a->cancel, err);
    }
    return r;
}

/* What the intent keeps of the request, because tags may be edited before its outcome is known. */
static char *asked_json(const struct image_req *q) {
    GP_AUTO_JSON json_t *j = json_pack("{s:s, s:s}", "image", q->facts, "node", q->node->id);
    return json_text(j, 0);
}

struct asked {
    const struct intent *in;
    char *facts, *node;
};

static int asked_read(const struct intent *in, struct asked *ret, struct gp_error *err) {
    GP_AUTO_JSON json_t *j = NULL;
    struct image_facts facts;
    const char *text = in->offer != NULL ? in->offer : "";
    if (text[0] != '\0' && json_parse(text, strlen(text), "intent", &j, NULL) != 0) j = NULL;
    *ret = (struct asked){in, xstrdup(json_str(j, "image", "")), xstrdup(json_str(j, "node", ""))};
    if (image_facts_parse(&facts, ret->facts)) return 0;
    return gp_fail(err, GP_ENOTFOUND, "the request of the image '%s' is of an earlier version of gpuprov", in->token);
}

static void asked_clear(struct asked *w) {
    free(w->facts);
    free(w->node);
}
#define GP_AUTO_ASKED GP_CLEANUP(asked_clear)

struct named {
    struct listing all;
    const struct asked *asked;
};

/* The name has a part that nobody else could know before the request. Its source, where EC2 states it, is the node. */
static int on_named(void *ctx, const struct xml_node *item, struct gp_error *err) {
    struct named *n = ctx;
    const char *from = xml_str(item, "sourceInstanceId", "");
    if (strcmp(xml_str(item, "name", ""), n->asked->in->token) != 0) return 0;
    if (from[0] != '\0' && strcmp(from, n->asked->node) != 0) return 0;
    return on_image(&n->all, item, err);
}

/* What the reply names and the list will show: the facts are those of the request, whatever the tags are by now. */
static void made(const struct asked *w, const struct image_req *q, const char *id, struct resource *ret) {
    resource_init(ret, RES_IMAGE, "aws");
    resource_set(&ret->id, id);
    resource_set(&ret->region, w->in->region);
    resource_set(&ret->owner, q->stack->owner);
    resource_set(&ret->stack, q->name);
    resource_set(&ret->uid, w->in->uid);
    resource_set(&ret->image, w->facts);
    ret->state = RES_PENDING;
    ret->billed = true;
    ret->ours = true;
}

/* The image of the request, in a list that may lag. *ret_found. */
static int find(struct aws *a, const struct asked *w, const struct image_req *q, bool wait, struct resource *ret,
                bool *ret_found, struct gp_error *err) {
    int64_t until = clock_deadline(wait ? provider_aws.settle_ms : 0);
    for (;;) {
        GP_AUTO_RESOURCES struct resource_list all = {0};
        GP_AUTO_STR struct str body = {0};
        struct named n = {{.region = w->in->region, .out = &all}, w};
        aws_begin(&body, "DescribeImages");
        aws_param(&body, "Owner.1", "self");
        aws_filter(&body, 1, "name", w->in->token);
        int r = aws_describe(a, w->in->region, "DescribeImages", &body, 0, "imagesSet", on_named, &n, err);
        for (size_t i = 0; r == 0 && i < all.list.len && !*ret_found; i++) {
            const struct resource *s = &all.list.items[i];
            if (s->state == RES_GONE) continue;
            made(w, q, s->id, ret);
            ret->state = s->state;
            resource_set(&ret->state_reason, s->state_reason);
            resource_set(&ret->snapshots, s->snapshots);
            *ret_found = true;
        }
        if (r != 0 || *ret_found || clock_left_ms(until) == 0) return r;
        r = gp_sleep(POLL_MS, a->cancel, err);
        if (r != 0) return r;
    }
}

/* After a lost reply the same request is sent again: it cannot make a second image of that name. A name that is taken
 * is settled by the list. */
static int request(struct aws *a, const struct asked *w, const struct image_req *q, struct resource *ret,
                   struct gp_error *err) {
    const struct intent *in = w->in;
    struct gp_error why = {0};
    bool found = false;
    for (int tries = 0; tries < 2; tries++) {
        GP_AUTO_STR struct str body = {0};
        GP_AUTO_REPLY struct aws_reply reply = {0};
        gp_error_clear(&why);
        str_add(&body, in->body);
        int r = aws_ec2(a, in->region, "CreateImage", &body, AWS_ONCE, &reply, &why);
        const char *id = xml_str(reply.xml, "imageId", "");
        if (r == 0 && form_ec2_id(id, "ami-")) {
            made(w, q, id, ret);
            return 0;
        }
        if (r == 0) r = gp_fail(&why, GP_EUNKNOWN, "ec2 CreateImage in %s: no id in the reply", in->region);
        if (r != -GP_EUNKNOWN) break;
    }
    if (why.code == GP_EEXISTS || why.code == GP_EUNKNOWN) {
        struct gp_error list = {0};
        if (find(a, w, q, true, ret, &found, &list) != 0) why = list;
        if (found) return 0;
    }
    if (err != NULL) *err = why;
    return -(int)why.code;
}

/* The record outlives the stack and the intent: from now on this machine knows the image as its own. */
static int commit(struct aws *a, const struct intent *in, const struct resource *image, struct gp_error *err) {
    struct resource record;
    image_record(image, &record);
    int r = journal_resource_put(a->journal, &record, err);
    resource_clear(&record);
    return r == 0 ? journal_intent_operation(a->journal, in->id, image->id, err) : r;
}

/* Settles the request of an earlier run: it is found by its name, or sent again. */
static int replay(struct aws *a, const struct image_req *q, struct resource *ret, struct gp_error *err) {
    GP_AUTO_ASKED struct asked w = {0};
    GP_AUTO_FREE char *name = image_name(a, q);
    bool found = false;
    int r = asked_read(q->replay, &w, err);
    if (r == 0 && !str_eq(name, q->replay->token)) /* nobody else could know a name that the key made */
        r = gp_fail(err, GP_ENOTFOUND,
                    "the name of the image '%s' was not made with the signing key of this machine: if 'gpuprov images' "
                    "lists it, remove it",
                    q->replay->token);
    if (r == 0) r = find(a, &w, q, q->node == NULL, ret, &found, err);
    if (r == 0 && !found && q->node == NULL)
        r = gp_fail(err, GP_ENOTFOUND, "nothing came of the request of the image '%s'", q->replay->token);
    if (r == 0 && !found) r = request(a, &w, q, ret, err);
    return r == 0 ? commit(a, q->replay, ret, err) : r;
}

static int begin(struct aws *a, const struct image_req *q, struct intent *ret, struct gp_error *err) {
    GP_AUTO_STR struct str body = {0};
    GP_AUTO_FREE char *name = image_name(a, q);
    aws_begin(&body, "CreateImage");
    aws_param(&body, "InstanceId", q->node->id);
    aws_param(&body, "Name", name);
    aws_param(&body, "Description", "gpuprov: a bootstrapped and validated node");
    aws_param(&body, "NoReboot", "false");
    add_tags(&body, 1, "image", name, q, aws_now_s(a));
    add_tags(&body, 2, "snapshot", name, q, aws_now_s(a));
    cloud_intent_thing(q->stack, "aws", q->node->region, RES_IMAGE, name, body.s, ret);
    free(ret->offer);
    ret->offer = asked_json(q);
    return journal_intent(a->journal, ret, err);
}

static int aws_image_make(struct provider *p, const struct image_req *q, struct resource *ret, struct gp_error *err) {
    struct aws *a = aws_of(p);
    struct intent in = {0};
    struct gp_error why = {0};
    GP_AUTO_ASKED struct asked w = {0};
    if (!a->image_key.known)
        return gp_fail(err, GP_EENV, "aws: an image is made with a signing key, and this machine has none");
    if (q->replay != NULL) return replay(a, q, ret, err);
    int r = stop(a, q->node, err);
    if (r == 0) r = begin(a, q, &in, err);
    if (r != 0) {
        intent_clear(&in);
        return r;
    }
    r = asked_read(&in, &w, &why);
    if (r == 0) r = request(a, &w, q, ret, &why);
    bool open = why.code == GP_EUNKNOWN || why.code == GP_ECANCELLED;
    if (r == 0) r = commit(a, &in, ret, &why);
    else if (!open) journal_intent_end(a->journal, in.id, INTENT_FAILED, why.detail, NULL);
    if (r != 0 && err != NULL) *err = why;
    intent_clear(&in);
    return r;
}

static int aws_image_prove(struct provider *p, const struct resource *what, const char *proof, struct gp_error *err) {
    struct aws *a = aws_of(p);
    GP_AUTO_STR struct str body = {0};
    GP_AUTO_REPLY struct aws_reply reply = {0};
    aws_begin(&body, "CreateTags");
    aws_param(&body, "ResourceId.1", what->id);
    aws_param(&body, "Tag.1.Key", AWS_TAG "image");
    aws_param(&body, "Tag.1.Value", what->image);
    aws_param(&body, "Tag.2.Key", AWS_TAG "proof");
    aws_param(&body, "Tag.2.Value", proof);
    return aws_ec2(a, what->region, "CreateTags", &body, 0, &reply, err);
}

const struct image_ops aws_image_ops = {.make = aws_image_make, .prove = aws_image_prove};

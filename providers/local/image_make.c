/* SPDX-License-Identifier: Apache-2.0 */
/* Asks a stack's holder to keep a node's files as an image. The image has the stack's uid, so a repeated request finds
 * the first one's. */
#include "base/gp_base.h"

#include "providers/local/local_images.h"

#include "base/json.h"
#include "providers/local/ask.h"
#include "providers/local/local_claim.h"
#include "providers/local/offers.h"

#define SAVE_MS 600000 /* uppers in memory are copied */

static int image_intent(const struct local_images *l, const struct image_req *q, const char *record, int64_t *ret_id,
                        struct gp_error *err) {
    GP_AUTO_FREE char *body = xstrdup(record);
    struct intent in = {.uid = q->stack->uid,
                        .provider = (char[]){"local"},
                        .region = (char[]){LOCAL_REGION},
                        .zone = (char[]){""},
                        .kind = RES_IMAGE,
                        .slot_first = -1,
                        .token = q->stack->uid,
                        .body = body,
                        .offer = (char[]){""},
                        .created_s = clock_wall_s(),
                        .deadline_s = q->stack->expires_s,
                        .state = INTENT_OPEN,
                        .note = (char[]){""}};
    int r = journal_intent(l->journal, &in, err);
    if (r == 0) *ret_id = in.id;
    return r;
}

static int ask_to_save(const struct local_images *l, const char *dir, const char *id, const char *record,
                       struct gp_error *err) {
    GP_AUTO_STR struct str answer = {0};
    GP_AUTO_JSON json_t *j = NULL;
    GP_AUTO_FREE char *line = xasprintf("save %s %s", id, record);
    int r = local_ask(dir, line, clock_deadline(SAVE_MS), l->cancel, &answer, err);
    if (r != 0 || str_eq(str_trim(answer.s), "ok")) return r;
    r = json_parse(answer.s, strlen(answer.s), "the holder's answer", &j, err); /* trimmed */
    if (r != 0) return r;
    int64_t code = json_int(j, "code", GP_EIO);
    return gp_fail(err, code > 0 && code <= GP_CODE_MAX ? (enum gp_code)code : GP_EIO, "could not save the image: %s",
                   json_str(j, "error", "the holder gave no reason"));
}

int local_image_make(const struct local_images *l, const struct image_req *q, struct resource *ret,
                     struct gp_error *err) {
    GP_AUTO_FREE char *dir = local_dir(l->base, q->stack->owner, q->stack->name);
    GP_AUTO_FREE char *record =
        q->replay != NULL ? xstrdup(q->replay->body) : local_image_record(q, q->node->created_s);
    GP_AUTO_FREE char *id = xasprintf(LOCAL_IMAGE_PREFIX "%s", q->stack->uid);
    GP_AUTO_RESOURCES struct resource_list all = {0};
    int64_t intent = q->replay != NULL ? q->replay->id : 0;
    struct gp_error why = {0};
    if (q->node == NULL) return gp_fail(err, GP_ENOTFOUND, "the image %s was not saved, and its node is gone", id);
    if (record == NULL) return gp_fail(err, GP_EUSAGE, "the image's owner or name is not valid UTF-8");
    int r = q->replay != NULL ? 0 : image_intent(l, q, record, &intent, err);
    if (r != 0) return r;
    r = ask_to_save(l, dir, q->node->id, record, &why);
    if (r != 0 && why.code != GP_EUNKNOWN && why.code != GP_ECANCELLED)
        journal_intent_end(l->journal, intent, INTENT_FAILED, gp_code_name(why.code), NULL);
    if (r == 0) r = journal_intent_operation(l->journal, intent, id, &why);
    if (r == 0) r = local_images_list(l->base, q->stack->owner, &all, &why);
    if (r != 0) {
        if (err != NULL) *err = why;
        return r;
    }
    for (size_t i = 0; i < all.list.len; i++)
        if (strcmp(all.list.items[i].id, id) == 0) resource_copy(ret, &all.list.items[i]);
    return str_eq(ret->id, id) ? 0 : gp_fail(err, GP_EUNKNOWN, "the image %s was saved and is not listed", id);
}

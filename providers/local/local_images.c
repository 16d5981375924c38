/* SPDX-License-Identifier: Apache-2.0 */
/* The images of local nodes: their list, choice and removal. The holder writes them (save.c). Any thread. */
#include "base/gp_base.h"

#include "providers/local/local_images.h"

#include "base/form.h"
#include "base/fs.h"
#include "base/json.h"
#include "model/image.h"
#include "providers/local/ask.h"
#include "providers/local/decode.h"
#include "providers/local/local_claim.h"
#include "providers/local/lower.h"
#include "providers/local/offers.h"

#include <dirent.h>
#include <errno.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define RECORD_MAX ((size_t)16 << 10)
#define ASK_MS 10000
#define LOCK_MS 30000
#define NEW ".new-"

char *local_image_dir(const char *base, const char *uid) { return xasprintf("%s/.images/%s", base, uid); }
char *local_image_new(const char *base, const char *uid) { return xasprintf("%s/.images/" NEW "%s", base, uid); }

char *local_image_record(const struct image_req *q, int64_t node_created_s) {
    GP_AUTO_JSON json_t *j =
        json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:s}", "owner", q->stack->owner, "name", q->name, "uid",
                  q->stack->uid, "spec_hash", q->stack->spec_hash, "created", (json_int_t)clock_wall_s(),
                  "node_created", (json_int_t)node_created_s, "image", q->facts);
    return j != NULL ? json_text(j, 0) : NULL;
}

/* An image is as old as its node: the machine's files are compared with that time. */
static int read_record(const char *dir, const char *uid, struct resource *ret, struct gp_error *err) {
    GP_AUTO_FREE char *path = fs_join(dir, LOCAL_IMAGE_RECORD);
    GP_AUTO_STR struct str text = {0};
    GP_AUTO_JSON json_t *j = NULL;
    int r = fs_read(path, RECORD_MAX, &text, err);
    if (r == 0) r = json_parse(text.s ? text.s : "", text.len, path, &j, err);
    if (r != 0) return r;
    const char *owner = json_str(j, "owner", ""), *name = json_str(j, "name", ""), *hash = json_str(j, "spec_hash", "");
    const char *facts = json_str(j, "image", ""), *bad = NULL;
    int64_t created = json_int(j, "created", 0), node_created = json_int(j, "node_created", 0);
    struct image_facts has;
    if (!form_owner(owner)) bad = "owner";
    else if (!form_stack(name)) bad = "name";
    else if (!str_eq(json_str(j, "uid", ""), uid)) bad = "uid";
    else if (!form_spec_hash(hash)) bad = "spec_hash";
    else if (created <= 0 || node_created <= 0) bad = "created";
    else if (!image_facts_parse(&has, facts)) bad = "image";
    if (bad != NULL)
        return gp_fail(err, GP_EIO, "'%s' is not the record of an image: its '%s' is malformed", path, bad);
    GP_AUTO_FREE char *id = xasprintf(LOCAL_IMAGE_PREFIX "%s", uid);
    resource_init(ret, RES_IMAGE, "local");
    resource_set(&ret->id, id);
    resource_set(&ret->region, LOCAL_REGION);
    resource_set(&ret->owner, owner);
    resource_set(&ret->stack, name);
    resource_set(&ret->uid, uid);
    resource_set(&ret->spec_hash, hash);
    resource_set(&ret->image, facts);
    ret->state = RES_RUNNING;
    ret->ours = true; /* nobody else writes into the state folder */
    ret->created_s = node_created;
    ret->price_usd_per_h = 0;
    return 0;
}

int local_images_list(const char *base, const char *owner, struct resource_list *ret, struct gp_error *err) {
    GP_AUTO_FREE char *images = fs_join(base, ".images");
    local_images_tidy(base);
    DIR *d = opendir(images);
    if (d == NULL && errno == ENOENT) return 0;
    if (d == NULL) return gp_fail_errno(err, GP_EIO, errno, "could not read '%s'", images);
    int first = 0;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        GP_AUTO_FREE char *dir = fs_join(images, e->d_name);
        struct resource r = {0};
        struct gp_error why = {0};
        if (!form_uid(e->d_name)) continue;
        int rc = read_record(dir, e->d_name, &r, &why);
        if (rc == 0 && (owner == NULL || strcmp(owner, r.owner) == 0)) vec_push(&ret->list, r);
        else if (rc == 0) resource_clear(&r);
        else if (rc != -GP_ENOTFOUND && first == 0)
            first = gp_fail(err, why.code, "%s; 'rm -r %s' removes it", why.msg, dir);
    }
    closedir(d);
    return first;
}

static bool is_being_saved(const struct local_claims *claims, const char *uid) {
    for (size_t i = 0; i < claims->list.len; i++) {
        if (strcmp(claims->list.items[i].uid, uid) != 0) continue;
        GP_AUTO_FD int alive = local_holder_pidfd(claims->list.items[i].dir);
        if (alive >= 0) return true;
    }
    return false;
}

void local_images_tidy(const char *base) {
    GP_AUTO_FREE char *images = fs_join(base, ".images");
    GP_AUTO_CLAIMS struct local_claims claims = {0};
    GP_AUTO_STRV struct strv cut = {0};
    DIR *d = opendir(images);
    for (struct dirent *e = d != NULL ? readdir(d) : NULL; e != NULL; e = readdir(d))
        if (e->d_name[0] == '.' && strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            strv_add(&cut, e->d_name);
    if (d != NULL) closedir(d);
    if (cut.n == 0 || local_claims_read(base, NULL, NULL, &claims, NULL) != 0) return;
    for (size_t i = 0; i < cut.n; i++) {
        GP_AUTO_FREE char *path = fs_join(images, cut.v[i]);
        const char *dash = strchr(cut.v[i], '-');
        bool saving = dash != NULL && is_being_saved(&claims, dash + 1);
        if (!saving) (void)local_remove_tree(path, NULL); /* tried again by the next list */
    }
}

/* --- removal --- */

/* *ret: the first node that was made from the image, "llm/0"; NULL: none. Caller frees. */
static int user_of(const char *base, const char *id, const struct gp_cancel *cancel, char **ret, struct gp_error *err) {
    GP_AUTO_CLAIMS struct local_claims claims = {0};
    int r = local_claims_read(base, NULL, NULL, &claims, err);
    for (size_t i = 0; r == 0 && *ret == NULL && i < claims.list.len; i++) {
        const struct local_claim *c = &claims.list.items[i];
        GP_AUTO_FD int alive = local_holder_pidfd(c->dir);
        GP_AUTO_STR struct str answer = {0};
        GP_AUTO_JSON json_t *j = NULL;
        if (alive < 0) continue;
        r = local_ask(c->dir, "list", clock_deadline(ASK_MS), cancel, &answer, err);
        if (r == 0) r = json_parse(answer.s, answer.len, "the holder's answer", &j, err);
        size_t k = 0;
        json_t *n = NULL;
        json_array_foreach(json_at(j, "nodes"), k, n) {
            struct local_seen seen = {0};
            if (r == 0) r = local_decode_node(n, c->uid, &seen, err);
            if (r != 0 || *ret != NULL || strcmp(seen.state, "ended") == 0 || seen.image[0] == '\0') continue;
            if (strcmp(seen.image, id + strlen(LOCAL_IMAGE_PREFIX)) == 0) *ret = xasprintf("%s/%d", c->name, seen.slot);
        }
    }
    return r;
}

/* The folder loses its name first, so that no node is made from it any more; then its users are looked for. A name that
 * a killed process took away is free again after the next tidy, with the image removed. */
int local_image_remove(const char *base, const struct resource *image, const struct gp_cancel *cancel,
                       struct gp_error *err) {
    if (!str_starts(image->id, LOCAL_IMAGE_PREFIX) || !form_uid(image->id + strlen(LOCAL_IMAGE_PREFIX)))
        return gp_fail(err, GP_EUSAGE, "'%s' is not the id of a local image", image->id);
    const char *uid = image->id + strlen(LOCAL_IMAGE_PREFIX);
    GP_AUTO_FREE char *dir = local_image_dir(base, uid), *user = NULL;
    GP_AUTO_FREE char *dead = xasprintf("%s/.images/.dead-%s", base, uid);
    GP_AUTO_FD int lock = -1;
    int r =
        user_of(base, image->id, cancel, &user, err); /* before it is touched: a cut changes nothing for its users */
    if (r == 0 && user == NULL) r = local_lock(base, clock_deadline(LOCK_MS), cancel, &lock, err);
    if (r != 0) return r;
    if (user == NULL && rename(dir, dead) != 0)
        return errno == ENOENT ? 0 : gp_fail_errno(err, GP_EIO, errno, "could not remove '%s'", dir);
    bool renamed = user == NULL;
    if (renamed) r = user_of(base, image->id, cancel, &user, err);
    if ((r != 0 || user != NULL) && renamed && rename(dead, dir) != 0)
        return gp_fail_errno(err, GP_EIO, errno, "could not keep '%s'", dir);
    if (r != 0) return r;
    if (user != NULL)
        return gp_fail(err, GP_EBUSY, "%s is in use: %s was made from it: run 'gpuprov down %.*s' first", image->id,
                       user, (int)strcspn(user, "/"), user);
    return local_remove_tree(dead, err);
}

/* --- choice --- */

static char *machine_changed(const struct resource *image) {
    GP_AUTO_FREE char *what = lower_changed("/", image->created_s);
    return what != NULL ? xasprintf("the machine changed since: %.*s", (int)strcspn(what, ","), what) : NULL;
}

int local_image_choose(const char *base, const char *owner, const struct spec *spec, size_t index, char **ret_id,
                       char **ret_name, struct gp_error *err) {
    const struct spec_image *image = index < spec->offers.len ? spec_effective(spec, index).image : &spec->image;
    GP_AUTO_RESOURCES struct resource_list all = {0};
    GP_AUTO_FREE char *why = NULL;
    struct image_facts want;
    struct utsname machine;
    if (image->baked == NULL) {
        *ret_id = xstrdup("");
        *ret_name = xstrdup("a clone of this machine");
        return 0;
    }
    int r = local_images_list(base, owner, &all, err);
    if (r != 0) return r;
    image_facts_wanted(spec, image, uname(&machine) == 0 ? machine.machine : "-", &want);
    const struct resource *best = image_choose(&all, &want, "local", LOCAL_REGION, spec->name, machine_changed, &why);
    if (best == NULL && str_eq(image->baked, BAKED_REQUIRE))
        return gp_fail(err, GP_EUSAGE, "image: baked: %s: run 'gpuprov bake %s'", why, spec->path);
    *ret_id = xstrdup(best != NULL ? best->id : "");
    *ret_name =
        best != NULL ? xasprintf("baked image %s", best->id) : xasprintf("a clone of this machine, because %s", why);
    return 0;
}

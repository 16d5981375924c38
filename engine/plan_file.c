/* SPDX-License-Identifier: Apache-2.0 */
/* Writes, reads and compares plan files. Decodes strictly: whoever may write the file may have written anything. */
#include "base/gp_base.h"

#include "engine/plan_file.h"

#include "base/form.h"
#include "base/fs.h"
#include "base/hash.h"
#include "validate/validate.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#define FILE_MAX_BYTES ((size_t)16 << 20)
#define PREFIX "gpuprov-plan/"
#define CLOCK_DIFFERS_S ((int64_t)300) /* between the machine that plans and the one that applies */
#define NUMBER_MAX 1e12
#define OFFERS_MAX 100000
#define NOTE                                                                                                        \
    "the spec in this file has the replacements of ${env:..} and ${file:..}: keep it as secret as those. The hash " \
    "detects damage and edits; it is no signature"

void plan_file_clear(struct plan_file *f) {
    free(f->path);
    free(f->id);
    free(f->spec_path);
    free(f->unit);
    spec_free(f->spec);
    strv_clear(&f->left_out);
    json_decref(f->plan);
    *f = (struct plan_file){0};
}

void plan_moves_clear(struct plan_moves *m) {
    for (size_t i = 0; i < m->list.len; i++) {
        free(m->list.items[i].field);
        free(m->list.items[i].planned);
        free(m->list.items[i].now);
    }
    vec_free(&m->list);
}

/* --- write --- */

static json_t *state_json(const struct plan *plan) {
    const struct plan_state *s = &plan->state;
    json_t *j = json_object(), *nodes = json_object();
    char when[40];
    time_format_utc(when, sizeof when, plan->expires_s);
    for (size_t i = 0; i < s->nodes.len; i++) {
        const struct plan_node *n = &s->nodes.items[i];
        char slot[16];
        snprintf(slot, sizeof slot, "%d", n->slot);
        json_object_set_new(nodes, slot,
                            json_pack("{s:o, s:o, s:o, s:o}", "id", json_any_text(n->id), "phase",
                                      json_any_text(n->phase), "place", json_any_text(n->place), "type",
                                      json_any_text(n->type)));
    }
    GP_AUTO_FREE char *extras = s->extras.n > 0 ? strv_join(&s->extras, " ") : xstrdup("");
    json_object_set_new(j, "owner", json_any_text(s->owner));
    json_object_set_new(j, "uid", json_any_text(s->uid));
    json_object_set_new(j, "spec_hash", json_any_text(s->spec_hash));
    json_object_set_new(j, "deadline", plan->expires_s > 0 ? json_string(when) : json_null());
    json_object_set_new(j, "nodes", nodes);
    json_object_set_new(j, "other machines", json_any_text(extras));
    json_object_set_new(j, "unsettled launches", json_integer(s->unknown));
    return j;
}

static const char *or_empty(const char *s) { return s != NULL ? s : ""; }

static json_t *offers_json(const struct offer_list *l) {
    json_t *list = json_array();
    for (size_t i = 0; i < l->list.len; i++) {
        const struct offer *o = &l->list.items[i];
        json_t *j = json_object();
        json_object_set_new(j, "provider", json_any_text(o->provider));
        json_object_set_new(j, "region", json_any_text(or_empty(o->region)));
        json_object_set_new(j, "zone", json_any_text(or_empty(o->zone)));
        json_object_set_new(j, "type", json_any_text(or_empty(o->instance_type)));
        json_object_set_new(j, "market", json_string(spec_market_name(o->market)));
        json_object_set_new(j, "image", json_any_text(or_empty(o->image)));
        json_object_set_new(j, "usd_per_h", o->price_usd_per_h >= 0 ? json_real(o->price_usd_per_h) : json_null());
        json_array_append_new(list, j);
    }
    return list;
}

static int plan_json(const char *spec_path, const char *unit, const struct spec *spec, const struct plan *plan,
                     json_t **ret, struct gp_error *err) {
    char id[17];
    GP_AUTO_FREE char *canonical = spec_canonical(spec);
    json_t *form = NULL;
    int r = fs_random_hex(id, 8, err);
    if (r == 0) r = json_parse(canonical, strlen(canonical), "the canonical spec", &form, err);
    if (r != 0) return r;
    json_t *j = json_object();
    json_object_set_new(j, "id", json_string(id));
    json_object_set_new(j, "gpuprov", json_string(GP_VERSION));
    json_object_set_new(j, "created", json_integer(clock_wall_s()));
    json_object_set_new(j, "stack", json_string(spec->name));
    json_object_set_new(j, "spec_path", json_any_text(or_empty(spec_path)));
    json_object_set_new(j, "unit", json_any_text(unit));
    json_object_set_new(j, "spec_hash", json_string(spec->hash));
    json_object_set_new(j, "spec", form);
    json_object_set_new(j, "state", state_json(plan));
    json_object_set_new(j, "offers", offers_json(&plan->offers));
    json_object_set_new(j, "max_usd", plan->max_usd >= 0 ? json_real(plan->max_usd) : json_null());
    *ret = j;
    return 0;
}

static void hash_of(const json_t *plan, char ret[65]) {
    GP_AUTO_FREE char *text = json_text_exact(plan, 0);
    sha256_hex(text, strlen(text), ret);
}

int plan_file_write(const char *path, const char *spec_path, const char *unit, const struct spec *spec,
                    const struct plan *plan, struct gp_error *err) {
    GP_AUTO_JSON json_t *j = NULL;
    char hash[65];
    struct stat st;
    if (str_eq(path, "-")) return gp_fail(err, GP_EUSAGE, "the plan file cannot be '-': give the path of a file");
    bool exists = stat(path, &st) == 0;
    if (!exists && errno != ENOENT)
        return gp_fail_errno(err, GP_EIO, errno, "could not write the plan file '%s'", path);
    if (exists && S_ISREG(st.st_mode) && st.st_size > 0 && !plan_file_is(path))
        return gp_fail(err, GP_EUSAGE, "'%s' is not a plan file, and is not overwritten: give another path", path);
    int r = plan_json(spec_path, unit, spec, plan, &j, err);
    if (r != 0) return r;
    hash_of(j, hash);
    GP_AUTO_JSON json_t *file =
        json_pack("{s:s, s:s, s:s, s:O}", "schema", PLAN_FILE_SCHEMA, "sha256", hash, "note", NOTE, "plan", j);
    GP_AUTO_FREE char *body = json_text_exact(file, 1);
    GP_AUTO_FREE char *text = xasprintf("%s\n", body);
    r = fs_write_output(path, text, strlen(text), 0600, err);
    return r != 0 ? gp_wrap(err, "the plan file '%s'", path) : 0;
}

/* --- read --- */

bool plan_file_is(const char *path) {
    char text[256];
    struct stat st;
    GP_AUTO_FD int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return false;
    ssize_t n = pread(fd, text, sizeof text - 1, 0);
    if (n <= 0) return false;
    text[n] = '\0';
    static const char *const parts[] = {"{", "\"schema\"", ":", "\"" PREFIX};
    const char *p = text;
    for (size_t i = 0; i < GP_ARRAY_LEN(parts); i++) {
        p += strspn(p, " \t\r\n");
        if (!str_starts(p, parts[i])) return false;
        p += strlen(parts[i]);
    }
    return true;
}

static int refuse(const struct plan_file *f, struct gp_error *err, const char *fmt, ...) GP_PRINTF(3, 4);
static int refuse(const struct plan_file *f, struct gp_error *err, const char *fmt, ...) {
    GP_AUTO_STR struct str why = {0};
    va_list ap;
    va_start(ap, fmt);
    str_vaddf(&why, fmt, ap);
    va_end(ap);
    gp_error_clear(err);
    return gp_fail(err, GP_EUSAGE, "%s: %s: nothing was changed; make it again with 'gpuprov plan -o'", f->path, why.s);
}

/* Every number of j, at any depth. Only the spec has its own limits. */
static bool numbers_fit(const json_t *j) {
    const char *key = NULL;
    const json_t *item = NULL;
    size_t i = 0;
    bool fit = !json_is_number(j) || fabs(json_number_value(j)) <= NUMBER_MAX;
    json_object_foreach((json_t *)(uintptr_t)j, key, item) fit = fit && (strcmp(key, "spec") == 0 || numbers_fit(item));
    json_array_foreach(j, i, item) fit = fit && numbers_fit(item);
    return fit;
}

static bool is_time(int64_t s) { return s > 0 && s <= CLOCK_WALL_MAX_S; }

static bool is_price(const json_t *j) { return json_is_null(j) || (json_is_number(j) && json_number_value(j) >= 0); }

static bool is_offer(const json_t *j) {
    static const char *const words[] = {"provider", "region", "zone", "type", "market", "image"};
    for (size_t i = 0; i < GP_ARRAY_LEN(words); i++)
        if (!json_is_string(json_object_get(j, words[i]))) return false;
    return is_price(json_object_get(j, "usd_per_h"));
}

/* The first member that does not have its form; NULL: all have. */
static const char *malformed(const json_t *plan) {
    const json_t *state = json_object_get(plan, "state"), *offers = json_object_get(plan, "offers");
    if (!form_uid(json_str(plan, "id", ""))) return "id";
    if (!json_is_integer(json_object_get(plan, "created")) || !is_time(json_int(plan, "created", 0))) return "created";
    if (!form_stack(json_str(plan, "stack", ""))) return "stack";
    if (!json_is_string(json_object_get(plan, "spec_path"))) return "spec_path";
    const json_t *unit = json_object_get(plan, "unit");
    if (unit == NULL || (!json_is_null(unit) && !form_stack(json_string_value(unit)))) return "unit";
    if (!form_spec_hash(json_str(plan, "spec_hash", ""))) return "spec_hash";
    if (!json_is_object(json_object_get(plan, "spec"))) return "spec";
    if (!json_is_object(state) || !json_is_object(json_object_get(state, "nodes"))) return "state";
    if (!json_is_array(offers)) return "offers";
    for (size_t i = 0; i < json_array_size(offers); i++)
        if (!is_offer(json_array_get(offers, i))) return "offers";
    if (!is_price(json_object_get(plan, "max_usd"))) return "max_usd";
    if (json_array_size(offers) > OFFERS_MAX || !numbers_fit(offers)) return "offers";
    return numbers_fit(state) ? NULL : "state";
}

/* The spec of the file must decode to the hash and the name that the file names. */
static int read_spec(struct plan_file *f, struct gp_error *err) {
    GP_AUTO_FREE char *text = json_text_exact(json_object_get(f->plan, "spec"), 0);
    struct spec_problems problems = {0};
    struct gp_error why = {0};
    int r = spec_load_form(f->path, text, validate_names(), &f->spec, &problems, &why);
    GP_AUTO_FREE char *first = problems.list.len > 0 ? xstrdup(problems.list.items[0].message) : xstrdup(why.msg);
    spec_problems_clear(&problems);
    if (r != 0) return refuse(f, err, "its spec does not decode here: %.200s", first);
    bool same = str_eq(f->spec->hash, json_str(f->plan, "spec_hash", "")) &&
                str_eq(f->spec->name, json_str(f->plan, "stack", ""));
    return same ? 0 : refuse(f, err, "its spec is not the one of its hash");
}

static int read_members(struct plan_file *f, const json_t *file, struct gp_error *err) {
    char hash[65], made[40];
    const char *schema = json_str(file, "schema", ""), *version = NULL, *bad = NULL;
    const json_t *plan = json_object_get(file, "plan");
    if (!str_eq(schema, PLAN_FILE_SCHEMA))
        return refuse(f, err, "its schema is '%.40s', and this gpuprov reads '" PLAN_FILE_SCHEMA "'", schema);
    if (!json_is_object(plan)) return refuse(f, err, "it has no 'plan'");
    hash_of(plan, hash);
    if (!str_eq(hash, json_str(file, "sha256", "")))
        return refuse(f, err, "it was edited or damaged: its hash differs");
    version = json_str(plan, "gpuprov", "");
    if (!str_eq(version, GP_VERSION))
        return refuse(f, err, "gpuprov %.40s made it, and this is gpuprov " GP_VERSION, version);
    if ((bad = malformed(plan)) != NULL) return refuse(f, err, "its '%s' is malformed", bad);
    f->plan = json_incref((json_t *)(uintptr_t)plan);
    f->id = xstrdup(json_str(plan, "id", ""));
    f->spec_path = xstrdup(json_str(plan, "spec_path", ""));
    f->unit = xstrdup(json_str(plan, "unit", NULL));
    f->created_s = json_int(plan, "created", 0);
    time_format_utc(made, sizeof made, f->created_s);
    if (f->created_s - clock_wall_s() > CLOCK_DIFFERS_S)
        return refuse(f, err,
                      "it is from the future (%s): correct the clock of this machine or of the one that planned", made);
    if (clock_wall_s() - f->created_s > PLAN_FILE_MAX_AGE_S) return refuse(f, err, "it is too old (%s)", made);
    return read_spec(f, err);
}

int plan_file_read(const char *path, struct plan_file *ret, struct gp_error *err) {
    struct plan_file f = {.path = xstrdup(path)};
    GP_AUTO_STR struct str text = {.max = FILE_MAX_BYTES};
    GP_AUTO_JSON json_t *file = NULL;
    struct gp_error why = {0};
    int r = fs_read(path, FILE_MAX_BYTES, &text, err);
    if (r == 0 && json_parse(or_empty(text.s), text.len, path, &file, &why) != 0)
        r = refuse(&f, err, "it is cut or damaged (%.120s)", str_without_name(why.msg, path));
    if (r == 0) r = read_members(&f, file, err);
    if (r == 0) *ret = f;
    else plan_file_clear(&f);
    return r;
}

/* --- compare --- */

static void moved(struct plan_moves *m, const char *field, const char *planned, const char *now) {
    struct plan_move one = {.field = xstrdup(field), .planned = xstrdup(planned), .now = xstrdup(now)};
    str_one_line(one.field);
    str_one_line(one.planned);
    str_one_line(one.now);
    vec_push(&m->list, one);
}

static char *value_text(const json_t *v) {
    if (v == NULL || json_is_null(v)) return xstrdup("none");
    if (json_is_object(v)) return xstrdup(json_str(v, "id", "other values"));
    if (json_is_string(v)) return xstrdup(json_string_value(v)[0] != '\0' ? json_string_value(v) : "none");
    GP_AUTO_FREE char *text = json_dumps(v, JSON_ENCODE_ANY);
    return xstrdup(text != NULL ? text : "?");
}

/* Every member that differs, by its path. */
static void compare(const char *at, json_t *planned, json_t *now, struct plan_moves *m) {
    const char *key = NULL;
    json_t *item = NULL;
    if (planned != NULL && now != NULL && json_equal(planned, now)) return;
    if (!json_is_object(planned) || !json_is_object(now)) {
        GP_AUTO_FREE char *a = value_text(planned), *b = value_text(now);
        moved(m, at, a, b);
        return;
    }
    json_object_foreach(planned, key, item) {
        GP_AUTO_FREE char *path = at[0] != '\0' ? xasprintf("%s %s", at, key) : xstrdup(key);
        compare(path, item, json_object_get(now, key), m);
    }
    json_object_foreach(now, key, item) {
        GP_AUTO_FREE char *path = at[0] != '\0' ? xasprintf("%s %s", at, key) : xstrdup(key);
        if (json_object_get(planned, key) == NULL) compare(path, NULL, item, m);
    }
}

void plan_file_spec_moves(const struct plan_file *f, struct plan_moves *ret) {
    GP_AUTO_SPEC struct spec *now = NULL;
    GP_AUTO_CHANGES struct spec_changes changes = {0};
    struct spec_problems problems = {0};
    struct gp_error why = {0};
    if (f->spec_path[0] == '\0' || !fs_exists(f->spec_path)) return;
    int r = spec_load(f->spec_path, validate_names(), &now, &problems, &why);
    spec_problems_clear(&problems);
    if (r != 0) {
        moved(ret, f->spec_path, "a spec", "it does not decode");
        return;
    }
    if (str_eq(now->hash, f->spec->hash)) return;
    GP_AUTO_FREE char *canonical = spec_canonical(f->spec);
    spec_changes_find(canonical, now, &changes);
    for (size_t i = 0; i < changes.list.len; i++) {
        const struct spec_change *c = &changes.list.items[i];
        GP_AUTO_FREE char *field = xasprintf("%s %s", f->spec_path, c->key);
        moved(ret, field, c->old != NULL ? c->old : "other text", c->now != NULL ? c->now : "other text");
    }
    if (changes.list.len == 0) moved(ret, f->spec_path, f->spec->hash, now->hash);
}

static bool is_same_place(const json_t *planned, const struct offer *o) {
    return str_eq(json_str(planned, "provider", ""), o->provider) &&
           str_eq(json_str(planned, "region", ""), or_empty(o->region)) &&
           str_eq(json_str(planned, "zone", ""), or_empty(o->zone)) &&
           str_eq(json_str(planned, "type", ""), or_empty(o->instance_type)) &&
           str_eq(json_str(planned, "market", ""), spec_market_name(o->market));
}

static char *price_text(double usd_per_h) {
    return usd_per_h < 0 ? xstrdup("price not known") : xasprintf("%.4g USD/h", usd_per_h);
}

bool plan_file_may_use(void *ctx, const struct offer *offer) {
    struct plan_file *f = ctx;
    const json_t *offers = json_object_get(f->plan, "offers"), *same = NULL;
    for (size_t i = 0; i < json_array_size(offers) && same == NULL; i++)
        if (is_same_place(json_array_get(offers, i), offer)) same = json_array_get(offers, i);
    if (json_array_size(offers) == 0) return true;
    if (same == NULL) return false; /* it is new, and not of the plan */
    double planned = json_num(same, "usd_per_h", -1), now = offer->price_usd_per_h;
    if (planned < 0 || (now >= 0 && now <= planned * (1 + 1e-9))) return true;
    GP_AUTO_FREE char *text = offer_text(offer), *before = price_text(planned), *after = price_text(now);
    GP_AUTO_FREE char *line = xasprintf("%s: %s in the plan, now %s", text, before, after);
    if (!strv_has(&f->left_out, line)) strv_add(&f->left_out, line);
    return false;
}

/* The offer that the plan tries first must still be there, with its image. */
static void offer_moves(const struct plan_file *f, const struct plan *now, struct plan_moves *m) {
    const json_t *first = json_array_get(json_object_get(f->plan, "offers"), 0);
    const struct offer *same = NULL;
    if (first == NULL || now->offers.list.len == 0) return; /* the state has moved, then */
    for (size_t i = 0; i < now->offers.list.len && same == NULL; i++)
        if (is_same_place(first, &now->offers.list.items[i])) same = &now->offers.list.items[i];
    if (same != NULL) {
        const char *image = json_str(first, "image", "");
        if (!str_eq(image, or_empty(same->image))) moved(m, "offer image", image, or_empty(same->image));
        return;
    }
    const char *zone = json_str(first, "zone", "");
    GP_AUTO_FREE char *price = price_text(json_num(first, "usd_per_h", -1));
    GP_AUTO_FREE char *planned =
        xasprintf("%s %s %s %s at %s", json_str(first, "provider", ""), zone[0] ? zone : json_str(first, "region", ""),
                  json_str(first, "type", ""), json_str(first, "market", ""), price);
    moved(m, "offer", planned, f->left_out.n > 0 ? f->left_out.v[0] : "gone");
}

void plan_file_moves(const struct plan_file *f, const struct plan *now, struct plan_moves *ret) {
    GP_AUTO_JSON json_t *state = state_json(now);
    compare("", json_object_get(f->plan, "state"), state, ret);
    offer_moves(f, now, ret);
}

int plan_moves_error(const struct plan_file *f, const struct plan_moves *m, struct gp_error *err) {
    GP_AUTO_STR struct str text = {.max = 300};
    char made[40];
    if (m->list.len == 0) return 0;
    time_format_utc(made, sizeof made, f->created_s);
    for (size_t i = 0; i < m->list.len; i++)
        str_addf(&text, "%s%s: planned %s, now %s", i > 0 ? "; " : "", m->list.items[i].field, m->list.items[i].planned,
                 m->list.items[i].now);
    return gp_fail(err, GP_EUSAGE, "%s: %zu thing%s moved since %s (%s%s): nothing was changed; plan again", f->path,
                   m->list.len, m->list.len == 1 ? "" : "s", made, text.s, text.truncated ? "..." : "");
}

/* --- applied once --- */

static char *note_path(const struct plan_file *f, const char *state_dir) {
    return xasprintf("%s/plans/%s", state_dir, f->id);
}

int plan_file_begin(const struct plan_file *f, const char *state_dir, struct gp_error *err) {
    GP_AUTO_FREE char *dir = fs_join(state_dir, "plans"), *path = note_path(f, state_dir);
    int r = fs_mkdirs(dir, 0700, err);
    if (r != 0) return r;
    GP_AUTO_FD int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd >= 0) return 0;
    if (errno == EEXIST) return refuse(f, err, "it was applied before");
    return gp_fail_errno(err, GP_EIO, errno, "could not create '%s'", path);
}

void plan_file_undo(const struct plan_file *f, const char *state_dir) {
    GP_AUTO_FREE char *path = note_path(f, state_dir);
    (void)unlink(path);
}

void plan_file_tidy(const char *state_dir) {
    GP_AUTO_FREE char *dir = fs_join(state_dir, "plans");
    DIR *d = opendir(dir);
    if (d == NULL) return;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        struct stat st;
        if (!form_uid(e->d_name) || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
        if (clock_wall_s() - st.st_mtime > PLAN_FILE_MAX_AGE_S + 86400) (void)unlinkat(dirfd(d), e->d_name, 0);
    }
    closedir(d);
}

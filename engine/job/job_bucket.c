/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs and checkpoints whose place is a bucket: their folders here, what is sent, what is left. */
#include "base/gp_base.h"

#include "engine/job/job_bucket.h"

#include "base/clock.h"
#include "base/form.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "engine/transfer/bucket_copy.h"
#include "spec/spec_job.h"

#include <errno.h>
#include <unistd.h>

#define NOTE_MAX ((size_t)64 << 10)
#define STORES_MAX 4 /* bucket_url_schemes */

/* One limit for each kind of store: a store that hangs keeps none of another kind from its files. */
struct paces {
    struct bucket_pace of[STORES_MAX];
};

static void paces_init(struct paces *p, int64_t limit_ms) {
    for (size_t i = 0; i < STORES_MAX; i++) bucket_pace_init(&p->of[i], limit_ms);
}

static struct bucket_pace *pace_for(struct paces *p, const char *to) {
    size_t i = 0;
    while (i < STORES_MAX - 1 && bucket_url_schemes[i] != NULL && !str_starts(to, bucket_url_schemes[i])) i++;
    return &p->of[i];
}

static char *stack_folder(const struct engine *e, const char *stack) {
    return xasprintf("%s/buckets/%s", e->state_dir, stack);
}

char *job_bucket_folder(const struct engine *e, const char *stack, const char *to) {
    char hex[65];
    if (!bucket_url_is(to)) return xstrdup(to);
    GP_AUTO_FREE char *base = stack_folder(e, stack);
    sha256_hex(to, strlen(to), hex);
    return xasprintf("%s/%.16s", base, hex);
}

/* The places of the job, outputs first; NULL: behind the last. */
static const char *place_at(const struct spec_job *job, size_t i) {
    if (i < job->outputs.len) return job->outputs.items[i].to;
    return i == job->outputs.len && job->checkpoint.path != NULL ? job->checkpoint.to : NULL;
}

static struct job_bucket_of of_session(const struct job_session *s) {
    return (struct job_bucket_of){.e = s->e,
                                  .sink = s->run != NULL ? &s->run->sink : &s->e->sink,
                                  .stack = s->run != NULL ? s->run->stack.name : s->def.spec->name};
}

int job_bucket_check(const struct job_session *s, struct gp_error *err) {
    const struct spec_job *job = &s->def.spec->job;
    struct bucket_pace pace;
    int r = 0;
    bucket_pace_init(&pace, s->opts->fetch_ms);
    for (size_t i = 0; r == 0 && place_at(job, i) != NULL; i++) {
        GP_AUTO_BUCKET struct bucket *b = NULL;
        const char *to = place_at(job, i);
        if (!bucket_url_is(to)) continue;
        r = bucket_pace_open(&pace, to, &s->e->cancel, &b, err);
        if (r != 0) gp_wrap(err, "'%s'", to);
        if (r == 0) r = b->ops->check(b, err);
        r = bucket_pace_end(&pace, to, r, err);
        if (r != 0) gp_wrap(err, "'%s': nothing was started", s->def.spec->name);
    }
    return r;
}

/* --- the mark of a folder that has more than its bucket --- */

/* {"to": URL} beside the folder. */
static char *mark_path(const char *folder) { return xasprintf("%s.unsent.json", folder); }

static void unmark(const char *folder) {
    GP_AUTO_FREE char *mark = mark_path(folder);
    unlink(mark);
}

int job_bucket_mark(const struct job_bucket_of *of, const char *to, bool *ret_new, struct gp_error *err) {
    GP_AUTO_FREE char *base = stack_folder(of->e, of->stack);
    GP_AUTO_FREE char *folder = job_bucket_folder(of->e, of->stack, to);
    *ret_new = false;
    if (!bucket_url_is(to)) return 0;
    GP_AUTO_FREE char *mark = mark_path(folder);
    if (fs_exists(mark)) return 0;
    GP_AUTO_JSON json_t *j = json_pack("{s:s}", "to", to);
    GP_AUTO_FREE char *text = json_text_exact(j, 0);
    int r = fs_mkdirs(base, 0700, err);
    if (r == 0) r = fs_write_atomic(mark, text, strlen(text), 0600, err);
    *ret_new = r == 0;
    return r;
}

void job_bucket_unmark(const struct job_bucket_of *of, const char *to) {
    GP_AUTO_FREE char *folder = job_bucket_folder(of->e, of->stack, to);
    if (bucket_url_is(to)) unmark(folder);
}

/* Whether the folder may have something that the bucket `to` does not have. */
static int is_unsent(const char *folder, const char *to, bool *ret, struct gp_error *err) {
    GP_AUTO_FREE char *mark = mark_path(folder);
    GP_AUTO_STR struct str text = {0};
    GP_AUTO_JSON json_t *j = NULL;
    struct gp_error why = {0};
    *ret = false;
    int r = fs_read(mark, NOTE_MAX, &text, &why);
    if (r == -GP_ENOTFOUND) return 0;
    if (r == 0) r = json_parse(text.s != NULL ? text.s : "", text.len, mark, &j, &why);
    if (r == 0 && (json_object_size(j) != 1 || strcmp(json_str(j, "to", ""), to) != 0))
        r = gp_fail(&why, GP_EIO, "'%s' does not name the bucket '%s'", mark, to);
    if (r != 0)
        return gp_fail(err, GP_EIO,
                       "%.300s: whether '%s' was sent is not known: copy what you need of it, and remove both to take "
                       "what the bucket has",
                       why.msg, folder);
    *ret = fs_exists(folder);
    return 0;
}

/* --- from the bucket --- */

static void say_notes(const struct event_sink *sink, const struct tree_stats *stats) {
    for (size_t i = 0; i < stats->notes.n; i++)
        event_emit(sink, -1, NODE_READY, EVENT_WARN, "files", "%s", stats->notes.v[i]);
}

/* Into a folder of its own, which replaces the one that is here when all is there. */
static int fetch_all(const struct job_session *s, const char *to, const char *folder, struct gp_error *err) {
    const struct job_bucket_of of = of_session(s);
    GP_AUTO_TREE_STATS struct tree_stats stats = {0};
    GP_AUTO_BUCKET struct bucket *b = NULL;
    GP_AUTO_FREE char *part = xasprintf("%s.part", folder);
    struct bucket_pace pace;
    bucket_pace_init(&pace, s->opts->fetch_ms);
    int r = bucket_pace_open(&pace, to, &s->e->cancel, &b, err);
    if (r == 0) r = bucket_down(b, &pace, part, &stats, err);
    r = bucket_pace_end(&pace, to, r, err);
    say_notes(of.sink, &stats);
    if (r != 0) return gp_wrap(err, "the checkpoint could not be fetched");
    unmark(folder);
    r = fs_remove_tree(folder, err);
    if (r != 0 || stats.files == 0) return r != 0 ? r : fs_remove_tree(part, err);
    event_emit(of.sink, -1, NODE_READY, EVENT_INFO, "files",
               "checkpoint: %llu of %llu files fetched from '%s' (%.1f MB)", (unsigned long long)stats.files_sent,
               (unsigned long long)stats.files, to, (double)stats.bytes_sent / 1e6);
    if (rename(part, folder) != 0) return gp_fail_errno(err, GP_EIO, errno, "'%s' could not be created", folder);
    return 0;
}

int job_bucket_bring(struct job_session *s, struct gp_error *err) {
    const struct spec_job_checkpoint *c = &s->def.spec->job.checkpoint;
    const struct job_bucket_of of = of_session(s);
    if (s->brought || c->path == NULL || !bucket_url_is(c->to)) return 0;
    s->brought = true;
    GP_AUTO_FREE char *folder = job_bucket_folder(of.e, of.stack, c->to);
    bool unsent = false;
    int r = is_unsent(folder, c->to, &unsent, err);
    if (r != 0 || !unsent) return r != 0 ? r : fetch_all(s, c->to, folder, err);
    event_emit(of.sink, -1, NODE_READY, EVENT_WARN, "files",
               "the checkpoint of a run that ended before it was sent is used: '%s', and not what '%s' has", folder,
               c->to);
    return 0;
}

/* --- to the bucket --- */

int job_bucket_put(const struct job_bucket_of *of, const char *to, struct bucket_pace *pace,
                   const struct gp_cancel *cancel, struct tree_stats *ret, bool *ret_whole, struct gp_error *err) {
    GP_AUTO_BUCKET struct bucket *b = NULL;
    *ret_whole = false;
    if (!bucket_url_is(to)) return 0;
    GP_AUTO_FREE char *folder = job_bucket_folder(of->e, of->stack, to);
    GP_AUTO_FREE char *note = xasprintf("%s.upload", folder);
    uint64_t links = 0;
    int r = bucket_pace_open(pace, to, cancel, &b, err);
    if (r == 0) r = bucket_up(b, pace, folder, note, ret, &links, err);
    r = bucket_pace_end(pace, to, r, err);
    *ret_whole = r == 0 && ret->left_out == links;
    say_notes(of->sink, ret);
    if (r == 0 && ret->files > 0)
        event_emit(of->sink, -1, NODE_READY, EVENT_INFO, "files", "%llu of %llu files sent to '%s' (%.1f MB)",
                   (unsigned long long)ret->files_sent, (unsigned long long)ret->files, to,
                   (double)ret->bytes_sent / 1e6);
    return r;
}

/* While nothing comes into the folder. */
static int put_all(const struct job_bucket_of *of, const char *to, struct paces *paces, struct tree_stats *ret,
                   struct gp_error *err) {
    bool whole = false;
    int r = job_bucket_put(of, to, pace_for(paces, to), &of->e->cancel, ret, &whole, err);
    if (whole) job_bucket_unmark(of, to);
    return r;
}

static void note_stored(struct job_result *ret, const char *to, const struct tree_stats *stats, const char *error) {
    struct job_stored one = {.to = xstrdup(to),
                             .files = stats->files,
                             .bytes = stats->bytes,
                             .files_sent = stats->files_sent,
                             .bytes_sent = stats->bytes_sent,
                             .left_out = stats->left_out,
                             .error = xstrdup(error)};
    strv_copy(&one.notes, &stats->notes);
    vec_push(&ret->stored, one);
}

/* The folder is the only place of some files: gets a name of its own, that the next job neither uses nor replaces.
 * Where it is now; caller frees. */
static char *put_aside(const char *folder) {
    GP_AUTO_FREE char *aside = xasprintf("%s.kept-%lld", folder, (long long)clock_wall_s());
    if (fs_exists(aside) || rename(folder, aside) != 0) return xstrdup(folder);
    unmark(folder);
    return xstrdup(aside);
}

/* What becomes of files that are here. After a success job_bucket_note has them sent, and nodes that stay still have
 * the job; else the nodes go, and nothing remembers it. left: nodes stay. */
static const char *advice(const struct job_session *s, bool left) {
    const struct job_result *ret = s->ret;
    bool succeeded = ret->id[0] != '\0' && !ret->stopped && ret->outcome.failed < 0;
    if (!s->ends) return "the same 'gpuprov exec' sends them";
    if (succeeded || left || s->opts->no_down) return "the same 'gpuprov run' sends them";
    return "the next 'gpuprov run' begins the job anew, writes over files of the same name, and sends all at its end";
}

/* One place. What cannot be kept in a bucket is an error of outputs; a checkpoint goes on (job_bucket_done). */
static int send_one(struct job_session *s, struct paces *paces, const char *to, bool output, bool left,
                    struct gp_error *err) {
    GP_AUTO_TREE_STATS struct tree_stats stats = {0};
    const struct job_bucket_of of = of_session(s);
    GP_AUTO_FREE char *folder = job_bucket_folder(of.e, of.stack, to);
    struct gp_error why = {0};
    if (!bucket_url_is(to)) return 0;
    int r = put_all(&of, to, paces, &stats, &why);
    if (r != 0) {
        s->unsent = true;
        note_stored(s->ret, to, &stats, why.msg);
        return gp_fail(err, why.code, "'%s': %.220s; the files are here in '%s': %s", of.stack, why.msg, folder,
                       advice(s, left));
    }
    note_stored(s->ret, to, &stats, NULL);
    if (stats.left_out == 0 || !output) return 0;
    s->unkept = true;
    GP_AUTO_FREE char *kept = put_aside(folder); /* else they would count as outputs of the next job */
    return gp_fail(err, GP_EIO, "'%s': %llu of the outputs cannot be kept in a bucket, and stay in '%s': first %.200s",
                   of.stack, (unsigned long long)stats.left_out, kept, stats.notes.n > 0 ? stats.notes.v[0] : "");
}

int job_bucket_send(struct job_session *s, bool left, struct gp_error *err) {
    const struct spec_job *job = &s->def.spec->job;
    struct paces paces;
    int r = 0;
    paces_init(&paces, s->opts->fetch_ms);
    s->unsent = s->unkept = false;
    for (size_t i = 0; place_at(job, i) != NULL; i++) {
        struct gp_error why = {0};
        int one = r == -GP_ECANCELLED ? 0 : send_one(s, &paces, place_at(job, i), i < job->outputs.len, left, &why);
        if (one == 0 || (r != 0 && one != -GP_ECANCELLED)) continue;
        r = one;
        if (err != NULL) *err = why;
    }
    return r;
}

/* --- what is left of a job whose nodes are gone --- */

/* {"key": KEY, "id": ID, "to": [URL...]} beside the folders of the stack. */
static char *note_path(const struct job_session *s) {
    GP_AUTO_FREE char *base = stack_folder(s->e, s->def.spec->name);
    return xasprintf("%s/unsent.json", base);
}

void job_bucket_note(const struct job_session *s) {
    const struct spec_job *job = &s->def.spec->job;
    GP_AUTO_FREE char *path = note_path(s);
    json_t *places = json_array();
    for (size_t i = 0; place_at(job, i) != NULL; i++) {
        GP_AUTO_FREE char *folder = job_bucket_folder(s->e, s->def.spec->name, place_at(job, i));
        if (bucket_url_is(place_at(job, i)) && fs_exists(folder))
            json_array_append_new(places, json_any_text(place_at(job, i)));
    }
    GP_AUTO_JSON json_t *j = json_pack("{s:s, s:s, s:o}", "key", s->def.key, "id", s->ret->id, "to", places);
    GP_AUTO_FREE char *text = json_text_exact(j, 0);
    const struct job_bucket_of of = of_session(s);
    struct gp_error why = {0};
    if (fs_write_atomic(path, text, strlen(text), 0600, &why) != 0)
        event_emit(of.sink, -1, NODE_READY, EVENT_WARN, "files", "the next 'gpuprov run' begins the job anew: %s",
                   why.msg);
}

static void unlink_note(const struct job_session *s) {
    GP_AUTO_FREE char *note = note_path(s);
    unlink(note);
}

/* The mark first: what is left of a folder must not be used. */
static void remove_folder(const char *folder) {
    unmark(folder);
    (void)fs_remove_tree(folder, NULL);
}

/* The folder is the only place of some files. */
static bool left_out_of(const struct job_result *ret, const char *to) {
    for (size_t i = ret->stored.len; i > 0; i--)
        if (strcmp(ret->stored.items[i - 1].to, to) == 0) return ret->stored.items[i - 1].left_out > 0;
    return false;
}

/* Of a checkpoint that has more than links to folders. */
static bool keep_checkpoint(const struct job_session *s, const char *folder, const char *to) {
    const struct job_bucket_of of = of_session(s);
    struct gp_error why = {0};
    bool unsent = false;
    if (!fs_exists(folder) || (is_unsent(folder, to, &unsent, &why) == 0 && !unsent)) return false;
    GP_AUTO_FREE char *kept = put_aside(folder);
    event_emit(of.sink, -1, NODE_READY, EVENT_WARN, "files",
               "'%s': some files of the checkpoint are not in '%s', and stay in '%s': copy what you need of it, and "
               "remove it%s%s",
               of.stack, to, kept, why.code != GP_OK ? ": " : "", why.msg);
    return true;
}

void job_bucket_done(const struct job_session *s) {
    const struct spec_job *job = &s->def.spec->job;
    for (size_t i = 0; place_at(job, i) != NULL; i++) {
        const char *to = place_at(job, i);
        GP_AUTO_FREE char *folder = job_bucket_folder(s->e, s->def.spec->name, to);
        bool output = i < job->outputs.len;
        if (!bucket_url_is(to)) continue;
        if (output ? !left_out_of(s->ret, to) : !keep_checkpoint(s, folder, to)) remove_folder(folder);
    }
    unlink_note(s);
}

struct note {
    char id[17], key[65];
    struct strv to; /* id "": there is no note */
};

static void note_clear(struct note *n) { strv_clear(&n->to); }

static int decode_note(const json_t *j, const char *path, struct note *ret, struct gp_error *err) {
    const char *id = json_str(j, "id", ""), *key = json_str(j, "key", "");
    const json_t *to = json_at(j, "to");
    if (!form_uid(id) || !form_spec_hash(key) || !json_is_array(to))
        return gp_fail(err, GP_EIO, "'%s' has no job and the places of its files", path);
    for (size_t i = 0; i < json_array_size(to); i++) {
        const char *one = json_string_value(json_array_get(to, i));
        GP_AUTO_BUCKET_URL struct bucket_url url = {0};
        if (one == NULL || bucket_url_decode(one, &url, NULL) != 0)
            return gp_fail(err, GP_EIO, "'%s' has a place that is no bucket", path);
        strv_add(&ret->to, one);
    }
    str_put(ret->id, sizeof ret->id, id);
    str_put(ret->key, sizeof ret->key, key);
    return 0;
}

static int read_note(const char *path, struct note *ret, struct gp_error *err) {
    GP_AUTO_STR struct str text = {0};
    GP_AUTO_JSON json_t *j = NULL;
    struct gp_error why = {0};
    int r = fs_read(path, NOTE_MAX, &text, &why);
    if (r == -GP_ENOTFOUND) return 0;
    if (r == 0) r = json_parse(text.s != NULL ? text.s : "", text.len, path, &j, &why);
    if (r == 0) r = decode_note(j, path, ret, &why);
    return r == 0 ? 0 : gp_fail(err, GP_EIO, "%.300s: remove that file to begin the job anew", why.msg);
}

static bool is_place(const struct spec_job *job, const char *to) {
    for (size_t i = 0; place_at(job, i) != NULL; i++)
        if (strcmp(place_at(job, i), to) == 0) return true;
    return false;
}

/* The files of the note are all here, and the spec still names the places where they belong. */
static int check_note(const struct job_session *s, const struct note *n, const char *path, struct gp_error *err) {
    const char *name = s->def.spec->name;
    for (size_t i = 0; i < n->to.n; i++) {
        GP_AUTO_FREE char *folder = job_bucket_folder(s->e, name, n->to.v[i]);
        bool there = fs_exists(folder);
        if (there && is_place(&s->def.spec->job, n->to.v[i])) continue;
        return gp_fail(err, GP_EUSAGE,
                       there ? "'%s': files of job %s, which has ended well, were not sent to '%s' and are here in "
                               "'%s', but the spec does not name that bucket any more: name it again to send them, or "
                               "copy them and remove '%s' to begin the job anew"
                             : "'%s': files of job %s, which has ended well, were not sent to '%s', and '%s' is not "
                               "here any more: remove '%s' to begin the job anew",
                       name, n->id, n->to.v[i], folder, path);
    }
    return 0;
}

/* The files of a job of another definition: the next one would write over them. */
static int send_others(const struct job_session *s, const struct note *n, const char *path, struct gp_error *err) {
    const struct job_bucket_of of = of_session(s);
    struct paces paces;
    paces_init(&paces, s->opts->fetch_ms);
    for (size_t i = 0; i < n->to.n; i++) {
        GP_AUTO_TREE_STATS struct tree_stats stats = {0};
        GP_AUTO_FREE char *folder = job_bucket_folder(of.e, of.stack, n->to.v[i]);
        struct gp_error why = {0};
        int r = put_all(&of, n->to.v[i], &paces, &stats, &why);
        if (r == 0 && stats.left_out > 0)
            r = gp_fail(&why, GP_EIO, "%llu files cannot be kept in a bucket", (unsigned long long)stats.left_out);
        if (r != 0)
            return gp_fail(err, why.code,
                           "'%s': no job begins before the files of job %s are in '%s': %.250s; they are here in '%s': "
                           "repeat this, or copy them and remove '%s'",
                           of.stack, n->id, n->to.v[i], why.msg, folder, path);
    }
    for (size_t i = 0; i < n->to.n; i++) {
        GP_AUTO_FREE char *folder = job_bucket_folder(of.e, of.stack, n->to.v[i]);
        remove_folder(folder);
    }
    unlink_note(s);
    return 0;
}

int job_bucket_left(struct job_session *s, bool *ret_was, struct gp_error *err) {
    GP_CLEANUP(note_clear) struct note n = {0};
    GP_AUTO_FREE char *path = note_path(s);
    *ret_was = false;
    int r = read_note(path, &n, err);
    if (r != 0 || n.id[0] == '\0') return r;
    if (strcmp(n.key, s->def.key) != 0) return send_others(s, &n, path, err);
    r = check_note(s, &n, path, err);
    if (r != 0) return r;
    *ret_was = true;
    str_put(s->ret->id, sizeof s->ret->id, n.id);
    str_put(s->ret->key, sizeof s->ret->key, s->def.key);
    s->ret->attached = true;
    const struct job_bucket_of of = of_session(s);
    event_emit(of.sink, -1, NODE_READY, EVENT_INFO, "job",
               "job %s has ended well and its nodes are gone: what was not sent is sent now; another 'gpuprov run' "
               "begins the job anew",
               n.id);
    r = job_bucket_send(s, false, err);
    if (!s->unsent) job_bucket_done(s);
    return r;
}

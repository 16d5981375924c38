/* SPDX-License-Identifier: Apache-2.0 */
/* The step "files": sends the files of bootstrap.files that differ on the node, several in one copy, and has a
 * script put each in its place. The node's own thread. */
#include "base/gp_base.h"

#include "bootstrap/files.h"
#include "bootstrap/steps.h"

#define BATCH_BYTES ((size_t)16 << 20)
#define PLACE_MS 240000 /* one script that compares or places files */

int boot_files_load(struct boot *b, struct gp_error *err) {
    boot_files_drop(b);
    if (b->req->spec->storage.files.len == 0) return 0;
    struct gp_error why = {0};
    int rc = boot_files_get(&b->req->spec->storage, &b->files, &why);
    return rc ? gp_fail(err, why.code, "%s: step 'files': %s", b->link->target.label, why.msg) : 0;
}

void boot_files_drop(struct boot *b) {
    boot_files_release(b->files);
    b->files = NULL;
}

/* One line per file: number, sha256, mode, owner, path. */
void boot_files_vars(const struct boot *b, const struct boot_item *it GP_UNUSED, struct str *out) {
    GP_AUTO_STR struct str list = {0};
    for (size_t i = 0; b->files && i < b->files->items.len; i++) {
        const struct boot_file_item *f = &b->files->items.items[i];
        str_addf(&list, "%zu %s %s %s %s\n", i, f->sha256, f->mode, f->owner, f->to);
    }
    boot_var(out, "FILES", list.s);
}

struct sending {
    struct boot *b;
    const struct boot_item *it;
    VEC_OF(size_t) needed;
};

static void sending_clear(struct sending *s) { vec_free(&s->needed); }

static int run_script(struct sending *s, const char *what, const char *rows, const char *tail, struct ssh_result *r,
                      struct gp_error *err) {
    GP_AUTO_STR struct str script = {0};
    str_add(&script, "echo\n"); /* ends a line that a start-up file printed without a newline */
    int rc = boot_file("run/lib", &script, err);
    if (rows) boot_var(&script, "ROWS", rows);
    if (!rc) rc = boot_item_script(s->b, s->it, tail, &script, err);
    if (!rc) rc = node_link_sh(s->b->link, what, &script, PLACE_MS, s->b->req->deadline_ms, r, err);
    if (rc || r->status == 0) return rc;
    GP_AUTO_FREE char *said = boot_said(r);
    return boot_fail(s->b->link, s->it->name, err, said);
}

/* Reads which files differ, and creates ~/.gpuprov/files for copies on their way. */
static int compare(struct sending *s, struct gp_error *err) {
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    int rc = run_script(s, "comparing files", NULL, "compare\n", &r, err);
    s->needed.len = 0;
    if (rc || !r.out.s) return rc;
    for (char *save = NULL, *line = strtok_r(r.out.s, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        int64_t n = 0;
        if (str_starts(line, "::need ") && str_to_i64(line + 7, 0, (int64_t)s->b->files->items.len - 1, &n))
            vec_push(&s->needed, (size_t)n);
    }
    return 0;
}

/* Sends files needed[from..to) as one copy, and puts them in their places. */
static int send_batch(struct sending *s, size_t from, size_t to, size_t bytes, struct gp_error *err) {
    const struct boot_file_item *all = s->b->files->items.items;
    GP_AUTO_STR struct str rows = {0};
    GP_AUTO_FREE char *joined = to - from > 1 ? xmalloc(bytes + 1) : NULL;
    size_t at = 0;
    for (size_t i = from; i < to; i++) {
        const struct boot_file_item *f = &all[s->needed.items[i]];
        str_addf(&rows, "%zu %zu %s %s %s %s\n", at, f->n, f->sha256, f->mode, f->owner, f->to);
        if (joined) memcpy(joined + at, f->data, f->n);
        at += f->n;
    }
    GP_AUTO_SSH_BLOB struct ssh_blob blob = {0};
    ssh_blob_make(joined ? joined : all[s->needed.items[from]].data, bytes, &blob);
    char own[65]; /* nodes may share a home */
    boot_hash(own, (const char *const[]){blob.sha256, s->b->facts.boot_id, NULL});
    GP_AUTO_FREE char *path = xasprintf("%s/.gpuprov/files/%.32s", s->b->facts.home, own);
    GP_AUTO_STR struct str vars = {0};
    bool sent = false;
    int rc = boot_put_blob(s->b, s->it->name, path, 0600, &blob, &sent, err);
    if (rc) return rc;
    boot_var(&vars, "COPY", path);
    GP_AUTO_FREE char *tail = xasprintf("%splace\n", vars.s);
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    return run_script(s, "placing files", rows.s, tail, &r, err);
}

int boot_files_put(struct boot *b, const struct boot_item *it, bool *ret_changed, struct gp_error *err) {
    GP_CLEANUP(sending_clear) struct sending s = {.b = b, .it = it};
    int rc = compare(&s, err);
    for (size_t from = 0, to = 0; from < s.needed.len && !rc; from = to) {
        size_t bytes = 0;
        do bytes += b->files->items.items[s.needed.items[to++]].n;
        while (to < s.needed.len && bytes + b->files->items.items[s.needed.items[to]].n <= BATCH_BYTES);
        event_emit(b->link->sink, b->link->slot, NODE_BOOTSTRAPPING, EVENT_PROGRESS, it->name,
                   "sends files %zu to %zu of %zu (%.1f MB)", from + 1, to, s.needed.len, (double)bytes / 1e6);
        rc = send_batch(&s, from, to, bytes, err);
        *ret_changed = true;
    }
    if (rc || s.needed.len == 0) return rc;
    rc = compare(&s, err);
    if (rc || s.needed.len == 0) return rc;
    GP_AUTO_FREE char *text = xasprintf("'%s' was sent and still differs on the node: another program changes it",
                                        b->files->items.items[s.needed.items[0]].to);
    return boot_fail(b->link, it->name, err, text);
}

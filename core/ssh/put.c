/* SPDX-License-Identifier: Apache-2.0 */
/* Copies a file to a node through one command: a script on the node compares the existing file, requests
 * the bytes (packed or not) only when they differ, checks the sum, and renames. No scp or sftp: both
 * may be disabled, and neither can detect that the file is already there. */
#include "base/gp_base.h"

#include "ssh/ssh_private.h"

#include "base/fs.h"
#include "base/hash.h"

#include <zlib.h>

#define SAMPLE ((size_t)64 << 10)
#define SMALL ((size_t)1 << 10)

enum { PUT_FOLDER = 21, PUT_TEMPORARY = 22, PUT_WRITE = 23, PUT_SUM = 24, PUT_RENAME = 25, PUT_IS_FOLDER = 26 };

/* Goes to sh by stdin, because not every login shell takes it as an argument (csh); the bytes
 * follow on stdin on request. sh reads all of it, up to the last brace, before it runs any.
 * p, want, mode, how (gzip|raw) and r (a random name) are set in front. Few programs: each costs a node
 * a millisecond, and there may be many nodes on one machine. */
static const char script[] = "echo\n" /* ends a line that a start-up file printed without a newline */
                             "LC_ALL=C; export LC_ALL\n"
                             "case $p in */*) d=${p%/*}/;; *) d=./;; esac\n"
                             "t=$d.gpuprov.$r\n"
                             "[ ! -d \"$p\" ] || exit 26\n"
                             "if [ -f \"$p\" ]; then\n"
                             "  set -- $(sha256sum < \"$p\")\n"
                             "  if [ \"$1\" = \"$want\" ]; then chmod \"$mode\" \"$p\" && echo same; exit; fi\n"
                             "fi\n"
                             "[ -d \"$d\" ] || (umask 022; mkdir -p -- \"$d\") || exit 21\n"
                             "umask 077\n"
                             "(set -C; : > \"$t\") || exit 22\n"
                             "trap 'rm -f -- \"$t\"' EXIT; trap 'exit 1' HUP INT TERM PIPE\n"
                             "if [ \"$how\" = gzip ] && command -v gzip >/dev/null 2>&1; then\n"
                             "  echo want gzip; gzip -dc > \"$t\" || exit 23\n"
                             "else\n"
                             "  echo want raw; cat > \"$t\" || exit 23\n"
                             "fi\n"
                             "set -- $(sha256sum < \"$t\")\n"
                             "[ \"$1\" = \"$want\" ] || exit 24\n"
                             "chmod \"$mode\" \"$t\" && mv -f -- \"$t\" \"$p\" || exit 25\n"
                             "trap - EXIT\n"
                             "exit 0\n"
                             "}\n";

struct put {
    struct ssh_task task;
    const struct ssh_blob *blob;
    void *raw; /* of a blob without data, for a node without gzip */
    bool same, asked;
};

/* gzip form of p; 0 when it would not fit into max bytes. */
static size_t gzip_pack(const void *p, size_t n, unsigned char *dst, size_t max) {
    z_stream z = {0};
    if (deflateInit2(&z, 1, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY) != Z_OK) return 0;
    const unsigned char *in = p;
    size_t out = 0;
    int rc = Z_OK;
    while (rc == Z_OK && out < max) {
        size_t piece = GP_MIN(n, (size_t)1 << 30), room = GP_MIN(max - out, (size_t)1 << 30);
        z.next_in = (unsigned char *)(uintptr_t)in; /* zlib only reads it, but takes no const */
        z.avail_in = (unsigned)piece;
        z.next_out = dst + out;
        z.avail_out = (unsigned)room;
        rc = deflate(&z, piece == n ? Z_FINISH : Z_NO_FLUSH);
        in += piece - z.avail_in;
        n -= piece - z.avail_in;
        out += room - z.avail_out;
    }
    deflateEnd(&z);
    return rc == Z_STREAM_END ? out : 0;
}

static bool worth_packing(const void *p, size_t n) {
    if (n < SMALL) return false;
    size_t sample = GP_MIN(n, SAMPLE);
    /* A sample from the middle: headers pack well and are not typical. */
    const unsigned char *from = (const unsigned char *)p + (n - sample) / 2;
    size_t max = sample - sample / 8;
    GP_AUTO_FREE unsigned char *dst = xmalloc(max);
    return gzip_pack(from, sample, dst, max) > 0;
}

void ssh_blob_make(const void *data, size_t n, struct ssh_blob *ret) {
    *ret = (struct ssh_blob){.data = data, .n = n};
    sha256_hex(data, n, ret->sha256);
    if (!worth_packing(data, n)) return;
    ret->packed = xmalloc(n);
    ret->packed_n = gzip_pack(data, n, ret->packed, n);
    if (ret->packed_n == 0) ssh_blob_clear(ret); /* the sample was better than the whole */
}

void *ssh_blob_unpack(const struct ssh_blob *b) {
    z_stream z = {.next_in = b->packed, .avail_in = (uInt)b->packed_n};
    if (inflateInit2(&z, 15 + 16) != Z_OK) return NULL;
    unsigned char *data = xmalloc(b->n);
    z.next_out = data;
    z.avail_out = (uInt)b->n;
    bool whole = inflate(&z, Z_FINISH) == Z_STREAM_END && z.avail_out == 0;
    inflateEnd(&z);
    if (whole) return data;
    free(data);
    return NULL;
}

void ssh_blob_clear(struct ssh_blob *b) {
    free(b->packed);
    b->packed = NULL;
    b->packed_n = 0;
}

static bool put_line(void *ctx, bool is_stderr, const char *line, size_t len) {
    struct put *p = ctx;
    (void)len;
    if (is_stderr || p->asked) return true;
    if (strcmp(line, "same") == 0) p->same = true;
    bool gzip = strcmp(line, "want gzip") == 0 && p->blob->packed != NULL;
    if (!gzip && strcmp(line, "want raw") != 0) return true;
    p->asked = true;
    if (!gzip && p->blob->data == NULL) p->raw = ssh_blob_unpack(p->blob);
    const void *raw = p->raw != NULL ? p->raw : p->blob->data;
    p->task.opts.in = gzip ? p->blob->packed : raw; /* the script has been read */
    p->task.opts.in_len = gzip ? p->blob->packed_n : p->blob->n;
    p->task.in_off = 0;
    p->task.hold_eof = false;
    return true;
}

static int put_failed(const struct ssh_session *s, const char *path, size_t n, const struct ssh_result *r,
                      struct gp_error *err) {
    const char *said = r->err.s != NULL ? r->err.s : "";
    if (strstr(said, "No space left") != NULL || strstr(said, "quota exceeded") != NULL)
        return ssh_fail_detail(err, GP_EIO, "DISK_FULL",
                               "%s: the disk is full: could not write %zu bytes to '%s'; free some "
                               "space on the node",
                               s->label, n, path);
    const char *what = r->end == SSH_SIGNALED       ? "the copy was killed"
                       : r->status == PUT_FOLDER    ? "could not create its folder"
                       : r->status == PUT_TEMPORARY ? "could not create a file in its folder"
                       : r->status == PUT_WRITE     ? "could not write"
                       : r->status == PUT_SUM       ? "the bytes arrived damaged"
                       : r->status == PUT_RENAME    ? "could not rename it into place"
                       : r->status == PUT_IS_FOLDER ? "there is a folder of this name"
                                                    : "the copy failed";
    char last[161]; /* the last line: start-up files may have written before it */
    ssh_last_line(&r->err, last, sizeof last);
    return ssh_fail_detail(err, GP_EIO, "PUT", "%s: could not copy to '%s': %s%s%s", s->label, path, what,
                           last[0] != '\0' ? ": " : "", last);
}

static int put_outcome(struct put *p, const char *path, const struct ssh_result *r, bool *ret_sent,
                       struct gp_error *err) {
    const struct ssh_session *s = p->task.session;
    if (p->task.rc != 0) {
        if (err != NULL) *err = p->task.err;
        return p->task.rc;
    }
    if (r->end == SSH_LOST) {
        int rc = ssh_fail_detail(err, GP_ELOST, "LOST", "%s: lost the connection while copying to '%s' (%s)", s->label,
                                 path, ssh_lost_why(s));
        if (err != NULL) err->retryable = true;
        return rc;
    }
    if (r->end == SSH_TIMED_OUT)
        return ssh_fail_detail(err, GP_ETIMEOUT, "TIMEOUT", "%s: copying %zu bytes to '%s' did not finish in time",
                               s->label, p->blob->n, path);
    if (r->end != SSH_EXITED || r->status != 0 || (!p->same && !p->asked))
        return put_failed(s, path, p->blob->n, r, err);
    if (ret_sent != NULL) *ret_sent = p->asked;
    return 0;
}

int ssh_put_blob(struct ssh_session *s, const char *path, unsigned mode, const struct ssh_blob *blob,
                 int64_t deadline_ms, const struct gp_cancel *cancel, bool *ret_sent, struct gp_error *err) {
    GP_AUTO_STR struct str in = {0};
    char name[17];
    int rc = fs_random_hex(name, 8, err);
    if (rc != 0) return rc;
    /* "-x" would be an option for some of the programs */
    GP_AUTO_FREE char *plain = xasprintf("%s%s", path[0] == '-' ? "./" : "", path);
    str_add(&in, "{ p=");
    str_add_shquoted(&in, plain);
    str_addf(&in, " want=%s mode=%04o how=%s r=%s\n", blob->sha256, mode & 07777, blob->packed != NULL ? "gzip" : "raw",
             name);
    str_add(&in, script);
    struct put p = {.blob = blob};
    struct ssh_exec_opts opts = {.in = in.s,
                                 .in_len = in.len,
                                 .deadline_ms = deadline_ms,
                                 .max_output = 8192,
                                 .cancel = cancel,
                                 .on_line = put_line,
                                 .ctx = &p};
    GP_AUTO_SSH_RESULT struct ssh_result result = {0};
    ssh_task_init(&p.task, s, "exec sh -s", &opts, &result);
    p.task.hold_eof = true;
    struct ssh_task *one = &p.task;
    ssh_tasks_run(&one, 1, cancel);
    rc = put_outcome(&p, path, &result, ret_sent, err);
    ssh_task_clear(&p.task);
    free(p.raw);
    return rc;
}

int ssh_put(struct ssh_session *s, const char *path, unsigned mode, const void *data, size_t n, int64_t deadline_ms,
            const struct gp_cancel *cancel, bool *ret_sent, struct gp_error *err) {
    GP_AUTO_SSH_BLOB struct ssh_blob blob = {0};
    ssh_blob_make(data, n, &blob);
    return ssh_put_blob(s, path, mode, &blob, deadline_ms, cancel, ret_sent, err);
}

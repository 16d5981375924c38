/* SPDX-License-Identifier: Apache-2.0 */
/* Claims of local stacks: the state folder, its lock, listing and removal. Does not start or ask
 * holders. Any thread; the callers say when the lock must be held. */
#include "base/gp_base.h"

#include "providers/local/local_claim.h"

#include "base/form.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "providers/local/decode.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define CLAIM_MAX ((size_t)64 << 10)
#define LOCK_STEP_MS 10

void local_claim_clear(struct local_claim *c) {
    free(c->dir);
    free(c->owner);
    free(c->name);
    free(c->uid);
    free(c->spec_hash);
    free(c->unit);
    *c = (struct local_claim){0};
}

void local_claims_clear(struct local_claims *l) {
    for (size_t i = 0; i < l->list.len; i++) local_claim_clear(&l->list.items[i]);
    vec_free(&l->list);
}

int local_base(const char *state_dir, char **ret, struct gp_error *err) {
    GP_AUTO_FREE char *base = fs_join(state_dir, "local");
    int r = fs_mkdirs(base, 0700, err);
    if (r != 0) return r;
    *ret = GP_STEAL(base);
    return 0;
}

/* An owner may be any text; most are plain words and stay readable in the folder's name. */
char *local_dir(const char *base, const char *owner, const char *name) {
    size_t plain = strspn(owner, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-");
    if (owner[plain] == '\0' && plain > 0 && plain <= 32) return xasprintf("%s/%s@%s", base, name, owner);
    char hex[65];
    sha256_hex(owner, strlen(owner), hex);
    return xasprintf("%s/%s@.%.16s", base, name, hex);
}

static bool is_passing(const char *entry) { return str_starts(entry, ".new-") || str_starts(entry, ".dead-"); }

/* As another id's files may lie in a dead stack (a node in a user namespace made them), what plain
 * removal cannot do is done by a child that has the same id map. */
int local_remove_tree(const char *path, struct gp_error *err) {
    struct gp_error plain = {0};
    if (fs_remove_tree(path, &plain) == 0) return 0;
    if (geteuid() == 0) {
        if (err != NULL) *err = plain;
        return -(int)plain.code;
    }
    GP_AUTO_STR struct str out = {0};
    bool ok = false;
    int r = local_spawn("remove", path, "", clock_deadline(60000), NULL, &out, &ok, err);
    if (r == 0 && !ok) r = gp_fail(err, GP_EIO, "could not remove '%s': %s", path, out.s ? str_trim(out.s) : "");
    return r;
}

static void sweep(const char *base) {
    DIR *d = opendir(base);
    if (d == NULL) return;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (!is_passing(e->d_name)) continue;
        GP_AUTO_FREE char *path = fs_join(base, e->d_name);
        local_remove_tree(path, NULL); /* tried again under the next lock */
    }
    closedir(d);
}

int local_lock(const char *base, int64_t deadline_ms, const struct gp_cancel *cancel, int *ret_fd,
               struct gp_error *err) {
    GP_AUTO_FD int fd = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return gp_fail_errno(err, GP_EIO, errno, "could not open '%s'", base);
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return gp_fail_errno(err, GP_EIO, errno, "could not lock '%s'", base);
        if (clock_left_ms(deadline_ms) == 0)
            return gp_fail(err, GP_ETIMEOUT, "another gpuprov works on local stacks and locks '%s': try again later",
                           base);
        int r = gp_sleep(LOCK_STEP_MS, cancel, err);
        if (r != 0) return r;
    }
    sweep(base);
    *ret_fd = fd;
    fd = -1;
    return 0;
}

void local_tidy(const char *base) {
    GP_AUTO_FD int fd = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0) sweep(base);
}

int local_claim_read(const char *dir, struct local_claim *ret, struct gp_error *err) {
    GP_AUTO_FREE char *path = fs_join(dir, "claim.json");
    GP_AUTO_STR struct str text = {0};
    GP_AUTO_JSON json_t *j = NULL;
    int r = fs_read(path, CLAIM_MAX, &text, err);
    if (r == 0) r = json_parse(text.s ? text.s : "", text.len, path, &j, err);
    if (r != 0) return r;
    r = local_decode_claim(j, path, ret, err);
    if (r == 0) ret->dir = xstrdup(dir);
    return r;
}

static int write_claim(const char *dir, const struct local_claim *c, struct gp_error *err) {
    GP_AUTO_FREE char *file = fs_join(dir, "claim.json");
    GP_AUTO_JSON json_t *j =
        json_pack("{s:s, s:s, s:s, s:s, s:I, s:I}", "owner", c->owner, "name", c->name, "uid", c->uid, "spec_hash",
                  c->spec_hash, "created", (json_int_t)c->created_s, "expires", (json_int_t)c->expires_s);
    if (j == NULL) return gp_fail(err, GP_EUSAGE, "the stack's owner or name is not valid UTF-8");
    if (c->unit != NULL && c->unit[0] != '\0') json_object_set_new(j, "unit", json_string(c->unit));
    GP_AUTO_FREE char *text = json_text(j, 1);
    return fs_write_atomic(file, text, strlen(text), 0600, err);
}

int local_claim_move(const char *dir, int64_t expires_s, struct gp_error *err) {
    GP_AUTO_CLAIM struct local_claim c = {0};
    int r = local_claim_read(dir, &c, err);
    c.expires_s = expires_s;
    return r == 0 ? write_claim(dir, &c, err) : r;
}

int local_claim_make(const char *base, const struct local_claim *c, struct gp_error *err) {
    char id[17];
    int r = fs_random_hex(id, 8, err);
    if (r != 0) return r;
    GP_AUTO_FREE char *tmp = xasprintf("%s/.new-%s", base, id);
    r = fs_mkdirs(tmp, 0700, err);
    if (r == 0) r = write_claim(tmp, c, err);
    if (r != 0) return r;
    if (renameat2(AT_FDCWD, tmp, AT_FDCWD, c->dir, RENAME_NOREPLACE) == 0) {
        GP_AUTO_FD int fd = open(base, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd >= 0 && fsync(fd) == 0) return 0;
        return gp_fail_errno(err, GP_EIO, errno, "could not sync '%s'", base);
    }
    int e = errno;
    fs_remove_tree(tmp, NULL);
    if (e == EEXIST || e == ENOTEMPTY) return gp_fail(err, GP_EEXISTS, "local stack '%s' exists already", c->name);
    return gp_fail_errno(err, GP_EIO, e, "could not create '%s'", c->dir);
}

int local_claims_read(const char *base, const char *owner, const char *name, struct local_claims *ret,
                      struct gp_error *err) {
    DIR *d = opendir(base);
    if (d == NULL && errno == ENOENT) return 0;
    if (d == NULL) return gp_fail_errno(err, GP_EIO, errno, "could not read '%s'", base);
    int first = 0;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        if (e->d_name[0] == '.') continue;
        GP_AUTO_FREE char *dir = fs_join(base, e->d_name);
        struct local_claim c = {0};
        struct gp_error why = {0};
        int r = local_claim_read(dir, &c, &why);
        if (r == -GP_ENOTFOUND) continue; /* removed meanwhile */
        if (r != 0) {                     /* the others are read all the same */
            if (first == 0)
                first = gp_fail(err, why.code, "%s; 'rm -r %s' if no stack of that name is wanted", why.msg, dir);
            continue;
        }
        if ((owner == NULL || strcmp(owner, c.owner) == 0) && (name == NULL || strcmp(name, c.name) == 0))
            vec_push(&ret->list, c);
        else local_claim_clear(&c);
    }
    closedir(d);
    return first;
}

char *local_cgroup(const char *uid) {
    static const char *const roots[] = {"/sys/fs/cgroup", "/sys/fs/cgroup/unified"};
    if (geteuid() != 0 || !form_uid(uid)) return NULL;
    for (size_t i = 0; i < GP_ARRAY_LEN(roots); i++) {
        GP_AUTO_FREE char *mark = fs_join(roots[i], "cgroup.procs");
        GP_AUTO_FREE char *v2 = fs_join(roots[i], "cgroup.controllers");
        if (access(mark, W_OK) == 0 && fs_exists(v2)) return xasprintf("%s/gpuprov-%s", roots[i], uid);
    }
    return NULL;
}

int local_remove(const char *base, const char *dir, const char *uid, struct gp_error *err) {
    if (!form_uid(uid)) return gp_fail(err, GP_EIO, "'%s' is not the uid of a stack: nothing is removed", uid);
    GP_AUTO_FREE char *dead = xasprintf("%s/.dead-%s", base, uid);
    GP_AUTO_FREE char *cgroup = local_cgroup(uid);
    if (cgroup != NULL)
        for (int i = 0; i < 50 && rmdir(cgroup) != 0 && errno == EBUSY; i++) gp_sleep(10, NULL, NULL);
    if (rename(dir, dead) != 0 && errno != ENOENT) {
        int e = errno; /* an earlier removal of this very uid was killed: finish that one first */
        int r = local_remove_tree(dead, err);
        if (r != 0) return r;
        if (rename(dir, dead) != 0) return gp_fail_errno(err, GP_EIO, e, "could not remove '%s'", dir);
    }
    return local_remove_tree(dead, err);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Keeps, reads and tidies the reports of destroyed stacks. Runs in the verb's thread. */
#include "base/gp_base.h"

#include "engine/run/old_report.h"

#include "base/form.h"
#include "base/fs.h"
#include "base/json.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define KEEP_S ((int64_t)180 * 86400)
#define REPORT_MAX ((size_t)256 << 20)

static char *file_of(const char *name, const char *owner) {
    char *file = xasprintf("%s@%s.json", name, owner);
    for (char *c = file; *c; c++)
        if (*c == '/') *c = '_';
    return file;
}

void old_report_keep(const struct engine *e, const struct stack *s) {
    GP_AUTO_FREE char *text = NULL;
    if (s->uid == NULL || journal_report_get(e->journal, s->uid, &text, NULL) != 0) return;
    GP_AUTO_FREE char *dir = fs_join(e->state_dir, "reports");
    GP_AUTO_FREE char *file = file_of(s->name, s->owner);
    GP_AUTO_FREE char *path = fs_join(dir, file);
    if (fs_mkdirs(dir, 0700, NULL) == 0) (void)fs_write_atomic(path, text, strlen(text), 0600, NULL);
}

/* Whether the file is a report of the name and, where that is not NULL, the owner. */
static bool is_of(const char *file, const char *name, const char *owner) {
    GP_AUTO_FREE char *own = owner != NULL ? file_of(name, owner) : NULL;
    GP_AUTO_FREE char *prefix = xasprintf("%s@", name);
    return own != NULL ? strcmp(file, own) == 0 : str_starts(file, prefix) && str_ends(file, ".json");
}

static char *newest(const char *dir, const char *name, const char *owner, int64_t *ret_when_s) {
    char *found = NULL;
    DIR *d = opendir(dir);
    if (d == NULL) return NULL;
    for (struct dirent *f = readdir(d); f != NULL; f = readdir(d)) {
        struct stat st;
        if (!is_of(f->d_name, name, owner) || fstatat(dirfd(d), f->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
        if (found != NULL && (int64_t)st.st_mtime <= *ret_when_s) continue;
        free(found);
        found = fs_join(dir, f->d_name);
        *ret_when_s = (int64_t)st.st_mtime;
    }
    closedir(d);
    return found;
}

int old_report_read(const struct engine *e, const char *name, const char *owner, struct report *ret,
                    int64_t *ret_when_s, struct gp_error *err) {
    GP_AUTO_FREE char *dir = fs_join(e->state_dir, "reports");
    GP_AUTO_FREE char *path = form_stack(name) ? newest(dir, name, owner, ret_when_s) : NULL;
    GP_AUTO_STR struct str text = {0};
    if (path == NULL) return gp_fail(err, GP_ENOTFOUND, "there is no report of '%s'", name);
    int r = fs_read(path, REPORT_MAX, &text, err);
    json_t *j = NULL;
    if (r == 0) r = json_parse(text.s != NULL ? text.s : "", text.len, path, &j, err);
    if (r == 0) r = report_from_json(j, ret, err);
    json_decref(j);
    return r;
}

void old_report_tidy(const char *state_dir, int64_t now_s) {
    GP_AUTO_FREE char *dir = fs_join(state_dir, "reports");
    DIR *d = opendir(dir);
    if (d == NULL) return;
    for (struct dirent *f = readdir(d); f != NULL; f = readdir(d)) {
        struct stat st;
        if (!str_ends(f->d_name, ".json") || fstatat(dirfd(d), f->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
        if (now_s - (int64_t)st.st_mtime > KEEP_S) (void)unlinkat(dirfd(d), f->d_name, 0);
    }
    closedir(d);
}

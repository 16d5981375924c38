/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a folder of specs. Verb's thread. */
#include "base/gp_base.h"

#include "unit.h"

#include "base/form.h"
#include "base/fs.h"
#include "base/yaml.h"
#include "validate/validate.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <strings.h>
#include <sys/stat.h>

#define FILES_MAX 1000

void unit_folder_clear(struct unit_folder *u) {
    for (size_t i = 0; i < u->files.len; i++) {
        free(u->files.items[i].path);
        spec_free(u->files.items[i].spec);
    }
    vec_free(&u->files);
    strv_clear(&u->skipped);
    free(u->dir);
    free(u->name);
    *u = (struct unit_folder){0};
}

bool unit_is_folder(const char *arg) {
    struct stat st;
    return stat(arg, &st) == 0 && S_ISDIR(st.st_mode);
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static bool is_yaml(const char *name) {
    const char *dot = strrchr(name, '.');
    return dot != NULL && (strcasecmp(dot, ".yaml") == 0 || strcasecmp(dot, ".yml") == 0);
}

static int list_names(const char *dir, struct strv *ret, struct gp_error *err) {
    DIR *d = opendir(dir);
    if (d == NULL) return gp_fail_errno(err, GP_EUSAGE, errno, "could not read the folder '%s'", dir);
    errno = 0;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d))
        if (e->d_name[0] != '.' && is_yaml(e->d_name)) strv_add(ret, e->d_name);
    int e = errno;
    closedir(d);
    if (e != 0) return gp_fail_errno(err, GP_EIO, e, "could not read the whole folder '%s'", dir);
    if (ret->n > FILES_MAX) return gp_fail(err, GP_EUSAGE, "'%s' has more than %d files", dir, FILES_MAX);
    if (ret->n > 1) qsort(ret->v, ret->n, sizeof *ret->v, by_name);
    return 0;
}

/* The problems of all files, printed or kept for --json. */
struct findings {
    struct invocation *inv;
    json_t *list;
    size_t problems, files;
};

static void note(struct findings *f, const char *path, const struct spec_pos *pos, const char *message) {
    f->problems++;
    app_keep_problem(f->inv, path, pos, message);
    json_array_append_new(f->list, json_pack("{s:o, s:I, s:I, s:o}", "file", json_any_text(path), "line",
                                             (json_int_t)(pos ? pos->line : 0), "column",
                                             (json_int_t)(pos ? pos->column : 0), "message", json_any_text(message)));
}

/* A problem of a file as a whole. */
static void note_file(struct findings *f, const char *path, const char *message) {
    note(f, path, NULL, message);
    f->files++;
    if (f->inv->common->json) return;
    GP_AUTO_FREE char *line = xasprintf("%s: error: %s", path, str_without_name(message, path));
    str_one_line(line);
    fprintf(stderr, "%s\n", line);
}

static void note_spec(struct findings *f, const char *path, const char *text, const struct spec_problems *p) {
    GP_AUTO_STR struct str out = {0};
    for (size_t i = 0; i < p->list.len; i++) note(f, path, &p->list.items[i].pos, p->list.items[i].message);
    f->files++;
    if (f->inv->common->json) return;
    spec_problems_format(p, path, text, output_colour(stderr), &out);
    if (out.s != NULL) fputs(out.s, stderr);
}

/* A spec whose name was forgotten has other keys. */
static bool is_hosts_file(const char *path, const char *text, size_t n) {
    struct yaml_node *root = NULL;
    struct gp_error ignored = {0};
    bool hosts = yaml_parse(path, text, n, &root, &ignored) == 0 && root != NULL && root->kind == YAML_MAP &&
                 yaml_get(root, "hosts") != NULL;
    for (size_t i = 0; hosts && i + 1 < root->items.len; i += 2)
        hosts =
            strcmp(root->items.items[i]->value, "hosts") == 0 || strcmp(root->items.items[i]->value, "defaults") == 0;
    yaml_node_free(root);
    return hosts;
}

static void read_file(struct unit_folder *u, char *path, struct findings *f) {
    GP_AUTO_FREE char *owned = path;
    GP_AUTO_STR struct str text = {.max = SPEC_TEXT_MAX + 1};
    struct spec_problems problems = {0};
    struct gp_error why = {0};
    struct unit_file file = {0};
    int r = fs_read(path, SPEC_TEXT_MAX, &text, &why);
    if (r != 0) {
        note_file(f, path, r == -GP_ENOTFOUND ? "it is a link to a file that does not exist" : why.msg);
        return;
    }
    const char *s = text.s != NULL ? text.s : "";
    if (is_hosts_file(path, s, text.len)) {
        strv_add(&u->skipped, path);
        return;
    }
    r = spec_load_text(path, s, text.len, validate_names(), &file.spec, &problems, &why);
    if (r == 0) r = app_check_secrets(file.spec, &problems, &why);
    if (r != 0 && problems.list.len > 0) note_spec(f, path, s, &problems);
    else if (r != 0) note_file(f, path, why.msg);
    spec_problems_clear(&problems);
    if (file.spec == NULL) return;
    file.path = GP_STEAL(owned);
    vec_push(&u->files, file);
}

static void check_names(const struct unit_folder *u, struct findings *f) {
    for (size_t i = 0; i < u->files.len; i++)
        for (size_t k = 0; k < i; k++) {
            if (strcmp(u->files.items[i].spec->name, u->files.items[k].spec->name) != 0) continue;
            GP_AUTO_FREE char *text = xasprintf("it has the same name '%s' as %s: one of them needs another name",
                                                u->files.items[i].spec->name, u->files.items[k].path);
            note_file(f, u->files.items[i].path, text);
            break;
        }
}

/* One line, of the form of a stack's name. A folder without the file has no unit. */
static int read_unit(const char *path, char **ret, struct gp_error *err) {
    GP_AUTO_STR struct str text = {0};
    struct gp_error why = {0};
    int r = fs_read(path, 256, &text, &why);
    if (r == -GP_ENOTFOUND && !fs_exists(path)) return 0;
    char *name = text.s != NULL ? str_trim(text.s) : NULL;
    if (r == 0 && form_stack(name)) {
        *ret = xstrdup(name);
        return 0;
    }
    if (r != 0) return gp_fail(err, GP_EUSAGE, "%s", why.msg);
    return gp_fail(err, GP_EUSAGE, "%s: it must have one line: the unit's name (a-z, 0-9, '-', at most 40 characters)",
                   path);
}

int unit_of_spec(const char *spec_path, char **ret, struct gp_error *err) {
    if (spec_path == NULL || strcmp(spec_path, "-") == 0) return 0;
    GP_AUTO_FREE char *path = fs_relative_to(spec_path, UNIT_FILE);
    return read_unit(path, ret, err);
}

static int check_prune(struct invocation *inv, const struct unit_folder *u, struct gp_error *err) {
    const char *owner = inv->common->owner != NULL ? inv->common->owner : getenv("GPUPROV_OWNER");
    if (u->name == NULL)
        return gp_fail(err, GP_EUSAGE,
                       "%s: --prune needs the unit's name: write it into %s/" UNIT_FILE
                       "; stacks that 'up %s' launches from then on belong to it",
                       u->dir, u->dir, u->dir);
    if (owner == NULL || owner[0] == '\0')
        return gp_fail(err, GP_EUSAGE,
                       "%s: --prune needs the owner whose stacks it may take down: set GPUPROV_OWNER or give --owner",
                       u->dir);
    return 0;
}

int unit_open(struct invocation *inv, const char *dir, bool prune, struct unit_folder *ret, struct gp_error *err) {
    GP_AUTO_STRV struct strv names = {0};
    GP_AUTO_FOLDER struct unit_folder u = {.dir = xstrdup(dir)};
    size_t n = strlen(u.dir);
    while (n > 1 && u.dir[n - 1] == '/') u.dir[--n] = '\0';
    struct findings f = {.inv = inv, .list = json_array()};
    int r = list_names(u.dir, &names, err);
    GP_AUTO_FREE char *unit_path = fs_join(u.dir, UNIT_FILE);
    if (r == 0) r = read_unit(unit_path, &u.name, err);
    for (size_t i = 0; r == 0 && i < names.n; i++) {
        GP_AUTO_FREE char *path = fs_join(u.dir, names.v[i]);
        if (unit_is_folder(path)) continue;
        if (names.v[i][0] == '_') strv_add(&u.skipped, path);
        else read_file(&u, GP_STEAL(path), &f);
    }
    if (r == 0) check_names(&u, &f);
    if (r == 0 && f.problems > 0) {
        r = gp_fail(err, GP_EUSAGE,
                    "%s: %zu problem%s in %zu file%s: nothing was done for any of its specs; rename a file "
                    "that is no spec to _NAME",
                    u.dir, f.problems, f.problems == 1 ? "" : "s", f.files, f.files == 1 ? "" : "s");
        if (inv->common->json) {
            inv->error_shown = true;
            print_error_json(err, json_incref(f.list));
        }
    }
    json_decref(f.list);
    if (r == 0 && u.files.len == 0)
        r = gp_fail(err, GP_EUSAGE, "%s: the folder has no spec: nothing is planned, launched or pruned for it", u.dir);
    if (r == 0 && prune) r = check_prune(inv, &u, err);
    if (r != 0) return r;
    *ret = u;
    u = (struct unit_folder){0};
    return 0;
}

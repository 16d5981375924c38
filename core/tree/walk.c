/* SPDX-License-Identifier: Apache-2.0 */
/* Lists a folder in the order of tree_path_compare, by the ignore rules. Keeps one descriptor open besides the root's.
 * Any thread. */
#include "base/gp_base.h"

#include "tree/walk.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define RACY_S 2 /* at most so coarse is a file system's clock */
#define NOTES_MAX 20
#define LOCK_BYTES 64

struct folder_id {
    dev_t dev;
    ino_t ino;
};
struct walk {
    const struct walk_req *req;
    struct tree_list *list;
    struct ignore_rules rules;
    VEC_OF(struct folder_id) omit;
    int64_t now_s;
    int r;
    struct gp_error *err;
};

void tree_list_clear(struct tree_list *l) {
    for (size_t i = 0; i < l->all.len; i++) tree_entry_clear(&l->all.items[i]);
    vec_free(&l->all);
    for (size_t i = 0; i < l->rules.len; i++) {
        free(l->rules.items[i].dir);
        free(l->rules.items[i].pattern);
    }
    vec_free(&l->rules);
    strv_clear(&l->notes);
    *l = (struct tree_list){0};
}

void tree_note(struct strv *notes, const char *path, const char *why) {
    if (notes->n >= NOTES_MAX) return;
    GP_AUTO_FREE char *line = xasprintf("'%.300s': %s", path, why);
    str_one_line(line);
    strv_add(notes, line);
}

void tree_beat(const struct tree_beat *b) {
    if (b->fn != NULL) b->fn(b->ctx);
}

static void left_out(struct walk *w, const char *path, const char *why) {
    w->list->left_out++;
    tree_note(&w->list->notes, path, why);
}

/* Linux counts blocks in 512 bytes. The last one is rarely full. */
static uint64_t held_bytes(const struct stat *st) {
    return GP_MIN((uint64_t)st->st_blocks * 512, (uint64_t)st->st_size);
}

bool tree_entry_of(const struct stat *st, const char *path, const char *link, struct tree_entry *ret) {
    char type = 0;
    if (S_ISDIR(st->st_mode)) type = 'd';
    else if (S_ISREG(st->st_mode)) type = 'f';
    else if (S_ISLNK(st->st_mode)) type = 'l';
    else return false;
    *ret = (struct tree_entry){.type = type,
                               .mode = type == 'l' ? 0777 : st->st_mode & 0777,
                               .size = type == 'f' ? (uint64_t)st->st_size : 0,
                               .held = type == 'f' ? held_bytes(st) : 0,
                               .mtime_s = st->st_mtim.tv_sec,
                               .mtime_ns = (uint32_t)st->st_mtim.tv_nsec,
                               .path = xstrdup(path),
                               .link = xstrdup(link)};
    ret->racy = type == 'f' && st->st_mtim.tv_sec >= clock_wall_s() - RACY_S;
    return true;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Names in a folder, sorted; false: errno. */
static bool read_names(int dir, struct strv *ret) {
    int own = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (own < 0) return false;
    DIR *d = fdopendir(own);
    if (d == NULL) {
        int e = errno;
        close(own);
        errno = e;
        return false;
    }
    for (;;) {
        errno = 0;
        const struct dirent *e = readdir(d);
        if (e == NULL) break;
        if (!str_eq(e->d_name, ".") && !str_eq(e->d_name, "..")) strv_add(ret, e->d_name);
    }
    int e = errno;
    closedir(d);
    errno = e;
    if (ret->n > 1) qsort(ret->v, ret->n, sizeof *ret->v, by_name);
    return e == 0;
}

/* The ignore file of a folder, if it has one. A link or anything but a readable file is no ignore file. */
static void read_rules(struct walk *w, int dir, const char *path) {
    GP_AUTO_FD int fd = openat(dir, TREE_IGNORE_FILE, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) return;
    GP_AUTO_FREE char *text = xmalloc(TREE_IGNORE_MAX + 1);
    size_t n = 0;
    for (ssize_t got = 1; got > 0 && n <= TREE_IGNORE_MAX; n += got > 0 ? (size_t)got : 0)
        got = read(fd, text + n, TREE_IGNORE_MAX + 1 - n);
    GP_AUTO_FREE char *name = xasprintf("%s%s" TREE_IGNORE_FILE, path, path[0] != '\0' ? "/" : "");
    if (n > TREE_IGNORE_MAX) {
        if (w->r == 0) w->r = gp_fail(w->err, GP_EUSAGE, "'%s' is larger than 256 KiB", name);
        return;
    }
    ignore_add(&w->rules, path, text, n);
    struct ignore_rule file = {.dir = xstrdup(path), .pattern = xstrndup(text, n)};
    vec_push(&w->list->rules, file);
}

/* Caller frees. On the heap: the walk is as deep as the folders are. */
static char *read_link(int dir, const char *name) {
    char *target = xmalloc(TREE_PATH_MAX + 1);
    ssize_t n = readlinkat(dir, name, target, TREE_PATH_MAX + 1);
    if (n > 0 && n <= TREE_PATH_MAX) {
        target[n] = '\0';
        return target;
    }
    free(target);
    return NULL;
}

/* Of a transfer that goes on or was killed: an id and a pid (take_root.c), which are of no use later. */
static bool is_lock(const char *name, const struct stat *st) {
    return str_ends(name, "lock") && S_ISREG(st->st_mode) && st->st_size <= LOCK_BYTES;
}

/* --- folders that are left out --- */

static void find_omitted(struct walk *w) {
    const struct strv *omit = w->req->omit;
    struct stat st;
    for (size_t i = 0; omit != NULL && i < omit->n; i++) {
        if (stat(omit->v[i], &st) != 0 || !S_ISDIR(st.st_mode)) continue; /* then there is nothing to leave out */
        struct folder_id id = {.dev = st.st_dev, .ino = st.st_ino};
        vec_push(&w->omit, id);
    }
}

/* If so, a rule keeps it on a side that removes what is not in the list. */
static bool is_omitted(struct walk *w, const struct stat *st, const char *path, const char *name) {
    bool in = false;
    for (size_t i = 0; i < w->omit.len && S_ISDIR(st->st_mode); i++)
        in = in || (w->omit.items[i].dev == st->st_dev && w->omit.items[i].ino == st->st_ino);
    if (!in || strchr(name, '\n') != NULL) return in; /* such a name cannot be in a rule */
    GP_AUTO_STR struct str rule = {0};
    str_add(&rule, "/");
    for (const char *c = name; *c != '\0'; c++)
        str_addf(&rule, "%s%c", strchr("\\*?[ \t\r", *c) != NULL ? "\\" : "", *c);
    str_add(&rule, "/\n");
    struct ignore_rule file = {.dir = xstrdup(path), .pattern = str_steal(&rule)};
    vec_push(&w->list->rules, file);
    return true;
}

static void walk_dir(struct walk *w, const char *path);

static void walk_name(struct walk *w, int dir, const char *path, const char *name) {
    GP_AUTO_FREE char *full = xasprintf("%s%s%s", path, path[0] != '\0' ? "/" : "", name);
    GP_AUTO_FREE char *link = NULL;
    struct stat st;
    tree_beat(&w->req->beat);
    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) != 0) {
        char text[128];
        if (errno != ENOENT)
            left_out(w, full, strerror_r(errno, text, sizeof text)); /* else it was removed meanwhile */
        return;
    }
    if (is_omitted(w, &st, path, name)) return;
    if (w->req->ignore && ignore_match(&w->rules, full, S_ISDIR(st.st_mode))) return;
    if (str_starts(name, TREE_PART)) {
        if (!is_lock(name, &st)) left_out(w, full, "its name is that of a file whose copy was interrupted");
        return;
    }
    if (!tree_path_ok(full)) {
        left_out(w, full, "its path is longer than 4095 bytes");
        w->list->partial = true;
        return;
    }
    if (S_ISLNK(st.st_mode)) {
        link = read_link(dir, name);
        if (link == NULL) {
            left_out(w, full, "the link cannot be read");
            return;
        }
    }
    struct tree_entry e = {0};
    if (!tree_entry_of(&st, full, link, &e)) {
        left_out(w, full, "not a file, folder or link");
        return;
    }
    w->list->files += e.type == 'f';
    w->list->bytes += e.size;
    vec_push(&w->list->all, e);
    if (w->list->all.len > TREE_ENTRIES_MAX && w->r == 0)
        w->r = gp_fail(w->err, GP_EUSAGE, "more than %u files and folders", TREE_ENTRIES_MAX);
    if (e.type == 'd') walk_dir(w, full);
}

static void walk_dir(struct walk *w, const char *path) {
    GP_AUTO_FREE char *inside = xasprintf("%s%sx", path, path[0] != '\0' ? "/" : "");
    GP_AUTO_STRV struct strv names = {0};
    const char *ignored = NULL;
    if (gp_cancelled(w->req->cancel) && w->r == 0) w->r = gp_fail(w->err, GP_ECANCELLED, "cancelled");
    if (w->r != 0) return;
    int dir = place_parent(w->req->place, inside, &ignored);
    if (dir >= 0 && !read_names(dir, &names)) dir = -errno;
    if (dir < 0 && path[0] == '\0') {
        w->r = gp_fail_errno(w->err, GP_EIO, -dir, "could not read the folder");
        return;
    }
    if (dir < 0) {
        char text[128];
        w->list->partial = true;
        left_out(w, path, strerror_r(-dir, text, sizeof text));
        return;
    }
    size_t rules = w->rules.list.len;
    if (w->req->ignore) read_rules(w, dir, path);
    for (size_t i = 0; i < names.n && w->r == 0; i++) {
        dir = place_parent(w->req->place, inside, &ignored); /* a folder below may have been looked at meanwhile */
        if (dir >= 0) walk_name(w, dir, path, names.v[i]);
        else w->list->partial = true;
    }
    ignore_cut(&w->rules, rules);
}

int tree_walk(const struct walk_req *req, struct tree_list *ret, struct gp_error *err) {
    struct walk w = {.req = req, .list = ret, .err = err};
    if (req->ignore) ignore_add(&w.rules, "", ".git\n", 5);
    find_omitted(&w);
    walk_dir(&w, "");
    ignore_clear(&w.rules);
    vec_free(&w.omit);
    return w.r;
}

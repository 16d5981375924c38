/* SPDX-License-Identifier: Apache-2.0 */
/* Appends to, reads and tidies event logs. Another process may rename or remove a log at any time, so each line goes
 * to the file that has the name now. */
#include "base/gp_base.h"

#include "engine/run/eventlog.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#define DROPPED "older lines were dropped: the log of a stack keeps at least the last "

void event_log_init(struct event_log *l, const char *state_dir, const char *stack) {
    *l = (struct event_log){.fd = -1, .max_bytes = EVENT_LOG_MAX_BYTES};
    l->stack = xstrdup(stack);
    l->path = xasprintf("%s/events/%s.jsonl", state_dir, stack);
    l->old_path = xasprintf("%s.old", l->path);
}

void event_log_clear(struct event_log *l) {
    if (l->path != NULL && l->fd >= 0) close(l->fd);
    free(l->stack);
    free(l->path);
    free(l->old_path);
    *l = (struct event_log){.fd = -1};
}

static bool is_at(int fd, const char *path) {
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* Writes the first line of a log that replaces a full one. */
static int say_dropped(const struct event_log *l) {
    GP_AUTO_FREE char *text = xasprintf(DROPPED "%lld MiB", (long long)(l->max_bytes >> 20));
    struct event e = {.wall_ms = clock_wall_s() * 1000, .node = -1, .step = "log", .text = text, .stack = l->stack};
    GP_AUTO_STR struct str line = {0};
    event_jsonl(&e, &line);
    return fs_write_all(l->fd, line.s, line.len);
}

static int open_log(struct event_log *l, struct gp_error *err) {
    GP_AUTO_FREE char *dir = xstrndup(l->path, (size_t)(strrchr(l->path, '/') - l->path));
    int r = fs_mkdirs(dir, 0700, err);
    if (r != 0) return r;
    r = fs_open_kept(l->path, O_RDWR | O_CREAT | O_APPEND, &l->fd, err);
    if (r != 0) return gp_wrap(err, "the event log");
    struct stat st;
    char last = '\n';
    r = fstat(l->fd, &st) == 0 ? 0 : -errno;
    if (r == 0 && st.st_size == 0 && fs_exists(l->old_path)) r = say_dropped(l);
    /* Terminates a line that a full disk or a kill cut short, so that the next line stays whole. */
    if (r == 0 && st.st_size > 0 && pread(l->fd, &last, 1, st.st_size - 1) == 1 && last != '\n')
        r = fs_write_all(l->fd, "\n", 1);
    return r == 0 ? 0 : gp_fail_errno(err, GP_EIO, -r, "could not write the event log '%s'", l->path);
}

static void close_log(struct event_log *l) {
    if (l->fd >= 0) close(l->fd);
    l->fd = -1;
}

/* Only one process renames, and only the file that has the name. */
static void make_room(struct event_log *l, size_t n) {
    struct stat st;
    if (fstat(l->fd, &st) != 0 || st.st_size == 0 || st.st_size + (int64_t)n <= l->max_bytes) return;
    if (flock(l->fd, LOCK_EX) == 0 && is_at(l->fd, l->path)) (void)rename(l->path, l->old_path);
    close_log(l);
}

int event_log_add(struct event_log *l, const struct event *e, struct gp_error *err) {
    GP_AUTO_STR struct str line = {0};
    event_jsonl(e, &line);
    if (l->fd >= 0 && !is_at(l->fd, l->path)) close_log(l);
    int r = l->fd >= 0 ? 0 : open_log(l, err);
    if (r == 0) make_room(l, line.len);
    if (r == 0 && l->fd < 0) r = open_log(l, err);
    if (r == 0 && (r = fs_write_all(l->fd, line.s, line.len)) != 0)
        r = gp_fail_errno(err, GP_EIO, -r, "could not write the event log '%s'", l->path);
    if (r != 0) close_log(l);
    return r;
}

static bool says_dropped(const char *line) { return strstr(line, "\"text\":\"" DROPPED) != NULL; }

/* follows: the older file was read too, so the line about dropped lines at the start is skipped. */
static bool read_file(const char *path, bool follows, void (*take)(void *ctx, const char *line, size_t n), void *ctx) {
    GP_AUTO_FILE FILE *f = fopen(path, "re");
    if (f == NULL) return false;
    char *line = NULL;
    size_t cap = 0;
    bool first = true;
    for (ssize_t n = 0; (n = getline(&line, &cap, f)) > 0; first = false)
        if (line[n - 1] == '\n' && !(first && follows && says_dropped(line))) take(ctx, line, (size_t)n);
    free(line);
    return true;
}

void event_log_read(const struct event_log *l, void (*take)(void *ctx, const char *line, size_t n), void *ctx,
                    bool *ret_found) {
    bool old = read_file(l->old_path, false, take, ctx);
    bool now = read_file(l->path, old, take, ctx);
    *ret_found = old || now;
}

static void keep_line(void *ctx, const char *line, size_t n) {
    char **last = ctx;
    free(*last);
    *last = xstrndup(line, n);
}

bool event_log_ended(const char *state_dir, const char *stack, char **ret_when) {
    struct event_log log;
    GP_AUTO_FREE char *last = NULL;
    GP_AUTO_JSON json_t *j = NULL;
    bool found = false;
    event_log_init(&log, state_dir, stack);
    event_log_read(&log, keep_line, &last, &found);
    event_log_clear(&log);
    if (last == NULL || json_parse(last, strlen(last), "the event log", &j, NULL) != 0) return false;
    const char *when = json_string_value(json_object_get(j, "t"));
    const char *phase = json_string_value(json_object_get(j, "phase"));
    const char *status = json_string_value(json_object_get(j, "status"));
    bool ended =
        when != NULL && str_eq(phase, "gone") && str_eq(status, "done") && json_is_null(json_object_get(j, "node"));
    if (ended) *ret_when = xstrdup(when);
    return ended;
}

/* Passes the whole lines from *offset on. A line without its end is read again with it. follows: as read_file. */
static void read_news(int fd, int64_t *offset, bool follows, void (*take)(void *ctx, const char *line, size_t n),
                      void *ctx) {
    GP_AUTO_STR struct str buf = {0};
    char part[65536];
    for (ssize_t n = 0; (n = pread(fd, part, sizeof part, *offset + (int64_t)buf.len)) > 0;) {
        str_add_mem(&buf, part, (size_t)n);
        size_t used = 0;
        for (const char *nl = memchr(buf.s, '\n', buf.len); nl != NULL;
             nl = memchr(buf.s + used, '\n', buf.len - used)) {
            size_t end = (size_t)(nl - buf.s) + 1;
            GP_AUTO_FREE char *line = xstrndup(buf.s + used, end - used);
            if (!(follows && *offset + (int64_t)used == 0 && says_dropped(line))) take(ctx, line, strlen(line));
            used = end;
        }
        *offset += (int64_t)used;
        memmove(buf.s, buf.s + used, buf.len - used + 1);
        buf.len -= used;
    }
}

void event_log_follow(const struct event_log *l, void (*take)(void *ctx, const char *line, size_t n),
                      bool (*go_on)(void *ctx), void *ctx, bool *ret_found) {
    *ret_found = read_file(l->old_path, false, take, ctx);
    GP_AUTO_FD int fd = -1;
    int64_t offset = 0;
    bool follows = false;
    for (bool more = true; more;) {
        more = go_on(ctx); /* before the last look, so that the last lines are not missed */
        bool replaced = fd >= 0 && !is_at(fd, l->path);
        if (fd >= 0) read_news(fd, &offset, follows, take, ctx);
        if (fd >= 0 && !replaced) continue;
        if (fd >= 0) close(fd);
        fd = open(l->path, O_RDONLY | O_CLOEXEC);
        offset = 0;
        if (fd < 0) continue;
        follows = *ret_found;
        *ret_found = true;
        read_news(fd, &offset, follows, take, ctx);
    }
}

/* "llm" of "llm.jsonl" and "llm.jsonl.old"; NULL for another file. Caller frees. */
static char *stack_of(const char *file) {
    for (const char *const *end = (const char *const[]){".jsonl", ".jsonl.old", NULL}; *end; end++)
        if (str_ends(file, *end)) return xstrndup(file, strlen(file) - strlen(*end));
    return NULL;
}

static bool is_known(const struct stack_list *known, const char *name) {
    for (size_t i = 0; i < known->list.len; i++)
        if (strcmp(known->list.items[i].name, name) == 0) return true;
    return false;
}

void event_log_tidy(const char *state_dir, const struct stack_list *known, int64_t now_s) {
    GP_AUTO_FREE char *dir = fs_join(state_dir, "events");
    DIR *d = opendir(dir);
    if (d == NULL) return;
    for (struct dirent *f = readdir(d); f != NULL; f = readdir(d)) {
        GP_AUTO_FREE char *stack = stack_of(f->d_name);
        struct stat st;
        if (stack == NULL || is_known(known, stack)) continue;
        if (fstatat(dirfd(d), f->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
        if (now_s - (int64_t)st.st_mtime > EVENT_LOG_KEEP_S) (void)unlinkat(dirfd(d), f->d_name, 0);
    }
    closedir(d);
}

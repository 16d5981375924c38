/* SPDX-License-Identifier: Apache-2.0 */
/* Opens the writer that fits the terminal and feeds it and the log file. Formats nothing itself.
 * The sink may be called from any thread; open and close from one. */
#include "base/gp_base.h"

#include "output.h"

#include "base/fs.h"
#include "progress_priv.h"
#include "width.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define BEAT_MS 10000 /* as Terraform's "Still creating..." */

static bool can_redraw(FILE *to) {
    const char *term = getenv("TERM");
    return isatty(fileno(to)) && term != NULL && term[0] != '\0' && strcmp(term, "dumb") != 0;
}

bool output_colour(FILE *to) {
    const char *no = getenv("NO_COLOR");
    return can_redraw(to) && (no == NULL || no[0] == '\0');
}

size_t output_width(FILE *to) {
    struct winsize w = {0};
    bool ok = isatty(fileno(to)) && ioctl(fileno(to), TIOCGWINSZ, &w) == 0 && w.ws_col > 0;
    return ok ? w.ws_col : 100;
}

void progress_label(const struct progress *p, const struct event *e, int node, struct str *out) {
    str_add(out, e != NULL && e->stack != NULL ? e->stack : p->stack);
    if (node >= 0) str_addf(out, "/%d", node);
}

const char *progress_phase(const struct event *e) {
    static const char *const words[][2] = {
        {"job", "running"}, {"job.health", "running"}, {"sending", "sending"}, {"fetching", "fetching"}};
    for (size_t i = 0; e->phase == NODE_READY && i < GP_ARRAY_LEN(words); i++)
        if (strcmp(e->step, words[i][0]) == 0) return words[i][1];
    return node_phase_name(e->phase);
}

void progress_say(const struct progress *p, const struct event *e, struct str *out) {
    GP_AUTO_STR struct str label = {0};
    progress_label(p, e, e->node, &label);
    /* Drops the node and phase that an error begins with, because the line already has both. */
    const char *text = e->text;
    GP_AUTO_FREE char *quoted = xasprintf("'%s': ", label.s);
    if (str_starts(text, label.s) && str_starts(text + label.len, ": ")) text += label.len + 2;
    else if (str_starts(text, quoted)) text += strlen(quoted);
    const char *phase = progress_phase(e);
    const char *step = strcmp(e->step, phase) == 0 ? "" : e->step;
    if (step[0] == '\0' && strcmp(text, phase) == 0) text = "";
    if (e->status == EVENT_WARN) str_add(out, "warning: ");
    if (e->status == EVENT_FAIL) str_add(out, "failed: ");
    if (step[0] != '\0') str_addf(out, "%s%s", step, text[0] != '\0' ? ": " : "");
    str_add(out, text);
    if (text[0] == '\0' && e->status == EVENT_DONE) str_add(out, step[0] != '\0' ? " done" : "done");
}

/* The verb prints the error of the whole stack at its end. */
static bool is_verbs_error(const struct event *e) {
    return e->node < 0 && e->status == EVENT_FAIL && (e->phase == NODE_FAILED || e->phase == NODE_ENDING);
}

/* A check over all nodes: each node reports it, one line is enough. */
static bool is_repeated(struct progress *p, const struct event *e) {
    GP_AUTO_STR struct str all = {0};
    str_addf(&all, "%u", (unsigned)e->status);
    str_add_mem(&all, e->step, strlen(e->step) + 1);
    str_add(&all, e->text);
    uint64_t h = hash_keyed(&p->key, all.s, all.len); /* a node cannot hide another's line by one of the same hash */
    for (size_t i = 0; i < p->gang.len; i++)
        if (p->gang.items[i] == h) return true;
    vec_push(&p->gang, h);
    return false;
}

bool progress_prints(struct progress *p, const struct event *e, int *ret_node) {
    *ret_node = e->node;
    if (is_verbs_error(e)) return false;
    pthread_mutex_lock(&p->lock);
    bool yes = e->phase != NODE_GANG || e->node < 0 || e->status == EVENT_PROGRESS || !is_repeated(p, e);
    bool failure = yes && e->node >= 0 && e->status == EVENT_FAIL && e->step[0] == '\0';
    if (failure && p->failed != NULL) strv_add(p->failed, e->text);
    pthread_mutex_unlock(&p->lock);
    bool bad = e->status == EVENT_WARN || e->status == EVENT_FAIL;
    if (e->phase == NODE_GANG && !bad) *ret_node = -1;
    return yes;
}

void progress_output(const struct event *e, struct str *out) {
    for (const char *s = e->output; s != NULL && *s != '\0';) {
        size_t n = strcspn(s, "\n");
        GP_AUTO_FREE char *line = xstrndup(s, n);
        str_add(out, "        ");
        text_fit(out, line, SIZE_MAX);
        str_addc(out, '\n');
        s += n + (s[n] == '\n');
    }
}

void progress_collect_failures(struct progress *p, struct strv *to) { p->failed = to; }

void progress_elapsed(char *dst, size_t n, int64_t ms) {
    int64_t s = ms / 1000;
    if (s < 60) snprintf(dst, n, "%ds", (int)s);
    else if (s < 3600) snprintf(dst, n, "%dm%02ds", (int)(s / 60), (int)(s % 60));
    else snprintf(dst, n, "%dh%02dm", (int)(s / 3600), (int)(s / 60 % 60));
}

static void emit(void *ctx, const struct event *e) {
    struct progress *p = ctx;
    struct event copy = *e;
    if (copy.step == NULL) copy.step = "";
    if (copy.text == NULL) copy.text = "";
    if (copy.stack == NULL && copy.run == NULL) copy.stack = p->stack;
    if (p->log_fd >= 0) {
        GP_AUTO_STR struct str line = {0};
        event_jsonl(&copy, &line);
        /* One write to an O_APPEND file: lines of several threads do not mix. A full disk loses
         * lines of the log, not the work. */
        (void)fs_write_all(p->log_fd, line.s, line.len);
    }
    p->ops->event(p, &copy);
}

static int quiet_begin(struct progress *p, struct gp_error *err) {
    (void)p;
    (void)err;
    return 0;
}
static void quiet_event(struct progress *p, const struct event *e) {
    (void)p;
    (void)e;
}
static void quiet_end(struct progress *p) { (void)p; }
const struct progress_ops progress_quiet = {"quiet", quiet_begin, quiet_event, quiet_end, NULL};

static void print_json_line(struct progress *p, const struct event *e) {
    GP_AUTO_STR struct str line = {0};
    event_jsonl(e, &line);
    fwrite(line.s, 1, line.len, p->to);
    fflush(p->to);
}
static void jsonl_wait(struct progress *p, const char *label, const struct event *e) {
    GP_AUTO_FREE char *text = xasprintf("%s: %s", label, e->text);
    struct event full = *e;
    full.text = text;
    full.stack = p->stack;
    print_json_line(p, &full);
}
static int jsonl_begin(struct progress *p, struct gp_error *err) {
    return waits_start(p, jsonl_wait, (struct waits **)&p->priv, err);
}
static void jsonl_event(struct progress *p, const struct event *e) {
    print_json_line(p, e);
    waits_event(p->priv, e, true);
}
static void jsonl_end(struct progress *p) { waits_stop(p->priv); }
const struct progress_ops progress_jsonl = {"jsonl", jsonl_begin, jsonl_event, jsonl_end, NULL};

static bool went_wrong(const struct event *e) { return e->status == EVENT_WARN || e->status == EVENT_FAIL; }
static void warning_event(struct progress *p, const struct event *e) {
    int node = -1;
    if (!went_wrong(e) || !progress_prints(p, e, &node)) return;
    GP_AUTO_STR struct str say = {0}, line = {0};
    progress_say(p, e, &say);
    progress_label(p, e, e->node, &line);
    str_add(&line, ": ");
    text_fit(&line, say.s, SIZE_MAX);
    str_addc(&line, '\n');
    fwrite(line.s, 1, line.len, p->to);
    fflush(p->to);
}
static void warning_jsonl_event(struct progress *p, const struct event *e) {
    if (went_wrong(e)) print_json_line(p, e);
}
static const struct progress_ops warnings = {"warnings", quiet_begin, warning_event, quiet_end, NULL};
static const struct progress_ops warnings_jsonl = {"warnings-jsonl", quiet_begin, warning_jsonl_event, quiet_end, NULL};

static const struct progress_ops *choose(enum output_mode mode, FILE *to) {
    switch (mode) {
    case OUTPUT_LIVE: return &progress_live;
    case OUTPUT_PLAIN: return &progress_plain;
    case OUTPUT_JSON: return &progress_jsonl;
    case OUTPUT_QUIET: return &progress_quiet;
    case OUTPUT_WARNINGS: return &warnings;
    case OUTPUT_WARNINGS_JSON: return &warnings_jsonl;
    case OUTPUT_AUTO: break;
    }
    return can_redraw(to) ? &progress_live : &progress_plain;
}

static void progress_free(struct progress *p) {
    if (p->log_fd >= 0) close(p->log_fd);
    pthread_mutex_destroy(&p->lock);
    vec_free(&p->gang);
    free(p->stack);
    free(p);
}

/* Once it is open. */
static void join_hub(struct progress *p) {
    if (p->hub == NULL || p->ops->lines == NULL) return;
    pthread_mutex_lock(&p->hub->lock);
    p->hub->live = p;
    if (p->hub->lines) p->ops->lines(p);
    pthread_mutex_unlock(&p->hub->lock);
}

static void leave_hub(struct progress *p) {
    if (p->hub == NULL) return;
    pthread_mutex_lock(&p->hub->lock);
    if (p->hub->live == p) p->hub->live = NULL;
    pthread_mutex_unlock(&p->hub->lock);
}

void progress_hub_lines(struct progress_hub *hub) {
    pthread_mutex_lock(&hub->lock);
    hub->lines = true;
    if (hub->live != NULL) hub->live->ops->lines(hub->live);
    pthread_mutex_unlock(&hub->lock);
}

static void take_hub(struct progress *p, struct progress_hub *hub) {
    p->hub = hub;
    if (hub == NULL) return;
    pthread_mutex_lock(&hub->lock);
    if (hub->started_ms == 0) hub->started_ms = p->started_ms;
    p->started_ms = hub->started_ms;
    p->news = hub->news;
    if (hub->lines && p->ops == &progress_live) p->ops = &progress_plain;
    pthread_mutex_unlock(&hub->lock);
}

int progress_open(enum output_mode mode, FILE *to, const char *stack, int nodes, const char *log_path,
                  struct progress **ret, struct gp_error *err) {
    return progress_open_in(NULL, mode, to, stack, nodes, log_path, ret, err);
}

int progress_open_in(struct progress_hub *hub, enum output_mode mode, FILE *to, const char *stack, int nodes,
                     const char *log_path, struct progress **ret, struct gp_error *err) {
    struct progress *p = xcalloc(1, sizeof *p);
    p->ops = choose(mode, to);
    p->to = to;
    p->stack = xstrdup(stack);
    p->nodes = nodes;
    p->started_ms = clock_ms();
    take_hub(p, hub);
    p->log_fd = -1;
    p->sink = (struct event_sink){emit, p};
    p->beat_ms = BEAT_MS;
    pthread_mutex_init(&p->lock, NULL);
    hash_key_init(&p->key);
    int r = 0;
    if (log_path != NULL) {
        r = fs_open_output(log_path, O_CREAT | O_APPEND, 0600, &p->log_fd, err);
        if (r != 0) gp_wrap(err, "the log");
    }
    if (r == 0) r = p->ops->begin(p, err);
    if (r != 0) {
        progress_free(p);
        return r;
    }
    join_hub(p);
    *ret = p;
    return 0;
}

const struct event_sink *progress_sink(struct progress *p) { return &p->sink; }

void progress_close(struct progress *p) {
    if (p == NULL) return;
    leave_hub(p);
    p->ops->end(p);
    progress_free(p);
}

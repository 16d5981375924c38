/* SPDX-License-Identifier: Apache-2.0 */
/* Live progress on a terminal: a heading and one line per node, redrawn in place by its own thread at
 * most 10 times a second; warnings, failures and finished nodes scroll above it and stay. Emitting
 * only changes memory; the lock is never held while writing. */
#include "base/gp_base.h"

#include "output.h"

#include "progress_priv.h"
#include "width.h"

#include <errno.h>
#include <pthread.h>
#include <sys/ioctl.h>
#include <time.h>

enum { DRAW_EVERY_MS = 100, TICK_MS = 1000, TEXT_MAX = 400 };

struct live_node {
    bool seen;
    enum node_phase phase;
    const char *word;          /* of the phase; static */
    int64_t since_ms, last_ms; /* in this phase; last event */
    char text[TEXT_MAX];
};
struct live {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    pthread_t thread;
    bool dirty, stop, colour;
    bool lines; /* no area any more: each event is a line */
    VEC_OF(struct live_node) nodes;
    char text[TEXT_MAX]; /* of the whole stack */
    struct str above;    /* lines that stay, not written yet */
    /* the drawing thread's own: widths of the lines now on the screen */
    VEC_OF(size_t) drawn;
};

static const char *phase_colour(enum node_phase p) {
    switch (p) {
    case NODE_READY: return "\033[32m";
    case NODE_FAILED: return "\033[31m";
    case NODE_GONE:
    case NODE_PLANNED: return "\033[2m";
    default: return "\033[36m";
    }
}

static bool is_active(const struct live_node *n) {
    if (n->phase == NODE_READY) return n->word != NULL && strcmp(n->word, node_phase_name(NODE_READY)) != 0;
    return n->seen && n->phase != NODE_FAILED && n->phase != NODE_GONE && n->phase != NODE_PLANNED;
}

static const char *word_of(const struct live_node *n) { return n->word != NULL ? n->word : node_phase_name(n->phase); }

/* "3 ready, 1 bootstrap" of the nodes that are not shown (NULL: of all), the last phases first. */
static void add_counts(const struct live *l, const bool *shown, struct str *out) {
    bool any = false;
    for (int ph = NODE_PHASE_MAX; ph >= 0; ph--)
        for (size_t first = 0; first < l->nodes.len; first++) {
            const struct live_node *n = &l->nodes.items[first];
            int count = 0;
            if ((int)n->phase != ph) continue;
            for (size_t i = 0; i < l->nodes.len; i++) {
                const struct live_node *o = &l->nodes.items[i];
                bool same = (int)o->phase == ph && strcmp(word_of(o), word_of(n)) == 0;
                if (same && i < first) break; /* counted with an earlier one */
                count += same && (shown == NULL || !shown[i]);
            }
            if (count == 0) continue;
            str_addf(out, "%s%d %s", any ? ", " : "", count, word_of(n));
            any = true;
        }
}

static void put_line(struct live *l, struct str *frame, const char *text, size_t width, const char *colour) {
    if (colour != NULL && l->colour) str_add(frame, colour);
    size_t w = text_fit(frame, text, width);
    if (colour != NULL && l->colour) str_add(frame, "\033[0m");
    str_addc(frame, '\n');
    vec_push(&l->drawn, w);
}

static void put_node(const struct progress *p, struct live *l, struct str *frame, size_t slot, size_t label_width,
                     size_t width, int64_t now) {
    const struct live_node *n = &l->nodes.items[slot];
    GP_AUTO_STR struct str label = {0}, line = {0};
    char time[16] = "";
    progress_label(p, NULL, (int)slot, &label);
    str_add(&line, "  ");
    text_pad(&line, label.s, label_width);
    str_add(&line, "  ");
    size_t before = GP_MIN(text_width(line.s), width);
    text_fit(frame, line.s, before);
    if (is_active(n)) progress_elapsed(time, sizeof time, now - n->since_ms);
    size_t left = width - before;
    if (l->colour) str_add(frame, phase_colour(n->phase));
    size_t phase_width = GP_MIN((size_t)10, left);
    text_pad(frame, word_of(n), phase_width);
    if (l->colour) str_add(frame, "\033[0m");
    left -= phase_width;
    GP_AUTO_STR struct str tail = {0};
    str_addf(&tail, "%7s  %s", time, n->text);
    size_t used = text_fit(frame, tail.s, left);
    str_addc(frame, '\n');
    vec_push(&l->drawn, before + phase_width + used);
}

/* Marks the nodes that get a line: all when they fit, else the active ones with the latest events. */
static bool *choose_shown(const struct live *l, size_t room) {
    bool *shown = xcalloc(l->nodes.len + 1, sizeof *shown);
    if (l->nodes.len <= room) {
        for (size_t i = 0; i < l->nodes.len; i++) shown[i] = true;
        return shown;
    }
    for (size_t k = 0; k < room; k++) {
        size_t best = SIZE_MAX;
        for (size_t i = 0; i < l->nodes.len; i++) {
            const struct live_node *n = &l->nodes.items[i];
            if (shown[i] || !is_active(n)) continue;
            if (best == SIZE_MAX || n->last_ms > l->nodes.items[best].last_ms) best = i;
        }
        if (best == SIZE_MAX) break;
        shown[best] = true;
    }
    return shown;
}

static void put_heading(const struct progress *p, struct live *l, struct str *frame, size_t width, int64_t now) {
    char time[16];
    progress_elapsed(time, sizeof time, now - p->started_ms);
    GP_AUTO_STR struct str line = {0};
    str_addf(&line, "%s  %s", p->stack, time);
    if (l->nodes.len > 1) {
        str_add(&line, "  ");
        add_counts(l, NULL, &line);
    }
    if (l->text[0] != '\0') str_addf(&line, "  %s", l->text);
    put_line(l, frame, line.s, width, "\033[1m");
}

static void put_live_area(const struct progress *p, struct live *l, struct str *frame, size_t rows, size_t columns,
                          int64_t now) {
    size_t width = columns > 1 ? columns - 1 : 1; /* the last column would wrap */
    put_heading(p, l, frame, width, now);
    size_t room = rows > 3 ? rows - 3 : 1;
    GP_AUTO_FREE bool *shown = choose_shown(l, room);
    size_t label_width = 0, hidden = 0;
    for (size_t i = 0; i < l->nodes.len; i++) {
        GP_AUTO_STR struct str label = {0};
        progress_label(p, NULL, (int)i, &label);
        if (shown[i]) label_width = GP_MAX(label_width, text_width(label.s));
        if (!shown[i]) hidden++;
    }
    for (size_t i = 0; i < l->nodes.len; i++)
        if (shown[i]) put_node(p, l, frame, i, label_width, width, now);
    if (hidden == 0 || hidden == l->nodes.len) return;
    GP_AUTO_STR struct str rest = {0};
    str_addf(&rest, "  and %zu more: ", hidden);
    add_counts(l, shown, &rest);
    put_line(l, frame, rest.s, width, "\033[2m");
}

static void terminal_size(FILE *to, size_t *ret_rows, size_t *ret_columns) {
    struct winsize w = {0};
    bool ok = ioctl(fileno(to), TIOCGWINSZ, &w) == 0;
    *ret_rows = ok && w.ws_row > 0 ? w.ws_row : 24;
    *ret_columns = ok && w.ws_col > 0 ? w.ws_col : 80;
}

/* Moves back to the first drawn line; a terminal that became narrower has wrapped it. Clears from the second
 * line on, then the first line: tmux takes a clear from the screen's first cell for "clear" and keeps every
 * frame in its history. */
static void erase(struct live *l, struct str *frame, size_t columns) {
    size_t up = 0;
    for (size_t i = 0; i < l->drawn.len; i++)
        up += l->drawn.items[i] > columns ? (l->drawn.items[i] + columns - 1) / columns : 1;
    if (up > 0) str_addf(frame, "\r\033[%zuA\033[B\033[J\033[A\033[K", up);
    l->drawn.len = 0;
}

/* Called with the lock held; the caller writes the frame without it. */
static void render(const struct progress *p, struct live *l, bool last, struct str *frame) {
    size_t rows = 0, columns = 0;
    terminal_size(p->to, &rows, &columns);
    erase(l, frame, columns);
    if (l->above.len > 0) str_add_mem(frame, l->above.s, l->above.len);
    str_reset(&l->above);
    if (!last && !l->lines) put_live_area(p, l, frame, rows, columns, clock_ms());
    l->dirty = false;
}

static struct timespec after_ms(int64_t ms) {
    int64_t at = clock_ms() + ms;
    return (struct timespec){.tv_sec = (time_t)(at / 1000), .tv_nsec = (long)(at % 1000) * 1000000};
}

static void *draw_main(void *arg) {
    struct progress *p = arg;
    struct live *l = p->priv;
    GP_AUTO_STR struct str frame = {0};
    bool last = false;
    while (!last) {
        pthread_mutex_lock(&l->lock);
        struct timespec tick = after_ms(TICK_MS);
        while (!l->dirty && !l->stop && pthread_cond_timedwait(&l->wake, &l->lock, &tick) != ETIMEDOUT) {
        }
        last = l->stop;
        str_reset(&frame);
        render(p, l, last, &frame);
        pthread_mutex_unlock(&l->lock);
        if (frame.len > 0) fwrite(frame.s, 1, frame.len, p->to);
        fflush(p->to);
        /* Redraws at most this often; the end interrupts the wait. */
        pthread_mutex_lock(&l->lock);
        struct timespec pause = after_ms(DRAW_EVERY_MS);
        while (!l->stop && pthread_cond_timedwait(&l->wake, &l->lock, &pause) != ETIMEDOUT) {
        }
        pthread_mutex_unlock(&l->lock);
    }
    return NULL;
}

static int live_begin(struct progress *p, struct gp_error *err) {
    struct live *l = xcalloc(1, sizeof *l);
    pthread_mutex_init(&l->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&l->wake, &attr);
    pthread_condattr_destroy(&attr);
    l->colour = output_colour(p->to);
    l->dirty = true;
    for (int i = 0; i < p->nodes; i++) vec_push(&l->nodes, (struct live_node){0});
    p->priv = l;
    int e = pthread_create(&l->thread, NULL, draw_main, p);
    if (e == 0) return 0;
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->wake);
    vec_free(&l->nodes);
    free(l);
    return gp_fail_errno(err, GP_EENV, e, "could not start the drawing thread");
}

/* A line that stays above the live area. */
static void keep(const struct progress *p, struct live *l, const struct event *e, const char *said) {
    GP_AUTO_STR struct str label = {0};
    progress_label(p, e, e->node, &label);
    const char *colour = e->status == EVENT_FAIL ? "\033[31m" : "\033[33m";
    if (e->status == EVENT_DONE) colour = "\033[32m";
    if (e->status == EVENT_INFO || e->status == EVENT_START) colour = "\033[36m";
    if (l->colour) str_add(&l->above, colour);
    text_fit(&l->above, label.s, SIZE_MAX);
    if (l->colour) str_add(&l->above, "\033[0m");
    if (e->phase == NODE_FAILED || e->node < 0) str_add(&l->above, ": ");
    else str_addf(&l->above, " %s: ", progress_phase(e));
    text_fit(&l->above, said, SIZE_MAX);
    str_addc(&l->above, '\n');
    progress_output(e, &l->above);
}

/* Nodes of which nothing was reported yet are where the whole stack is: a writer may be opened in the middle. */
static void place_unseen(struct live *l, const struct event *e, int64_t now) {
    if (e->phase != NODE_READY && e->phase != NODE_ENDING) return;
    for (size_t i = 0; i < l->nodes.len; i++) {
        struct live_node *n = &l->nodes.items[i];
        if (n->seen) continue;
        if (n->phase != e->phase || n->word != progress_phase(e)) n->since_ms = now;
        n->phase = e->phase;
        n->word = progress_phase(e);
    }
}

static void place_node(struct live *l, const struct event *e, const char *text, int64_t now) {
    while (l->nodes.len <= (size_t)e->node) vec_push(&l->nodes, (struct live_node){0});
    struct live_node *n = &l->nodes.items[e->node];
    const char *word = progress_phase(e);
    if (!n->seen || n->phase != e->phase || n->word != word) n->since_ms = now;
    n->seen = true;
    n->phase = e->phase;
    n->word = word;
    n->last_ms = now;
    str_put(n->text, sizeof n->text, text);
    l->text[0] = '\0'; /* the text of the whole stack is outdated */
}

/* Whether the event is a line that stays. */
static bool is_kept(const struct progress *p, const struct live *l, const struct event *e, const char *text) {
    if (e->status == EVENT_WARN || e->status == EVENT_FAIL) return true;
    if (l->lines) return e->status != EVENT_PROGRESS && text[0] != '\0';
    if (e->node >= 0) return e->phase == NODE_READY && e->status == EVENT_DONE;
    bool job = strcmp(e->step, "job") == 0 && (e->status == EVENT_INFO || e->status == EVENT_START);
    return p->news && (e->status == EVENT_DONE || job);
}

static void live_event(struct progress *p, const struct event *e) {
    struct live *l = p->priv;
    GP_AUTO_STR struct str said = {0};
    progress_say(p, e, &said);
    const char *text = said.s != NULL ? said.s : "";
    int64_t now = clock_ms();
    int node = -1;
    bool stays = progress_prints(p, e, &node);
    pthread_mutex_lock(&l->lock);
    if (e->node >= 0 && e->node < 100000) {
        place_node(l, e, text, now);
    } else {
        place_unseen(l, e, now);
        str_put(l->text, sizeof l->text, text);
    }
    if (stays && is_kept(p, l, e, text)) keep(p, l, e, text);
    l->dirty = true;
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->lock);
}

static void live_lines(struct progress *p) {
    struct live *l = p->priv;
    pthread_mutex_lock(&l->lock);
    l->lines = l->dirty = true;
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->lock);
}

static void live_end(struct progress *p) {
    struct live *l = p->priv;
    pthread_mutex_lock(&l->lock);
    l->stop = true;
    pthread_cond_signal(&l->wake);
    pthread_mutex_unlock(&l->lock);
    pthread_join(l->thread, NULL);
    pthread_mutex_destroy(&l->lock);
    pthread_cond_destroy(&l->wake);
    vec_free(&l->nodes);
    vec_free(&l->drawn);
    str_clear(&l->above);
    free(l);
}

const struct progress_ops progress_live = {"live", live_begin, live_event, live_end, live_lines};

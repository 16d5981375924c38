/* SPDX-License-Identifier: Apache-2.0 */
/* Plain progress: one line per event, for pipes and logs. A node's reason for waiting is repeated
 * after 15 s at the earliest. Any thread may emit. */
#include "base/gp_base.h"

#include "output.h"

#include "progress_priv.h"
#include "width.h"

#include <pthread.h>

enum { REPEAT_MS = 15000 };

struct plain {
    pthread_mutex_t lock;
    VEC_OF(int64_t) last_ms; /* by node + 1: when its last line was written */
};

static int plain_begin(struct progress *p, struct gp_error *err) {
    (void)err;
    struct plain *pl = xcalloc(1, sizeof *pl);
    pthread_mutex_init(&pl->lock, NULL);
    p->priv = pl;
    return 0;
}

/* True if the event gets a line now. */
static bool due(struct plain *pl, const struct event *e, int64_t now) {
    size_t index = (size_t)e->node + 1; /* -1 becomes 0 */
    pthread_mutex_lock(&pl->lock);
    while (pl->last_ms.len <= index) vec_push(&pl->last_ms, INT64_MIN / 2);
    bool yes = e->status != EVENT_PROGRESS || now - pl->last_ms.items[index] >= REPEAT_MS;
    if (yes) pl->last_ms.items[index] = now;
    pthread_mutex_unlock(&pl->lock);
    return yes;
}

static void plain_event(struct progress *p, const struct event *e) {
    int64_t now = clock_ms();
    if (e->node < -1 || !due(p->priv, e, now)) return;
    GP_AUTO_STR struct str say = {0}, line = {0};
    progress_say(p, e, &say);
    str_addf(&line, "[%4llds] ", (long long)((now - p->started_ms) / 1000));
    progress_label(p, e, e->node, &line);
    if (e->node >= 0 && (e->phase != NODE_FAILED || say.len == 0)) str_addf(&line, " %s", node_phase_name(e->phase));
    str_add(&line, say.len > 0 ? ": " : "");
    if (say.len > 0) text_fit(&line, say.s, SIZE_MAX);
    str_addc(&line, '\n');
    fwrite(line.s, 1, line.len, p->to);
    fflush(p->to);
}

static void plain_end(struct progress *p) {
    struct plain *pl = p->priv;
    pthread_mutex_destroy(&pl->lock);
    vec_free(&pl->last_ms);
    free(pl);
}

const struct progress_ops progress_plain = {"plain", plain_begin, plain_event, plain_end};

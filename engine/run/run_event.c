/* SPDX-License-Identifier: Apache-2.0 */
/* Events of a run, with the stack and the run in them, to the engine's sink and to the stack's event log.
 * Any thread. */
#include "base/gp_base.h"

#include "engine/run/run_event.h"

#include "engine/run/eventlog.h"
#include "engine/run/notify.h"

static void log_event(struct run *run, const struct event *e) {
    struct gp_error why = {0};
    pthread_mutex_lock(&run->log.lock);
    bool tell = event_log_add(&run->log.file, e, &why) != 0 && !run->log.failed;
    run->log.failed = run->log.failed || tell;
    pthread_mutex_unlock(&run->log.lock);
    if (tell) /* only a warning: a full disk must not stop `down` */
        event_emit(&run->e->sink, -1, NODE_PLANNED, EVENT_WARN, "log", "%s", why.msg);
}

static void run_emit(void *ctx, const struct event *e) {
    struct run *run = ctx;
    struct event full = *e;
    full.stack = run->stack.name;
    full.owner = run->owner;
    full.run = run->id;
    if (run->e->sink.emit != NULL) run->e->sink.emit(run->e->sink.ctx, &full);
    if (run->log.file.path != NULL) log_event(run, &full);
    notify_event(run, &full);
}

void run_events_init(struct run *run, const char *name) {
    pthread_mutex_init(&run->log.lock, NULL);
    run->sink = (struct event_sink){.emit = run_emit, .ctx = run};
    if (name != NULL) event_log_init(&run->log.file, run->e->state_dir, name);
}

void run_events_clear(struct run *run) {
    event_log_clear(&run->log.file);
    pthread_mutex_destroy(&run->log.lock);
}

void run_event(const struct run *run, int node, enum node_phase phase, enum event_status status, const char *step,
               const char *fmt, ...) {
    char text[GP_ERROR_MSG_MAX];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    event_emit(&run->sink, node, phase, status, step, "%s", text);
}

void run_event_end(const struct run *run, const struct gp_error *err) {
    bool stopped = err->code == GP_ECANCELLED;
    event_send(&run->sink, (struct event){.node = -1,
                                          .phase = stopped ? NODE_PLANNED : NODE_FAILED,
                                          .status = stopped ? EVENT_INFO : EVENT_FAIL,
                                          .text = err->msg,
                                          .code = err->code});
}

void run_say_damaged(struct engine *e, const struct event_sink *sink) {
    if (!e->journal_damaged) return;
    event_emit(sink, -1, NODE_PLANNED, EVENT_WARN, "journal",
               "the journal was damaged and set aside as %s; stacks are read again from their tags: 'gpuprov status' "
               "lists them",
               journal_aside(e->journal));
    e->journal_damaged = false;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Writes the lines: hello, start, result, end. The end line counts the results. One thread. */
#include "base/gp_base.h"

#include "emit.h"

#include "base/clock.h"
#include "base/fs.h"

#include <sys/utsname.h>
#include <unistd.h>

void emit_line(struct emit *e, const char *line, size_t n) {
    if (n == 0 || n > AGENT_LINE_MAX || line[n - 1] != '\n') return;
    if (fs_write_all(e->fd, line, n) != 0) e->broken = true;
}

static void member(struct str *s, const char *key, const char *value) {
    str_addf(s, ",\"%s\":\"", key);
    str_add_json(s, value, strlen(value));
    str_addc(s, '"');
}

void emit_hello(struct emit *e, int rank, int size) {
    struct utsname u = {0};
    uname(&u);
    int online = 0;
    double cores = agent_cores(&online);
    int64_t machine = 0;
    int64_t memory = agent_memory_bytes(&machine);
    GP_AUTO_STR struct str boot = {0};
    if (fs_read("/proc/sys/kernel/random/boot_id", 64, &boot, NULL) != 0) str_reset(&boot);
    GP_AUTO_STR struct str s = {0};
    str_addf(&s, "{\"v\":%d,\"type\":\"hello\"", AGENT_PROTOCOL);
    member(&s, "agent", GP_VERSION);
    member(&s, "kind", agent_kind.name);
    member(&s, "host", u.nodename);
    member(&s, "kernel", u.release);
    member(&s, "arch", u.machine);
    member(&s, "boot_id", boot.s != NULL ? str_trim(boot.s) : "");
    str_addf(&s, ",\"pid\":%d,\"uid\":%d,\"cores\":%.4g,\"cores_online\":%d", (int)getpid(), (int)getuid(), cores,
             online);
    str_addf(&s, ",\"memory_bytes\":%lld,\"dev_nvidia\":%d", (long long)memory, agent_dev_nvidia_count());
    if (rank >= 0) str_addf(&s, ",\"rank\":%d,\"size\":%d", rank, size);
    if (agent_kind.hello != NULL) agent_kind.hello(&s);
    str_add(&s, "}\n");
    e->began_ms = clock_ms();
    if (!e->text) {
        emit_line(e, s.s, s.len);
        return;
    }
    int gpus = agent_dev_nvidia_count();
    GP_AUTO_FREE char *t = xasprintf(
        "%s: gpuprov-agent %s (%s), %s, %.4g of %d cores, %.4g GiB, %d GPU device file%s\n", u.nodename, GP_VERSION,
        agent_kind.name, u.machine, cores, online, (double)memory / (1 << 30), gpus, gpus == 1 ? "" : "s");
    emit_line(e, t, strlen(t));
}

static void loaded_text(const struct emit *e, const struct emit_gpu *gpus, size_t n, struct str *s) {
    str_addf(s, "%-9s the driver, in %.2f s\n", "loaded", (double)e->load_ms / 1000);
    for (size_t i = 0; i < n; i++) {
        const struct emit_gpu *g = &gpus[i];
        str_addf(s, "%-9s gpu %d", "", g->gpu);
        if (g->id->pci[0] != '\0') str_addf(s, " at %s", g->id->pci);
        if (g->code[0] != '\0') str_addf(s, ": %s", g->message);
        else if (g->model != NULL) str_addf(s, ": %s", gpu_model_name(g->model));
        else if (g->id->device != 0)
            str_addf(s, ": PCI id 10de:%04x is not in the model table, so rates are unrated", g->id->device);
        else str_add(s, ": model not known, so rates are unrated");
        str_addc(s, '\n');
    }
}

static void loaded_json(const struct emit *e, const struct emit_gpu *gpus, size_t n, struct str *s) {
    str_addf(s, "{\"type\":\"loaded\",\"load_ms\":%lld,\"gpus\":[", (long long)e->load_ms);
    for (size_t i = 0; i < n; i++) {
        const struct emit_gpu *g = &gpus[i];
        str_addf(s, "%s{\"gpu\":%d,\"load_ms\":%lld", i > 0 ? "," : "", g->gpu, (long long)g->load_ms);
        if (g->id->pci[0] != '\0') member(s, "pci", g->id->pci);
        if (g->id->device != 0) str_addf(s, ",\"pci_id\":\"%04x\"", g->id->device);
        if (g->id->subsystem != 0) str_addf(s, ",\"subsystem\":\"%04x\"", g->id->subsystem);
        if (g->model != NULL) member(s, "model", gpu_model_name(g->model));
        if (g->code[0] != '\0') {
            member(s, "code", g->code);
            member(s, "message", g->message);
        }
        str_addc(s, '}');
    }
    str_add(s, "]}\n");
}

void emit_loaded(struct emit *e, const struct emit_gpu *gpus, size_t n) {
    GP_AUTO_STR struct str s = {0};
    if (e->text) loaded_text(e, gpus, n, &s);
    else loaded_json(e, gpus, n, &s);
    emit_line(e, s.s, s.len);
}

void emit_start(struct emit *e, const struct check_info *check) {
    if (e->text) return;
    GP_AUTO_STR struct str s = {0};
    str_addf(&s, "{\"type\":\"start\",\"check\":\"%s\"", check->id);
    if (e->ranked) str_addf(&s, ",\"rank\":%d", e->rank);
    str_add(&s, "}\n");
    emit_line(e, s.s, s.len);
}

/* Four significant digits, never an exponent. */
static void add_number(struct str *s, double v) {
    double size = v < 0 ? -v : v;
    int places = size >= 1000 ? 0 : size >= 100 ? 1 : size >= 10 ? 2 : size >= 1 ? 3 : size >= 0.01 ? 4 : 6;
    char text[64];
    snprintf(text, sizeof text, "%.*f", places, v);
    if (strchr(text, '.') != NULL) {
        size_t n = strlen(text);
        while (text[n - 1] == '0') text[--n] = '\0';
        if (text[n - 1] == '.') text[n - 1] = '\0';
    }
    str_add(s, text);
}

/* The figure, its limit, and the figure measured on sound GPUs of this model. */
static void figure_text(const struct agent_metric *m, struct str *s) {
    const struct limit *l = &m->limit;
    GP_AUTO_STR struct str value = {0};
    add_number(&value, m->value);
    str_addf(s, "%26s %10s %s", m->info->name, value.s, m->info->unit);
    if (l->kind != LIMIT_NONE && l->kind != LIMIT_UNRATED) {
        str_add(s, m->info->ceiling ? ", at most " : ", at least ");
        add_number(s, l->fail >= 0 ? l->fail : l->degraded);
    }
    if (l->kind == LIMIT_MODEL && l->measured > 0) {
        str_add(s, "; measured elsewhere ");
        add_number(s, l->measured);
    }
    if (l->kind == LIMIT_UNRATED) str_add(s, ", unrated: no published figure to compare it with");
    str_addc(s, '\n');
}

/* One line per check, one per figure, and the advice. */
static void result_text(const struct agent_result *r, struct str *s) {
    str_addf(s, "%-9s %-16s", verdict_name(r->verdict), r->check->id);
    if (r->took_ms > 0) str_addf(s, " %6.2f s ", (double)r->took_ms / 1000);
    else str_addf(s, " %8s ", "");
    str_addf(s, " %s\n", r->message);
    for (size_t i = 0; i < r->n_metrics; i++) figure_text(&r->metrics[i], s);
    bool blamed = r->verdict == VERDICT_DEGRADED || r->verdict == VERDICT_FAIL;
    const char *advice = r->suggestion[0] != '\0' ? r->suggestion : blamed ? r->check->suggestion : "";
    if (advice[0] != '\0') str_addf(s, "%26s %s\n", "to do:", advice);
}

void emit_result(struct emit *e, const struct agent_result *r) {
    if (r->verdict != VERDICT_SKIPPED) e->ran++;
    e->failed += r->verdict == VERDICT_FAIL;
    e->errors += r->verdict == VERDICT_ERROR;
    e->degraded += r->verdict == VERDICT_DEGRADED;
    e->skipped += r->verdict == VERDICT_SKIPPED;
    bool counts = r->verdict != VERDICT_SKIPPED || (r->check->required && !r->check->may_skip);
    if (counts && r->verdict > e->worst) e->worst = r->verdict;
    GP_AUTO_STR struct str s = {0};
    if (e->text) result_text(r, &s);
    else agent_result_line(r, &s);
    emit_line(e, s.s, s.len);
}

int emit_end(struct emit *e, const char *reason) {
    enum verdict v = e->worst;
    if (v < VERDICT_ERROR && (e->ran == 0 || reason[0] != '\0')) v = VERDICT_ERROR;
    if (e->ran == 0 && reason[0] == '\0') reason = "no check ran";
    GP_AUTO_STR struct str s = {0};
    if (e->text) {
        str_addf(&s, "%s: %zu check%s ran in %.1f s, %zu failed, %zu degraded, %zu unknown, %zu not run%s%s\n",
                 verdict_name(v), e->ran, e->ran == 1 ? "" : "s", (double)(clock_ms() - e->began_ms) / 1000, e->failed,
                 e->degraded, e->errors, e->skipped, reason[0] != '\0' ? "; " : "", reason);
    } else {
        str_addf(&s, "{\"type\":\"end\",\"verdict\":\"%s\"", verdict_name(v));
        if (reason[0] != '\0') member(&s, "reason", reason);
        if (e->ranked) str_addf(&s, ",\"rank\":%d", e->rank);
        str_add(&s, "}\n");
    }
    emit_line(e, s.s, s.len);
    return (int)verdict_node_check(v);
}

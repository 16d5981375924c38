/* SPDX-License-Identifier: Apache-2.0 */
/* What a node prints while it is bootstrapped, as everything on it could write it: facts, results of probes, the lines of
 * a step that is followed, its kept output. Nothing of it becomes a control character of a message. */
#include "base/gp_base.h"

#include "bootstrap/detached.c"
#include "bootstrap/output.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds) {
    if (!holds) abort();
}

static bool is_clean(const char *s) {
    for (; s != NULL && *s != '\0'; s++)
        if (((unsigned char)*s < ' ' && *s != '\n' && *s != '\t') || *s == 0x7f) return false;
    return true;
}

static void on_event(void *ctx, const struct event *e) {
    (void)ctx;
    must(is_clean(e->text) && e->percent >= -1 && e->percent <= 100);
}
static const struct event_sink sink = {.emit = on_event};

static void facts(const char *data, size_t size) {
    static const char chars[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+~-";
    struct boot_facts f = {0};
    boot_facts_parse(&f, data, size);
    must(f.n_gpus >= 0 && f.n_gpus <= BOOT_GPUS_MAX);
    must(f.os[strspn(f.os, chars)] == '\0' && f.kernel[strspn(f.kernel, chars)] == '\0');
    must(f.arch[strspn(f.arch, chars)] == '\0' && f.boot_id[strspn(f.boot_id, chars)] == '\0');
    must(f.driver[strspn(f.driver, "0123456789.")] == '\0');
    for (int i = 0; i < f.n_gpus; i++) must(f.gpus[i].device <= 0xffffff && f.gpus[i].subsystem <= 0xffffff);
    boot_facts_clear(&f);
}

static void probes(struct boot *b, const char *data, size_t size) {
    boot_probe_parse(b, data, size);
    for (size_t i = 0; i < b->items.len; i++) {
        struct boot_item *it = &b->items.items[i];
        must(it->probe >= -1 && it->probe <= 255);
        free(it->why);
        free(it->warning);
        it->why = it->warning = NULL;
    }
}

static void followed(struct boot *b, const char *data, size_t size) {
    GP_CLEANUP(run_clear) struct run r = {.b = b, .it = &b->items.items[0], .id = "0123456789abcdef", .id_len = 16};
    const char *p = data, *end = data + size;
    while (p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        size_t n = (size_t)((nl != NULL ? nl : end) - p);
        GP_AUTO_FREE char *line = xstrndup(p, n); /* as ssh/exec.c: without NUL */
        must(on_line(&r, false, line, strlen(line)));
        must(r.offset >= 0 && r.status >= 0 && r.status <= 255);
        p += n + 1;
    }
    must(is_clean(r.error) && is_clean(r.last) && is_clean(r.full) && is_clean(r.reboot) && is_clean(r.progress));
    GP_AUTO_STR struct str text = {0};
    struct gp_error err = {0};
    bool changed = false;
    run_said(&r, &text);
    must(run_verdict(&r, &changed, &err) == 0 || is_clean(err.msg));
}

static void output(const char *data, size_t size) {
    struct bootstrap_output o = {0};
    struct gp_error err = {0};
    GP_AUTO_FREE char *text = xmalloc(size + 1);
    for (size_t i = 0; i < size; i++) text[i] = data[i] == '\0' ? '?' : data[i];
    text[size] = '\0';
    if (parse(text, size, &o, &err) == 0) must(is_clean(o.text.s) && is_clean(o.node_path));
    else must(err.code == GP_ENOTFOUND && is_clean(err.msg));
    bootstrap_output_clear(&o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const struct bootstrap_req req = {0};
    static const struct boot_step row = {.file = "packages"};
    struct node_link link = {.sink = &sink};
    struct boot b = {.link = &link, .req = &req};
    for (int i = 0; i < 3; i++) {
        struct boot_item it = {.step = &row, .name = "packages", .probe = -1, .tries = 1};
        vec_push(&b.items, it);
    }
    if (size > 65536) return 0;
    link.target.label = (char[]){"llm/1"};
    facts((const char *)data, size);
    probes(&b, (const char *)data, size);
    followed(&b, (const char *)data, size);
    output((const char *)data, size);
    vec_free(&b.items);
    return 0;
}

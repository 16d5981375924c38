/* SPDX-License-Identifier: Apache-2.0 */
/* The facts of a node, decoded strictly: they choose its steps and its software. The node's own thread. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

#include "base/log.h"

#define FACTS_MS 240000

int boot_facts_script(struct str *out, struct gp_error *err) {
    str_add(out, "echo\n"); /* ends a line that a start-up file printed without a newline */
    return boot_file("run/facts", out, err);
}

void boot_facts_clear(struct boot_facts *f) {
    free(f->home);
    free(f->missing);
    *f = (struct boot_facts){0};
}

/* "0x2330" of at most 24 bits. */
static bool hex_of(const char *text, unsigned *ret) {
    char *end = NULL;
    if (!str_starts(text, "0x") || strlen(text) > 8 || !text[2]) return false;
    *ret = (unsigned)strtoul(text, &end, 16);
    return *end == '\0';
}

static void pci(struct boot_facts *f, const char *value) {
    GP_AUTO_STRV struct strv part = {0};
    unsigned class = 0;
    struct boot_gpu gpu = {0};
    strv_split(&part, value, " ");
    if (part.n != 3 || !hex_of(part.v[0], &class) || !hex_of(part.v[1], &gpu.device) ||
        !hex_of(part.v[2], &gpu.subsystem))
        return;
    class >>= 8;
    if (class == 0x0680) f->n_nvswitches++;
    if ((class == 0x0300 || class == 0x0302) && f->n_gpus < BOOT_GPUS_MAX) f->gpus[f->n_gpus++] = gpu;
}

/* "580.65.06 open" */
static void driver(struct boot_facts *f, const char *value) {
    size_t n = strspn(value, "0123456789.");
    if (n == 0 || n >= sizeof f->driver || value[n] != ' ') return;
    memcpy(f->driver, value, n);
    f->driver[n] = '\0';
    f->driver_open = strcmp(value + n + 1, "open") == 0;
}

/* Becomes part of messages, and decides which rows of a table fit: nothing but a plain word. */
static void word(char *dst, size_t size, const char *value) {
    static const char chars[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+~-";
    size_t n = strlen(value);
    if (n < size && strspn(value, chars) == n) str_put(dst, size, value);
}

static void fact(struct boot_facts *f, const char *text) {
    const char *value = strchr(text, ' ');
    if (!value) return;
    GP_AUTO_FREE char *name = xstrndup(text, (size_t)(value - text));
    value++;
    if (str_eq(name, "arch")) word(f->arch, sizeof f->arch, value);
    else if (str_eq(name, "boot")) word(f->boot_id, sizeof f->boot_id, value);
    else if (str_eq(name, "user")) str_put(f->user, sizeof f->user, value);
    else if (str_eq(name, "root")) f->root = true;
    else if (str_eq(name, "nvidia")) f->nvidia = true;
    else if (str_eq(name, "driver-ours")) f->driver_ours = true;
    else if (str_eq(name, "os")) word(f->os, sizeof f->os, value);
    else if (str_eq(name, "kernel")) word(f->kernel, sizeof f->kernel, value);
    else if (str_eq(name, "pci")) pci(f, value);
    else if (str_eq(name, "driver")) driver(f, value);
    else {
        char **to = str_eq(name, "home") ? &f->home : str_eq(name, "missing") ? &f->missing : NULL;
        if (to && !*to) *to = xstrdup(value);
    }
}

void boot_facts_parse(struct boot_facts *f, const char *text, size_t n) {
    boot_facts_clear(f);
    GP_AUTO_FREE char *copy = xstrndup(text, n);
    for (char *save = NULL, *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save))
        if (str_starts(line, "::fact ")) fact(f, line + 7);
}

int boot_facts_get(struct boot *b, struct gp_error *err) {
    struct node_link *l = b->link;
    GP_AUTO_STR struct str script = {0};
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    int rc = boot_facts_script(&script, err);
    if (!rc) rc = node_link_sh(l, "probing the node", &script, FACTS_MS, b->req->deadline_ms, &r, err);
    if (rc) return rc;
    boot_facts_parse(&b->facts, r.out.s ? r.out.s : "", r.out.len);
    const struct boot_facts *f = &b->facts;
    if (!f->home || !f->boot_id[0] || !f->arch[0]) {
        GP_AUTO_FREE char *said = boot_said(&r);
        GP_AUTO_FREE char *clean = log_redacted(said);
        return gp_fail(err, GP_EBOOTSTRAP, "%s: probing the node: its shell did not answer as a POSIX sh does: %s",
                       l->target.label, clean);
    }
    if (f->missing)
        return gp_fail(err, GP_EBOOTSTRAP,
                       "%s: probing the node: it has no '%s', which "
                       "gpuprov requires: install it",
                       l->target.label, f->missing);
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Loading a spec: read, parse, substitute, decode, hash; freeing it; showing its problems; reading a
 * secret when it is needed. The language itself is in spec_tables.c. Any thread. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "spec/spec_internal.h"

#include <openssl/evp.h>

void spec_problems_clear(struct spec_problems *p) {
    for (size_t i = 0; i < p->list.len; i++) free(p->list.items[i].message);
    vec_free(&p->list);
}

static void block_clear(const struct spec_block *b, void *base);

static void field_clear(const struct spec_field *f, void *at) {
    struct spec_vec list;
    switch (f->type) {
    case SPEC_TEXT: free(*(char **)at); break;
    case SPEC_TEXTS:
    case SPEC_VARS: strv_clear(at); break;
    case SPEC_BLOCK:
    case SPEC_SHORT: block_clear(f->block, at); break;
    case SPEC_LIST:
        memcpy(&list, at, sizeof list);
        for (size_t i = 0; i < list.len; i++) block_clear(f->block, list.items + i * f->block->size);
        free(list.items);
        break;
    case SPEC_FLOORS: spec_floors_clear(at); break;
    case SPEC_INT:
    case SPEC_BOOL:
    case SPEC_DURATION:
    case SPEC_MONEY:
    case SPEC_SIZE:
    case SPEC_ENUM: break;
    }
}

static void block_clear(const struct spec_block *b, void *base) {
    for (const struct spec_field *f = b->fields; f->name != NULL; f++)
        if (f->offset != SIZE_MAX) field_clear(f, (char *)base + f->offset);
}

void spec_only_hosts(struct spec *s, const char *hosts, int n) {
    for (size_t i = 0; i < s->offers.len; i++) block_clear(&spec_offer_block, &s->offers.items[i]);
    s->offers.len = 0;
    char *absolute = realpath(hosts, NULL);
    struct spec_offer only = {.provider = xstrdup("ssh"), .hosts = absolute != NULL ? absolute : xstrdup(hosts)};
    vec_push(&s->offers, only);
    s->nodes = n;
}

void spec_free(struct spec *s) {
    if (s == NULL) return;
    free(s->path);
    free(s->text);
    block_clear(&spec_root, s);
    spec_replaced_clear(s);
    free(s);
}

void spec_cleanup(struct spec **spec) {
    spec_free(*spec);
    *spec = NULL;
}

/* libyaml stops at the first syntax error; "path:line:column: text" becomes a problem like others. */
static void syntax_problem(struct spec_ctx *c, const struct gp_error *err) {
    unsigned line = 1, column = 1;
    int used = 0;
    const char *rest = err->msg;
    GP_AUTO_FREE char *prefix = xasprintf("%s:", c->path);
    if (str_starts(rest, prefix)) rest += strlen(prefix);
    if (sscanf(rest, "%u:%u: %n", &line, &column, &used) >= 2 && used > 0) rest += used;
    spec_complain_at(c, line, column, "%s", rest);
}

static int by_place(const void *pa, const void *pb) {
    const struct spec_problem *a = pa, *b = pb;
    if (a->pos.line != b->pos.line) return a->pos.line < b->pos.line ? -1 : 1;
    if (a->pos.column != b->pos.column) return a->pos.column < b->pos.column ? -1 : 1;
    return strcmp(a->message, b->message);
}

/* Fills the spec as far as it can be decoded; all errors are in c->problems. */
static void decode_all(struct spec_ctx *c, const char *text, size_t n) {
    struct yaml_node *root = NULL;
    struct gp_error err = {0};
    if (n > SPEC_FORM_MAX) {
        spec_complain_at(c, 1, 1, "the spec is larger than %zu bytes", SPEC_FORM_MAX);
    } else if (memchr(text, '\0', n) != NULL) {
        spec_complain_at(c, 1, 1, "the spec has a NUL byte: it is not text");
    } else if (yaml_parse(c->path, text, n, &root, &err) != 0) {
        syntax_problem(c, &err);
    } else if (root == NULL) {
        spec_complain_at(c, 1, 1, "the spec is empty; the smallest one is 'name: try'");
    } else {
        spec_notify_before(c, root);
        if (c->form) spec_replaced_take(c, root);
        spec_substitute(c, root, false);
        spec_decode(c, &spec_root, root, c->spec);
    }
    yaml_node_free(root);
}

static int hash(struct spec *s, struct gp_error *err) {
    GP_AUTO_FREE char *text = spec_hash_form(s);
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    if (EVP_Digest(text, strlen(text), digest, &n, EVP_sha256(), NULL) != 1 || n != 32)
        return gp_fail(err, GP_EINTERNAL, "could not hash the spec: OpenSSL has no SHA-256");
    str_hex(s->hash, digest, n);
    return 0;
}

static int load(const char *path, const char *text, size_t n, const struct spec_names *names, bool form,
                struct spec **ret, struct spec_problems *problems, struct gp_error *err) {
    GP_AUTO_SPEC struct spec *spec = xcalloc(1, sizeof *spec);
    spec->path = xstrdup(path);
    spec->text = xstrndup(text, n);
    struct spec_ctx c = {.path = path, .names = names, .form = form, .spec = spec, .problems = problems};
    decode_all(&c, text, n);
    vec_free(&c.bad);
    size_t found = problems->list.len + c.dropped;
    if (found > 0) {
        qsort(problems->list.items, problems->list.len, sizeof *problems->list.items, by_place);
        gp_fail(err, GP_EUSAGE, "%s: %zu error%s%s", path, found, found == 1 ? "" : "s",
                c.dropped > 0 ? " (the first are shown)" : "");
        if (err != NULL) err->domain = GP_D_SPEC;
        return -GP_EUSAGE;
    }
    int r = hash(spec, err);
    if (r == 0) *ret = GP_STEAL(spec);
    return r;
}

int spec_load_text(const char *path, const char *text, size_t n, const struct spec_names *names, struct spec **ret,
                   struct spec_problems *problems, struct gp_error *err) {
    return load(path, text, n, names, names == NULL, ret, problems, err);
}

int spec_load_form(const char *path, const char *text, const struct spec_names *names, struct spec **ret,
                   struct spec_problems *problems, struct gp_error *err) {
    return load(path, text, strlen(text), names, true, ret, problems, err);
}

int spec_load(const char *path, const struct spec_names *names, struct spec **ret, struct spec_problems *problems,
              struct gp_error *err) {
    GP_AUTO_STR struct str text = {.max = SPEC_TEXT_MAX + 1};
    int r = fs_read(path, SPEC_TEXT_MAX, &text, err);
    if (r == -GP_ENOTFOUND) return gp_wrap(err, "no spec ('gpuprov init %s' writes one)", path);
    if (r != 0) return gp_wrap(err, "the spec");
    return spec_load_text(path, text.s != NULL ? text.s : "", text.len, names, ret, problems, err);
}

/* --- showing problems --- */

/* Start and length of a line (1-based) of text. */
static const char *line_of(const char *text, unsigned line, size_t *ret_len) {
    for (unsigned i = 1; i < line && text != NULL; i++) {
        text = strchr(text, '\n');
        if (text != NULL) text++;
    }
    if (text == NULL) return NULL;
    *ret_len = strcspn(text, "\r\n");
    return text;
}

#define SHOWN_BEFORE 60 /* characters of a long line left of the caret */
#define SHOWN_MAX 120

/* True if the byte is not text: control characters, C1 codes and invalid UTF-8 could steer a
 * terminal. */
static bool steers(const char *line, size_t i, size_t n) {
    const unsigned char *p = (const unsigned char *)line;
    if (p[i] < 0x80) return (p[i] < 0x20 && p[i] != '\t') || p[i] == 0x7f;
    size_t first = i;
    while (first > 0 && i - first < 3 && (p[first] & 0xc0) == 0x80) first--;
    size_t len = p[first] >= 0xf0 ? 4 : p[first] >= 0xe0 ? 3 : 2;
    if (p[first] < 0xc2 || p[first] > 0xf4 || first + len > n || i >= first + len) return true;
    for (size_t k = first + 1; k < first + len; k++)
        if ((p[k] & 0xc0) != 0x80) return true;
    return p[first] == 0xc2 && p[first + 1] < 0xa0;
}

/* The line and a caret below the column (counted in characters, tabs kept). Long lines are cut. */
static void show_line(const char *line, size_t n, unsigned column, bool colour, struct str *out) {
    unsigned from = column > SHOWN_BEFORE + 1 ? column - SHOWN_BEFORE : 1, at = 0;
    GP_AUTO_STR struct str below = {.max = 1000};
    GP_AUTO_FREE bool *hidden = xcalloc(n + 1, sizeof *hidden);
    spec_notify_hide(line, n, hidden);
    str_add(out, from > 1 ? "  ..." : "  ");
    str_add(&below, from > 1 ? "     " : "  ");
    for (size_t i = 0; i < n; i++) {
        bool first = ((unsigned char)line[i] & 0xc0) != 0x80;
        at += first;
        if (at < from) continue;
        if (at >= from + SHOWN_MAX) {
            str_add(out, "...");
            break;
        }
        str_addc(out, hidden[i] ? '*' : steers(line, i, n) ? '?' : line[i]);
        if (first && at < column) str_addc(&below, line[i] == '\t' ? '\t' : ' ');
    }
    str_addf(out, "\n%s%s^%s\n", below.s, colour ? "\033[1;32m" : "", colour ? "\033[0m" : "");
}

void spec_problems_format(const struct spec_problems *p, const char *path, const char *text, bool colour,
                          struct str *out) {
    for (size_t i = 0; i < p->list.len; i++) {
        const struct spec_problem *x = &p->list.items[i];
        unsigned line = GP_MAX(x->pos.line, 1u), column = GP_MAX(x->pos.column, 1u);
        str_addf(out, "%s%s:%u:%u: %serror:%s %s\n", colour ? "\033[1m" : "", path, line, column,
                 colour ? "\033[31m" : "", colour ? "\033[0m" : "", x->message);
        size_t n = 0;
        const char *shown = line_of(text, line, &n);
        if (shown != NULL && n > 0) show_line(shown, n, column, colour, out);
    }
}

/* --- secrets --- */

int spec_secret_read(const struct spec_secret *s, const char *spec_path, struct secret *ret, struct gp_error *err) {
    if (str_starts(s->from, "env:")) {
        const char *value = getenv(s->from + 4);
        if (value == NULL || value[0] == '\0')
            return gp_fail(err, GP_EENV, "the secret %s: the environment has no %s: set it", s->env, s->from + 4);
        secret_set(ret, value, strlen(value));
        return 0;
    }
    if (!str_starts(s->from, "file:"))
        return gp_fail(err, GP_EUSAGE, "the secret %s: 'from' must be file:PATH or env:NAME", s->env);
    GP_AUTO_FREE char *path = fs_relative_to(spec_path, s->from + 5);
    struct str text = {.max = SPEC_VALUE_MAX};
    str_init(&text, SPEC_VALUE_MAX);
    int r = fs_read(path, SPEC_VALUE_MAX, &text, err);
    size_t n = text.len;
    while (r == 0 && n > 0 && (text.s[n - 1] == '\n' || text.s[n - 1] == '\r')) n--;
    if (r != 0) r = gp_wrap(err, "the secret %s", s->env);
    else if (n == 0) r = gp_fail(err, GP_EENV, "the secret %s: '%s' is empty", s->env, path);
    else if (memchr(text.s, '\0', n) != NULL)
        r = gp_fail(err, GP_EENV, "the secret %s: '%s' has a NUL byte", s->env, path);
    else secret_set(ret, text.s, n);
    explicit_bzero(text.s, text.cap);
    str_clear(&text);
    return r;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Renders templates: @@NAME@@, @@q:NAME@@ (quoted for sh), @@b64:NAME@@. Values are never scanned
 * again, so nothing in a value can name a variable. Does no I/O; any thread may call it. */
#include "base/gp_base.h"

#include "templates/templates.h"

#define VAR_NAME_MAX 64

static const char *var_find(const struct template_var *vars, const char *name, size_t n) {
    for (const struct template_var *v = vars; v && v->name; v++)
        if (strlen(v->name) == n && memcmp(v->name, name, n) == 0) return v->value ? v->value : "";
    return NULL;
}

static bool name_ok(const char *name, size_t n) {
    if (n == 0 || n > VAR_NAME_MAX) return false;
    for (size_t i = 0; i < n; i++) {
        char c = name[i];
        if (!((c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_')) return false;
    }
    return true;
}

static bool add_base64(struct str *out, const char *text) {
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    size_t n = strlen(text);
    bool ok = true;
    for (size_t i = 0; i < n && ok; i += 3) {
        size_t left = n - i;
        uint32_t v = (uint32_t)(unsigned char)text[i] << 16;
        if (left > 1) v |= (uint32_t)(unsigned char)text[i + 1] << 8;
        if (left > 2) v |= (uint32_t)(unsigned char)text[i + 2];
        char four[4] = {digits[v >> 18 & 63], digits[v >> 12 & 63], left > 1 ? digits[v >> 6 & 63] : '=',
                        left > 2 ? digits[v & 63] : '='};
        ok = str_add_mem(out, four, sizeof four);
    }
    return ok;
}

/* Renders one name between the marks, with its optional "q:" or "b64:" in front. */
static int add_var(const char *what, const char *name, size_t n, const struct template_var *vars, struct str *out,
                   struct gp_error *err) {
    enum { PLAIN, QUOTED, BASE64 } form = PLAIN;
    if (n > 2 && memcmp(name, "q:", 2) == 0) {
        form = QUOTED;
        name += 2;
        n -= 2;
    } else if (n > 4 && memcmp(name, "b64:", 4) == 0) {
        form = BASE64;
        name += 4;
        n -= 4;
    }
    if (!name_ok(name, n)) return gp_fail(err, GP_EINTERNAL, "template '%s': malformed name after '@@'", what);
    const char *value = var_find(vars, name, n);
    if (!value) return gp_fail(err, GP_EINTERNAL, "template '%s': unknown name '%.*s'", what, (int)n, name);
    if (form == QUOTED) str_add_shquoted(out, value);
    else if (form == BASE64) add_base64(out, value);
    else str_add(out, value);
    return 0;
}

int template_render_text(const char *what, const char *text, size_t n, const struct template_var *vars, struct str *out,
                         struct gp_error *err) {
    const char *p = text;
    const char *end = text + n;
    while (p < end) {
        const char *mark = memmem(p, (size_t)(end - p), "@@", 2);
        if (!mark) {
            str_add_mem(out, p, (size_t)(end - p));
            break;
        }
        str_add_mem(out, p, (size_t)(mark - p));
        const char *name = mark + 2;
        const char *close = memmem(name, (size_t)(end - name), "@@", 2);
        if (!close) return gp_fail(err, GP_EINTERNAL, "template '%s': '@@' without its end", what);
        int rc = add_var(what, name, (size_t)(close - name), vars, out, err);
        if (rc) return rc;
        p = close + 2;
    }
    if (out->truncated)
        return gp_fail(err, GP_EINTERNAL, "template '%s': longer than %zu bytes when rendered", what,
                       out->max ? out->max : STR_MAX_DEFAULT);
    return 0;
}

int template_render(const char *name, const struct template_var *vars, struct str *out, struct gp_error *err) {
    const struct template_file *f = template_find(name);
    if (!f) return gp_fail(err, GP_EINTERNAL, "template '%s' is not in this program", name);
    return template_render_text(name, (const char *)f->data, f->size, vars, out, err);
}

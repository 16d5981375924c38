/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces ${env:NAME} and ${file:path} in values after the YAML is parsed, so that a replacement never
 * becomes structure. $${ stands for ${. In scripts (run, check) every other ${...} is left to the shell;
 * elsewhere it is an error. Reads the environment and the named files. Any thread. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "base/json.h"
#include "spec/spec_internal.h"

#include <ctype.h>

/* The kind of substitution at text. */
enum found { NOT_OURS, ENV, FILE_TEXT, ESCAPED, WRONG };

/* `${env:NAME}` and `${file:PATH}` exactly; ${file:-x} and ${env:?} are shell expansions. */
static enum found look(const char *text, bool shell, size_t *ret_len) {
    size_t dollars = str_starts(text, "$$") ? 1 : 0;
    const char *at = text + dollars;
    if (at[0] != '$' || at[1] != '{') return NOT_OURS;
    const char *end = strchr(at, '}');
    enum found found = WRONG;
    if (end != NULL && str_starts(at, "${env:")) {
        const char *p = at + 6;
        if (isalpha((unsigned char)*p) || *p == '_') {
            while (isalnum((unsigned char)*p) || *p == '_') p++;
            if (p == end) found = ENV;
        }
    } else if (end != NULL && str_starts(at, "${file:")) {
        const char *p = at + 7;
        if (p < end && strchr("-=?+#%:@^,", *p) == NULL) found = FILE_TEXT;
    }
    if (found == WRONG && shell) return NOT_OURS;
    if (dollars > 0) {
        *ret_len = 3; /* "$${" */
        return ESCAPED;
    }
    *ret_len = end != NULL ? (size_t)(end - at) + 1 : 2;
    return found;
}

static void at_offset(const struct yaml_node *node, size_t offset, unsigned *line, unsigned *column) {
    *line = node->line;
    *column = node->column;
    if (strchr(node->value, '\n') != NULL) return; /* folded or block text: report its start */
    size_t chars = 0;
    for (size_t i = 0; i < offset; i++) chars += ((unsigned char)node->value[i] & 0xc0) != 0x80;
    *column += (unsigned)chars + (node->quoted ? 1 : 0);
}

static bool put_env(struct spec_ctx *c, const struct yaml_node *node, size_t offset, const char *name,
                    struct str *out) {
    const char *value = getenv(name);
    if (value != NULL) {
        str_add(out, value);
        return true;
    }
    unsigned line = 0, column = 0;
    at_offset(node, offset, &line, &column);
    spec_complain_at(c, line, column, "the environment has no %s: set it, or write the value", name);
    return false;
}

static bool put_file(struct spec_ctx *c, const struct yaml_node *node, size_t offset, const char *name,
                     struct str *out) {
    GP_AUTO_FREE char *path = fs_relative_to(c->path, name);
    GP_AUTO_STR struct str text = {.max = SPEC_VALUE_MAX};
    struct gp_error err = {0};
    unsigned line = 0, column = 0;
    at_offset(node, offset, &line, &column);
    if (fs_read(path, SPEC_VALUE_MAX, &text, &err) != 0) {
        spec_complain_at(c, line, column, "%s", err.msg);
        return false;
    }
    if (text.len > 0 && strlen(text.s) != text.len) {
        spec_complain_at(c, line, column, "'%s' is not text: it has a NUL byte", path);
        return false;
    }
    if (text.len > 0 && text.s[text.len - 1] == '\n') text.s[--text.len] = '\0';
    if (text.len > 0) str_add(out, text.s);
    return true;
}

static bool put_wrong(struct spec_ctx *c, const struct yaml_node *node, size_t offset, size_t len) {
    unsigned line = 0, column = 0;
    at_offset(node, offset, &line, &column);
    spec_complain_at(c, line, column, "unknown substitution '%.*s': use ${env:NAME} or ${file:PATH}; $${ stands for ${",
                     (int)GP_MIN(len, (size_t)60), node->value + offset);
    return false;
}

static void substitute_value(struct spec_ctx *c, struct yaml_node *node, bool shell) {
    if (strchr(node->value, '$') == NULL) return;
    GP_AUTO_STR struct str out = {.max = 4 * SPEC_VALUE_MAX};
    bool ok = true;
    for (size_t i = 0; node->value[i] != '\0';) {
        size_t len = 1;
        enum found found = look(node->value + i, shell, &len);
        GP_AUTO_FREE char *name = NULL;
        if (found == ENV) name = xstrndup(node->value + i + 6, len - 7);
        if (found == FILE_TEXT) name = xstrndup(node->value + i + 7, len - 8);
        if (found == ENV) ok = put_env(c, node, i, name, &out) && ok;
        else if (found == FILE_TEXT) ok = put_file(c, node, i, name, &out) && ok;
        else if (found == WRONG) ok = put_wrong(c, node, i, len) && ok;
        else if (found == ESCAPED) str_add(&out, "${");
        else str_addc(&out, node->value[i]);
        i += len;
    }
    if (ok && out.truncated) {
        spec_complain(c, node, "the value is longer than 64 KiB once ${...} is replaced");
    } else if (ok) {
        json_t *utf8 = json_stringn(out.s != NULL ? out.s : "", out.len);
        if (utf8 == NULL) {
            spec_complain(c, node, "the replacement of ${...} is not UTF-8 text");
            return;
        }
        json_decref(utf8);
        free(node->value);
        node->value = str_steal(&out);
        /* a replacement is never taken for an absent value */
        if (node->value[0] == '\0') node->quoted = true;
    } else {
        vec_push(&c->bad, (const struct yaml_node *)node);
    }
}

void spec_substitute(struct spec_ctx *c, struct yaml_node *node, bool shell) {
    if (node->kind == YAML_SCALAR) {
        substitute_value(c, node, shell);
        return;
    }
    bool map = node->kind == YAML_MAP;
    for (size_t i = map ? 1 : 0; i < node->items.len; i += map ? 2 : 1) {
        const char *key = map ? node->items.items[i - 1]->value : "";
        bool script = map && spec_key_is_script(key);
        spec_substitute(c, node->items.items[i], script);
    }
}

char *spec_escape(const char *text, bool shell) {
    struct str out = {.max = SIZE_MAX - 1};
    for (; *text != '\0'; text++) {
        size_t len = 0;
        bool dollar = text[0] == '$' && text[1] == '{';
        if (dollar && look(text, shell, &len) != NOT_OURS) str_addc(&out, '$');
        str_addc(&out, *text);
    }
    return str_steal(&out);
}

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

/* Folders and names of this machine's user, which messages are full of. */
static bool is_plain_variable(const char *shown) {
    static const char *const plain[] = {"${env:HOME}", "${env:USER}", "${env:LOGNAME}", "${env:PWD}", NULL};
    for (size_t i = 0; plain[i] != NULL; i++)
        if (strcmp(plain[i], shown) == 0) return true;
    return false;
}

/* What one value had. */
struct parts {
    bool replaced; /* a replacement */
    bool noted;    /* one that may be a secret */
};

/* A script from a file is shown nowhere, and its lines are in the output of its steps. */
static void note_part(struct spec_ctx *c, enum found found, const char *shown, const char *value, bool shell,
                      struct parts *parts) {
    bool script = shell && found == FILE_TEXT && strchr(value, '\n') != NULL;
    parts->replaced = true;
    if (script || is_plain_variable(shown)) return;
    parts->noted = true;
    spec_replaced_add(c->spec, shown, value);
}

/* Puts the new value in place, and keeps the text of the file for messages. */
static void take(struct spec_ctx *c, struct yaml_node *node, struct str *value, const struct parts *parts, bool shell) {
    char *old = GP_STEAL(node->value);
    node->value = str_steal(value);
    if (parts->noted && !shell) spec_replaced_add(c->spec, old, node->value);
    if (parts->replaced) node->source = old;
    else free(old);
    /* a replacement is never taken for an absent value */
    if (node->value[0] == '\0') node->quoted = true;
}

/* Appends node->value with its replacements. False: one cannot be replaced, which was reported. */
static bool replace(struct spec_ctx *c, const struct yaml_node *node, bool shell, struct str *out, struct parts *ret) {
    bool ok = true;
    for (size_t i = 0; node->value[i] != '\0';) {
        size_t len = 1, before = out->len;
        enum found found = look(node->value + i, shell, &len);
        GP_AUTO_FREE char *shown = xstrndup(node->value + i, len);
        GP_AUTO_FREE char *name = NULL;
        if (found == ENV) name = xstrndup(node->value + i + 6, len - 7);
        if (found == FILE_TEXT) name = xstrndup(node->value + i + 7, len - 8);
        if (found == ENV) ok = put_env(c, node, i, name, out) && ok;
        else if (found == FILE_TEXT) ok = put_file(c, node, i, name, out) && ok;
        else if (found == WRONG) ok = put_wrong(c, node, i, len) && ok;
        else if (found == ESCAPED) str_add(out, "${");
        else str_addc(out, node->value[i]);
        if (name != NULL) note_part(c, found, shown, out->len > before ? out->s + before : "", shell, ret);
        i += len;
    }
    return ok;
}

static void substitute_value(struct spec_ctx *c, struct yaml_node *node, bool shell) {
    GP_AUTO_STR struct str out = {.max = SPEC_VALUE_MAX};
    struct parts parts = {0};
    if (strchr(node->value, '$') != NULL) {
        if (!replace(c, node, shell, &out, &parts)) {
            vec_push(&c->bad, (const struct yaml_node *)node);
            return;
        }
        json_t *utf8 = json_stringn(out.s != NULL ? out.s : "", out.len);
        json_decref(utf8);
        if (out.truncated) spec_complain(c, node, "the value is longer than 64 KiB once ${...} is replaced");
        else if (utf8 == NULL) spec_complain(c, node, "the replacement of ${...} is not UTF-8 text");
        else take(c, node, &out, &parts, shell);
    }
    const char *shown = spec_replaced_shown(c->spec, node->value); /* of a form from the journal */
    if (node->source == NULL && shown != NULL) node->source = xstrdup(shown);
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

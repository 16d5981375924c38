/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces ${env:NAME} and ${file:path} in values after the YAML is parsed, so that a replacement never
 * becomes structure. $${ stands for ${. In scripts (run, check) every other ${...} is left to the shell;
 * elsewhere it is an error. What a value became may be a secret, so the redactor gets it with the text that
 * is shown for it: errors, events and plans show it in one way. Reads the environment and the named files.
 * Any thread. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "spec/spec_internal.h"

#include <ctype.h>

#define SHOWN_MAX ((size_t)120) /* bytes of the text of a value that is shown for it; libyaml reads keys up to 1024 */

/* --- the syntax --- */

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

/* --- what values were replaced by, and how it is shown --- */

void spec_replaced_clear(struct spec *s) {
    for (size_t i = 0; i < s->replaced.len; i++) {
        free(s->replaced.items[i].shown);
        free(s->replaced.items[i].value);
    }
    vec_free(&s->replaced);
}

const char *spec_replaced_shown(const struct spec *s, const char *value) {
    for (size_t i = 0; i < s->replaced.len; i++)
        if (str_eq(s->replaced.items[i].value, value)) return s->replaced.items[i].shown;
    return NULL;
}

/* Messages also show what is behind such a beginning, and folders without the slash at their end. */
static void register_value(const char *value, const char *shown) {
    static const char *const beginnings[] = {"env:", "file:", SPEC_TERRAFORM, "~/", "./", NULL};
    log_redact_as(value, shown);
    for (size_t i = 0; beginnings[i] != NULL; i++)
        if (str_starts(value, beginnings[i])) log_redact_as(value + strlen(beginnings[i]), shown);
    size_t n = strlen(value);
    while (n > 1 && value[n - 1] == '/') n--;
    GP_AUTO_FREE char *folder = xstrndup(value, n);
    if (value[n] != '\0') log_redact_as(folder, shown);
}

/* The first bytes of a text, n at most, without a part of a character. Caller frees. */
static char *cut(const char *text, size_t n) {
    n = strnlen(text, n);
    while (n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80) n--;
    return xstrndup(text, n);
}

static const char *value_of(const struct spec *s, const char *label) {
    for (size_t i = 0; i < s->replaced.len; i++)
        if (str_eq(s->replaced.items[i].shown, label)) return s->replaced.items[i].value;
    return NULL;
}

/* The first ${env:NAME} or ${file:PATH} of a text, and its length; NULL: it has none. */
static const char *first_of(const char *text, size_t *ret_len) {
    for (const char *p = text; *p != '\0'; p += *ret_len) {
        enum found found = NOT_OURS;
        *ret_len = 1;
        if (*p == '$') found = look(p, false, ret_len);
        if (found == ENV || found == FILE_TEXT) return p;
    }
    return NULL;
}

#define GAP "..."

/* Moves *at behind what a label has between two replacements; false: the value has no such text there. */
static bool take_literal(const char **at, const struct str *literal, bool first, bool last) {
    const char *text = literal->s != NULL ? literal->s : "", *found = *at;
    if (literal->len == 0 || ((first || last) && strcmp(text, GAP) == 0)) return true;
    if (first) found = str_starts(*at, text) ? *at : NULL;
    else if (last) found = str_ends(*at, text) ? *at + strlen(*at) - literal->len : NULL;
    else found = strstr(*at, text);
    if (found == NULL) return false;
    *at = found + literal->len;
    return true;
}

/* A label has a replacement, and no other text than the value: else it would state something of its own. */
static bool is_true(const char *label, const char *value) {
    GP_AUTO_FREE char *line = xstrdup(value);
    GP_AUTO_STR struct str literal = {.max = SIZE_MAX - 1};
    const char *at = line;
    bool any = false;
    str_one_line(line);
    for (size_t i = 0, len = 1; label[i] != '\0'; i += len) {
        enum found found = NOT_OURS;
        len = 1;
        if (label[i] == '$') found = look(label + i, false, &len);
        if (found == ENV || found == FILE_TEXT) {
            if (!take_literal(&at, &literal, !any, false)) return false;
            str_clear(&literal);
            literal.max = SIZE_MAX - 1;
            any = true;
        } else if (found == ESCAPED) str_add(&literal, "${");
        else str_add_mem(&literal, label + i, len);
    }
    return any && take_literal(&at, &literal, false, true);
}

/* A text of the file as a label: with long text around it, its first replacement alone. Caller frees; NULL: it has no
 * replacement. */
static char *short_label(const char *shown) {
    size_t len = 0;
    const char *first = first_of(shown, &len);
    if (first == NULL) return NULL;
    char *label = NULL;
    if (strlen(shown) <= SHOWN_MAX) {
        label = xstrdup(shown);
    } else {
        GP_AUTO_FREE char *part = len <= SHOWN_MAX ? xstrndup(first, len) : cut(first, SHOWN_MAX - 1);
        label = xasprintf("%s%s%s%s", first > shown ? GAP : "", part, len <= SHOWN_MAX ? "" : "}",
                          first[len] != '\0' ? GAP : "");
    }
    str_one_line(label);
    return label;
}

/* A key of the table: no other value has it. Caller frees; NULL: the text has no replacement. */
static char *label_of(const struct spec *s, const char *shown, const char *value) {
    GP_AUTO_FREE char *text = short_label(shown);
    if (text == NULL) return NULL;
    GP_AUTO_FREE char *label = xstrdup(text);
    for (int n = 2; value_of(s, label) != NULL && !str_eq(value_of(s, label), value); n++) {
        free(label);
        label = xasprintf("%s (%d)", text, n);
    }
    return GP_STEAL(label);
}

void spec_replaced_add(struct spec *s, const char *shown, const char *value) {
    if (value[0] == '\0') return;
    GP_AUTO_FREE char *label = label_of(s, shown, value);
    register_value(value, label != NULL ? label : "***");
    if (label == NULL || value_of(s, label) != NULL) return;
    struct spec_replaced r = {.shown = GP_STEAL(label), .value = xstrdup(value)};
    vec_push(&s->replaced, r);
}

void spec_replaced_reveal(struct spec_ctx *c, const struct yaml_node *at) {
    for (size_t i = 0; at->kind == YAML_LIST && i < at->items.len; i++) spec_replaced_reveal(c, at->items.items[i]);
    if (at->source == NULL || spec_is_bad(c, at)) return;
    size_t kept = 0;
    for (size_t i = 0; i < c->spec->replaced.len; i++) {
        struct spec_replaced r = c->spec->replaced.items[i];
        if (strstr(at->source, r.shown) == NULL) {
            c->spec->replaced.items[kept++] = r;
            continue;
        }
        log_reveal(r.value);
        free(r.shown);
        free(r.value);
    }
    c->spec->replaced.len = kept;
}

json_t *spec_replaced_json(const struct spec *s) {
    json_t *map = json_object();
    for (size_t i = 0; i < s->replaced.len; i++)
        json_object_set_new(map, s->replaced.items[i].shown, json_string(s->replaced.items[i].value));
    if (json_object_size(map) > 0) return map;
    json_decref(map);
    return NULL;
}

/* Removes the " (2)" of label_of. */
static bool drop_number(char *label) {
    char *at = strrchr(label, ' ');
    if (at == NULL || at[1] != '(' || strspn(at + 2, "0123456789") == 0 ||
        strcmp(at + 2 + strspn(at + 2, "0123456789"), ")") != 0)
        return false;
    *at = '\0';
    return true;
}

/* The label that a canonical form has for a value, or its first replacement where it has text that the value does not
 * have. A label without one that ends is of an earlier gpuprov, which cut them. Caller frees; NULL: it is no label. */
static char *checked_label(const char *label, const char *value) {
    size_t len = 0;
    GP_AUTO_FREE char *numbered = xstrdup(label);
    if (is_true(label, value)) return xstrdup(label);
    if (drop_number(numbered) && is_true(numbered, value)) return GP_STEAL(numbered);
    const char *first = first_of(label, &len), *begin = strstr(label, "${");
    if (first != NULL) return xstrndup(first, len);
    GP_AUTO_FREE char *ended = begin != NULL && strlen(label) >= SHOWN_MAX / 2 ? xasprintf("%s}", begin) : NULL;
    first = ended != NULL ? first_of(ended, &len) : NULL;
    return first != NULL ? xstrndup(first, len) : NULL;
}

void spec_replaced_register(const json_t *canonical) {
    const char *label = NULL;
    const json_t *value = NULL;
    json_object_foreach(json_object_get(canonical, SPEC_REPLACED_KEY), label, value) {
        if (!json_is_string(value)) continue;
        GP_AUTO_FREE char *shown = checked_label(label, json_string_value(value));
        register_value(json_string_value(value), shown != NULL ? shown : "***");
    }
}

void spec_replaced_take(struct spec_ctx *c, struct yaml_node *root) {
    size_t at = 0;
    while (root->kind == YAML_MAP && at < root->items.len && !str_eq(root->items.items[at]->value, SPEC_REPLACED_KEY))
        at += 2;
    if (root->kind != YAML_MAP || at >= root->items.len) return;
    struct yaml_node *key = root->items.items[at], *map = root->items.items[at + 1];
    bool ok = map->kind == YAML_MAP;
    for (size_t i = 0; ok && i + 1 < map->items.len; i += 2) {
        const struct yaml_node *value = map->items.items[i + 1];
        ok = value->kind == YAML_SCALAR;
        GP_AUTO_FREE char *label = ok ? checked_label(map->items.items[i]->value, value->value) : NULL;
        ok = label != NULL;
        if (ok) spec_replaced_add(c->spec, label, value->value);
    }
    if (!ok)
        spec_complain_at(c, key->line, key->column,
                         "'" SPEC_REPLACED_KEY "' has a text that is no replacement: plan again");
    memmove(&root->items.items[at], &root->items.items[at + 2], (root->items.len - at - 2) * sizeof *root->items.items);
    root->items.len -= 2;
    yaml_node_free(key);
    yaml_node_free(map);
}

/* --- the replacement --- */

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

/* False: too much, which was reported once. The journal and plan files have each replacement, twice, and give back
 * SPEC_FORM_MAX. */
static bool fits(struct spec_ctx *c, const struct yaml_node *node, size_t n) {
    bool before = c->replaced <= SPEC_REPLACED_MAX;
    c->replaced += n;
    if (before && c->replaced > SPEC_REPLACED_MAX)
        spec_complain(c, node, "the values with ${...} are more than 1 MiB: send large files with bootstrap.files");
    return c->replaced <= SPEC_REPLACED_MAX;
}

static void substitute_value(struct spec_ctx *c, struct yaml_node *node, bool shell) {
    GP_AUTO_STR struct str out = {.max = SPEC_VALUE_MAX};
    struct parts parts = {0};
    if (strchr(node->value, '$') != NULL) {
        bool ok = replace(c, node, shell, &out, &parts);
        if (!ok || (parts.replaced && !fits(c, node, out.len))) {
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

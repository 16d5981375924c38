/* SPDX-License-Identifier: Apache-2.0 */
/* JSON through jansson, with a depth cap before parsing, one error text and reads by path.
 * No I/O. Any thread, one value per thread. */
#include "base/gp_base.h"

#include "base/json.h"

#define JSON_DEPTH_MAX 64

void json_cleanup(json_t **j) {
    json_decref(*j);
    *j = NULL;
}

/* Deepest nesting of brackets outside strings; exact for valid JSON only, which is sufficient. */
static size_t depth_of(const char *text, size_t n) {
    size_t depth = 0, deepest = 0;
    bool in_string = false;
    for (size_t i = 0; i < n; i++) {
        char c = text[i];
        if (in_string) {
            if (c == '\\') i++;
            else if (c == '"') in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            depth++;
            deepest = GP_MAX(deepest, depth);
        } else if ((c == '}' || c == ']') && depth > 0) {
            depth--;
        }
    }
    return deepest;
}

int json_parse(const char *text, size_t n, const char *what, json_t **ret, struct gp_error *err) {
    if (depth_of(text, n) > JSON_DEPTH_MAX)
        return gp_fail(err, GP_EPROTO, "%s is not usable JSON: nested deeper than %d", what, JSON_DEPTH_MAX);
    json_error_t at;
    json_t *j = json_loadb(text, n, JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &at);
    if (j == NULL) {
        /* jansson quotes the input after " near"; the input may hold a secret */
        char *near = strstr(at.text, " near ");
        if (near != NULL) *near = '\0';
        return gp_fail(err, GP_EPROTO, "%s is not valid JSON: line %d, column %d: %s", what, at.line, at.column,
                       at.text);
    }
    *ret = j;
    return 0;
}

json_t *json_any_text(const char *s) {
    if (s == NULL) return json_null();
    json_t *j = json_string(s);
    if (j != NULL) return j;
    GP_AUTO_FREE char *clean = xstrdup(s);
    str_one_line(clean);
    return json_string(clean);
}

char *json_text_exact(const json_t *j, size_t indent) {
    /* 15 digits: 0.007 stays 0.007 */
    size_t flags = JSON_ENCODE_ANY | JSON_REAL_PRECISION(15) | (indent > 0 ? JSON_INDENT(indent) : JSON_COMPACT);
    char *text = json_dumps(j, flags);
    return text != NULL ? text : xstrdup("null"); /* only for a cycle or invalid UTF-8 */
}

char *json_text(const json_t *j, size_t indent) {
    GP_AUTO_FREE char *exact = json_text_exact(j, indent);
    size_t n = strlen(exact);
    struct str out = {.max = 6 * n + 1}; /* one byte is \u0000 at most */
    str_add_json_text(&out, exact, n);
    return str_steal(&out);
}

json_t *json_at(const json_t *j, const char *path) {
    json_t *at = NULL;
    while (j != NULL) {
        size_t n = strcspn(path, ".");
        char key[128];
        if (n == 0 || n >= sizeof key) return NULL;
        memcpy(key, path, n);
        key[n] = '\0';
        int64_t index = 0;
        if (json_is_array(j) && str_to_i64(key, 0, INT32_MAX, &index)) at = json_array_get(j, (size_t)index);
        else at = json_object_get(j, key);
        if (path[n] == '\0') return at;
        path += n + 1;
        j = at;
    }
    return NULL;
}

const char *json_str(const json_t *j, const char *path, const char *def) {
    const json_t *v = json_at(j, path);
    return json_is_string(v) ? json_string_value(v) : def;
}

int64_t json_int(const json_t *j, const char *path, int64_t def) {
    const json_t *v = json_at(j, path);
    return json_is_integer(v) ? (int64_t)json_integer_value(v) : def;
}

int64_t json_int_in(const json_t *j, const char *path, int64_t min, int64_t max, int64_t def) {
    int64_t v = json_int(j, path, def);
    return v >= min && v <= max ? v : def;
}

double json_num(const json_t *j, const char *path, double def) {
    const json_t *v = json_at(j, path);
    return json_is_number(v) ? json_number_value(v) : def;
}

bool json_bool(const json_t *j, const char *path, bool def) {
    const json_t *v = json_at(j, path);
    return json_is_boolean(v) ? json_is_true(v) : def;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the spec's list `notify`, its rules, and the form of its URLs. No I/O but the reads of a URL or key that
 * is in a variable or a file. Any thread. */
#include "base/gp_base.h"

#include "base/form.h"
#include "spec/spec_internal.h"

#include <ctype.h>

#define FROM_PATTERN "^(file:.+|env:[A-Za-z_][A-Za-z0-9_]*)$"
#define FROM_DOC "env:NAME or file:PATH"
/* Without user and password. No brace: it would be a substitution that was not replaced. */
#define URL_PATTERN "^https?://([A-Za-z0-9.-]{1,253}|\\[[0-9A-Fa-f:.]{2,45}\\])(:[0-9]{1,5})?([/?][!$-;=?-Z_a-z~]*)?$"

const char *const spec_notify_kinds[NOTIFY_NONE + 1] = {
    [NOTIFY_READY] = "ready",         [NOTIFY_PREEMPTED] = "preempted",
    [NOTIFY_UNHEALTHY] = "unhealthy", [NOTIFY_SPENT] = "spent",
    [NOTIFY_DEADLINE] = "deadline",   [NOTIFY_LEAKED] = "leaked",
    [NOTIFY_FAILED] = "failed",       [NOTIFY_JOB] = "job",
    [NOTIFY_GONE] = "gone",           NULL};

bool spec_notify_wants(const struct spec_notify *n, enum notify_kind kind) {
    return kind != NOTIFY_NONE && (n->on.n == 0 || strv_has(&n->on, spec_notify_kinds[kind]));
}

/* --- URLs --- */

static bool is_reference(const char *text) { return str_starts(text, "env:") || str_starts(text, "file:"); }

char *spec_notify_place(const char *url) {
    const char *at = strstr(url, "://");
    at = at != NULL ? at + 3 : url;
    return xstrndup(at, strcspn(at, "/?#"));
}

bool spec_notify_is_loopback(const char *url) {
    struct url_place place;
    return form_url(url, &place) && form_url_is_loopback(&place);
}

const char *spec_notify_url_wrong(const char *url) {
    GP_AUTO_FREE char *place = spec_notify_place(url);
    if (strlen(url) > SPEC_NOTIFY_URL_MAX) return "is longer than 2000 characters";
    if (strchr(place, '@') != NULL) return "has a user or a password: use a URL without them";
    if (!spec_match(URL_PATTERN, url)) return "is not a URL such as https://hooks.example/gpuprov";
    if (str_starts(url, "http:") && !spec_notify_is_loopback(url))
        return "is not https: what is sent could be read and changed on its way; http is for loopback addresses";
    return NULL;
}

static void check_url(struct spec_ctx *c, const struct yaml_node *at) {
    if (is_reference(at->value)) {
        if (!spec_match(FROM_PATTERN, at->value)) spec_complain(c, at, "'url' must be a URL, " FROM_DOC);
        return;
    }
    const char *wrong = spec_notify_url_wrong(at->value);
    if (wrong != NULL) spec_complain(c, at, "'url' %s", wrong);
}

/* A key that was written into the spec is not repeated in the message. */
static void check_secret(struct spec_ctx *c, const struct yaml_node *at) {
    if (!spec_match(FROM_PATTERN, at->value))
        spec_complain(c, at, "'secret' must be " FROM_DOC ", which has the key: a spec is not secret");
}

static size_t value_end(const char *line, size_t n, size_t at, const char *ends) {
    while (at < n && strchr(ends, line[at]) == NULL) at++;
    return at;
}

/* Marks the value of a key `secret` or `url` that is written out; what is behind the host of a URL has its own rule. */
static void hide_value(const char *line, size_t n, const char *key, bool *hidden) {
    size_t len = strlen(key);
    for (size_t i = 0; i + len < n; i++) {
        if (memcmp(line + i, key, len) != 0 || (i > 0 && (isalnum((unsigned char)line[i - 1]) || line[i - 1] == '_')))
            continue;
        size_t at = i + len;
        while (at < n && strchr("\"' ", line[at]) != NULL) at++;
        if (at == n || line[at] != ':') continue;
        for (at++; at < n && strchr("\"' \t", line[at]) != NULL; at++) continue;
        size_t end = value_end(line, n, at, "\"'\t,}");
        if (is_reference(line + at) || str_starts(line + at, "${") || memmem(line + at, end - at, "://", 3) != NULL)
            continue;
        for (; at < end; at++) hidden[at] = true;
    }
}

/* Marks what is behind the host of each URL, and all of one with a user or a password. */
static void hide_urls(const char *line, size_t n, bool *hidden) {
    for (size_t i = 0; i + 3 < n; i++) {
        if (memcmp(line + i, "://", 3) != 0) continue;
        size_t at = i + 3, end = value_end(line, n, at, "\"' \t,}]");
        if (memchr(line + at, '@', end - at) == NULL) at = GP_MIN(value_end(line, n, at, "/?#"), end);
        for (; at < end; at++) hidden[at] = true;
    }
}

void spec_notify_hide(const char *line, size_t n, bool *hidden) {
    hide_value(line, n, "url", hidden);
    hide_value(line, n, "secret", hidden);
    hide_urls(line, n, hidden);
}

/* --- reading --- */

static int read_from(const char *from, const char *what, struct secret *ret, struct gp_error *err) {
    const struct spec_secret s = {.env = (char *)(uintptr_t)what, .from = (char *)(uintptr_t)from};
    int r = spec_secret_read(&s, "", ret, err);
    if (r != 0 && err != NULL) { /* the same form, but it is no entry of `secrets` */
        struct gp_error why = *err;
        gp_error_clear(err);
        return gp_fail(err, why.code, "%s", str_starts(why.msg, "the secret ") ? why.msg + 11 : why.msg);
    }
    return r;
}

int spec_notify_read_url(const struct spec_notify *n, struct secret *ret, struct gp_error *err) {
    if (!is_reference(n->url)) {
        secret_set(ret, n->url, strlen(n->url));
        return 0;
    }
    int r = read_from(n->url, "notify.url", ret, err);
    const char *wrong = r == 0 ? spec_notify_url_wrong(secret_reveal(ret)) : NULL;
    if (wrong == NULL) return r;
    secret_clear(ret);
    return gp_fail(err, GP_EUSAGE, "notify.url: the value of '%.200s' %s", n->url, wrong);
}

int spec_notify_read_secret(const struct spec_notify *n, struct secret *ret, struct gp_error *err) {
    return read_from(n->secret, "notify.secret", ret, err);
}

/* --- rules --- */

static void absolute_from(const struct spec_ctx *c, char **from) {
    if (*from == NULL || !str_starts(*from, "file:")) return;
    char *path = xstrdup(*from + 5);
    spec_absolute(c, &path);
    free(*from);
    *from = xasprintf("file:%s", path);
    free(path);
}

static void rule_notify(struct spec_ctx *c, const struct yaml_node *map, void *to) {
    struct spec_notify *n = to;
    const struct yaml_node *url = yaml_get(map, "url"), *command = yaml_get(map, "command");
    const struct yaml_node *secret = yaml_get(map, "secret");
    if (map != NULL) n->line = map->line, n->column = map->column;
    if (url != NULL && command != NULL)
        spec_complain(c, command, "'notify' has both 'url' and 'command': make two entries");
    else if (url == NULL && command == NULL && map != NULL)
        spec_complain(c, map, "'notify' needs 'url' or 'command', such as {url: env:WEBHOOK}");
    else if (url == NULL && secret != NULL)
        spec_complain(c, secret, "'secret' signs what is sent to a 'url'; a command has none");
    absolute_from(c, &n->url);
    absolute_from(c, &n->secret);
}

void spec_rule_notify_root(struct spec_ctx *c, const struct yaml_node *root) {
    const struct yaml_node *list = yaml_get(root, "notify");
    if (list != NULL && list->kind == YAML_LIST && list->items.len > SPEC_NOTIFY_MAX)
        spec_complain(c, list->items.items[SPEC_NOTIFY_MAX], "'notify' has %zu entries; at most %d", list->items.len,
                      SPEC_NOTIFY_MAX);
}

/* A replaced value would be kept in the journal with the spec. */
void spec_notify_before(struct spec_ctx *c, const struct yaml_node *root) {
    static const char *const keys[] = {"url", "secret"};
    const struct yaml_node *list = root->kind == YAML_MAP ? yaml_get(root, "notify") : NULL;
    for (size_t i = 0; list != NULL && list->kind == YAML_LIST && i < list->items.len; i++)
        for (size_t k = 0; k < GP_ARRAY_LEN(keys); k++) {
            const struct yaml_node *map = list->items.items[i];
            const struct yaml_node *at = map->kind == YAML_MAP ? yaml_get(map, keys[k]) : NULL;
            const char *begin = at != NULL && at->kind == YAML_SCALAR ? strstr(at->value, "${") : NULL;
            if (begin == NULL) continue;
            bool whole = begin == at->value && str_ends(begin, "}");
            spec_complain(c, at, "'%s' would be kept in the journal with its value: write '%.*s' without '${' and '}'",
                          keys[k], whole ? (int)GP_MIN(strlen(begin) - 3, (size_t)100) : 8,
                          whole ? begin + 2 : "env:NAME");
        }
}

/* Rows read as rows. */
/* clang-format off */
static const struct spec_field notify_fields[] = {
    {.name = "url", .type = SPEC_TEXT, .offset = offsetof(struct spec_notify, url),
     .doc = "where each event is sent as JSON: an https URL (http for a loopback address), or `env:NAME` or "
            "`file:PATH` of this machine that has it, read when it is needed and never kept",
     .example = "env:WEBHOOK", .check = check_url, .effect = SPEC_LATER},
    {.name = "secret", .type = SPEC_TEXT, .offset = offsetof(struct spec_notify, secret), .def_doc = "unsigned",
     .doc = "`env:NAME` or `file:PATH` of this machine: the key of the signature (HMAC-SHA256) of what is sent to "
            "`url`; it never leaves this machine",
     .example = "env:WEBHOOK_KEY", .check = check_secret, .effect = SPEC_LATER},
    {.name = "command", .type = SPEC_TEXT, .offset = offsetof(struct spec_notify, command),
     .doc = "a POSIX sh script that runs on this machine with the JSON on stdin and `GPUPROV_EVENT` set to the kind, "
            "for at most 30 s", .example = "jq -r .text >>events.txt", .script = true, .effect = SPEC_LATER},
    {.name = "on", .type = SPEC_TEXTS, .min_items = 1, .offset = offsetof(struct spec_notify, on),
     .def_doc = "all kinds", .choices = spec_notify_kinds, .doc = "the kinds of events that are sent",
     .example = "[failed, leaked]", .effect = SPEC_LATER},
    {0}};
const struct spec_block spec_notify_block = {
    .path = "notify[]",
    .doc = "Receivers of the stack's events, at most 8. Each has `url` or `command`. None delays or fails a verb.",
    .fields = notify_fields, .size = sizeof(struct spec_notify), .rules = rule_notify};
/* clang-format on */

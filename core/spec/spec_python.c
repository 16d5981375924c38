/* SPDX-License-Identifier: Apache-2.0 */
/* The spec's block `bootstrap.python`: its rows and rules. Reads the requirements file, whose text becomes part of the
 * spec and of its hash, so that an edited file is a changed spec. Any thread. */
#include "base/gp_base.h"

#include "base/form.h"
#include "base/fs.h"
#include "spec/spec_internal.h"

#include <strings.h>

#define URL_PATTERN "^https?://[A-Za-z0-9.-]+(:[0-9]{1,5})?(/[A-Za-z0-9._~%+-]*)*$"
#define URL_DOC "an http or https URL without a user, a password, '?' and '#'"

/* clang-format off */
static const struct spec_field python_fields[] = {
    {.name = "version", .type = SPEC_TEXT, .offset = offsetof(struct spec_python, version),
     .def_doc = "python3 of the node's distribution", .doc = "the version of the interpreter", .example = "3.12",
     .pattern = "^3[.][0-9]{1,2}$", .pattern_doc = "a version such as 3.12", .effect = SPEC_REPEATED},
    {.name = "venv", .type = SPEC_TEXT, .offset = offsetof(struct spec_python, venv),
     .def_doc = SPEC_PYTHON_VENV, .doc = "folder of the virtual environment, owned by the login user",
     .example = "/opt/train", .pattern = "^(/[A-Za-z0-9_+-][A-Za-z0-9._+-]{0,99}){2,10}$",
     .pattern_doc = "an absolute path of two parts or more, of letters, digits and '._+-'", .effect = SPEC_REPEATED},
    {.name = "packages", .type = SPEC_TEXTS, .offset = offsetof(struct spec_python, packages),
     .doc = "packages for pip, with a version (`numpy==2.1.0`) or without; torch, deepspeed "
            "and horovod make their checks (`framework.torch` ...) required", .example = "[numpy==2.1.0]",
     .pattern = "^[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?(\\[[A-Za-z0-9,._-]{1,200}\\])?"
                "((==|>=|<=|~=|!=|<|>)[A-Za-z0-9.*+!_-]{1,60}(,(==|>=|<=|~=|!=|<|>)[A-Za-z0-9.*+!_-]{1,60})*)?$",
     .pattern_doc = "a package such as numpy or numpy==2.1.0, without blanks", .effect = SPEC_REPEATED},
    {.name = "requirements", .type = SPEC_TEXT, .offset = offsetof(struct spec_python, requirements), .script = true,
     .doc = "a requirements file of pip, relative to the spec, or its text in several lines; the text is part of the "
            "spec, so an edited file changes the spec", .example = "requirements.txt", .effect = SPEC_REPEATED},
    {.name = "torch", .type = SPEC_TEXT, .offset = offsetof(struct spec_python, torch), .def_doc = "none",
     .doc = "PyTorch: `auto` is the newest one, a version is exactly that one; the build fits the node's GPUs and "
            "driver, on a node without GPUs it is the CPU's. Makes the check framework.torch required",
     .example = "auto", .pattern = "^(auto|none|[0-9]{1,3}[.][0-9]{1,3}([.][0-9]{1,3})?)$",
     .pattern_doc = "auto, none or a version such as 2.9.1", .effect = SPEC_REPEATED},
    {.name = "index", .type = SPEC_TEXT, .offset = offsetof(struct spec_python, index),
     .def_doc = "the node's own setting of pip, else PyPI", .doc = "URL of the package index",
     .example = "https://pypi.example.org/simple", .pattern = URL_PATTERN, .pattern_doc = URL_DOC,
     .effect = SPEC_REPEATED},
    {.name = "torch_index", .type = SPEC_TEXT, .offset = offsetof(struct spec_python, torch_index),
     .def_doc = SPEC_PYTHON_TORCH_INDEX,
     .doc = "URL of a folder with one index of PyTorch per build (`cpu`, `cu128`)",
     .example = "https://mirror.example.org/whl", .pattern = URL_PATTERN, .pattern_doc = URL_DOC,
     .effect = SPEC_REPEATED},
    {.name = "index_auth", .type = SPEC_TEXT, .offset = offsetof(struct spec_python, index_auth),
     .doc = "name of the secret with `USER:PASSWORD` for these indexes, which must be https then; it is an `env` of "
            "`secrets`",
     .example = "INDEX_AUTH", .pattern = "^[A-Za-z_][A-Za-z0-9_]{0,63}$",
     .pattern_doc = "the name of a secret of this spec", .effect = SPEC_REPEATED},
    {0}};
const struct spec_block spec_python_block = {
    .path = "bootstrap.python",
    .doc = "A virtual environment of Python on every node, made by the login user.",
    .fields = python_fields, .rules = spec_rule_python};
/* clang-format on */

bool spec_python_torch(const struct spec_python *p) { return p->torch != NULL && !str_eq(p->torch, "none"); }

/* "DeepSpeed[autotuning]>=0.18" is deepspeed. */
static bool is_package(const char *line, const char *name) {
    size_t n = strlen(name);
    return strncasecmp(line, name, n) == 0 && strchr("[=<>!~ ;@\\", line[n]) != NULL; /* also at its end */
}

bool spec_python_asks(const struct spec_python *p, const char *name) {
    if (str_eq(name, "torch") && spec_python_torch(p)) return true;
    for (size_t i = 0; i < p->packages.n; i++)
        if (is_package(p->packages.v[i], name)) return true;
    GP_AUTO_STRV struct strv lines = {0};
    strv_split(&lines, p->requirements != NULL ? p->requirements : "", "\n");
    for (size_t i = 0; i < lines.n; i++)
        if (is_package(str_trim(lines.v[i]), name)) return true;
    return false;
}

static const struct yaml_node *at_key(const struct yaml_node *map, const char *key) {
    const struct yaml_node *at = yaml_get(map, key);
    return at != NULL ? at : map;
}

/* Replaces the name of a file by its text. A text is known by its newline, as in the journal's form of a spec. */
static void read_requirements(struct spec_ctx *c, const struct yaml_node *at, struct spec_python *p) {
    if (strchr(p->requirements, '\n') != NULL) return;
    GP_AUTO_FREE char *name = GP_STEAL(p->requirements);
    GP_AUTO_FREE char *path = xstrdup(name);
    GP_AUTO_STR struct str text = {0};
    struct gp_error err = {0};
    spec_absolute(c, &path);
    if (fs_read(path, SPEC_VALUE_MAX - 1, &text, &err) != 0) {
        spec_complain(c, at, "'requirements': %s", err.msg);
        return;
    }
    if (text.len == 0 || text.s[text.len - 1] != '\n') str_addc(&text, '\n');
    const char *bad = strlen(text.s) != text.len ? "a NUL byte" : NULL;
    for (size_t i = 0; i < text.len && bad == NULL; i++) {
        unsigned char b = (unsigned char)text.s[i];
        if ((b < 0x20 && b != '\n' && b != '\t' && b != '\r') || b == 0x7f) bad = "control characters";
    }
    if (bad != NULL)
        spec_complain(c, at, "'requirements': '%s' has %s: it is not a requirements file", spec_shown(at, name), bad);
    else {
        size_t n = 0;
        for (size_t i = 0; i < text.len; i++)
            if (text.s[i] != '\r') text.s[n++] = text.s[i];
        text.s[n] = '\0';
        p->requirements = str_steal(&text);
    }
}

/* Options of pip that name no file and no place of the node. */
static bool allowed_option(const char *line) {
    static const char *const ok[] = {
        "--extra-index-url", "--index-url", "-i", "--no-binary", "--only-binary", "--prefer-binary", "--pre",
        "--require-hashes",  "--hash",      NULL};
    size_t n = strcspn(line, " =");
    for (size_t i = 0; ok[i] != NULL; i++)
        if (strlen(ok[i]) == n && strncmp(line, ok[i], n) == 0) return true;
    return false;
}

/* "https://user:password@host/". */
static bool has_credentials(const char *line) {
    for (const char *p = strstr(line, "://"); p != NULL; p = strstr(p + 3, "://"))
        if (memchr(p + 3, '@', strcspn(p + 3, "/ ")) != NULL) return true;
    return false;
}

/* The address of another place than `check_index` allows; pip sends the login of a host with each URL of it. */
static bool is_clear(const char *line) {
    for (const char *p = strcasestr(line, "http://"); p != NULL; p = strcasestr(p + 7, "http://")) {
        GP_AUTO_FREE char *url = xstrndup(p, strcspn(p, " \t;#\"'"));
        struct url_place place;
        if (!form_url(url, &place) || form_url_way(&place) == URL_NONE) return true;
    }
    return false;
}

/* NULL: pip's line is one that a node can be compared with. login: the spec has `index_auth`. */
static const char *line_fault(const char *line, bool login) {
    if (login && is_clear(line))
        return "is fetched by http, and nodes could send the password of 'index_auth' there in clear text: use https";
    if (has_credentials(line)) return "has a password: put it into 'secrets' and name it in 'index_auth'";
    if (line[0] == '-' && !allowed_option(line))
        return "names a file or an option that is not sent to the nodes: write the packages themselves";
    if (line[0] != '-' && !spec_match("^[A-Za-z0-9][A-Za-z0-9._-]*( *[[<>=!~;@].*| *| +--hash.*)$", line))
        return "is not a package such as numpy==2.1.0";
    return NULL;
}

static void check_requirements(struct spec_ctx *c, const struct yaml_node *at, const struct spec_python *p) {
    GP_AUTO_FREE char *copy = xstrdup(p->requirements);
    bool more = false; /* a line that the one before continues on */
    unsigned number = 0;
    for (char *line = copy, *next = NULL; line != NULL && *line != '\0'; line = next) {
        next = strchr(line, '\n');
        if (next != NULL) *next++ = '\0';
        number++;
        char *comment = line[0] == '#' ? line : strstr(line, " #");
        if (comment != NULL) *comment = '\0';
        char *text = str_trim(line);
        bool first = !more;
        size_t n = strlen(text);
        more = n > 0 && text[n - 1] == '\\';
        if (more) text[n - 1] = '\0';
        text = str_trim(text);
        const char *why = *text == '\0' ? NULL : line_fault(text, p->index_auth != NULL);
        if (why == NULL && *text != '\0' && first && spec_python_torch(p) && is_package(text, "torch"))
            why = "is torch, which 'torch' installs too: remove one of them";
        if (why == NULL) continue;
        /* a password is not shown */
        if (has_credentials(text)) spec_complain(c, at, "'requirements', line %u: it %s", number, why);
        else spec_complain(c, at, "'requirements', line %u: '%.60s' %s", number, spec_shown(at, text), why);
        return;
    }
}

static bool is_secret(const struct spec *s, const char *env) {
    for (size_t i = 0; i < s->secrets.len; i++)
        if (str_eq(s->secrets.items[i].env, env)) return true;
    return false;
}

/* A key that asks for something, right or wrong. */
static bool asks(const struct yaml_node *map) {
    static const char *const keys[] = {"version", "venv", "packages", "requirements", "torch", NULL};
    for (size_t i = 0; keys[i] != NULL; i++)
        if (yaml_get(map, keys[i]) != NULL) return true;
    return false;
}

/* The nodes send USER:PASSWORD there. */
static void check_index(struct spec_ctx *c, const struct yaml_node *map, const char *key, const char *url) {
    struct url_place place;
    if (url == NULL || (form_url(url, &place) && form_url_way(&place) != URL_NONE)) return;
    spec_complain(
        c, at_key(map, key),
        "'%s' is not https, and nodes would send the password of 'index_auth' there in clear text: use https, "
        "or set " FORM_URL_CLEAR_ENV "=HOST where nobody on the way can read along",
        key);
}

void spec_rule_python(struct spec_ctx *c, const struct yaml_node *map, void *to) {
    struct spec_python *p = to;
    p->wanted = p->version || p->venv || p->packages.n > 0 || p->requirements || p->torch;
    if (map == NULL || c->names == NULL) return; /* a spec from the journal was checked before, and has the text */
    if (p->requirements != NULL) read_requirements(c, at_key(map, "requirements"), p);
    if (p->requirements != NULL) check_requirements(c, at_key(map, "requirements"), p);
    for (size_t i = 0; spec_python_torch(p) && i < p->packages.n; i++)
        if (is_package(p->packages.v[i], "torch"))
            spec_complain(c, at_key(map, "packages"), "'%s' is in 'packages' and 'torch' installs it too: remove one",
                          p->packages.v[i]);
    if (!asks(map))
        spec_complain(c, map,
                      "'python' needs one of version, venv, packages, requirements and torch; to get "
                      "nothing, remove it");
    else if (p->torch_index != NULL && !spec_python_torch(p))
        spec_complain(c, at_key(map, "torch_index"), "'torch_index' has no use without 'torch': add 'torch: auto'");
    else if (p->index_auth != NULL && p->index == NULL && p->torch_index == NULL)
        spec_complain(c, at_key(map, "index_auth"), "'index_auth' needs the 'index' that it is for");
    if (p->index_auth == NULL) return;
    check_index(c, map, "index", p->index);
    check_index(c, map, "torch_index", p->torch_index);
}

void spec_rule_python_secret(struct spec_ctx *c, const struct yaml_node *map, const struct spec *s) {
    const struct spec_python *p = &s->python;
    if (p->index_auth == NULL || c->names == NULL || is_secret(s, p->index_auth)) return;
    const struct yaml_node *at = yaml_get(yaml_get(yaml_get(map, "bootstrap"), "python"), "index_auth");
    if (at != NULL)
        spec_complain(c, at, "there is no secret '%s': add {env: %s, from: file:PATH} to 'secrets'",
                      spec_shown(at, p->index_auth), spec_shown(at, p->index_auth));
}

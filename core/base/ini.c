/* SPDX-License-Identifier: Apache-2.0 */
/* The AWS CLI's files: sections, key = value, whole-line comments, indented continuation lines.
 * A later value wins, keys are matched without case (as the CLI does). Messages never show a line's
 * content: these files hold credentials. Any thread. */
#include "base/gp_base.h"

#include "base/ini.h"
#include "base/str.h"

#include <ctype.h>
#include <strings.h>

/* [profile "a b"] and [profile   a] to `profile a b`, `profile a`. */
static char *section_name(char *inside) {
    char *s = str_trim(inside);
    if (!str_starts(s, "profile") || !isspace((unsigned char)s[7])) return xstrdup(s);
    char *rest = str_trim(s + 7);
    size_t n = strlen(rest);
    if (n >= 2 && (rest[0] == '"' || rest[0] == '\'') && rest[n - 1] == rest[0]) {
        rest[n - 1] = '\0';
        rest++;
    }
    return xasprintf("profile %s", rest);
}

static void add(struct ini *ini, const char *section, const char *key, const char *value) {
    struct ini_entry e = {xstrdup(section), xstrdup(key), xstrdup(value)};
    vec_push(&ini->entries, e);
}

static void continue_value(struct ini_entry *e, const char *line) {
    char *joined = xasprintf("%s\n%s", e->value, line);
    free(e->value);
    e->value = joined;
}

struct reading {
    char *section; /* NULL before the first one */
    bool in_key;   /* an indented line belongs to the last entry */
};

static int read_line(struct ini *ini, struct reading *r, char *raw, const char **ret_problem) {
    bool indented = raw[0] == ' ' || raw[0] == '\t';
    char *line = str_trim(raw);
    if (*line == '\0' || *line == '#' || *line == ';') return 0;
    if (indented && r->in_key) {
        continue_value(&ini->entries.items[ini->entries.len - 1], line);
        return 0;
    }
    if (*line == '[') {
        char *close = strchr(line, ']');
        if (close == NULL) {
            *ret_problem = "the section's ']' is missing";
            return -1;
        }
        *close = '\0';
        free(r->section);
        r->section = section_name(line + 1);
        r->in_key = false;
        add(ini, r->section, "", ""); /* so that an empty section is known too */
        return 0;
    }
    char *eq = strchr(line, '=');
    if (eq == NULL || eq == line) {
        *ret_problem = "expected 'key = value' or '[section]'";
        return -1;
    }
    if (r->section == NULL) {
        *ret_problem = "a key stands before the first [section]";
        return -1;
    }
    *eq = '\0';
    add(ini, r->section, str_trim(line), str_trim(eq + 1));
    r->in_key = true;
    return 0;
}

int ini_parse(const char *name, const char *text, struct ini *ret, struct gp_error *err) {
    struct ini ini = {0};
    struct reading reading = {0};
    const char *problem = NULL;
    unsigned number = 0;
    if (str_starts(text, "\xef\xbb\xbf")) text += 3;
    while (*text != '\0' && problem == NULL) {
        size_t n = strcspn(text, "\n");
        GP_AUTO_FREE char *line = xstrndup(text, n);
        number++;
        (void)read_line(&ini, &reading, line, &problem);
        text += n + (text[n] == '\n');
    }
    free(reading.section);
    if (problem != NULL) {
        ini_clear(&ini);
        return gp_fail(err, GP_EUSAGE, "%s:%u: %s", name, number, problem);
    }
    *ret = ini;
    return 0;
}

void ini_clear(struct ini *ini) {
    for (size_t i = 0; i < ini->entries.len; i++) {
        struct ini_entry *e = &ini->entries.items[i];
        free(e->section);
        /* values are credentials often enough */
        explicit_bzero(e->value, strlen(e->value));
        free(e->value);
        free(e->key);
    }
    vec_free(&ini->entries);
}

const char *ini_get(const struct ini *ini, const char *section, const char *key) {
    for (size_t i = ini->entries.len; i-- > 0;) {
        const struct ini_entry *e = &ini->entries.items[i];
        if (e->key[0] != '\0' && strcmp(e->section, section) == 0 && strcasecmp(e->key, key) == 0) return e->value;
    }
    return NULL;
}

bool ini_has_section(const struct ini *ini, const char *section) {
    for (size_t i = 0; i < ini->entries.len; i++)
        if (strcmp(ini->entries.items[i].section, section) == 0) return true;
    return false;
}

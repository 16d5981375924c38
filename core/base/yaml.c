/* SPDX-License-Identifier: Apache-2.0 */
/* YAML through libyaml's events into a tree with positions. Refuses anchors, aliases, tags, several documents,
 * duplicate keys and keys that are not plain text. Values stay text: the decoder recognizes numbers and bools.
 * Any thread. */
#include "base/gp_base.h"

#include "base/yaml.h"

#include "base/str.h"

#include <yaml.h>

#define YAML_DEPTH_MAX 32
#define YAML_NODES_MAX 100000

struct build {
    const char *name;
    const char *text;
    size_t n;
    yaml_parser_t parser;
    struct yaml_node *root;
    struct yaml_node *open[YAML_DEPTH_MAX];
    size_t depth, nodes;
    bool ended; /* the document's end was seen */
    struct gp_error *err;
};

static int fail_at(struct build *b, yaml_mark_t m, const char *what) {
    int r = gp_fail(b->err, GP_EUSAGE, "%s:%zu:%zu: %s", b->name, m.line + 1, m.column + 1, what);
    if (b->err != NULL) b->err->domain = GP_D_SPEC;
    return r;
}

/* Bytes that are not text are reported by offset only. */
static yaml_mark_t mark_of_offset(const struct build *b, size_t offset) {
    yaml_mark_t m = {0};
    for (size_t i = 0; i < offset && i < b->n; i++) {
        if (b->text[i] == '\n') {
            m.line++;
            m.column = 0;
        } else if (((unsigned char)b->text[i] & 0xc0) != 0x80) {
            m.column++;
        }
    }
    return m;
}

/* Marks count characters, not bytes. */
static char byte_at(const struct build *b, yaml_mark_t m) {
    size_t i = 0;
    for (size_t line = 0; line < m.line && i < b->n; i++) line += b->text[i] == '\n';
    for (size_t column = 0; i < b->n; i++) {
        if (((unsigned char)b->text[i] & 0xc0) == 0x80) continue;
        if (column++ == m.column) return b->text[i];
    }
    return '\0';
}

/* The parser's words, for people who do not know its terms. */
static const char *plain_words(const char *problem) {
    static const char *const words[][2] = {
        {"mapping values are not allowed", "':' is not expected here: check the indentation, or quote text with ': '"},
        {"did not find expected node content", "a value is missing here, or a bracket is not closed"},
        {"found unexpected end of stream", "the file ends inside a quoted text: close the quote"},
        {"could not find expected ':'", "a ':' is missing after a key"},
        {"found character that cannot start any token", "this character cannot begin a value: put the value in quotes"},
        {"did not find expected ',' or '}'", "a '}' or ',' is missing"},
        {"did not find expected ',' or ']'", "a ']' or ',' is missing"},
        {"did not find expected key", "a key is expected here: check the indentation"},
        {"did not find expected '-' indicator", "'- ' is expected here: check the indentation of the list"},
        {"did not find expected <document start>", "only one map is expected in the file: check the indentation"},
        {"block sequence entries are not allowed", "a list cannot begin here: put it on the next line, indented"},
        {"found unknown escape character", "unknown escape after '\\': use single quotes for plain text"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(words); i++)
        if (str_starts(problem, words[i][0])) return words[i][1];
    return problem;
}

static int fail_parser(struct build *b) {
    const yaml_parser_t *p = &b->parser;
    const char *what = p->problem != NULL ? plain_words(p->problem) : "not valid YAML";
    if (p->error == YAML_READER_ERROR) return fail_at(b, mark_of_offset(b, p->problem_offset), what);
    if (p->error == YAML_SCANNER_ERROR && byte_at(b, p->problem_mark) == '\t')
        return fail_at(b, p->problem_mark, "the indentation has a tab: use spaces only");
    if (p->context != NULL && p->context_mark.line != p->problem_mark.line) {
        GP_AUTO_FREE char *both = xasprintf("%s (it begins in line %zu)", what, p->context_mark.line + 1);
        return fail_at(b, p->problem_mark, both);
    }
    return fail_at(b, p->problem_mark, what);
}

static bool wants_key(const struct yaml_node *parent) {
    return parent != NULL && parent->kind == YAML_MAP && parent->items.len % 2 == 0;
}

static struct yaml_node *parent_of(const struct build *b) { return b->depth > 0 ? b->open[b->depth - 1] : NULL; }

/* Creates a node and adds it to its parent. NULL: refused, err is set. */
static struct yaml_node *add_node(struct build *b, enum yaml_kind kind, yaml_mark_t m) {
    struct yaml_node *parent = parent_of(b);
    const char *why = NULL;
    if (++b->nodes > YAML_NODES_MAX) why = "too many values for one file";
    else if (kind != YAML_SCALAR && wants_key(parent)) why = "a key must be plain text, not a map or a list";
    else if (kind != YAML_SCALAR && b->depth == YAML_DEPTH_MAX) why = "nested too deeply";
    if (why != NULL) {
        (void)fail_at(b, m, why);
        return NULL;
    }
    struct yaml_node *node = xcalloc(1, sizeof *node);
    node->kind = kind;
    node->line = (unsigned)m.line + 1;
    node->column = (unsigned)m.column + 1;
    if (parent != NULL) vec_push(&parent->items, node);
    else b->root = node;
    if (kind != YAML_SCALAR) b->open[b->depth++] = node;
    return node;
}

static int by_key_then_place(const void *pa, const void *pb) {
    const struct yaml_node *a = *(struct yaml_node *const *)pa, *b = *(struct yaml_node *const *)pb;
    int c = strcmp(a->value, b->value);
    if (c != 0) return c;
    if (a->line != b->line) return a->line < b->line ? -1 : 1;
    return a->column < b->column ? -1 : a->column > b->column;
}

static int refuse_duplicate_keys(struct build *b, const struct yaml_node *map) {
    size_t n = map->items.len / 2;
    if (n < 2) return 0;
    GP_AUTO_FREE struct yaml_node **keys = xcalloc(n, sizeof *keys);
    for (size_t i = 0; i < n; i++) keys[i] = map->items.items[2 * i];
    qsort(keys, n, sizeof *keys, by_key_then_place);
    for (size_t i = 1; i < n; i++) {
        if (strcmp(keys[i - 1]->value, keys[i]->value) != 0) continue;
        GP_AUTO_FREE char *what = xasprintf("duplicate key '%s' (first on line %u)", keys[i]->value, keys[i - 1]->line);
        return fail_at(b, (yaml_mark_t){.line = keys[i]->line - 1, .column = keys[i]->column - 1}, what);
    }
    return 0;
}

static int on_scalar(struct build *b, const yaml_event_t *e) {
    if (e->data.scalar.anchor != NULL)
        return fail_at(b, e->start_mark, "anchors (&) are not supported: write out the value");
    if (e->data.scalar.tag != NULL)
        return fail_at(b, e->start_mark, "tags (!) are not supported: quote text that starts with '!'");
    const char *value = (const char *)e->data.scalar.value;
    if (strlen(value) != e->data.scalar.length) return fail_at(b, e->start_mark, "text with a NUL character");
    struct yaml_node *node = add_node(b, YAML_SCALAR, e->start_mark);
    if (node == NULL) return -GP_EUSAGE;
    node->quoted = e->data.scalar.style != YAML_PLAIN_SCALAR_STYLE;
    node->value = xstrdup(value);
    return 0;
}

static int on_event(struct build *b, const yaml_event_t *e) {
    switch (e->type) {
    case YAML_DOCUMENT_START_EVENT:
        if (b->ended) return fail_at(b, e->start_mark, "more than one document in the file");
        return 0;
    case YAML_DOCUMENT_END_EVENT: b->ended = true; return 0;
    case YAML_ALIAS_EVENT:
        return fail_at(b, e->start_mark, "aliases (*) are not supported: write out the value, or quote it");
    case YAML_SCALAR_EVENT: return on_scalar(b, e);
    case YAML_SEQUENCE_START_EVENT:
    case YAML_MAPPING_START_EVENT: {
        bool map = e->type == YAML_MAPPING_START_EVENT;
        if ((map ? e->data.mapping_start.anchor : e->data.sequence_start.anchor) != NULL)
            return fail_at(b, e->start_mark, "anchors (&) are not supported: write out the value");
        if ((map ? e->data.mapping_start.tag : e->data.sequence_start.tag) != NULL)
            return fail_at(b, e->start_mark, "tags (!) are not supported: remove the tag");
        return add_node(b, map ? YAML_MAP : YAML_LIST, e->start_mark) != NULL ? 0 : -GP_EUSAGE;
    }
    case YAML_MAPPING_END_EVENT: b->depth--; return refuse_duplicate_keys(b, b->open[b->depth]);
    case YAML_SEQUENCE_END_EVENT: b->depth--; return 0;
    default: return 0;
    }
}

static int run(struct build *b) {
    for (;;) {
        yaml_event_t e;
        if (!yaml_parser_parse(&b->parser, &e)) return fail_parser(b);
        bool last = e.type == YAML_STREAM_END_EVENT;
        int r = on_event(b, &e);
        yaml_event_delete(&e);
        if (r != 0 || last) return r;
    }
}

int yaml_parse(const char *name, const char *text, size_t n, struct yaml_node **ret, struct gp_error *err) {
    struct build b = {.name = name, .text = text, .n = n, .err = err};
    if (!yaml_parser_initialize(&b.parser)) return gp_fail(err, GP_EINTERNAL, "%s: libyaml could not start", name);
    yaml_parser_set_encoding(&b.parser, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&b.parser, (const unsigned char *)text, n);
    int r = run(&b);
    yaml_parser_delete(&b.parser);
    struct yaml_node *root = b.root;
    bool nothing =
        root != NULL && root->kind == YAML_SCALAR && !root->quoted && root->value != NULL && root->value[0] == '\0';
    if (r != 0 || nothing) {
        yaml_node_free(root);
        root = NULL;
    }
    if (r == 0) *ret = root;
    return r;
}

void yaml_node_free(struct yaml_node *node) {
    if (node == NULL) return;
    for (size_t i = 0; i < node->items.len; i++) yaml_node_free(node->items.items[i]);
    vec_free(&node->items);
    free(node->value);
    free(node->source);
    free(node);
}

const struct yaml_node *yaml_get(const struct yaml_node *map, const char *key) {
    if (map == NULL || map->kind != YAML_MAP) return NULL;
    for (size_t i = 0; i + 1 < map->items.len; i += 2)
        if (strcmp(map->items.items[i]->value, key) == 0) return map->items.items[i + 1];
    return NULL;
}

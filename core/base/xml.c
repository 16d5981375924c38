/* SPDX-License-Identifier: Apache-2.0 */
/* XML replies of EC2 and STS, through expat into a tree of elements and text. Ignores
 * attributes and comments; refuses a DOCTYPE, so no entity can be defined. Any thread. */
#include "base/gp_base.h"

#include "base/str.h"
#include "base/xml.h"

#include <expat.h>

#define XML_DEPTH_MAX 64
#define XML_NODES_MAX 2000000

struct build {
    XML_Parser parser;
    struct xml_node *root, *open;
    struct str texts[XML_DEPTH_MAX]; /* character data of the open elements */
    size_t depth, nodes;
    const char *refused; /* why our own code stopped the parser */
};

static void refuse(struct build *b, const char *why) {
    if (b->refused == NULL) b->refused = why;
    XML_StopParser(b->parser, XML_FALSE);
}

static void XMLCALL on_start(void *ctx, const XML_Char *name, const XML_Char **attrs) {
    struct build *b = ctx;
    (void)attrs;
    if (b->refused != NULL) return;
    if (b->depth == XML_DEPTH_MAX) {
        refuse(b, "nested too deeply");
        return;
    }
    if (++b->nodes > XML_NODES_MAX) {
        refuse(b, "too many elements");
        return;
    }
    struct xml_node *node = xcalloc(1, sizeof *node);
    node->name = xstrdup(name);
    node->parent = b->open;
    if (b->open != NULL) vec_push(&b->open->children, node);
    else b->root = node;
    b->open = node;
    str_reset(&b->texts[b->depth++]);
}

static bool blank(const char *s) { return s[strspn(s, " \t\r\n")] == '\0'; }

static void XMLCALL on_end(void *ctx, const XML_Char *name) {
    struct build *b = ctx;
    (void)name;
    if (b->refused != NULL || b->open == NULL) return;
    struct str *text = &b->texts[--b->depth];
    const char *s = text->s != NULL ? text->s : "";
    /* blanks between child elements are not text */
    b->open->text = xstrdup(b->open->children.len > 0 && blank(s) ? "" : s);
    if (text->truncated) refuse(b, "an element holds too much text");
    b->open = b->open->parent;
}

static void XMLCALL on_text(void *ctx, const XML_Char *s, int n) {
    struct build *b = ctx;
    if (b->refused == NULL && b->depth > 0) str_add_mem(&b->texts[b->depth - 1], s, (size_t)n);
}

static void XMLCALL on_doctype(void *ctx, const XML_Char *name, const XML_Char *sys, const XML_Char *pub,
                               int internal) {
    (void)name, (void)sys, (void)pub, (void)internal;
    refuse(ctx, "it has a DOCTYPE");
}

int xml_parse(const char *text, size_t n, const char *what, struct xml_node **ret_root, struct gp_error *err) {
    struct build b = {0};
    if (n > INT32_MAX) return gp_fail(err, GP_EPROTO, "%s is too large to be read as XML", what);
    b.parser = XML_ParserCreate(NULL);
    if (b.parser == NULL) return gp_fail(err, GP_EINTERNAL, "expat could not start");
    XML_SetUserData(b.parser, &b);
    XML_SetElementHandler(b.parser, on_start, on_end);
    XML_SetCharacterDataHandler(b.parser, on_text);
    XML_SetStartDoctypeDeclHandler(b.parser, on_doctype);
    int r = 0;
    if (XML_Parse(b.parser, text, (int)n, 1) != XML_STATUS_OK || b.refused != NULL) {
        const char *why = b.refused;
        if (why == NULL) why = XML_ErrorString(XML_GetErrorCode(b.parser));
        r = gp_fail(err, GP_EPROTO, "%s is not usable XML: line %lu, column %lu: %s", what,
                    (unsigned long)XML_GetCurrentLineNumber(b.parser),
                    (unsigned long)XML_GetCurrentColumnNumber(b.parser) + 1, why);
    }
    XML_ParserFree(b.parser);
    for (size_t i = 0; i < XML_DEPTH_MAX; i++) str_clear(&b.texts[i]);
    if (r == 0) *ret_root = b.root;
    else xml_free(b.root);
    return r;
}

void xml_free(struct xml_node *root) {
    if (root == NULL) return;
    for (size_t i = 0; i < root->children.len; i++) xml_free(root->children.items[i]);
    vec_free(&root->children);
    free(root->name);
    free(root->text);
    free(root);
}

void xml_cleanup(struct xml_node **root) {
    xml_free(*root);
    *root = NULL;
}

const struct xml_node *xml_find(const struct xml_node *node, const char *path) {
    if (node == NULL) return NULL;
    size_t n = strcspn(path, "/");
    for (size_t i = 0; i < node->children.len; i++) {
        const struct xml_node *c = node->children.items[i];
        if (strlen(c->name) != n || memcmp(c->name, path, n) != 0) continue;
        const struct xml_node *found = path[n] == '/' ? xml_find(c, path + n + 1) : c;
        if (found != NULL) return found;
    }
    return NULL;
}

const char *xml_str(const struct xml_node *node, const char *path, const char *def) {
    const struct xml_node *found = xml_find(node, path);
    return found != NULL ? found->text : def;
}

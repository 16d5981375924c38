/* SPDX-License-Identifier: Apache-2.0 */
/* What gpuprov asks of the agent, and the agent's answer, encoded and strictly decoded. Pure; any thread. */
#include "base/gp_base.h"

#include "tree/side.h"

/* 2: the agent gives signs of life; 3: these have how far it is, a fetch names its list, entries what they hold */
#define REQUEST_VERSION 3u
#define PEER_MAX 64

void tree_request_clear(struct tree_request *r) {
    free(r->path);
    free(r->peer);
    explicit_bzero(r->token, sizeof r->token);
    *r = (struct tree_request){0};
}

void tree_side_greet(struct tree_side *s) {
    s->greeted = true;
    tree_buf_add(&s->out, TREE_MAGIC, TREE_MAGIC_N);
}

void tree_side_expect(struct tree_side *s) { s->greeted = false; }

void tree_side_ask(struct tree_side *s, const struct tree_request *r) { request_put(&s->out, r); }

void request_put(struct tree_buf *b, const struct tree_request *r) {
    tree_buf_add(b, TREE_MAGIC, TREE_MAGIC_N);
    size_t at = frame_begin(b, TREE_REQUEST);
    frame_u32(b, REQUEST_VERSION);
    frame_u8(b, (uint8_t)r->verb);
    frame_u8(b, (uint8_t)(r->ignore | r->mirror << 1 | r->by_hash << 2 | r->inside << 3 | r->durable << 4));
    frame_u64(b, r->id);
    frame_bytes(b, r->path, strlen(r->path));
    if (r->verb == TREE_SHARE || r->verb == TREE_FETCH) {
        frame_bytes(b, r->peer, strlen(r->peer));
        frame_u32(b, r->port);
        tree_buf_add(b, r->token, sizeof r->token);
    }
    if (r->verb == TREE_FETCH) tree_buf_add(b, r->list, sizeof r->list);
    frame_end(b, at);
}

static bool get_fields(struct tree_cursor *c, struct tree_request *r) {
    unsigned verb = cursor_u8(c), flags = cursor_u8(c);
    r->id = cursor_u64(c);
    r->path = cursor_text(c, TREE_PATH_MAX);
    if (verb == TREE_SHARE || verb == TREE_FETCH) {
        r->peer = cursor_text(c, PEER_MAX);
        uint32_t port = cursor_u32(c);
        const unsigned char *token = cursor_raw(c, TREE_TOKEN);
        if (token == NULL || port > 65535 || (verb == TREE_FETCH && port == 0)) return false;
        r->port = (uint16_t)port;
        memcpy(r->token, token, TREE_TOKEN);
    }
    if (verb == TREE_FETCH) {
        const unsigned char *list = cursor_raw(c, sizeof r->list);
        if (list == NULL) return false;
        memcpy(r->list, list, sizeof r->list);
    }
    if (!cursor_whole(c) || verb >= TREE_VERB_END || flags > 31 || r->path[0] == '\0') return false;
    r->verb = (enum tree_verb)verb;
    r->ignore = flags & 1;
    r->mirror = flags >> 1 & 1;
    r->by_hash = flags >> 2 & 1;
    r->inside = flags >> 3 & 1;
    r->durable = flags >> 4 & 1;
    return true;
}

/* *ret_whole false: it is not there yet. */
static int first_frame(struct tree_buf *b, enum tree_frame *ret_type, struct tree_cursor *ret, size_t *ret_used,
                       bool *ret_whole, struct gp_error *err) {
    struct gp_error why = {0};
    *ret_whole = frame_next(b, ret_type, ret, ret_used, &why);
    if (!*ret_whole && why.code != GP_OK && err != NULL) *err = why;
    return *ret_whole ? 0 : -(int)why.code;
}

int tree_request_get(const void *p, size_t n, struct tree_request *ret, size_t *ret_used, struct gp_error *err) {
    *ret_used = 0;
    if (n < TREE_MAGIC_N) return 0;
    if (memcmp(p, TREE_MAGIC, TREE_MAGIC_N) != 0) return gp_fail(err, GP_EPROTO, "stdin is no gpuprov transfer");
    struct tree_buf b = {.p = (unsigned char *)(uintptr_t)p, .off = TREE_MAGIC_N, .len = n, .cap = n}; /* only read */
    enum tree_frame type = TREE_PING;
    struct tree_cursor c = {0};
    size_t used = 0;
    bool whole = false;
    int r = first_frame(&b, &type, &c, &used, &whole, err);
    if (r != 0 || !whole) return r;
    uint32_t version = cursor_u32(&c);
    if (type != TREE_REQUEST || c.bad) return gp_fail(err, GP_EPROTO, "the transfer does not begin with a request");
    if (version != REQUEST_VERSION)
        return gp_fail(err, GP_EPROTO, "the request has version %u, this agent knows %u: run 'gpuprov bootstrap'",
                       version, REQUEST_VERSION);
    struct tree_request got = {0};
    if (!get_fields(&c, &got)) {
        tree_request_clear(&got);
        return gp_fail(err, GP_EPROTO, "the request is malformed");
    }
    *ret = got;
    *ret_used = TREE_MAGIC_N + used;
    return 0;
}

void *tree_request_bytes(const struct tree_request *r, size_t *ret_n) {
    struct tree_buf b = {0};
    request_put(&b, r);
    *ret_n = b.len;
    return b.p;
}

void *tree_answer_bytes(uint64_t value, const struct gp_error *why, size_t *ret_n) {
    struct tree_buf b = {0};
    tree_buf_add(&b, TREE_MAGIC, TREE_MAGIC_N);
    size_t at = frame_begin(&b, why != NULL ? TREE_FAIL : TREE_RESULT);
    if (why != NULL) {
        frame_u8(&b, (uint8_t)why->code);
        frame_bytes(&b, why->detail, strlen(why->detail));
        frame_bytes(&b, why->msg, strlen(why->msg));
    } else frame_u64(&b, value);
    frame_end(&b, at);
    *ret_n = b.len;
    return b.p;
}

int tree_answer_get(const void *p, size_t n, bool *ret_there, uint64_t *ret, struct gp_error *err) {
    struct tree_buf b = {.p = (unsigned char *)(uintptr_t)p, .len = n, .cap = n}; /* only read */
    bool greeted = false;
    *ret_there = false;
    int r = frame_greeting(&b, &greeted, err);
    if (r != 0 || !greeted) return r;
    enum tree_frame type = TREE_PING;
    struct tree_cursor c = {0};
    size_t used = 0;
    bool whole = false;
    r = first_frame(&b, &type, &c, &used, &whole, err);
    if (r != 0 || !whole) return r;
    if (type == TREE_FAIL) return side_fail(&c, err);
    uint64_t v = cursor_u64(&c);
    if (type != TREE_RESULT || !cursor_whole(&c) || v > TREE_COUNT_MAX) return side_nonsense(err, "an answer");
    *ret_there = true;
    *ret = v;
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The verb `tree`: the node's side of a transfer over stdin and stdout (`serve`), and the list of a folder for a
 * person (`list`). One thread. */
#include "base/gp_base.h"

#include "validate/agent/tree/carry.h"

#include "base/fs.h"
#include "tree/list.h"
#include "validate/agent/verbs.h"

#include <errno.h>
#include <poll.h>
#include <unistd.h>

#define REQUEST_MS (60 * 1000)

/* The request, from stdin; *ret_have bytes behind it are at the front of buf. */
static int read_request(struct tree_request *q, unsigned char *buf, size_t *ret_have, struct gp_error *err) {
    int64_t end = clock_deadline(REQUEST_MS);
    for (size_t have = 0, used = 0; have < CARRY_BYTES;) {
        if (gp_wait_fd(STDIN_FILENO, POLLIN, end, NULL, NULL, NULL) != 0) break;
        ssize_t n = read(STDIN_FILENO, buf + have, CARRY_BYTES - have);
        if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) break;
        have += n > 0 ? (size_t)n : 0;
        int r = tree_request_get(buf, have, q, &used, err);
        if (r != 0) return r;
        if (used == 0) continue;
        memmove(buf, buf + used, have - used);
        *ret_have = have - used;
        return 0;
    }
    return gp_fail(err, GP_ELOST, "no request came");
}

static int serve(const struct tree_request *q, unsigned char *buf, size_t have, struct gp_error *err) {
    GP_AUTO_FREE char *root = carry_home_path(q->path);
    struct carry c = {
        .in = STDIN_FILENO, .out = STDOUT_FILENO, .control = -1, .ping_ms = CARRY_PING_MS, .beat = -1, .buf = buf};
    const struct tree_give_opts give = {.root = root, .ignore = q->ignore, .beat = {carry_beat, &c}};
    const struct tree_take_opts take = {.root = root,
                                        .mirror = q->mirror,
                                        .by_hash = q->by_hash,
                                        .inside = q->inside,
                                        .durable = q->durable,
                                        .id = q->id,
                                        .beat = {carry_beat, &c}};
    const struct tree_expect any = tree_expect_any(); /* what gpuprov sends */
    c.side = q->verb == TREE_TAKE ? tree_taker(&take, &any) : tree_giver(&give);
    carry_nonblocking(STDOUT_FILENO);
    tree_side_greet(c.side);
    int r = tree_feed(c.side, buf, have, err);
    if (r == 0) r = carry_all(&c, err);
    if (r != 0) carry_last_message(&c, err);
    tree_side_free(c.side);
    return r;
}

/* One answer about work with other nodes. */
static void answer(uint64_t value, const struct gp_error *why) {
    size_t n = 0;
    GP_AUTO_FREE void *p = tree_answer_bytes(value, why, &n);
    (void)fs_write_all(STDOUT_FILENO, p, n);
}

static int run_serve(struct gp_error *err) {
    GP_AUTO_FREE unsigned char *buf = xmalloc(CARRY_BYTES);
    struct tree_request q = {0};
    size_t have = 0;
    uint64_t bytes = 0;
    carry_nonblocking(STDIN_FILENO);
    int r = read_request(&q, buf, &have, err);
    bool others = r == 0 && (q.verb == TREE_SHARE || q.verb == TREE_FETCH);
    if (r == 0 && q.verb == TREE_SHARE) r = tree_share(&q, buf, have, err);
    else if (r == 0 && q.verb == TREE_FETCH) r = tree_fetch(&q, buf, &bytes, err);
    else if (r == 0) r = serve(&q, buf, have, err);
    if (others && (r != 0 || q.verb == TREE_FETCH)) answer(bytes, r != 0 ? err : NULL);
    tree_request_clear(&q);
    return r;
}

int verb_tree(int argc, char **argv) {
    const char *what = argc > 0 ? argv[0] : "";
    bool ignore = false, sums = false;
    struct gp_error err = {0};
    const struct arg none[] = {{.name = NULL}};
    const struct arg list[] = {
        {"--ignore", ARG_FLAG, false, &ignore}, {"--sha256", ARG_FLAG, false, &sums}, {.name = NULL}};
    int r = 0;
    if (str_eq(what, "serve")) {
        r = args_parse(argc - 1, argv + 1, none, &err);
        if (r == 0) r = run_serve(&err);
    } else if (str_eq(what, "list") && argc > 1) {
        r = args_parse(argc - 2, argv + 2, list, &err);
        if (r == 0) r = tree_list_print(argv[1], ignore, sums, stdout, &err);
    } else r = gp_fail(&err, GP_EUSAGE, "use 'tree serve' or 'tree list DIR [--ignore] [--sha256]'");
    if (r == 0) return 0;
    fprintf(stderr, "gpuprov-agent tree: %s\n", err.msg);
    return NODE_CHECK_UNKNOWN;
}

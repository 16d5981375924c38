/* SPDX-License-Identifier: Apache-2.0 */
/* tree_up and tree_down for tests and benchmarks: prints the statistics as one line of JSON.
 *   transfer up|many|down KEY HOST_KEY PORT FROM TO [ignore] [mirror] [by_hash] [durable] [limit=MS] [reach=MS]
 * The node is 127.0.0.1, the user this one; many: PORT is a list with commas, one node each. Exit 1: an error, in "error"; SIGINT cancels. */
#include "base/gp_base.h"

#include "base/json.h"
#include "engine/transfer/transfer.h"

#include <pwd.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

/* ru_maxrss begins with the size of the process that started this one. */
static json_int_t peak_kib(void) {
    FILE *f = fopen("/proc/self/status", "re");
    char line[256];
    long kib = 0;
    while (f != NULL && kib == 0 && fgets(line, sizeof line, f) != NULL)
        if (sscanf(line, "VmHWM: %ld kB", &kib) != 1) kib = 0;
    if (f != NULL) fclose(f);
    return kib;
}

static struct gp_cancel cancel;

static void on_signal(int sig) {
    (void)sig;
    gp_cancel_set(&cancel); /* writes to a pipe only. NOLINT(bugprone-signal-handler) */
}

static bool has(int argc, char **argv, const char *word) {
    for (int i = 7; i < argc; i++)
        if (str_eq(argv[i], word)) return true;
    return false;
}

static int64_t number(int argc, char **argv, const char *name, int64_t def) {
    int64_t v = def;
    for (int i = 7; i < argc; i++)
        if (str_starts(argv[i], name)) str_to_i64(argv[i] + strlen(name), 0, INT64_MAX, &v);
    return v;
}

static void warn(void *ctx, const struct event *e) {
    (void)ctx;
    if (e->status == EVENT_WARN) fprintf(stderr, "warning: %d: %s\n", e->node, e->text);
}
static const struct event_sink sink = {.emit = warn};

static void print(const struct tree_stats *s, int rc, const struct gp_error *err, int64_t took_ms) {
    struct rusage u;
    getrusage(RUSAGE_SELF, &u);
    json_t *notes = json_array();
    for (size_t i = 0; i < s->notes.n; i++) json_array_append_new(notes, json_any_text(s->notes.v[i]));
    json_t *j = json_pack(
        "{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:I, s:I, s:f}", "bytes_fetched", (json_int_t)s->bytes_fetched,
        "files", (json_int_t)s->files, "bytes", (json_int_t)s->bytes, "files_sent", (json_int_t)s->files_sent,
        "bytes_sent", (json_int_t)s->bytes_sent, "removed", (json_int_t)s->removed, "left_out", (json_int_t)s->left_out,
        "notes", notes, "took_ms", (json_int_t)took_ms, "peak_kib", peak_kib(), "cpu_s",
        (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) + (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec) / 1e6);
    if (rc != 0)
        json_object_set_new(j, "error",
                            json_pack("{s:s, s:s, s:s}", "code", gp_code_name((enum gp_code) - rc), "detail",
                                      err->detail, "message", err->msg));
    GP_AUTO_FREE char *text = json_text(j, 0);
    printf("%s\n", text);
    json_decref(j);
}

static struct node_link link_of(int argc, char **argv, int slot, uint16_t port) {
    const struct passwd *me = getpwuid(geteuid());
    struct node_link l = {.slot = slot,
                          .cancel = &cancel,
                          .reach_timeout_ms = number(argc, argv, "reach=", 20000),
                          .sink = &sink,
                          .target = {.label = xasprintf("t/%d", slot),
                                     .host = xstrdup("127.0.0.1"),
                                     .port = port,
                                     .user = xstrdup(me != NULL ? me->pw_name : "root"),
                                     .key_path = xstrdup(argv[2])}};
    strv_add(&l.target.host_keys, argv[3]);
    return l;
}

static int many(int argc, char **argv, const struct tree_up_req *req, struct tree_stats *ret, struct gp_error *err) {
    GP_AUTO_STRV struct strv ports = {0};
    strv_split(&ports, argv[4], ",");
    struct node_link *links = xcalloc(ports.n + 1, sizeof *links);
    struct tree_many *nodes = xcalloc(ports.n + 1, sizeof *nodes);
    for (size_t i = 0; i < ports.n; i++) {
        int64_t port = 0;
        str_to_i64(ports.v[i], 1, 65535, &port);
        links[i] = link_of(argc, argv, (int)i, (uint16_t)port);
        nodes[i] = (struct tree_many){.link = &links[i], .address = has(argc, argv, "apart") ? NULL : "127.0.0.1"};
    }
    int r = tree_up_many(nodes, ports.n, req, &cancel, err);
    for (size_t i = 0; i < ports.n; i++) {
        const struct tree_stats *s = &nodes[i].stats;
        ret->files = s->files;
        ret->bytes = s->bytes;
        ret->files_sent += s->files_sent;
        ret->bytes_sent += s->bytes_sent;
        ret->bytes_fetched += s->bytes_fetched;
        tree_stats_clear(&nodes[i].stats);
        node_link_close(&links[i]);
        ssh_target_clear(&links[i].target);
    }
    free(links);
    free(nodes);
    return r;
}

int main(int argc, char **argv) {
    int64_t port = 0;
    struct gp_error err = {0};
    bool to_many = argc > 1 && str_eq(argv[1], "many");
    if (argc < 7 || (!to_many && !str_to_i64(argv[4], 1, 65535, &port))) {
        fprintf(stderr, "usage: transfer up|many|down KEY HOST_KEY PORT FROM TO [options]\n");
        return 1;
    }
    signal(SIGPIPE, SIG_IGN);
    if (gp_cancel_init(&cancel, &err) != 0 || ssh_global_init(&err) != 0) return 1;
    signal(SIGINT, on_signal);
    struct node_link l = link_of(argc, argv, 0, (uint16_t)port);
    GP_AUTO_TREE_STATS struct tree_stats stats = {0};
    int64_t limit = number(argc, argv, "limit=", 0), start = clock_ms();
    int64_t deadline = limit != 0 ? clock_deadline(limit) : 0;
    bool mirror = has(argc, argv, "mirror"), by_hash = has(argc, argv, "by_hash");
    struct tree_up_req up = {.from = argv[5],
                             .to = argv[6],
                             .ignore = has(argc, argv, "ignore"),
                             .mirror = mirror,
                             .by_hash = by_hash,
                             .deadline_ms = deadline};
    struct tree_down_req down = {.from = argv[5],
                                 .to = argv[6],
                                 .mirror = mirror,
                                 .by_hash = by_hash,
                                 .durable = has(argc, argv, "durable"),
                                 .deadline_ms = deadline};
    int rc = to_many                 ? many(argc, argv, &up, &stats, &err)
             : str_eq(argv[1], "up") ? tree_up(&l, &up, &stats, &err)
                                     : tree_down(&l, &down, &stats, &err);
    print(&stats, rc, &err, clock_ms() - start);
    node_link_close(&l);
    ssh_target_clear(&l.target);
    ssh_global_exit();
    gp_cancel_clear(&cancel);
    return rc != 0;
}

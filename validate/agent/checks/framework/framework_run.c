/* SPDX-License-Identifier: Apache-2.0 */
/* What the checks of frameworks share: a framework of the node's own Python, or of a container image, computes right,
 * and all ranks together train one step. Its program runs in a process of each rank; this file starts and ends it,
 * decodes its report, and tells the ranks about each other, so that each fault has its rank. First every rank is ready
 * by itself, then they meet: a rank that is not ready keeps no other one waiting. One thread. */
#include "base/gp_base.h"

#include "child.h"
#include "framework.h"
#include "start.h"

#include "base/clock.h"
#include "validate/agent/gang/gang.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <math.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PREPARE_MS 90000 /* the import from a cold disk, the driver's start */
#define TOGETHER_MS 90000
#define REST_MS 8000 /* of the deadline, to exchange the results */
#define LOOK_MS 100
#define FIRST_MS 1500 /* a rank that fails so much before the others was the first */

/* How far a rank came, in this order. */
static const char *const stages[] = {"start", "import",  "device",   "product", "ready", "join",
                                     "sum",   "forward", "backward", "leave",   "done"};
enum { STAGE_START, STAGE_READY = 4, STAGE_DONE = GP_ARRAY_LEN(stages) - 1 };
enum end { END_GOOD, END_ABSENT, END_FAULT, END_CRASH, END_HANG, END_STRANGE };

/* A rank's state, exchanged as it is: all ranks are the same program. */
struct told {
    int32_t end, stage;
    int64_t took_ms; /* until the end of this part */
    double start_s, step_s;
    char code[24], text[220];
    char version[40], torch[40], cuda[24], gpu[64], hash[72];
};
struct framework_try {
    const struct framework *f;
    struct check_ctx *c;
    struct start start;
    struct child child;
    struct told own, *all;
    int wanted; /* the stage that ends this part */
    bool stop;
};

/* --- the report --- */

static bool plain_word(const char *text) { return text[0] != '\0' && strchr(text, ' ') == NULL; }

static bool number(const char *text, double *ret) {
    char *end = NULL;
    if (strspn(text, "0123456789.") != strlen(text) || *text == '\0') return false;
    *ret = strtod(text, &end);
    return *end == '\0' && isfinite(*ret);
}

static bool stage_of(const char *text, struct told *t) {
    if (t->stage == STAGE_DONE || !str_eq(stages[t->stage + 1], text)) return false;
    t->stage++;
    return true;
}

static bool fault_of(const char *text, struct told *t) {
    size_t n = strcspn(text, " ");
    if (n == 0 || n >= sizeof t->code || text[n] == '\0') return false;
    memcpy(t->code, text, n);
    t->code[n] = '\0';
    str_put(t->text, sizeof t->text, text + n + 1);
    t->end = str_eq(t->code, "absent") ? END_ABSENT : END_FAULT;
    return strspn(t->code, "abcdefghijklmnopqrstuvwxyz_") == n;
}

static bool hash_of(const char *text, struct told *t) {
    return strlen(text) == 64 && strspn(text, "0123456789abcdef") == 64 && str_put(t->hash, sizeof t->hash, text);
}

/* Every line is one of these, and no stage is left out. */
static bool on_line(void *ctx, char *line) {
    struct framework_try *k = ctx;
    struct told *t = &k->own;
    char *value = strchr(line, ' ');
    bool good = value != NULL && t->end == END_GOOD;
    if (good) {
        *value++ = '\0';
        if (str_eq(line, "stage")) good = stage_of(value, t);
        else if (str_eq(line, "error")) good = fault_of(value, t);
        else if (str_eq(line, "version")) good = plain_word(value) && str_put(t->version, sizeof t->version, value);
        else if (str_eq(line, "torch")) good = plain_word(value) && str_put(t->torch, sizeof t->torch, value);
        else if (str_eq(line, "cuda")) good = plain_word(value) && str_put(t->cuda, sizeof t->cuda, value);
        else if (str_eq(line, "gpu")) (void)str_put(t->gpu, sizeof t->gpu, value);
        else if (str_eq(line, "step_hash")) good = hash_of(value, t);
        else if (str_eq(line, "start_s")) good = number(value, &t->start_s);
        else if (str_eq(line, "step_s")) good = number(value, &t->step_s);
        else good = false;
    }
    if (!good) {
        t->end = END_STRANGE;
        str_put(t->code, sizeof t->code, "strange_report");
        snprintf(t->text, sizeof t->text, "its report has an unexpected line '%.30s%s%.60s'", line,
                 value != NULL ? " " : "", value != NULL ? value : "");
    }
    k->stop = t->end != END_GOOD || t->stage >= k->wanted;
    return !k->stop;
}

/* The engine's own words, when it started nothing. An image without Python has none of its packages either. */
static void not_started(struct framework_try *k, const char *how) {
    struct told *t = &k->own;
    GP_AUTO_FREE char *words = child_last_words(&k->child, "rror");
    const char *all = k->child.words.s != NULL ? k->child.words.s : ""; /* of runc and of crun */
    bool no_python = strstr(all, "executable file ") != NULL && strstr(all, "not found in $PATH") != NULL;
    t->end = no_python ? END_ABSENT : END_CRASH;
    str_put(t->code, sizeof t->code, no_python ? "absent" : "not_started");
    if (no_python) str_put(t->text, sizeof t->text, "the image has no python3");
    else
        snprintf(t->text, sizeof t->text, "%s %s and started no Python%s%s", k->c->container_engine, how,
                 *words ? ": " : "", words);
}

/* The program ended by itself, and reported neither a fault nor its goal. */
static void crashed(struct framework_try *k) {
    struct told *t = &k->own;
    char how[40];
    child_end(&k->child);
    GP_AUTO_FREE char *words = child_last_words(&k->child, NULL);
    int s = k->child.status;
    if (WIFSIGNALED(s)) snprintf(how, sizeof how, "was killed by signal %d", WTERMSIG(s));
    else snprintf(how, sizeof how, "ended with status %d", WEXITSTATUS(s));
    if (k->start.image != NULL && t->stage == STAGE_START) {
        not_started(k, how);
        return;
    }
    t->end = END_CRASH;
    str_put(t->code, sizeof t->code, "crashed");
    snprintf(t->text, sizeof t->text, "Python %s in '%s'%s%s", how, stages[t->stage], *words ? ": " : "", words);
}

/* Until the stage is reached, the program has ended or the time is over. False: the gang is broken. */
static bool follow(struct framework_try *k, int64_t limit_ms, struct agent_result *r) {
    struct told *t = &k->own;
    struct gp_error err = {0};
    int64_t began = clock_ms(), end = clock_deadline(limit_ms);
    comm_tcp_patience(k->c->comm, limit_ms + REST_MS);
    k->stop = t->end != END_GOOD;
    while (!k->stop && !k->child.ended && clock_left_ms(end) > 0) {
        if (k->c->size > 1 && comm_tcp_serve(k->c->comm, &err) != 0) {
            gang_broken(k->c, r, &err, false);
            return false;
        }
        if (child_read(&k->child, LOOK_MS, on_line, k, &err) == 0) continue;
        t->end = END_STRANGE;
        str_put(t->code, sizeof t->code, "strange_report");
        str_put(t->text, sizeof t->text, err.msg);
        break;
    }
    t->took_ms = clock_ms() - began;
    comm_tcp_patience(k->c->comm, 0);
    if (t->end != END_GOOD || t->stage >= k->wanted) return true;
    if (k->child.ended) {
        crashed(k);
        return true;
    }
    t->end = END_HANG;
    str_put(t->code, sizeof t->code, "hang");
    snprintf(t->text, sizeof t->text, "Python did not come beyond '%s' within %" PRId64 " s and was killed",
             stages[t->stage], (t->took_ms + 500) / 1000);
    return true;
}

/* --- the start --- */

static void start(struct framework_try *k, int64_t limit_ms) {
    struct told *t = &k->own;
    struct gp_error err = {0};
    start_make(k->c, k->f->program, k->start.image, limit_ms, &k->start);
    k->child = (struct child){.to = -1, .report = -1, .log = -1, .on_stdout = k->start.image != NULL};
    if (k->start.why[0] != '\0') {
        t->end = END_FAULT;
        str_put(t->code, sizeof t->code, "not_started");
        str_put(t->text, sizeof t->text, k->start.why);
        return;
    }
    if (k->start.argv.v[0] == NULL || access(k->start.argv.v[0], X_OK) != 0) {
        t->end = END_ABSENT;
        str_put(t->code, sizeof t->code, "absent");
        snprintf(t->text, sizeof t->text, "there is no %s", k->start.python != NULL ? k->start.python : "Python");
        return;
    }
    if (child_start(&k->child, (const char *const *)k->start.argv.v, &k->start.env, &err) == 0) return;
    t->end = END_FAULT;
    str_put(t->code, sizeof t->code, "not_started");
    str_put(t->text, sizeof t->text, err.msg);
}

/* Rank 0's address with a free port, for all. */
static bool agree_on_port(struct check_ctx *c, struct agent_result *r, char addr[96]) {
    memset(addr, 0, 96);
    if (c->rank == 0) {
        bool v6 = strchr(c->bind, ':') != NULL;
        struct sockaddr_in six4 = {.sin_family = AF_INET};
        struct sockaddr_in6 six6 = {.sin6_family = AF_INET6};
        int fd = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (v6) inet_pton(AF_INET6, c->bind, &six6.sin6_addr);
        else inet_pton(AF_INET, c->bind, &six4.sin_addr);
        struct sockaddr *at = v6 ? (void *)&six6 : (void *)&six4;
        socklen_t n = v6 ? sizeof six6 : sizeof six4;
        if (fd >= 0 && bind(fd, at, n) == 0 && getsockname(fd, at, &n) == 0)
            snprintf(addr, 96, "%s%s%s %d\n", v6 ? "[" : "", c->bind, v6 ? "]" : "",
                     ntohs(v6 ? six6.sin6_port : six4.sin_port));
        if (fd >= 0) close(fd);
    }
    if (!gang_broadcast(c, r, addr, 96, 0)) return false;
    addr[95] = '\0';
    if (addr[0] != '\0') return true;
    agent_set(r, VERDICT_ERROR, "no_port", "rank 0 has no free port at its address");
    return false;
}

/* --- the verdict, the same on all ranks --- */

static const char *advice(const struct framework *f, const char *code) {
    const char *const rows[][2] = {
        {"absent", f->absent},
        {"import", f->import},
        {"not_started", "start a container of this image by hand; run the bootstrap again"},
        {"cpu_build", "install the build for CUDA: bootstrap.python.torch chooses it"},
        {"no_cuda",
         "compare the driver with the CUDA version of the build: 'nvidia-smi' shows the newest CUDA of the driver"},
        {"no_arch", "install a build with code for this GPU: bootstrap.python.torch chooses it"},
        {"wrong_result", "replace the node: its processor or GPU computes wrong, or its torch is damaged"},
        {NULL, NULL}};
    for (size_t i = 0; rows[i][0] != NULL; i++)
        if (str_eq(rows[i][0], code)) return rows[i][1];
    return "run this check again; look at net.pair, nccl.values and train.ddp, which do without torch";
}

/* Ranks whose program died come before those that only suffered from it; then those that came less far. 0: good. */
static int badness(const struct told *t, bool together) {
    if (t->end == END_GOOD) return 0;
    if (!together) return 1;
    bool own = t->end == END_CRASH || t->end == END_STRANGE || str_eq(t->code, "no_step");
    return own ? 1000 : 100 - t->stage;
}

/* The worst ranks; of those that are equally bad the ones that failed first. *ret_n: their number. */
static bool *find_worst(const struct framework_try *k, bool together, int *ret_n) {
    int worst = 0;
    int64_t first_ms = INT64_MAX;
    bool *is = xcalloc((size_t)k->c->size, sizeof *is);
    for (int i = 0; i < k->c->size; i++) worst = GP_MAX(worst, badness(&k->all[i], together));
    for (int i = 0; i < k->c->size; i++)
        if (badness(&k->all[i], together) == worst) first_ms = GP_MIN(first_ms, k->all[i].took_ms);
    *ret_n = 0;
    for (int i = 0; i < k->c->size; i++) {
        const struct told *t = &k->all[i];
        is[i] = worst > 0 && badness(t, together) == worst && (!together || t->took_ms - first_ms <= FIRST_MS);
        *ret_n += is[i];
    }
    return is;
}

static void set_fault(struct framework_try *k, struct agent_result *r, int rank) {
    const struct told *t = &k->all[rank];
    char name[120];
    gang_name(k->c, rank, name, sizeof name);
    if (rank == k->c->rank) agent_set(r, VERDICT_FAIL, t->code, "%s: %s", name, t->text);
    else agent_set(r, VERDICT_FAIL, "rank_lost", "%s: %s", name, t->text);
    agent_suggest(r, "%s", advice(k->f, t->code));
}

/* False: a rank is at fault, and the verdict is set. together: the ranks need each other by now. */
static bool all_good(struct framework_try *k, struct agent_result *r, bool together) {
    int n = 0, absent = 0, first = 0, size = k->c->size;
    GP_AUTO_FREE bool *worst = find_worst(k, together, &n);
    if (n == 0) return true;
    for (int i = 0; i < size; i++) absent += k->all[i].end == END_ABSENT;
    if (absent == size) {
        GP_AUTO_FREE char *code = xasprintf("no_%s", k->f->module);
        agent_set(r, VERDICT_SKIPPED, code, "%s", k->own.text);
        agent_suggest(r, "%s", advice(k->f, "absent"));
        return false;
    }
    while (!worst[first]) first++;
    set_fault(k, r, worst[k->c->rank] ? k->c->rank : first);
    if (together && n == size && n > 1) return false; /* all came equally far: nobody in particular is to blame */
    for (int i = 0; i < size; i++)
        if (worst[i]) agent_culprit(r, i);
    return false;
}

/* The ranks whose weights are not those of most. */
static bool same_weights(struct framework_try *k, struct agent_result *r) {
    int best = 0, most = 0;
    for (int i = 0; i < k->c->size; i++) {
        int same = 0;
        for (int j = 0; j < k->c->size; j++) same += str_eq(k->all[i].hash, k->all[j].hash);
        if (same > most) {
            most = same;
            best = i;
        }
    }
    if (most == k->c->size && k->all[0].hash[0] != '\0') return true;
    bool clear = 2 * most > k->c->size;
    agent_set(r, VERDICT_FAIL, "different_weights", "after one step of training the ranks have different weights%s",
              clear ? "" : ", without a majority");
    agent_suggest(r, "look at nccl.values and train.ddp: a GPU or a link changes data");
    for (int i = 0; clear && i < k->c->size; i++)
        if (!str_eq(k->all[i].hash, k->all[best].hash)) agent_culprit(r, i);
    return false;
}

static void same_versions(struct framework_try *k, struct agent_result *r) {
    for (int i = 1; i < k->c->size; i++) {
        bool own = !str_eq(k->all[i].version, k->all[0].version);
        if (!own && str_eq(k->all[i].torch, k->all[0].torch)) continue;
        const char *name = own ? k->f->module : "torch";
        agent_set(r, VERDICT_DEGRADED, "versions_differ", "rank 0 has %s %s and rank %d %s %s", name,
                  own ? k->all[0].version : k->all[0].torch, i, name, own ? k->all[i].version : k->all[i].torch);
        agent_suggest(r, "%s", k->f->pin);
        return;
    }
}

static void describe(struct framework_try *k, struct agent_result *r) {
    const struct check_ctx *c = k->c;
    const struct told *t = &k->own;
    agent_data_str(r, "python", k->start.python != NULL ? k->start.python : "");
    agent_data_str(r, k->f->module, t->version);
    if (!str_eq(k->f->module, "torch")) agent_data_str(r, "torch", t->torch);
    agent_data_str(r, "cuda", t->cuda);
    agent_data_str(r, "backend", c->gpu >= 0 ? "nccl" : "gloo");
    GP_AUTO_FREE char *args =
        xasprintf("torchrun --nnodes=%d --nproc_per_node=%d --node_rank=%d", start_nodes_before(c, c->size),
                  start_ranks_here(c), start_nodes_before(c, c->who[c->rank].node));
    agent_data_str(r, "torchrun", args);
    agent_data_int(r, "reached", t->stage);
    if (t->start_s > 0) agent_metric(r, "start_time", t->start_s);
    if (t->step_s > 0) agent_metric(r, "step_time", t->step_s);
}

/* Half of the rest of the time for each part. */
static int64_t part_ms(const struct check_ctx *c, int64_t most_ms, int parts) {
    int64_t left = (clock_left_ms(c->deadline_ms) - REST_MS) / parts;
    return GP_MAX(GP_MIN(most_ms, left), (int64_t)1000);
}

static void run_parts(struct framework_try *k, struct agent_result *r) {
    struct check_ctx *c = k->c;
    char addr[96];
    start(k, part_ms(c, TOGETHER_MS, 2));
    k->wanted = STAGE_READY;
    if (!follow(k, part_ms(c, PREPARE_MS, 2), r) || !gang_gather(c, r, &k->own, k->all, sizeof k->own)) return;
    if (!all_good(k, r, false) || !agree_on_port(c, r, addr)) return;
    k->wanted = STAGE_DONE;
    if (!child_tell(&k->child, addr)) crashed(k);
    if (!follow(k, part_ms(c, TOGETHER_MS, 1), r) || !gang_gather(c, r, &k->own, k->all, sizeof k->own)) return;
    if (!all_good(k, r, true) || !same_weights(k, r)) return;
    same_versions(k, r);
    bool own = str_eq(k->f->module, "torch"), cuda = !str_eq(k->own.cuda, "none");
    agent_say(r, "%s %s%s%s%s%s: products exact, %s over %d rank%s by %s left the %s weights%s", k->f->module,
              k->own.version, own ? "" : " with torch ", own ? "" : k->own.torch, cuda ? " for CUDA " : "",
              cuda ? k->own.cuda : "", k->f->trains, c->size, c->size == 1 ? "" : "s", c->gpu >= 0 ? "nccl" : "gloo",
              own ? "same" : "right", c->gpu >= 0 ? "" : "; no GPU took part");
}

void framework_run(const struct framework *f, const char *image, struct check_ctx *c, struct agent_result *r) {
    struct framework_try k = {.f = f, .c = c, .start = {.image = image}};
    k.all = xcalloc((size_t)c->size, sizeof *k.all);
    run_parts(&k, r);
    if (k.start.container != NULL) {
        start_end(c, &k.start);
        k.child.ended = true; /* the engine's program ends with its container */
    }
    child_end(&k.child);
    describe(&k, r);
    str_clear(&k.child.words);
    start_clear(&k.start);
    free(k.all);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* framework.torch: PyTorch of the node's own Python computes right, and all ranks together train one step. torch.py
 * runs in a process of each rank; this file starts and ends it, decodes its report, and tells the ranks about each
 * other, so that each fault has its rank. First every rank is ready by itself, then they meet: a rank that is not
 * ready keeps no other one waiting. One thread. */
#include "base/gp_base.h"

#include "child.h"
#include "validate/agent/gang/gang.h"

#include "base/clock.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
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

extern const char torch_program[]; /* torch.py */
__asm__(".section .rodata\n"
        ".globl torch_program\n"
        "torch_program:\n"
        ".incbin \"validate/agent/checks/framework/torch.py\"\n"
        ".byte 0\n"
        ".previous\n");

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
    char torch[40], cuda[24], gpu[64], hash[72];
};
struct torch_run {
    struct check_ctx *c;
    struct child child;
    struct told own, *all;
    const char *python;
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
    struct torch_run *k = ctx;
    struct told *t = &k->own;
    char *value = strchr(line, ' ');
    bool good = value != NULL && t->end == END_GOOD;
    if (good) {
        *value++ = '\0';
        if (str_eq(line, "stage")) good = stage_of(value, t);
        else if (str_eq(line, "error")) good = fault_of(value, t);
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

/* The program ended by itself, and reported neither a fault nor its goal. */
static void crashed(struct torch_run *k) {
    struct told *t = &k->own;
    child_end(&k->child);
    GP_AUTO_FREE char *words = child_last_words(&k->child);
    int s = k->child.status;
    t->end = END_CRASH;
    str_put(t->code, sizeof t->code, "crashed");
    if (WIFSIGNALED(s))
        snprintf(t->text, sizeof t->text, "Python was killed by signal %d in '%s'%s%s", WTERMSIG(s), stages[t->stage],
                 *words ? ": " : "", words);
    else
        snprintf(t->text, sizeof t->text, "Python ended with status %d in '%s'%s%s", WEXITSTATUS(s), stages[t->stage],
                 *words ? ": " : "", words);
}

/* Until the stage is reached, the program has ended or the time is over. False: the gang is broken. */
static bool follow(struct torch_run *k, int64_t limit_ms, struct agent_result *r) {
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

/* The interface with this rank's address: torch looks up the host's name otherwise. "": not found. */
static void interface_of(const char *ip, char *dst, size_t n) {
    struct ifaddrs *all = NULL;
    dst[0] = '\0';
    if (getifaddrs(&all) != 0) return;
    for (const struct ifaddrs *i = all; i != NULL && dst[0] == '\0'; i = i->ifa_next) {
        char text[INET6_ADDRSTRLEN] = "";
        if (i->ifa_addr == NULL) continue;
        const struct sockaddr_in *v4 = (const void *)i->ifa_addr;
        const struct sockaddr_in6 *v6 = (const void *)i->ifa_addr;
        if (i->ifa_addr->sa_family == AF_INET) inet_ntop(AF_INET, &v4->sin_addr, text, sizeof text);
        if (i->ifa_addr->sa_family == AF_INET6) inet_ntop(AF_INET6, &v6->sin6_addr, text, sizeof text);
        if (str_eq(text, ip)) str_put(dst, n, i->ifa_name);
    }
    freeifaddrs(all);
}

static int ranks_here(const struct check_ctx *c) {
    int n = 0;
    for (int i = 0; i < c->size; i++) n += c->who[i].node == c->who[c->rank].node;
    return n;
}

static int nodes_before(const struct check_ctx *c, int rank) {
    int n = 0;
    for (int i = 0; i < rank; i++) n += c->who[i].node == i;
    return n;
}

static void env_add(struct strv *env, const char *fmt, ...) GP_PRINTF(2, 3);
static void env_add(struct strv *env, const char *fmt, ...) {
    struct str s = {0};
    va_list ap;
    va_start(ap, fmt);
    str_vaddf(&s, fmt, ap);
    va_end(ap);
    strv_take(env, str_steal(&s));
}

/* What torchrun sets for a rank, and the network. */
static void make_env(const struct check_ctx *c, int64_t limit_ms, struct strv *env) {
    char name[64];
    env_add(env, "RANK=%d", c->rank);
    env_add(env, "WORLD_SIZE=%d", c->size);
    env_add(env, "LOCAL_RANK=%d", c->gpu >= 0 ? c->gpu : c->rank - c->who[c->rank].node);
    env_add(env, "LOCAL_WORLD_SIZE=%d", ranks_here(c));
    env_add(env, "GROUP_RANK=%d", nodes_before(c, c->who[c->rank].node));
    env_add(env, "GPUPROV_GPU=%d", c->gpu >= 0);
    env_add(env, "GPUPROV_SECONDS=%lld", (long long)GP_MAX(limit_ms / 1000, (int64_t)1));
    env_add(env, "OMP_NUM_THREADS=1");
    interface_of(c->bind, name, sizeof name);
    if (name[0] == '\0') return;
    env_add(env, "GLOO_SOCKET_IFNAME=%s", name);
    env_add(env, "NCCL_SOCKET_IFNAME==%s", name); /* exactly this one */
}

/* The interpreter that the controller named, else the usual ones. */
static const char *find_python(const struct check_ctx *c) {
    static const char *const usual[] = {"/opt/venv/bin/python", "/usr/bin/python3", "/usr/local/bin/python3"};
    if (c->python != NULL) return c->python;
    for (size_t i = 0; i < GP_ARRAY_LEN(usual); i++)
        if (access(usual[i], X_OK) == 0) return usual[i];
    return NULL;
}

static void start(struct torch_run *k, int64_t limit_ms) {
    struct told *t = &k->own;
    struct gp_error err = {0};
    GP_AUTO_STRV struct strv env = {0};
    k->child = (struct child){.to = -1, .report = -1, .log = -1};
    k->python = find_python(k->c);
    if (k->python == NULL || access(k->python, X_OK) != 0) {
        t->end = END_ABSENT;
        str_put(t->code, sizeof t->code, "absent");
        snprintf(t->text, sizeof t->text, "there is no %s", k->python != NULL ? k->python : "Python");
        return;
    }
    const char *const argv[] = {k->python, "-I", "-c", torch_program, NULL};
    make_env(k->c, limit_ms, &env);
    if (child_start(&k->child, argv, &env, &err) == 0) return;
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

static const char *advice(const char *code) {
    static const char *const rows[][2] = {
        {"absent", "set bootstrap.python.torch, or install torch into that environment"},
        {"import",
         "install torch again with what it needs: bootstrap.python.torch installs the build that fits the node"},
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
static bool *find_worst(const struct torch_run *k, bool together, int *ret_n) {
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

static void set_fault(struct torch_run *k, struct agent_result *r, int rank) {
    const struct told *t = &k->all[rank];
    char name[120];
    gang_name(k->c, rank, name, sizeof name);
    if (rank == k->c->rank) agent_set(r, VERDICT_FAIL, t->code, "%s: %s", name, t->text);
    else agent_set(r, VERDICT_FAIL, "rank_lost", "%s: %s", name, t->text);
    agent_suggest(r, "%s", advice(t->code));
}

/* False: a rank is at fault, and the verdict is set. together: the ranks need each other by now. */
static bool all_good(struct torch_run *k, struct agent_result *r, bool together) {
    int n = 0, absent = 0, first = 0, size = k->c->size;
    GP_AUTO_FREE bool *worst = find_worst(k, together, &n);
    if (n == 0) return true;
    for (int i = 0; i < size; i++) absent += k->all[i].end == END_ABSENT;
    if (absent == size) {
        agent_set(r, VERDICT_SKIPPED, "no_torch", "%s", k->own.text);
        agent_suggest(r, "%s", advice("absent"));
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
static bool same_weights(struct torch_run *k, struct agent_result *r) {
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

static void same_versions(struct torch_run *k, struct agent_result *r) {
    for (int i = 1; i < k->c->size; i++)
        if (!str_eq(k->all[i].torch, k->all[0].torch)) {
            agent_set(r, VERDICT_DEGRADED, "versions_differ", "rank 0 has torch %s and rank %d torch %s",
                      k->all[0].torch, i, k->all[i].torch);
            agent_suggest(r, "pin bootstrap.python.torch, so that all nodes have the same one");
            return;
        }
}

static void describe(struct torch_run *k, struct agent_result *r) {
    const struct check_ctx *c = k->c;
    const struct told *t = &k->own;
    agent_data_str(r, "python", k->python != NULL ? k->python : "");
    agent_data_str(r, "torch", t->torch);
    agent_data_str(r, "cuda", t->cuda);
    agent_data_str(r, "backend", c->gpu >= 0 ? "nccl" : "gloo");
    GP_AUTO_FREE char *args = xasprintf("torchrun --nnodes=%d --nproc_per_node=%d --node_rank=%d",
                                        nodes_before(c, c->size), ranks_here(c), nodes_before(c, c->who[c->rank].node));
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

static void run_parts(struct torch_run *k, struct agent_result *r) {
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
    agent_say(r, "torch %s%s%s: products exact, one step of training over %d rank%s by %s left the same weights%s",
              k->own.torch, str_eq(k->own.cuda, "none") ? "" : " for CUDA ",
              str_eq(k->own.cuda, "none") ? "" : k->own.cuda, c->size, c->size == 1 ? "" : "s",
              c->gpu >= 0 ? "nccl" : "gloo", c->gpu >= 0 ? "" : "; no GPU took part");
}

void framework_torch_run(struct check_ctx *c, struct agent_result *r) {
    struct torch_run k = {.c = c};
    k.all = xcalloc((size_t)c->size, sizeof *k.all);
    run_parts(&k, r);
    child_end(&k.child);
    describe(&k, r);
    str_clear(&k.child.words);
    free(k.all);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the command line and the environment of a rank's Python. In a container it has the node's network and its
 * namespaces for shared memory, so that ranks of one node reach each other as outside; its input, report and other
 * output are the engine's stdin, stdout and stderr. One thread. */
#include "base/gp_base.h"

#include "framework.h"
#include "start.h"

#include "base/clock.h"
#include "base/fs.h"
#include "validate/agent/base/command.h"
#include "validate/agent/base/engine.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <stdlib.h>
#include <unistd.h>

#define REMOVE_MS 5000
#define LOOK_MS 10000 /* at the engine's settings */

FRAMEWORK_FILE(common_program, "common.py");

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

int start_ranks_here(const struct check_ctx *c) {
    int n = 0;
    for (int i = 0; i < c->size; i++) n += c->who[i].node == c->who[c->rank].node;
    return n;
}

int start_nodes_before(const struct check_ctx *c, int rank) {
    int n = 0;
    for (int i = 0; i < rank; i++) n += c->who[i].node == i;
    return n;
}

/* What torchrun sets for a rank, and the network. */
static void make_env(const struct check_ctx *c, int64_t limit_ms, struct strv *env) {
    char name[64];
    strv_addf(env, "RANK=%d", c->rank);
    strv_addf(env, "WORLD_SIZE=%d", c->size);
    strv_addf(env, "LOCAL_RANK=%d", c->gpu >= 0 ? c->gpu : c->rank - c->who[c->rank].node);
    strv_addf(env, "LOCAL_WORLD_SIZE=%d", start_ranks_here(c));
    strv_addf(env, "GROUP_RANK=%d", start_nodes_before(c, c->who[c->rank].node));
    strv_addf(env, "GPUPROV_GPU=%d", c->gpu >= 0);
    strv_addf(env, "GPUPROV_SECONDS=%lld", (long long)GP_MAX(limit_ms / 1000, (int64_t)1));
    strv_addf(env, "GPUPROV_NODES=%d", start_nodes_before(c, c->size));
    strv_addf(env, "GPUPROV_BIND=%s", c->bind);
    strv_addf(env, "OMP_NUM_THREADS=1");
    interface_of(c->bind, name, sizeof name);
    if (name[0] == '\0') return;
    strv_addf(env, "GLOO_SOCKET_IFNAME=%s", name);
    strv_addf(env, "NCCL_SOCKET_IFNAME==%s", name); /* exactly this one */
}

/* The interpreter that the controller named, else the usual ones. */
static const char *find_python(const struct check_ctx *c) {
    static const char *const usual[] = {"/opt/venv/bin/python", "/usr/bin/python3", "/usr/local/bin/python3"};
    if (c->python != NULL) return c->python;
    for (size_t i = 0; i < GP_ARRAY_LEN(usual); i++)
        if (access(usual[i], X_OK) == 0) return usual[i];
    return NULL;
}

static void say_words(struct strv *to, const char *const *words) {
    for (; *words != NULL; words++) strv_add(to, *words);
}
#define WORDS(to, ...) say_words(to, (const char *const[]){__VA_ARGS__, NULL})

/* The options of `run` besides the GPUs. */
static void container_words(struct start *s, bool ctr) {
    if (ctr)
        WORDS(&s->argv, "run", "--rm", "--net-host", "--cwd", "/", "--with-ns", "ipc:/proc/1/ns/ipc", "--with-ns",
              "pid:/proc/1/ns/pid", "--mount", "type=bind,src=/dev/shm,dst=/dev/shm,options=rbind:rw");
    else
        WORDS(&s->argv, "run", "--rm", "-i", "--pull", "never", "--name", s->container, "--network", "host", "--ipc",
              "host", "--pid", "host", "--workdir", "/", "--security-opt", "label=disable", "--entrypoint", "python3");
    for (size_t i = 0; i < s->env.n; i++) WORDS(&s->argv, "--env", s->env.v[i]);
}

static void make_container(const struct check_ctx *c, const char *program, struct start *s) {
    const char *engine = c->container_engine;
    int64_t deadline_ms = GP_MIN(c->deadline_ms, clock_deadline(LOOK_MS));
    bool ctr = str_eq(engine, "containerd");
    GP_AUTO_FREE char *cdi = engine_cdi_file();
    GP_AUTO_FREE char *timeout = command_find("timeout");
    GP_AUTO_FREE char *ends =
        xasprintf("%lld", (long long)(GP_MAX(clock_left_ms(c->deadline_ms), (int64_t)0) / 1000 + 1));
    enum container_gpus how = CONTAINER_PLAIN;
    GP_AUTO_STRV struct strv run = {0};
    s->python = "python3";
    s->container = xasprintf("gpuprov-check-%d-%d", (int)getpid(), c->rank);
    if (!engine_program(&run, engine)) {
        snprintf(s->why, sizeof s->why, "%s is not installed", engine);
        return;
    }
    if (c->gpu >= 0 && !engine_way_to_gpus(engine, cdi != NULL, deadline_ms, &how)) {
        snprintf(s->why, sizeof s->why, "containers of %s get no GPU: it has neither CDI nor the NVIDIA runtime",
                 engine);
        return;
    }
    strv_addf(&s->env, "GPUPROV_IMAGE=1");
    strv_addf(&s->env, "GPUPROV_ENDS=%s", ends);
    for (size_t i = 0; i + 1 < run.n; i++) strv_add(&s->argv, run.v[i]); /* sudo */
    if (run.n > 1 && timeout != NULL)
        WORDS(&s->argv, timeout, "-s", "KILL", ends); /* this process cannot kill root's */
    strv_add(&s->argv, run.v[run.n - 1]);
    container_words(s, ctr);
    engine_gpu_words(&s->argv, engine, how);
    strv_add(&s->argv, s->image);
    if (ctr) WORDS(&s->argv, s->container, s->python);
    WORDS(&s->argv, "-s", "-c", program);
    strv_clear(&s->env); /* the engine itself keeps its own */
}

void start_make(const struct check_ctx *c, const char *program, const char *image, int64_t limit_ms,
                struct start *ret) {
    GP_AUTO_FREE char *whole = xasprintf("%s%s", common_program, program);
    *ret = (struct start){.image = image};
    make_env(c, limit_ms, &ret->env);
    if (image != NULL) {
        make_container(c, whole, ret);
    } else {
        ret->python = find_python(c);
        str_put(ret->scratch, sizeof ret->scratch, "/tmp/gpuprov-torch.XXXXXX");
        if (mkdtemp(ret->scratch) == NULL) ret->scratch[0] = '\0'; /* a full disk: torch has a place of its own */
        else strv_addf(&ret->env, "TORCHINDUCTOR_CACHE_DIR=%s", ret->scratch);
        if (ret->python != NULL) WORDS(&ret->argv, ret->python, "-I", "-c", whole);
    }
    strv_take(&ret->argv, NULL);
}

static void quietly(const char *engine, const char *const *words) {
    GP_AUTO_STRV struct strv argv = {0};
    GP_AUTO_STR struct str out = {0};
    struct gp_error err = {0};
    int status = 0;
    if (!engine_program(&argv, engine)) return;
    say_words(&argv, words);
    strv_take(&argv, NULL);
    (void)command_run((const char *const *)argv.v, clock_deadline(REMOVE_MS), &out, &status, &err);
}
#define QUIETLY(engine, ...) quietly(engine, (const char *const[]){__VA_ARGS__, NULL})

void start_end(const struct check_ctx *c, const struct start *s) {
    if (s->container == NULL || s->argv.n < 2) return;
    if (!str_eq(c->container_engine, "containerd")) {
        QUIETLY(c->container_engine, "rm", "-f", s->container);
        return;
    }
    QUIETLY("containerd", "task", "rm", "-f", s->container);
    QUIETLY("containerd", "container", "rm", s->container);
}

void start_clear(struct start *s) {
    if (s->scratch[0] != '\0') (void)fs_remove_tree(s->scratch, NULL);
    strv_clear(&s->argv);
    strv_clear(&s->env);
    free(s->container);
}

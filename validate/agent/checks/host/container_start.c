/* SPDX-License-Identifier: Apache-2.0 */
/* Starts a container through an engine, without network, whose root folder holds only the static agent, and reads from
 * the agent's first line how many GPUs are in it. Does not judge. One thread; leaves nothing. */
#include "base/gp_base.h"

#include "container_start.h"

#include "base/clock.h"
#include "base/fs.h"
#include "validate/agent/agent.h"
#include "validate/agent/base/command.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#define REMOVE_MS 5000
#define IMAGE "gpuprov-check:latest" /* for docker, which starts no container without one; removed at the end */

static const char *const folders[] = {"dev", "proc", "sys", "etc", "tmp", "run", "var"};

static int copy_file(const char *from, const char *to) {
    GP_AUTO_FD int in = open(from, O_RDONLY | O_CLOEXEC);
    GP_AUTO_FD int out = open(to, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0755);
    if (in < 0 || out < 0) return -errno;
    for (;;) {
        char some[65536];
        ssize_t n = read(in, some, sizeof some);
        if (n == 0) return 0;
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return -errno;
        int rc = fs_write_all(out, some, (size_t)n);
        if (rc < 0) return rc;
    }
}

/* The static agent: this program, or the one in the same folder. Caller frees. */
static char *static_agent(void) {
    char self[1024];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n <= 0) return NULL;
    self[n] = '\0';
    char *slash = strrchr(self, '/');
    if (slash == NULL) return NULL;
    *slash = '\0';
    char *path = fs_join(self, "gpuprov-agent");
    if (access(path, X_OK) == 0) return path;
    free(path);
    return NULL;
}

/* An empty root folder with the agent in it. Caller frees and removes. NULL: the reason is in why. */
static char *root_folder(char *why, size_t why_size) {
    GP_AUTO_FREE char *agent = static_agent();
    char *root = xstrdup("/tmp/gpuprov-container.XXXXXX");
    if (agent == NULL || mkdtemp(root) == NULL) {
        str_put(why, why_size, agent == NULL ? "the static agent is not in this agent's folder" : strerror(errno));
        free(root);
        return NULL;
    }
    for (size_t i = 0; i < GP_ARRAY_LEN(folders); i++) {
        GP_AUTO_FREE char *path = fs_join(root, folders[i]);
        mkdir(path, 0755); /* podman reports a missing one */
    }
    GP_AUTO_FREE char *to = fs_join(root, "gpuprov-agent");
    int rc = copy_file(agent, to);
    if (rc == 0) return root;
    str_put(why, why_size, strerror(-rc));
    fs_remove_tree(root, NULL);
    free(root);
    return NULL;
}

/* The number of /dev/nvidiaN in the hello of the agent in the container; -1: no hello. */
static int gpus_in_hello(const char *said) {
    const char *p = said != NULL ? strstr(said, "\"dev_nvidia\":") : NULL;
    return p != NULL ? (int)strtol(p + strlen("\"dev_nvidia\":"), NULL, 10) : -1;
}

/* Only the agent's hello is of interest; it then runs one quick check. */
static const char *quick_check(void) {
    const struct check_info *best = NULL;
    for (const struct check_info *c = check_table; c->id != NULL; c++)
        if (c->level == CHECK_NODE && c->needs == NEED_NOTHING && (best == NULL || c->seconds < best->seconds))
            best = c;
    return best != NULL ? best->id : "";
}

/* --- a tar file, for docker --- */

static void tar_entry(struct str *to, const char *name, char type, unsigned mode, size_t size) {
    char block[512] = {0};
    unsigned sum = 0;
    str_put(block, 100, name);
    snprintf(block + 100, 8, "%07o", mode);
    memcpy(block + 108, "0000000\0000000000", 16);
    block[123] = '\0';
    snprintf(block + 124, 12, "%011zo", size);
    memcpy(block + 136, "00000000000", 12);
    memset(block + 148, ' ', 8);
    block[156] = type;
    memcpy(block + 257, "ustar\00000", 8);
    for (size_t i = 0; i < sizeof block; i++) sum += (unsigned char)block[i];
    snprintf(block + 148, 8, "%06o", sum);
    str_add_mem(to, block, sizeof block);
}

/* The root folder as one file beside it. Caller frees and removes. */
static char *root_tar(const char *root, struct gp_error *err) {
    static const char zeros[512 + 1024];
    GP_AUTO_STR struct str tar = {0}, agent = {0};
    GP_AUTO_FREE char *from = fs_join(root, "gpuprov-agent");
    char *path = xasprintf("%s.tar", root);
    int rc = fs_read(from, 64 << 20, &agent, err);
    for (size_t i = 0; i < GP_ARRAY_LEN(folders); i++) {
        GP_AUTO_FREE char *name = xasprintf("%s/", folders[i]);
        tar_entry(&tar, name, '5', 0755, 0);
    }
    tar_entry(&tar, "gpuprov-agent", '0', 0755, agent.len);
    if (rc == 0) {
        str_add_mem(&tar, agent.s, agent.len);
        str_add_mem(&tar, zeros, (512 - agent.len % 512) % 512 + 1024);
        rc = fs_write_atomic(path, tar.s, tar.len, 0600, err);
    }
    if (rc == 0) return path;
    free(path);
    return NULL;
}

/* --- the engines --- */

struct words {
    const char *v[40];
    size_t n;
};

static void add(struct words *w, const char *const *more) {
    for (; *more != NULL && w->n + 1 < GP_ARRAY_LEN(w->v); more++) w->v[w->n++] = *more;
}
#define ADD(w, ...) add(w, (const char *const[]){__VA_ARGS__, NULL})

static void last_line(struct container_try *t, const struct str *out, const struct gp_error *err) {
    GP_AUTO_STRV struct strv lines = {0};
    strv_split(&lines, out->s != NULL ? out->s : "", "\n");
    const char *said = lines.n > 0 ? lines.v[lines.n - 1] : "no reason";
    for (size_t i = lines.n; i > 0; i--) /* docker adds a line of advice */
        if (strstr(lines.v[i - 1], "rror") != NULL) {
            said = lines.v[i - 1];
            break;
        }
    str_put(t->why, sizeof t->why, err->msg[0] != '\0' ? err->msg : said);
}

static bool quietly(const char *const *argv, struct container_try *t, int64_t deadline_ms) {
    GP_AUTO_STR struct str out = {0};
    struct gp_error err = {0};
    int status = 0;
    bool ok = command_run(argv, deadline_ms, &out, &status, &err) == 0 && status == 0;
    if (!ok && t != NULL) last_line(t, &out, &err);
    return ok;
}

static void run_in(const char *engine, enum container_gpus how, const char *root, int64_t deadline_ms,
                   struct container_try *t) {
    GP_AUTO_STRV struct strv gpus = {0};
    GP_AUTO_FREE char *id = xasprintf("gpuprov-check-%d", (int)getpid());
    GP_AUTO_STR struct str out = {0};
    struct gp_error err = {0};
    struct words w = {.n = 0};
    int status = 0;
    bool docker = str_eq(engine, "docker"), ctr = str_eq(engine, "containerd");
    if (ctr) ADD(&w, "ctr", "run", "--rm");
    else ADD(&w, engine, "run", "--rm", "--network", "none");
    engine_gpu_words(&gpus, engine, how);
    for (size_t i = 0; i < gpus.n; i++) ADD(&w, gpus.v[i]);
    if (ctr) ADD(&w, "--rootfs", root, id);
    else if (docker) ADD(&w, "--name", id, IMAGE);
    else ADD(&w, "--security-opt", "label=disable", "--rootfs", root);
    ADD(&w, "/gpuprov-agent", "run", "--checks", quick_check());
    int rc = command_run(w.v, deadline_ms, &out, &status, &err);
    t->gpus = gpus_in_hello(out.s);
    if (rc < 0 || t->gpus < 0) last_line(t, &out, &err);
    if (rc == 0) return;
    t->gpus = -1; /* did not end: it must not stay */
    if (ctr)
        quietly((const char *const[]){"ctr", "task", "kill", "-s", "KILL", id, NULL}, NULL, clock_deadline(REMOVE_MS));
    if (docker) quietly((const char *const[]){"docker", "rm", "-f", id, NULL}, NULL, clock_deadline(REMOVE_MS));
}

void container_start(const char *engine, enum container_gpus how, int64_t deadline_ms, struct container_try *ret) {
    struct gp_error err = {0};
    *ret = (struct container_try){.gpus = -1};
    GP_AUTO_FREE char *root = root_folder(ret->why, sizeof ret->why);
    if (root == NULL) {
        ret->no_root = true;
        return;
    }
    if (!str_eq(engine, "docker")) {
        run_in(engine, how, root, deadline_ms, ret);
    } else {
        GP_AUTO_FREE char *tar = root_tar(root, &err);
        ret->no_root = tar == NULL;
        if (tar == NULL) str_put(ret->why, sizeof ret->why, err.msg);
        else if (quietly((const char *const[]){"docker", "import", tar, IMAGE, NULL}, ret, deadline_ms))
            run_in(engine, how, root, deadline_ms, ret);
        quietly((const char *const[]){"docker", "rmi", "-f", IMAGE, NULL}, NULL, clock_deadline(REMOVE_MS));
        if (tar != NULL) unlink(tar);
    }
    fs_remove_tree(root, NULL);
}

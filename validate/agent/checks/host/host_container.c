/* SPDX-License-Identifier: Apache-2.0 */
/* host.container: checks that a container on this node sees the GPUs. podman starts one through CDI, without network
 * and image; its root folder holds only the static agent. docker cannot do that, so only its settings are read, and
 * the message states it. One thread; leaves nothing. */
#include "base/gp_base.h"

#include "host.h"

#include "base/clock.h"
#include "base/fs.h"
#include "validate/agent/base/command.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static void blame(struct agent_result *r, enum verdict v, const char *code, const char *advice, const char *text) {
    if (v <= r->verdict) return;
    agent_set(r, v, code, "%s", text);
    agent_suggest(r, "%s", advice);
}

/* --- settings --- */

/* A CDI file that describes nvidia.com/gpu; caller frees. NULL: none. */
static char *cdi_spec(void) {
    static const char *const folders[] = {"/etc/cdi", "/var/run/cdi"};
    for (size_t i = 0; i < GP_ARRAY_LEN(folders); i++) {
        DIR *d = opendir(folders[i]);
        if (d == NULL) continue;
        char *found = NULL;
        for (const struct dirent *e = readdir(d); e != NULL && found == NULL; e = readdir(d)) {
            GP_AUTO_STR struct str s = {0};
            char *path = fs_join(folders[i], e->d_name);
            if (e->d_name[0] != '.' && fs_read(path, 1 << 20, &s, NULL) == 0 && s.s != NULL &&
                strstr(s.s, "nvidia.com/gpu") != NULL)
                found = path;
            else free(path);
        }
        closedir(d);
        if (found != NULL) return found;
    }
    return NULL;
}

static bool file_has(const char *path, const char *word) {
    GP_AUTO_STR struct str s = {0};
    return fs_read(path, 1 << 20, &s, NULL) == 0 && s.s != NULL && strstr(s.s, word) != NULL;
}

/* --- podman: a container of our own --- */

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
    static const char *const folders[] = {"dev", "proc", "sys", "etc", "tmp", "run", "var"};
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

static void try_podman(struct check_ctx *c, bool cdi, int gpus, struct agent_result *r) {
    char why[160];
    GP_AUTO_STR struct str out = {0};
    struct gp_error err = {0};
    int status = 0;
    if (!cdi) {
        blame(r, VERDICT_DEGRADED, "no_cdi",
              "install nvidia-container-toolkit and run 'nvidia-ctk cdi generate "
              "--output=/etc/cdi/nvidia.yaml'",
              "podman is installed, but no CDI file describes the GPUs, so no container gets one");
        return;
    }
    GP_AUTO_FREE char *root = root_folder(why, sizeof why);
    if (root == NULL) {
        agent_set(r, VERDICT_ERROR, "no_root_folder", "cannot create a root folder for a container: %s", why);
        return;
    }
    const char *const argv[] = {"podman",
                                "run",
                                "--rm",
                                "--network",
                                "none",
                                "--device",
                                "nvidia.com/gpu=all",
                                "--security-opt",
                                "label=disable",
                                "--rootfs",
                                root,
                                "/gpuprov-agent",
                                "run",
                                "--checks",
                                quick_check(),
                                NULL};
    int rc = command_run(argv, GP_MAX(clock_deadline(1000), c->deadline_ms - 2000), &out, &status, &err);
    fs_remove_tree(root, NULL);
    int seen = gpus_in_hello(out.s);
    agent_data_str(r, "podman", rc < 0 ? err.msg : seen < 0 ? "no container started" : "container started");
    if (seen >= 0) agent_data_int(r, "gpus_in_container", seen);
    if (rc < 0 || seen < 0) {
        GP_AUTO_STRV struct strv lines = {0};
        strv_split(&lines, out.s != NULL ? out.s : "", "\n");
        GP_AUTO_FREE char *text =
            xasprintf("podman cannot start a container with the GPUs: %.200s", rc < 0        ? err.msg
                                                                               : lines.n > 0 ? lines.v[lines.n - 1]
                                                                                             : "no reason");
        blame(r, VERDICT_DEGRADED, "no_container",
              "run 'nvidia-ctk cdi generate' again, because a driver update leaves old paths, and try 'podman run'",
              text);
    } else if (seen < gpus) {
        GP_AUTO_FREE char *text = xasprintf("a container sees %d of %d GPUs", seen, gpus);
        blame(r, VERDICT_DEGRADED, "gpus_missing", "run 'nvidia-ctk cdi generate' again", text);
    } else {
        agent_say(r, "a container of podman sees all %d GPUs", seen);
    }
}

/* docker: its settings only. */
static void look_docker(bool cdi, struct agent_result *r) {
    bool runtime = file_has("/etc/docker/daemon.json", "nvidia-container-runtime");
    GP_AUTO_FREE char *hook = command_find("nvidia-container-runtime-hook"); /* docker run --gpus needs it */
    agent_data_bool(r, "docker_nvidia_runtime", runtime);
    agent_data_bool(r, "docker_gpus_hook", hook != NULL);
    if (!runtime && !cdi && hook == NULL)
        blame(r, VERDICT_DEGRADED, "no_nvidia_runtime",
              "install nvidia-container-toolkit and run 'nvidia-ctk runtime configure "
              "--runtime=docker'",
              "docker is installed, but neither the nvidia runtime nor CDI is set up, so no container gets a GPU");
    else
        agent_say(r, "docker is set up for GPUs (%s); only its settings were read",
                  runtime ? "nvidia runtime"
                  : cdi   ? "CDI"
                          : "hook of --gpus");
}

void container_run(struct check_ctx *c, struct agent_result *r) {
    int gpus = agent_dev_nvidia_count();
    GP_AUTO_FREE char *podman = command_find("podman");
    GP_AUTO_FREE char *docker = command_find("docker");
    GP_AUTO_FREE char *cdi = cdi_spec();
    if (podman == NULL && docker == NULL) {
        agent_set(r, VERDICT_SKIPPED, "no_runtime", "neither podman nor docker is installed");
        return;
    }
    if (gpus == 0) {
        agent_set(r, VERDICT_SKIPPED, "no_gpu", "this node has no GPU for a container");
        return;
    }
    agent_data_str(r, "cdi", cdi != NULL ? cdi : "");
    if (podman != NULL) try_podman(c, cdi != NULL, gpus, r);
    if (docker != NULL) look_docker(cdi != NULL, r);
}

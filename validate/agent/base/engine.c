/* SPDX-License-Identifier: Apache-2.0 */
/* Reads what a container engine has for GPUs: CDI, the NVIDIA runtime, docker's hook. Starts no container. Any
 * thread. */
#include "base/gp_base.h"

#include "command.h"
#include "engine.h"

#include "base/fs.h"

#include <dirent.h>
#include <unistd.h>

bool engine_program(struct strv *to, const char *engine) {
    GP_AUTO_FREE char *program = command_find(str_eq(engine, "containerd") ? "ctr" : engine);
    GP_AUTO_FREE char *sudo = geteuid() != 0 ? command_find("sudo") : NULL;
    if (program == NULL) return false;
    if (sudo != NULL) {
        strv_add(to, sudo);
        strv_add(to, "-n");
    }
    strv_add(to, program);
    return true;
}

void engine_gpu_words(struct strv *to, const char *engine, enum container_gpus how) {
    GP_AUTO_FREE char *runtime = command_find("nvidia-container-runtime");
    const char *path = runtime != NULL ? runtime : "nvidia-container-runtime";
    const char *const cdi[] = {"--device", "nvidia.com/gpu=all", NULL}, *const hook[] = {"--gpus", "all", NULL};
    const char *const ctr[] = {"--runc-binary", path, "--env", "NVIDIA_VISIBLE_DEVICES=all", NULL};
    const char *const run[] = {"--runtime", str_eq(engine, "docker") ? "nvidia" : path, "-e",
                               "NVIDIA_VISIBLE_DEVICES=all", NULL};
    const char *const none[] = {NULL};
    const char *const *words = how == CONTAINER_CDI           ? cdi
                               : how == CONTAINER_HOOK        ? hook
                               : how != CONTAINER_RUNTIME     ? none
                               : str_eq(engine, "containerd") ? ctr
                                                              : run;
    for (; *words != NULL; words++) strv_add(to, *words);
}

char *engine_cdi_file(void) {
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

/* Whether a text such as "containerd github.com/x 1.6.20~ds1" has a version of at least major.minor. */
static bool at_least(const char *text, int major, int minor) {
    for (const char *p = text; p != NULL && *p != '\0'; p++) {
        int a = 0, b = 0, n = 0;
        if ((p == text || p[-1] == ' ' || p[-1] == 'v') && sscanf(p, "%d.%d.%n", &a, &b, &n) == 2 && n > 0)
            return a > major || (a == major && b >= minor);
    }
    return false;
}

/* What `docker info` prints in this form; "" if it prints none. */
static void docker_info(const char *form, int64_t deadline_ms, struct str *out) {
    GP_AUTO_STRV struct strv words = {0};
    struct gp_error err = {0};
    int status = 0;
    if (!engine_program(&words, "docker")) return;
    strv_add(&words, "info");
    strv_add(&words, "-f");
    strv_add(&words, form);
    strv_take(&words, NULL);
    if (command_run((const char *const *)words.v, deadline_ms, out, &status, &err) < 0) str_clear(out);
}

/* Whether the engine's program takes CDI devices: by its version, and docker by what it reports. containerd has CDI for
 * Kubernetes since 1.7, but its program ctr only since 2.0. */
static bool has_cdi(const char *engine, int64_t deadline_ms) {
    GP_AUTO_STR struct str out = {0};
    struct gp_error err = {0};
    int status = 0;
    if (str_eq(engine, "docker")) {
        docker_info("{{json .}}", deadline_ms, &out);
        return out.s != NULL && strstr(out.s, "\"CDISpecDirs\":[\"") != NULL;
    }
    const char *const version[] = {engine, "--version", NULL};
    if (command_run(version, deadline_ms, &out, &status, &err) < 0 || out.s == NULL) return false;
    return str_eq(engine, "podman") ? at_least(out.s, 4, 3) : at_least(out.s, 2, 0);
}

static bool has_runtime(const char *engine, int64_t deadline_ms) {
    GP_AUTO_FREE char *runtime = command_find("nvidia-container-runtime");
    GP_AUTO_STR struct str out = {0};
    if (!str_eq(engine, "docker")) return runtime != NULL;
    docker_info("{{json .Runtimes}}", deadline_ms, &out);
    return out.s != NULL && strstr(out.s, "\"nvidia\":") != NULL;
}

bool engine_way_to_gpus(const char *engine, bool cdi_file, int64_t deadline_ms, enum container_gpus *ret) {
    bool cdi = has_cdi(engine, deadline_ms);
    bool runtime = has_runtime(engine, deadline_ms);
    GP_AUTO_FREE char *hook = str_eq(engine, "docker") ? command_find("nvidia-container-runtime-hook") : NULL;
    *ret = cdi && cdi_file ? CONTAINER_CDI : runtime ? CONTAINER_RUNTIME : CONTAINER_HOOK;
    return (cdi && cdi_file) || runtime || hook != NULL;
}

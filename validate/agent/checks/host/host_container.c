/* SPDX-License-Identifier: Apache-2.0 */
/* host.container: checks that a container on this node sees the GPUs. The engine of the spec must start one. Without
 * one, the engines that the node has are looked at: podman starts a container through CDI, and only docker's settings
 * are read, because an engine that nobody asked for gets no image. One thread; leaves nothing. */
#include "base/gp_base.h"

#include "container_start.h"
#include "host.h"

#include "base/clock.h"
#include "base/fs.h"
#include "validate/agent/base/command.h"

static void blame(struct agent_result *r, enum verdict v, const char *code, const char *advice, const char *text) {
    if (v <= r->verdict) return;
    agent_set(r, v, code, "%s", text);
    agent_suggest(r, "%s", advice);
}

/* --- settings --- */

static bool file_has(const char *path, const char *word) {
    GP_AUTO_STR struct str s = {0};
    return fs_read(path, 1 << 20, &s, NULL) == 0 && s.s != NULL && strstr(s.s, word) != NULL;
}

/* --- podman: a container of our own --- */

static void try_podman(struct check_ctx *c, bool cdi, int gpus, struct agent_result *r) {
    struct container_try t;
    if (!cdi) {
        blame(r, VERDICT_DEGRADED, "no_cdi",
              "install nvidia-container-toolkit and run 'nvidia-ctk cdi generate "
              "--output=/etc/cdi/nvidia.yaml'",
              "podman is installed, but no CDI file describes the GPUs, so no container gets one");
        return;
    }
    container_start("podman", CONTAINER_CDI, GP_MAX(clock_deadline(1000), c->deadline_ms - 2000), &t);
    if (t.no_root) {
        agent_set(r, VERDICT_ERROR, "no_root_folder", "cannot create a root folder for a container: %s", t.why);
        return;
    }
    agent_data_str(r, "podman", t.gpus < 0 ? "no container started" : "container started");
    if (t.gpus >= 0) agent_data_int(r, "gpus_in_container", t.gpus);
    if (t.gpus < 0) {
        GP_AUTO_FREE char *text = xasprintf("podman cannot start a container with the GPUs: %.200s", t.why);
        blame(r, VERDICT_DEGRADED, "no_container",
              "run 'nvidia-ctk cdi generate' again, because a driver update leaves old paths, and try 'podman run'",
              text);
    } else if (t.gpus < gpus) {
        GP_AUTO_FREE char *text = xasprintf("a container sees %d of %d GPUs", t.gpus, gpus);
        blame(r, VERDICT_DEGRADED, "gpus_missing", "run 'nvidia-ctk cdi generate' again", text);
    } else {
        agent_say(r, "a container of podman sees all %d GPUs", t.gpus);
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

/* --- the engine that the spec has --- */

static void try_asked(struct check_ctx *c, bool cdi_file, int gpus, struct agent_result *r) {
    static const char *const ways[] = {"plain", "CDI", "NVIDIA runtime", "--gpus"};
    const char *engine = c->container_engine;
    int64_t deadline_ms = GP_MAX(clock_deadline(1000), c->deadline_ms - 2000);
    enum container_gpus how = CONTAINER_PLAIN;
    struct container_try t;
    GP_AUTO_FREE char *program = command_find(str_eq(engine, "containerd") ? "ctr" : engine);
    agent_data_str(r, "engine", engine);
    if (program == NULL) {
        agent_set(r, VERDICT_FAIL, "no_engine", "the spec has the container engine %s, which is not installed", engine);
        return;
    }
    if (gpus > 0 && !engine_way_to_gpus(engine, cdi_file, deadline_ms, &how)) {
        agent_set(r, VERDICT_FAIL, "no_cdi", "containers of %s get no GPU: %s", engine,
                  cdi_file ? "it has neither CDI nor the NVIDIA runtime"
                           : "there is no CDI file, and it has no NVIDIA runtime");
        return;
    }
    container_start(engine, how, deadline_ms, &t);
    agent_data_str(r, "gpus_by", ways[how]);
    if (t.gpus >= 0) agent_data_int(r, "gpus_in_container", t.gpus);
    if (t.no_root) {
        agent_set(r, VERDICT_ERROR, "no_root_folder", "cannot create a root folder for a container: %s", t.why);
    } else if (t.gpus < 0) {
        agent_set(r, VERDICT_FAIL, "no_container", "%s cannot start a container%s: %s", engine,
                  gpus > 0 ? " with the GPUs" : "", t.why);
        if (gpus == 0) agent_suggest(r, "start a container with %s by hand; run the bootstrap again", engine);
    } else if (t.gpus != gpus) {
        agent_set(r, VERDICT_FAIL, "gpus_missing", "a container of %s sees %d of %d GPUs (%s)", engine, t.gpus, gpus,
                  ways[how]);
    } else if (gpus > 0) {
        agent_say(r, "a container of %s sees %s (%s)", engine, gpus == 1 ? "the GPU" : "all GPUs", ways[how]);
    } else {
        agent_say(r, "%s started a container; this node has no GPU", engine);
    }
}

void container_run(struct check_ctx *c, struct agent_result *r) {
    int gpus = agent_dev_nvidia_count();
    GP_AUTO_FREE char *podman = command_find("podman");
    GP_AUTO_FREE char *docker = command_find("docker");
    GP_AUTO_FREE char *cdi = engine_cdi_file();
    if (c->container_engine != NULL) {
        agent_data_str(r, "cdi", cdi != NULL ? cdi : "");
        try_asked(c, cdi != NULL, gpus, r);
        return;
    }
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

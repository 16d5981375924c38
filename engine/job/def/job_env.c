/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the environment of a job on one node, and the texts that run there. Pure; any thread. */
#include "base/gp_base.h"

#include "engine/job/def/job_env.h"

#include "base/form.h"
#include "templates/templates.h"

#include <ctype.h>

/* `ip` prints "2: eth0    inet 10.0.0.5/24 brd ..." for an address. */
const char job_look_script[] = "printf 'home %s\\n' \"$HOME\"\n"
                               "printf 'boot '; cat /proc/sys/kernel/random/boot_id\n"
                               "ip -o addr show up scope global 2>/dev/null | while read -r _ name _ address _; do\n"
                               "    printf 'address %s %s\\n' \"$name\" \"$address\"\n"
                               "done\n"
                               "for d in /sys/class/infiniband/*/device/driver; do\n"
                               "    case $(readlink \"$d\" 2>/dev/null) in */efa) echo efa ;; esac\n"
                               "done\n"
                               ":\n";

static bool is_home(const char *s) {
    if (s[0] != '/') return false;
    for (; *s != '\0'; s++)
        if (!isalnum((unsigned char)*s) && strchr("/._+@=,:~-", *s) == NULL) return false;
    return true;
}

static bool is_boot_id(const char *s) { return strlen(s) == 36 && strspn(s, "0123456789abcdef-") == 36; }

static bool is_interface(const char *s) {
    size_t n = strlen(s);
    for (const char *p = s; *p != '\0'; p++)
        if (!isalnum((unsigned char)*p) && strchr("._-", *p) == NULL) return false;
    return n > 0 && n < 16;
}

/* "eth0 10.0.0.5/24". */
static void take_address(const struct job_look_in *in, const char *text) {
    struct job_look *look = in->ret;
    size_t n = strcspn(text, " ");
    GP_AUTO_FREE char *name = xstrndup(text, n);
    GP_AUTO_FREE char *address = xstrndup(text + n + (text[n] == ' '), strcspn(text + n + (text[n] == ' '), "/"));
    name[strcspn(name, "@")] = '\0'; /* "eth0@if7" in a namespace */
    if (!is_interface(name) || !form_address(address)) return;
    bool first = look->address[0] == '\0';
    if (first) str_put(look->address, sizeof look->address, address);
    if ((in->wanted[0] == '\0' && first) || strcmp(in->wanted, address) == 0)
        str_put(look->interface, sizeof look->interface, name);
}

void job_look_line(const struct job_look_in *in, const char *line) {
    struct job_look *look = in->ret;
    if (str_starts(line, "home ") && is_home(line + 5)) str_put(look->home, sizeof look->home, line + 5);
    if (str_starts(line, "boot ") && is_boot_id(line + 5)) str_put(look->boot, sizeof look->boot, line + 5);
    if (str_starts(line, "address ")) take_address(in, line + 8);
    if (strcmp(line, "efa") == 0) look->efa = true;
}

/* --- the environment --- */

/* The value of a variable, or NULL. */
static const char *value_of(const struct strv *env, const char *name) {
    size_t n = strlen(name);
    for (size_t i = 0; i < env->n; i++)
        if (strncmp(env->v[i], name, n) == 0 && env->v[i][n] == '=') return env->v[i] + n + 1;
    return NULL;
}

static void put_own(struct strv *env, const char *var) {
    size_t n = strcspn(var, "=") + 1;
    for (size_t i = 0; i < env->n; i++)
        if (strncmp(env->v[i], var, n) == 0) {
            free(env->v[i]);
            env->v[i] = xstrdup(var);
            return;
        }
    strv_add(env, var);
}

/* NCCL takes a name that begins so as a prefix, unless '=' is before it. */
static void put_network(const struct spec *spec, const struct job_look *look, struct strv *env) {
    if (look->interface[0] != '\0') {
        strv_addf(env, "NCCL_SOCKET_IFNAME==%s", look->interface);
        strv_addf(env, "GLOO_SOCKET_IFNAME=%s", look->interface);
    }
    if (!look->efa || (spec->fabric != FABRIC_EFA && spec->fabric != FABRIC_AUTO)) return;
    strv_addf(env, "FI_PROVIDER=efa");
    strv_addf(env, "FI_EFA_USE_DEVICE_RDMA=1");
}

void job_env_make(const struct spec *spec, const struct job_place *place, struct strv *ret) {
    int gpus = spec->gpu.count, processes = GP_MAX(gpus, 1);
    const char *master = place->ips->v[0];
    int64_t port = JOB_MASTER_PORT, own = 0;
    const char *text = value_of(&spec->job.env, "MASTER_PORT");
    if (text != NULL && str_to_i64(text, 1, 65535, &own)) port = own;
    GP_AUTO_FREE char *ips = strv_join(place->ips, "\n");
    strv_addf(ret, "GPUPROV_STACK=%s", spec->name);
    strv_addf(ret, "GPUPROV_NODE_RANK=%d", place->rank);
    strv_addf(ret, "GPUPROV_NUM_NODES=%d", place->ranks);
    strv_addf(ret, "GPUPROV_NODE_IPS=%s", ips);
    strv_addf(ret, "GPUPROV_NUM_GPUS_PER_NODE=%d", gpus);
    strv_addf(ret, "GPUPROV_MASTER_IP=%s", master);
    strv_addf(ret, "GPUPROV_HOSTFILE=%s/.gpuprov/hostfile", place->look->home);
    strv_addf(
        ret, "GPUPROV_TORCHRUN_ARGS=--nnodes %d --node-rank %d --nproc-per-node %d --master-addr %s --master-port %lld",
        place->ranks, place->rank, processes, master, (long long)port);
    strv_addf(ret, "NODE_RANK=%d", place->rank);
    strv_addf(ret, "WORLD_SIZE=%d", place->ranks * processes);
    strv_addf(ret, "MASTER_ADDR=%s", master);
    strv_addf(ret, "MASTER_PORT=%lld", (long long)port);
    put_network(spec, place->look, ret);
    for (size_t i = 0; i < spec->job.env.n; i++) put_own(ret, spec->job.env.v[i]);
}

/* --- the text --- */

/* Nodes may share a home folder, so the file is replaced as a whole; they all write the same. */
static void add_hostfile(const struct spec *spec, const struct job_place *place, struct str *out) {
    str_add(out, "cat >\"$GPUPROV_HOSTFILE.$$\" <<'GPUPROV_END' && mv -f \"$GPUPROV_HOSTFILE.$$\" "
                 "\"$GPUPROV_HOSTFILE\" || exit\n");
    for (size_t i = 0; i < place->ips->n; i++)
        str_addf(out, "%s slots=%d\n", place->ips->v[i], GP_MAX(spec->gpu.count, 1));
    str_add(out, "GPUPROV_END\n");
}

static void add_venv(const struct spec *spec, struct str *out) {
    const char *venv = spec->python.venv != NULL ? spec->python.venv : SPEC_PYTHON_VENV;
    if (!spec->python.wanted) return;
    str_add(out, "VIRTUAL_ENV=");
    str_add_shquoted(out, venv);
    str_add(out, "; PATH=$VIRTUAL_ENV/bin:$PATH; export VIRTUAL_ENV PATH\n");
}

static void add_shell_var(struct str *out, const char *name, const char *value) {
    str_addf(out, "%s=", name);
    str_add_shquoted(out, value);
    str_addc(out, '\n');
}

/* The names only: the engine takes the values from its own environment, so that no secret is in its arguments. */
static void add_container(const struct spec *spec, const struct strv *env, const char *id, const char *text,
                          struct str *out) {
    GP_AUTO_STRV struct strv names = {0};
    for (size_t i = 0; i < env->n; i++) strv_take(&names, xstrndup(env->v[i], strcspn(env->v[i], "=")));
    for (size_t i = 0; i < spec->secrets.len; i++) strv_add(&names, spec->secrets.items[i].env);
    GP_AUTO_FREE char *list = strv_join(&names, " ");
    GP_AUTO_FREE char *name = xasprintf("gpuprov-job-%s", id);
    const struct template_file *f = template_find("job/container.sh");
    add_shell_var(out, "JOB_ENGINE", spec_engine_name(spec->container.engine));
    add_shell_var(out, "JOB_IMAGE", spec->job.image);
    add_shell_var(out, "JOB_NAME", name);
    add_shell_var(out, "JOB_VARS", list);
    add_shell_var(out, "JOB_GPUS", spec->gpu.count > 0 ? "1" : "");
    add_shell_var(out, "JOB_TEXT", text);
    if (f == NULL) abort(); /* it is in this program */
    str_add_mem(out, f->data, f->size);
}

char *job_text_make(const struct spec *spec, const struct job_place *place, const struct strv *env, const char *id,
                    const char *text) {
    GP_AUTO_STR struct str out = {0};
    add_hostfile(spec, place, &out);
    if (spec->job.image != NULL) {
        add_container(spec, env, id, text, &out);
    } else {
        add_venv(spec, &out);
        str_add(&out, text);
        str_addc(&out, '\n');
    }
    return str_steal(&out);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov doctor: checks this machine for the programs and files that gpuprov needs, and the accounts that are
 * configured. Exits 1 if a required one is missing, or with the code of an account that does not work (5: refused).
 * Creates the state folder and changes nothing else. */
#include "base/gp_base.h"

#include "app.h"

#include "base/fs.h"
#include "base/json.h"
#include "providers/local/local.h"
#include "providers/provider.h"
#include "ssh/ssh.h"
#include "templates/templates.h"

#include <pthread.h>
#include <unistd.h>

enum found { FOUND, MISSING, LIMITED, REFUSED, FAILED };
struct item {
    const char *name;
    enum found found;
    bool needed; /* required: exit 1 if it is missing */
    char *text;  /* what was found */
    char *how;   /* what to do; NULL when nothing */
};
struct items {
    VEC_OF(struct item) list;
};

static void add(struct items *l, const char *name, enum found found, bool needed, const char *how, char *text) {
    struct item i = {name, found, needed, text, found == FOUND ? NULL : xstrdup(how)};
    vec_push(&l->list, i);
}

/* Path of a program in PATH, or NULL; caller frees. */
static char *in_path(const char *program) {
    const char *path = getenv("PATH");
    GP_AUTO_STRV struct strv dirs = {0};
    strv_split(&dirs, path != NULL ? path : "/usr/local/bin:/usr/bin:/bin", ":");
    for (size_t i = 0; i < dirs.n; i++) {
        GP_AUTO_FREE char *file = fs_join(dirs.v[i], program);
        if (access(file, X_OK) == 0) return GP_STEAL(file);
    }
    return NULL;
}

static void look_at_state(struct items *l) {
    GP_AUTO_FREE char *dir = NULL;
    struct gp_error err = {0};
    int r = fs_state_dir(&dir, &err);
    if (r == 0) {
        GP_AUTO_FREE char *probe = fs_join(dir, "doctor.probe");
        r = fs_write_atomic(probe, "ok", 2, 0600, &err);
        unlink(probe);
    }
    const char *own = getenv("GPUPROV_STATE_DIR");
    const char *how = own != NULL && own[0] != '\0' ? "make it writable, or set GPUPROV_STATE_DIR to a writable folder"
                                                    : "make it writable, or set XDG_STATE_HOME to a writable folder";
    if (strcmp(err.detail, "ENOSPC") == 0 || strcmp(err.detail, "EDQUOT") == 0)
        how = "make room: its file system is full, and 'gpuprov down' needs the records there";
    add(l, "state folder", r == 0 ? FOUND : MISSING, true, how, xstrdup(r == 0 ? dir : err.msg));
}

static void look_at_programs(struct items *l) {
    GP_AUTO_FREE char *ssh = in_path("ssh"), *sshd = in_path("sshd");
    add(l, "ssh client", ssh ? FOUND : MISSING, false,
        "needed by the verb 'ssh': apt-get install openssh-client (dnf install openssh-clients)",
        xstrdup(ssh ? ssh : "no 'ssh' in PATH"));
    if (sshd == NULL && access("/usr/sbin/sshd", X_OK) == 0) sshd = xstrdup("/usr/sbin/sshd");
    add(l, "ssh server", sshd ? FOUND : MISSING, false,
        "needed by nodes of 'local': systemctl mask ssh; apt-get install openssh-server",
        xstrdup(sshd ? sshd : "no 'sshd' on this machine"));
    add(l, "RSA login keys", ssh_rsa_ok() ? FOUND : LIMITED, false,
        "use an ed25519 or ECDSA key: this libssh2 cannot sign with SHA-2 (1.11 can)",
        xstrdup(ssh_rsa_ok() ? "signed with SHA-2" : "refused"));
}

static void look_at_agents(struct items *l) {
    const struct template_file *agent = template_find("agent/gpuprov-agent.gz");
    const struct template_file *cuda = template_find("agent/gpuprov-agent-cuda.gz");
    add(l, "agent", agent ? FOUND : MISSING, true, "rebuild with a C compiler and the static libc: make deps all",
        agent ? xasprintf("included, %zu KiB", agent->size / 1024) : xstrdup("not in this build"));
    add(l, "CUDA agent", cuda ? FOUND : MISSING, false,
        "needed on nodes with NVIDIA GPUs: install a CUDA toolkit (nvcc) and rebuild with "
        "CUDA_HOMES=/usr/local/cuda make",
        cuda ? xasprintf("included, %zu KiB", cuda->size / 1024) : xstrdup("not in this build"));
}

static void look_at_local(struct items *l) {
    GP_AUTO_STR struct str text = {0};
    struct gp_error err = {0};
    bool usable = false;
    int r = local_doctor(&text, &usable, &err);
    char *line = xstrdup(r == 0 && text.s != NULL ? str_trim(text.s) : r == 0 ? "usable" : err.msg);
    add(l, "local nodes", r == 0 && usable ? FOUND : MISSING, false,
        geteuid() == 0 ? "run outside a container, or in one with CAP_SYS_ADMIN ('docker run --privileged')"
                       : "run as root, or give this user ranges in /etc/subuid and /etc/subgid",
        line);
}

/* The question to one provider, in a thread of its own: each of them may wait for a network. */
struct account {
    const struct provider_ops *ops;
    struct str text;
    struct gp_error err;
    bool usable, started;
    int r;
    pthread_t thread;
};

static void *ask_account(void *arg) {
    struct account *a = arg;
    a->r = a->ops->doctor(&a->text, &a->usable, &a->err);
    return NULL;
}

/* An account that is not configured is no fault of this machine; one that is refused is. *code: its exit code. */
static void add_account(struct items *l, const struct account *a, int *code) {
    if (a->r != 0) *code = gp_exit_worst(*code, gp_exit_code(a->err.code));
    if (a->r != 0) {
        GP_AUTO_FREE char *how = xasprintf("no verb can use %s until this is corrected", a->ops->name);
        add(l, a->ops->name, a->err.code == GP_EAUTH ? REFUSED : FAILED, true, how, xstrdup(a->err.msg));
    } else {
        GP_AUTO_FREE char *how =
            xasprintf("needed by stacks on %s: %s", a->ops->name, str_without_name(a->text.s, a->ops->name));
        add(l, a->ops->name, a->usable ? FOUND : MISSING, false, how,
            xstrdup(a->usable ? a->text.s : "not configured"));
    }
}

static void look_at_accounts(struct items *l, int *code) {
    size_t n = 0;
    while (provider_registry[n] != NULL) n++;
    struct account *all = xcalloc(n, sizeof *all);
    for (size_t i = 0; i < n; i++) {
        all[i].ops = provider_registry[i];
        if (all[i].ops->doctor == NULL) continue;
        all[i].started = pthread_create(&all[i].thread, NULL, ask_account, &all[i]) == 0;
        if (!all[i].started) ask_account(&all[i]);
    }
    for (size_t i = 0; i < n; i++) {
        if (all[i].started) pthread_join(all[i].thread, NULL);
        if (all[i].ops->doctor != NULL) add_account(l, &all[i], code);
        str_clear(&all[i].text);
    }
    free(all);
}

static const char *mark(enum found f) {
    static const char *const names[] = {
        [FOUND] = "ok", [LIMITED] = "limited", [MISSING] = "missing", [REFUSED] = "refused", [FAILED] = "failed"};
    return names[f];
}

/* The text may have several lines: each is indented under the first. */
static void print_item(const struct item *i) {
    printf("%-8s %-15s ", mark(i->found), i->name);
    for (const char *p = i->text; *p != '\0'; p++) {
        putchar(*p);
        if (*p == '\n') printf("%25s", "");
    }
    putchar('\n');
    if (i->how != NULL) printf("%24s -> %s\n", "", i->how);
}

static int run(struct invocation *inv, struct gp_error *err) {
    struct items l = {0};
    int code = 0;
    look_at_state(&l);
    look_at_agents(&l);
    look_at_programs(&l);
    look_at_local(&l);
    look_at_accounts(&l, &code);
    json_t *list = json_array();
    for (size_t i = 0; i < l.list.len; i++) {
        struct item *it = &l.list.items[i];
        if (it->needed && it->found != FOUND && it->found != LIMITED) code = gp_exit_worst(code, gp_exit_code(GP_EENV));
        json_array_append_new(list,
                              json_pack("{s:s, s:s, s:b, s:o, s:s*}", "name", it->name, "found", mark(it->found),
                                        "needed", (int)it->needed, "text", json_any_text(it->text), "how", it->how));
        if (!inv->common->json) print_item(it);
        free(it->text);
        free(it->how);
    }
    if (inv->common->json) print_json(json_pack("{s:b, s:O}", "ok", (int)(code == 0), "items", list));
    json_decref(list);
    vec_free(&l.list);
    inv->exit_code = code;
    (void)err;
    return 0;
}

const struct verb verb_doctor = {
    .name = "doctor",
    .argspec = "",
    .help = "checks this machine and the accounts it has, prints how to get what is missing",
    .examples = "  gpuprov doctor\n",
    .run = run,
};

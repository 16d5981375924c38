/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the agents from this program, once for all nodes, and copies them to a node that does not have them. Any
 * thread. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

#include "base/hash.h"
#include "templates/templates.h"

#include <pthread.h>

#define AGENT_MAX ((size_t)256 << 20)

/* Their sums are computed once per process, for all nodes; only the packed forms stay in memory, within the program's
 * file. sha256 "": not looked at. */
static struct {
    pthread_mutex_t lock;
    struct boot_agent all[BOOT_AGENTS];
} agents = {.lock = PTHREAD_MUTEX_INITIALIZER, .all = {{.name = "gpuprov-agent"}, {.name = "gpuprov-agent-cuda"}}};

/* gzip keeps the unpacked size in its last four bytes. */
static size_t size_unpacked(const struct template_file *f) {
    unsigned char b[4] = {0};
    if (f->size > sizeof b) memcpy(b, (const unsigned char *)f->data + f->size - sizeof b, sizeof b);
    return (size_t)b[0] | (size_t)b[1] << 8 | (size_t)b[2] << 16 | (size_t)b[3] << 24;
}

/* The packed form goes over the wire; the node compares the sum of the unpacked form. -GP_ENOTFOUND: this build has
 * none. *ret_data may be NULL. */
static int agent_read(struct boot_agent *a, void **ret_data, struct gp_error *err) {
    GP_AUTO_FREE char *file = xasprintf(BOOT_AGENT_DIR "/%s.gz", a->name);
    const struct template_file *f = template_find(file);
    if (!f) return gp_fail(err, GP_ENOTFOUND, "this gpuprov was built without %s", a->name);
    struct ssh_blob blob = {.n = size_unpacked(f), .packed = (void *)(uintptr_t)f->data, .packed_n = f->size};
    void *data = blob.n > 0 && blob.n <= AGENT_MAX ? ssh_blob_unpack(&blob) : NULL;
    if (!data) return gp_fail(err, GP_EINTERNAL, "%s in this program is damaged", f->name);
    sha256_hex(data, blob.n, blob.sha256);
    a->blob = blob;
    if (ret_data) *ret_data = data;
    else free(data);
    return 0;
}

int bootstrap_agent(const char *name, void **ret, size_t *ret_n, struct gp_error *err) {
    struct boot_agent a = {.name = name};
    int rc = agent_read(&a, ret, err);
    if (rc == 0) *ret_n = a.blob.n;
    return rc;
}

static int agent_load(struct boot_agent *a, struct gp_error *err) {
    return a->blob.sha256[0] ? 0 : agent_read(a, NULL, err);
}

int boot_agents_load(struct boot *b, struct gp_error *err) {
    struct gp_error own = {0}, none = {0};
    pthread_mutex_lock(&agents.lock);
    int rc = agent_load(&agents.all[0], &own);
    int more = rc == 0 ? agent_load(&agents.all[1], &none) : rc;
    pthread_mutex_unlock(&agents.lock);
    if (rc == -GP_ENOTFOUND)
        return gp_fail(err, GP_EBOOTSTRAP,
                       "%s: step 'agent': this gpuprov was built without its agent: build it again with make",
                       b->link->target.label);
    if (rc == 0 && more != 0 && more != -GP_ENOTFOUND) { /* built without nvcc: the GPU checks report it */
        own = none;
        rc = more;
    }
    if (rc != 0) return gp_fail(err, own.code, "%s", own.msg);
    b->agents = agents.all;
    b->n_agents = more == 0 ? 2 : 1;
    return 0;
}

static int make_folder(struct boot *b, int64_t deadline_ms, struct gp_error *err) {
    GP_AUTO_STR struct str script = {0};
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    /* remove temporary files of copies that a reboot cut */
    str_add(&script, "umask 077; d=" GP_NODE_DIR "/" BOOT_AGENT_DIR "\n"
                     "mkdir -p \"$d\" && chmod 0700 " GP_NODE_DIR " \"$d\" || exit\n"
                     "find \"$d\" -name '.gpuprov.*' -mmin +60 -exec rm -f {} + 2>/dev/null; :\n");
    int rc = node_link_sh(b->link, "creating ~/.gpuprov", &script, BOOT_SHORT_MS, deadline_ms, &r, err);
    if (rc || r.status == 0) return rc;
    GP_AUTO_FREE char *said = boot_said(&r);
    return boot_fail(b->link, "agent", err, said);
}

int boot_put_blob(struct boot *b, const char *step, const char *path, unsigned mode, const struct ssh_blob *blob,
                  bool *ret_sent, struct gp_error *err) {
    int64_t deadline_ms = b->req->deadline_ms;
    for (int lost = 0;;) {
        struct gp_error why = {0};
        int rc = ssh_put_blob(b->link->session, path, mode, blob, deadline_ms, b->link->cancel, ret_sent, &why);
        if (!rc) {
            *ret_sent |= lost > 0; /* it may be there already, because only the reply was lost */
            return 0;
        }
        if (why.code == GP_ECANCELLED) {
            if (err) *err = why;
            return rc;
        }
        if (why.code != GP_ELOST || clock_left_ms(deadline_ms) == 0) {
            const char *label = b->link->target.label; /* boot_fail adds it */
            size_t n = str_starts(why.msg, label) ? strlen(label) : 0;
            return boot_fail(b->link, step, err, why.msg + (n > 0 ? n + strspn(why.msg + n, ": ") : 0));
        }
        event_emit(b->link->sink, b->link->slot, NODE_BOOTSTRAPPING, EVENT_PROGRESS, step,
                   "connection lost, reconnects");
        rc = node_link_lost(b->link, &lost, deadline_ms, err);
        if (rc) return gp_wrap(err, "step '%s'", step);
    }
}

/* Checks that the node can run it: a noexec mount or an old libc prevents that. */
static int try_one(struct boot *b, const struct boot_agent *a, int64_t deadline_ms, struct gp_error *err) {
    GP_AUTO_STR struct str script = {0};
    GP_AUTO_SSH_RESULT struct ssh_result r = {0};
    str_addf(&script, "echo >&2; a=" GP_NODE_DIR "/" BOOT_AGENT_DIR "/%s\n", a->name);
    /* run it instead of test -x, which is true for root on noexec in some shells */
    str_add(&script, "\"$a\" version </dev/null >/dev/null || {\n"
                     "  s=$?\n"
                     "  m=$(df -P \"$a\" 2>/dev/null | awk 'NR > 1 { print $6 }')\n"
                     "  while read -r _ at _ options _; do\n"
                     "    case $at,,$options, in \"$m\",,*,noexec,*) echo \"'$m' is mounted noexec\" >&2 ;; esac\n"
                     "  done </proc/mounts\n"
                     "  exit $s\n}\n");
    int rc = node_link_sh(b->link, "trying the agent", &script, BOOT_SHORT_MS, deadline_ms, &r, err);
    if (rc || r.status == 0) return rc;
    const char *said = r.err.s ? str_trim(r.err.s) : "";
    const char *last = strrchr(said, '\n');
    GP_AUTO_FREE char *text =
        xasprintf("%s is on the node but cannot be run (status %d): %s", a->name, r.status, last ? last + 1 : said);
    return boot_fail(b->link, "agent", err, text);
}

int boot_agents_put(struct boot *b, const struct boot_item *it GP_UNUSED, bool *ret_changed, struct gp_error *err) {
    int64_t deadline_ms = b->req->deadline_ms;
    int rc = make_folder(b, deadline_ms, err);
    for (size_t i = 0; i < b->n_agents && !rc; i++) {
        bool sent = false;
        if (i > 0 && !b->facts.nvidia) continue;
        event_emit(b->link->sink, b->link->slot, NODE_BOOTSTRAPPING, EVENT_PROGRESS, "agent", "sends %s (%.1f MB)",
                   b->agents[i].name, (double)b->agents[i].blob.n / 1e6);
        GP_AUTO_FREE char *path = xasprintf("%s/.gpuprov/" BOOT_AGENT_DIR "/%s", b->facts.home, b->agents[i].name);
        rc = boot_put_blob(b, "agent", path, 0700, &b->agents[i].blob, &sent, err);
        *ret_changed |= sent;
        if (!rc) rc = try_one(b, &b->agents[i], deadline_ms, err);
    }
    return rc;
}

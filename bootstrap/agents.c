/* SPDX-License-Identifier: Apache-2.0 */
/* Unpacks the agents from this program and copies them to a node that does not have them. The node's own
 * thread. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

#include "base/hash.h"
#include "templates/templates.h"

#include <zlib.h>

#define AGENT_MAX ((size_t)256 << 20)

/* The packed form goes over the wire; the node compares the sum of the unpacked form. */
static int unpack(const struct template_file *f, struct boot_agent *a, struct gp_error *err) {
    z_stream z = {0};
    if (f->size > AGENT_MAX || inflateInit2(&z, 16 + MAX_WBITS) != Z_OK)
        return gp_fail(err, GP_EINTERNAL, "%s cannot be unpacked", f->name);
    size_t cap = f->size * 4 + 4096, len = 0;
    unsigned char *data = xmalloc(cap);
    unsigned char *packed = xmalloc(f->size);
    memcpy(packed, f->data, f->size);
    z.next_in = packed;
    z.avail_in = (uInt)f->size;
    int rc = Z_OK;
    while (rc == Z_OK && len < AGENT_MAX) {
        if (len == cap) data = xrealloc(data, cap *= 2);
        z.next_out = data + len;
        z.avail_out = (uInt)(cap - len);
        rc = inflate(&z, Z_NO_FLUSH);
        len = cap - z.avail_out;
    }
    inflateEnd(&z);
    if (rc != Z_STREAM_END) {
        free(data);
        free(packed);
        return gp_fail(err, GP_EINTERNAL, "%s in this program is damaged", f->name);
    }
    a->data = data;
    a->blob = (struct ssh_blob){.data = data, .n = len, .packed = packed, .packed_n = f->size};
    sha256_hex(data, len, a->blob.sha256);
    return 0;
}

int bootstrap_agent(const char *name, void **ret, size_t *ret_n, struct gp_error *err) {
    GP_AUTO_FREE char *file = xasprintf(BOOT_AGENT_DIR "/%s.gz", name);
    const struct template_file *f = template_find(file);
    struct boot_agent a = {0};
    if (f == NULL) return gp_fail(err, GP_ENOTFOUND, "this gpuprov was built without %s", name);
    int rc = unpack(f, &a, err);
    if (rc != 0) return rc;
    free(a.blob.packed);
    *ret = a.data;
    *ret_n = a.blob.n;
    return 0;
}

int boot_agents_load(struct boot *b, struct gp_error *err) {
    static const char *const names[] = {"gpuprov-agent", "gpuprov-agent-cuda"};
    for (size_t i = 0; i < GP_ARRAY_LEN(names); i++) {
        GP_AUTO_FREE char *file = xasprintf(BOOT_AGENT_DIR "/%s.gz", names[i]);
        const struct template_file *f = template_find(file);
        if (!f && i > 0) continue; /* built without nvcc: the GPU checks report it */
        if (!f)
            return gp_fail(err, GP_EBOOTSTRAP,
                           "%s: step 'agent': this gpuprov was built without "
                           "its agent: build it again with make",
                           b->link->target.label);
        struct boot_agent *a = &b->agents[b->n_agents];
        a->name = names[i];
        int rc = unpack(f, a, err);
        if (rc) return rc;
        b->n_agents++;
    }
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

/* Copies one file, through lost connections: a partial copy is not used. */
static int put_one(struct boot *b, const struct boot_agent *a, int64_t deadline_ms, bool *ret_sent,
                   struct gp_error *err) {
    GP_AUTO_FREE char *path = xasprintf("%s/.gpuprov/" BOOT_AGENT_DIR "/%s", b->facts.home, a->name);
    for (int lost = 0;;) {
        struct gp_error why = {0};
        int rc = ssh_put_blob(b->link->session, path, 0700, &a->blob, deadline_ms, b->link->cancel, ret_sent, &why);
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
            return boot_fail(b->link, "agent", err, why.msg + (n > 0 ? n + strspn(why.msg + n, ": ") : 0));
        }
        event_emit(b->link->sink, b->link->slot, NODE_BOOTSTRAPPING, EVENT_PROGRESS, "agent",
                   "connection lost, reconnects");
        rc = node_link_lost(b->link, &lost, deadline_ms, err);
        if (rc) return gp_wrap(err, "step 'agent'");
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
        rc = put_one(b, &b->agents[i], deadline_ms, &sent, err);
        *ret_changed |= sent;
        if (!rc) rc = try_one(b, &b->agents[i], deadline_ms, err);
    }
    return rc;
}

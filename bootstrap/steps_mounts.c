/* SPDX-License-Identifier: Apache-2.0 */
/* The steps "disks", "shares" and "buckets": the mounts of the spec as lines for their scripts. No I/O. */
#include "base/gp_base.h"

#include "bootstrap/steps.h"

static const char *step_of(const struct spec_mount *m) {
    return m->nvme || m->volume ? "disks" : m->nfs || m->lustre ? "shares" : "buckets";
}

static bool has(const struct boot *b, const char *step) {
    const struct spec_storage *s = &b->req->spec->storage;
    for (size_t i = 0; i < s->mounts.len; i++)
        if (strcmp(step_of(&s->mounts.items[i]), step) == 0) return true;
    return false;
}

bool boot_mounts_disks(const struct boot *b) { return has(b, "disks"); }
bool boot_mounts_shares(const struct boot *b) { return has(b, "shares"); }
bool boot_mounts_buckets(const struct boot *b) { return has(b, "buckets"); }

static const char *or_empty(const char *text) { return text ? text : ""; }

/* One line per mount of the step: AT|KIND|SOURCE|FS|OPTIONS|MODE|ENDPOINT|REGION|SECRETS, and LABEL, by which its disk
 * is recognised. No value has a '|': the spec's rows see to that. */
void boot_mounts_vars(const struct boot *b, const struct boot_item *it, struct str *out) {
    const struct spec_storage *s = &b->req->spec->storage;
    GP_AUTO_STR struct str list = {0};
    for (size_t i = 0; i < s->mounts.len; i++) {
        const struct spec_mount *m = &s->mounts.items[i];
        if (strcmp(step_of(m), it->step->name) != 0) continue;
        const char *kind = m->nvme ? "nvme" : m->volume ? "volume" : m->nfs ? "nfs" : m->lustre ? "lustre" : "bucket";
        const char *source = m->nvme     ? m->nvme
                             : m->volume ? m->volume
                             : m->nfs    ? m->nfs
                             : m->lustre ? m->lustre
                                         : m->bucket;
        GP_AUTO_FREE char *secrets = strv_join(&m->secrets, " ");
        char hash[65];
        boot_hash(hash, (const char *const[]){m->at, NULL});
        /* 12 characters: the longest label of xfs is that */
        str_addf(&list, "%s|%s|%s|%s|%s|%s|%s|%s|%s|gp-%.9s\n", m->at, kind, or_empty(source), or_empty(m->fs),
                 or_empty(m->options), m->mode == MOUNT_READ ? "read" : "write", or_empty(m->endpoint),
                 or_empty(m->region), secrets, hash);
    }
    boot_var(out, "MOUNTS", list.s);
    struct gp_error ignored = {0};
    (void)boot_file("storage/lib", out, &ignored); /* templates of this program */
    (void)boot_file("storage/mount", out, &ignored);
}

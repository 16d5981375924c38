/* SPDX-License-Identifier: Apache-2.0 */
/* A stack as lines for Slurm: the forms slurm (for slurm.conf) and gres (for gres.conf). Slurm has no quotes for these
 * values, so each must be one word of its own form. Pure. */
#include "base/gp_base.h"

#include "export_forms.h"

#include <ctype.h>

#define WORD "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-"

/* The type of a GPU in Slurm: lower case, '_' for a blank. */
static int gpu_type(const struct export_node *n, char *dst, size_t size, struct gp_error *err) {
    size_t len = strlen(n->gpu_model);
    if (len == 0 || len >= size || strspn(n->gpu_model, WORD " ") != len)
        return export_refuse(n, "the GPU model", n->gpu_model, "Slurm takes letters, digits, '.', '_' and '-'", err);
    for (size_t i = 0; i <= len; i++)
        dst[i] = n->gpu_model[i] == ' ' ? '_' : (char)tolower((unsigned char)n->gpu_model[i]);
    return 0;
}

static int put_node(const struct export_node *n, struct str *out, struct gp_error *err) {
    int r = export_check_address(n, n->peer_address, err);
    if (r != 0) return r;
    str_addf(out, "NodeName=%s NodeAddr=%s", n->name, n->peer_address);
    if (n->hostname[0] != '\0') {
        if (strspn(n->hostname, WORD) != strlen(n->hostname) || n->hostname[0] == '-')
            return export_refuse(n, "the host name", n->hostname, "Slurm takes letters, digits, '.', '_' and '-'", err);
        str_addf(out, " NodeHostname=%.*s", (int)strcspn(n->hostname, "."), n->hostname);
    }
    if (n->cpus > 0) str_addf(out, " CPUs=%d", n->cpus);
    if (n->memory_mib > 0) str_addf(out, " RealMemory=%d", n->memory_mib);
    if (n->gpus > 0) {
        char type[64];
        if ((r = gpu_type(n, type, sizeof type, err)) != 0) return r;
        str_addf(out, " Gres=gpu:%s:%d", type, n->gpus);
    }
    str_add(out, " State=UNKNOWN\n");
    return 0;
}

static int write_slurm(const struct export_stack *s, struct str *out, struct gp_error *err) {
    bool gpus = false;
    if (strcmp(s->name, "default") == 0) /* in any case of its letters: values for all partitions that follow */
        return gp_fail(err, GP_EUSAGE, "%s: cannot be exported: Slurm has no partition of that name; rename the stack",
                       s->name);
    for (size_t i = 0; i < s->nodes.len; i++) gpus = gpus || s->nodes.items[i].gpus > 0;
    str_addf(out, "# gpuprov export slurm %s\n", s->name);
    if (gpus) str_add(out, "# slurm.conf also needs: GresTypes=gpu\n");
    for (size_t i = 0; i < s->nodes.len; i++) {
        int r = put_node(&s->nodes.items[i], out, err);
        if (r != 0) return r;
    }
    str_addf(out, "PartitionName=%s Nodes=", s->name);
    for (size_t i = 0; i < s->nodes.len; i++) str_addf(out, "%s%s", i > 0 ? "," : "", s->nodes.items[i].name);
    str_add(out, " MaxTime=INFINITE State=UP\n");
    return 0;
}

static int write_gres(const struct export_stack *s, struct str *out, struct gp_error *err) {
    str_addf(out, "# gpuprov export gres %s\n", s->name);
    for (size_t i = 0; i < s->nodes.len; i++) {
        const struct export_node *n = &s->nodes.items[i];
        char type[64];
        if (n->gpus <= 0) continue;
        int r = gpu_type(n, type, sizeof type, err);
        if (r != 0) return r;
        str_addf(out, "NodeName=%s Name=gpu Type=%s File=/dev/nvidia", n->name, type);
        if (n->gpus > 1) str_addf(out, "[0-%d]\n", n->gpus - 1);
        else str_add(out, "0\n");
    }
    return 0;
}

const struct export_form export_form_slurm = {
    .name = "slurm",
    .write = write_slurm,
};
const struct export_form export_form_gres = {
    .name = "gres",
    .write = write_gres,
};

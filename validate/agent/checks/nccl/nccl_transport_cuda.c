/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL's transport, read from its log, compared with the hardware: a gang that falls back to sockets or to host
 * memory works, but slowly. One thread. */
#include "base/gp_base.h"

#include "nccl_check_cuda.h"

#include "base/fs.h"

#include <dirent.h>
#include <unistd.h>

extern char **environ;

/* --- NCCL's log --- */

static void take_channel(const char *via, struct nccl_transport *t) {
    if (str_starts(via, "P2P")) {
        t->p2p++;
    } else if (str_starts(via, "SHM")) {
        t->shm++;
    } else if (str_starts(via, "NET/")) {
        const char *name = via + 4;
        size_t n = strcspn(name, "/ \n");
        t->net++;
        snprintf(t->net_name, sizeof t->net_name, "%.*s", (int)GP_MIN(n, sizeof t->net_name - 1), name);
        t->gdr = t->gdr || strstr(name, "GDRDMA") != NULL;
    }
}

static void take_line(const char *line, struct nccl_transport *t) {
    const char *via = strstr(line, " via "), *type = strstr(line, ", type ");
    if (strstr(line, "Channel ") != NULL && via != NULL) take_channel(via + 5, t);
    if (strstr(line, "NVLS multicast support is available") != NULL) t->nvls = true;
    if (strstr(line, "NVL[") != NULL) t->nvlink = true;
    if (strstr(line, "Pattern ") != NULL && type != NULL && t->links[0] == '\0') {
        size_t n = strcspn(type + 7, "/, \n");
        snprintf(t->links, sizeof t->links, "%.*s", (int)GP_MIN(n, sizeof t->links - 1), type + 7);
        t->nvlink = t->nvlink || str_starts(t->links, "NV");
    }
}

void nccl_transport_read(const char *log_path, struct nccl_transport *ret) {
    *ret = (struct nccl_transport){0};
    FILE *f = log_path[0] != '\0' ? fopen(log_path, "re") : NULL;
    char line[2048];
    while (f != NULL && fgets(line, sizeof line, f) != NULL) take_line(line, ret);
    if (f != NULL) fclose(f);
}

/* --- settings --- */

static void add_overrides_of_file(const char *path, struct str *all) {
    GP_AUTO_STR struct str text = {0};
    str_init(&text, 65536);
    if (path == NULL || *path == '\0' || fs_read(path, 65536, &text, NULL) != 0 || text.s == NULL) return;
    char *save = NULL;
    for (char *l = strtok_r(text.s, "\n", &save); l != NULL; l = strtok_r(NULL, "\n", &save)) {
        l += strspn(l, " \t");
        if (*l == '\0' || *l == '#') continue;
        str_addf(all, "%s%.80s (%s)", all->len ? "; " : "", l, path);
    }
}

static void find_overrides(struct str *all) {
    static const char *const ours[] = {"NCCL_DEBUG=", "NCCL_DEBUG_SUBSYS=", "NCCL_DEBUG_FILE="};
    for (char **e = environ; *e != NULL; e++) {
        bool mine = !str_starts(*e, "NCCL_") || strstr(*e, "=gpuprov-rank-") != NULL;
        for (size_t i = 0; i < GP_ARRAY_LEN(ours); i++) mine = mine || str_starts(*e, ours[i]);
        if (!mine) str_addf(all, "%s%.100s (environment)", all->len ? "; " : "", *e);
    }
    const char *own = getenv("NCCL_CONF_FILE"), *home = getenv("HOME");
    GP_AUTO_FREE char *dot = xasprintf("%s/.nccl.conf", home != NULL ? home : "");
    add_overrides_of_file(own != NULL ? own : home != NULL ? dot : NULL, all);
    add_overrides_of_file("/etc/nccl.conf", all);
}

/* --- the node's hardware --- */

/* Active ports of InfiniBand, RoCE and EFA devices. */
static int fabric_ports(void) {
    const char *root = getenv("GPUPROV_SYSFS");
    GP_AUTO_FREE char *folder = xasprintf("%s/class/infiniband", root != NULL ? root : "/sys");
    DIR *d = opendir(folder);
    int n = 0;
    for (const struct dirent *e = d ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
        GP_AUTO_FREE char *path = xasprintf("%s/%s/ports/1/state", folder, e->d_name);
        GP_AUTO_STR struct str state = {0};
        if (e->d_name[0] != '.' && fs_read(path, 64, &state, NULL) == 0 && state.s != NULL)
            n += strstr(state.s, "ACTIVE") != NULL;
    }
    if (d != NULL) closedir(d);
    return n;
}

struct way { /* of one rank, for all */
    struct nccl_transport t;
    int32_t ports, model_nvlink;
    char overrides[400];
};

static void judge_rank(const struct check_ctx *c, struct agent_result *r, const struct way *w, int rank) {
    char name[120];
    bool neighbours = false;
    for (int i = 0; i < c->size; i++) neighbours = neighbours || (i != rank && c->who[i].node == c->who[rank].node);
    gang_name(c, rank, name, sizeof name);
    if (nccl_one_gpu_for_all(c)) return;
    if (w->t.net > 0 && str_eq(w->t.net_name, "Socket") && w->ports > 0) {
        agent_set(r, VERDICT_FAIL, "socket_fallback",
                  "%s: NCCL uses TCP sockets, but %d InfiniBand, RoCE or EFA port%s active there", name, (int)w->ports,
                  w->ports == 1 ? " is" : "s are");
        agent_culprit(r, rank);
        agent_suggest(r, "install the network's NCCL plugin or libibverbs providers; check 'ulimit -l', and "
                         "NCCL_IB_DISABLE and NCCL_NET in the environment and /etc/nccl.conf");
    }
    if (w->t.shm > 0 && w->t.p2p == 0 && neighbours && (w->model_nvlink || w->t.nvlink)) {
        agent_set(r, VERDICT_FAIL, "no_p2p", "%s: NCCL uses host memory (SHM), but its GPUs have NVLink", name);
        agent_culprit(r, rank);
        agent_suggest(r, "check NVLink and the fabric manager, NCCL_P2P_DISABLE and NCCL_P2P_LEVEL, and in a virtual "
                         "machine ACS and the IOMMU");
    }
}

static void add_way(struct str *s, const struct nccl_transport *t) {
    const char *sep = "";
    if (t->p2p > 0) {
        str_addf(s, "P2P%s%s%s", t->links[0] || t->nvlink ? " (" : "",
                 t->links[0] ? t->links
                 : t->nvlink ? "NVLink"
                             : "",
                 t->links[0] || t->nvlink ? ")" : "");
        sep = ", ";
    }
    if (t->nvls) {
        str_addf(s, "%sNVLS", sep);
        sep = ", ";
    }
    if (t->shm > 0) {
        str_addf(s, "%sSHM", sep);
        sep = ", ";
    }
    if (t->net > 0) str_addf(s, "%sNET/%s%s", sep, t->net_name, t->gdr ? " GDRDMA" : "");
    if (s->len == 0) str_add(s, "not reported");
}

bool nccl_transport_judge(struct check_ctx *c, struct agent_result *r, const char *log_path,
                          struct nccl_transport *ret) {
    struct way mine = {.ports = fabric_ports()}, *all = xcalloc((size_t)c->size, sizeof *all);
    GP_AUTO_STR struct str text = {.max = 160};
    GP_AUTO_STR struct str overrides = {.max = sizeof mine.overrides - 1};
    nccl_transport_read(log_path, &mine.t);
    find_overrides(&overrides);
    str_put(mine.overrides, sizeof mine.overrides, overrides.s != NULL ? overrides.s : "");
    mine.model_nvlink = c->model != NULL && gpu_model_spec(c->model, "nvlink_gb_per_s") > 0 &&
                        gpu_model_spec(c->model, "nvlink_bridge") <= 0;
    bool ok = gang_gather(c, r, &mine, all, sizeof mine);
    if (ok) *ret = all[0].t;
    for (int i = 0; ok && i < c->size; i++) {
        const struct nccl_transport *t = &all[i].t;
        judge_rank(c, r, &all[i], i);
        ret->nvls = ret->nvls && t->nvls;
        ret->gdr = ret->gdr && (t->gdr || t->net == 0);
        ret->nvlink = ret->nvlink && t->nvlink;
        if (i == 0) continue;
        ret->p2p += t->p2p;
        ret->shm += t->shm;
        ret->net += t->net;
        if (ret->net_name[0] == '\0') str_put(ret->net_name, sizeof ret->net_name, t->net_name);
    }
    if (ok) {
        add_way(&text, ret);
        agent_data_str(r, "transport", text.s);
        if (c->rank == 0 || mine.overrides[0] != '\0') agent_data_str(r, "overrides", mine.overrides);
    }
    free(all);
    return ok;
}

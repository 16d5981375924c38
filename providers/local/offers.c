/* SPDX-License-Identifier: Apache-2.0 */
/* What this machine can offer as nodes: whether it can make them at all, its GPUs, how many fit. Makes
 * nothing. Any thread. */
#include "base/gp_base.h"

#include "providers/local/offers.h"

#include "base/fs.h"
#include "providers/local/holder.h"
#include "providers/local/local.h"
#include "providers/local/ns/netns.h"
#include "providers/local/ns/userns.h"

#include <dirent.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define NODE_MIB 128 /* what one node should have at least, for max_count */

/* Names of the GPUs as the driver has them: "NVIDIA H200, NVIDIA H200"; "" when it does not say. */
static void gpu_models(struct str *out) {
    static const char folder[] = "/proc/driver/nvidia/gpus";
    DIR *d = opendir(folder);
    str_add(out, "");
    for (struct dirent *e = d ? readdir(d) : NULL; e != NULL; e = readdir(d)) {
        GP_AUTO_FREE char *path = xasprintf("%s/%s/information", folder, e->d_name);
        GP_AUTO_STR struct str text = {0};
        if (e->d_name[0] == '.' || fs_read(path, 65536, &text, NULL) != 0) continue;
        char *model = text.s ? strstr(text.s, "Model:") : NULL;
        if (model == NULL) continue;
        model[strcspn(model, "\n")] = '\0';
        str_addf(out, "%s%s", out->len ? ", " : "", str_trim(model + 6));
    }
    if (d != NULL) closedir(d);
}

/* The nodes share the file system that has their files: its size is the most that a root disk can be. */
static int disk_gib(const char *folder) {
    struct statvfs s = {0};
    if (statvfs(folder, &s) != 0) return 0;
    return (int)GP_MIN((double)s.f_blocks * (double)s.f_frsize / 1073741824.0, (double)INT32_MAX);
}

static int refuse(struct gp_error *err, enum gp_code code) {
    if (err != NULL) err->scope = GP_SCOPE_OFFER;
    return -(int)code;
}

static int check_gpus(const struct spec *spec, struct str *models, struct gp_error *err) {
    int have = local_gpu_count(), want = spec->nodes * spec->gpu.count;
    if (have < want) {
        gp_fail(err, GP_EUSAGE,
                "the spec requires %d GPU%s (%d node%s with %d each), this machine has "
                "%d: lower 'nodes' or 'gpu', or add another offer",
                want, want == 1 ? "" : "s", spec->nodes, spec->nodes == 1 ? "" : "s", spec->gpu.count, have);
        return refuse(err, GP_EUSAGE);
    }
    gpu_models(models);
    if (spec->gpu.model != NULL && models->len > 0 && strcasestr(models->s, spec->gpu.model) == NULL) {
        gp_fail(err, GP_EUSAGE, "the spec requires %s, this machine's GPUs are %.200s", spec->gpu.model, models->s);
        return refuse(err, GP_EUSAGE);
    }
    return 0;
}

static int check_machine(const struct spec *spec, struct gp_error *err) {
    const char *why = NULL;
    enum ns_way way = NS_ROOT;
    int r = ns_way(&way, err);
    if (r != 0) return refuse(err, GP_EENV);
    if (access("/usr/sbin/sshd", X_OK) != 0) {
        gp_fail(err, GP_EENV,
                "local nodes need OpenSSH's server here: 'systemctl mask ssh; apt-get "
                "install openssh-server' ('gpuprov doctor' lists what else)");
        return refuse(err, GP_EENV);
    }
    if (spec->packages.n > 0 && !local_packages_ok(&why)) {
        gp_fail(err, GP_EENV, "%s: run as root, or remove 'bootstrap.packages'", why);
        return refuse(err, GP_EENV);
    }
    if (spec->nodes > LOCAL_SLOTS_MAX) {
        gp_fail(err, GP_EUSAGE, "a local stack has at most %d nodes", LOCAL_SLOTS_MAX);
        return refuse(err, GP_EUSAGE);
    }
    return 0;
}

bool local_packages_ok(const char **ret_why) {
    enum ns_way way = NS_ROOT;
    bool ok = ns_way(&way, NULL) != 0 || way == NS_ROOT;
    if (!ok && ret_why != NULL)
        *ret_why = "without root packages cannot be installed in local nodes (the machine's files "
                   "belong to an id that they do not have)";
    return ok;
}

int local_offers(struct provider *p, const struct spec *spec, size_t index, struct offer_list *ret,
                 struct gp_error *err) {
    GP_AUTO_STR struct str models = {0};
    GP_AUTO_FREE char *image = NULL, *image_name = NULL;
    int r = check_machine(spec, err);
    if (r == 0 && spec->gpu.count > 0) r = check_gpus(spec, &models, err);
    if (r != 0) return r;
    double mib = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / 1048576;
    int max = (int)GP_MIN(GP_MAX(mib / NODE_MIB, 1.0), (double)LOCAL_SLOTS_MAX);
    if (spec->nodes > max) {
        gp_fail(err, GP_EUSAGE, "the spec requires %d local nodes, but the memory of this machine suffices for %d",
                spec->nodes, max);
        return refuse(err, GP_EUSAGE);
    }
    r = local_offered_image(p, spec, index, &image, &image_name, err);
    if (r != 0) return refuse(err, GP_EUSAGE);
    struct offer o = {.spec_index = index,
                      .provider = xstrdup("local"),
                      .region = xstrdup(LOCAL_REGION),
                      .zone = xstrdup(""),
                      .instance_type = xstrdup("node"),
                      .market = MARKET_ON_DEMAND,
                      .image = GP_STEAL(image),
                      .image_name = GP_STEAL(image_name),
                      .subnet = xstrdup(""),
                      .gpu_model = xstrdup(models.s ? models.s : ""),
                      .gpus = spec->gpu.count,
                      .vcpus = (int)sysconf(_SC_NPROCESSORS_ONLN),
                      .memory_gib = mib / 1024,
                      .disk_gib = disk_gib(local_folder(p)),
                      .price_usd_per_h = 0,
                      .price_source = xstrdup("this machine"),
                      .max_count = max};
    vec_push(&ret->list, o);
    return 0;
}

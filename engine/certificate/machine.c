/* SPDX-License-Identifier: Apache-2.0 */
/* Reads this machine's boot id, NVIDIA driver and GPUs from the kernel. Loads no NVIDIA library. */
#include "base/gp_base.h"

#include "engine/certificate/machine.h"

#include <ctype.h>
#include <dirent.h>
#include <unistd.h>

#define NVIDIA_PROC "/proc/driver/nvidia"
#define FACT_MAX 65536

/* Files in /proc have no size, so they are read to their end. */
static bool read_fact(const char *path, struct str *ret) {
    FILE *f = fopen(path, "re");
    if (f == NULL) return false;
    char buf[4096];
    size_t n = 0;
    ret->max = FACT_MAX;
    while ((n = fread(buf, 1, sizeof buf, f)) > 0)
        if (!str_add_mem(ret, buf, n)) break;
    fclose(f);
    return ret->len > 0;
}

/* "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.65.06  Release Build": the first word
 * that is a version. */
static void take_driver(struct machine *m) {
    GP_AUTO_STR struct str text = {0};
    GP_AUTO_STRV struct strv words = {0};
    if (!read_fact(NVIDIA_PROC "/version", &text)) return;
    strv_split(&words, text.s, " \t\n");
    for (size_t i = 0; i < words.n; i++) {
        const char *w = words.v[i];
        if (!isdigit((unsigned char)w[0]) || strchr(w, '.') == NULL) continue;
        if (strspn(w, "0123456789.") != strlen(w)) continue;
        str_put(m->driver, sizeof m->driver, w);
        return;
    }
}

static void take_gpu(struct machine *m, const char *pci) {
    GP_AUTO_FREE char *path = xasprintf(NVIDIA_PROC "/gpus/%s/information", pci);
    GP_AUTO_STR struct str text = {0};
    GP_AUTO_STRV struct strv lines = {0};
    if (!read_fact(path, &text)) return;
    strv_split(&lines, text.s, "\n");
    for (size_t i = 0; i < lines.n; i++) {
        if (!str_starts(lines.v[i], "GPU UUID:")) continue;
        char *uuid = str_trim(lines.v[i] + strlen("GPU UUID:"));
        strv_add(&m->gpus, uuid);
        return;
    }
}

int machine_read(struct machine *ret, struct gp_error *err) {
    GP_AUTO_STR struct str boot = {0};
    if (!read_fact("/proc/sys/kernel/random/boot_id", &boot))
        return gp_fail(err, GP_EENV, "this machine's boot id cannot be read; check that /proc is mounted");
    str_put(ret->boot_id, sizeof ret->boot_id, str_trim(boot.s));
    take_driver(ret);
    DIR *d = opendir(NVIDIA_PROC "/gpus");
    for (const struct dirent *e = NULL; d != NULL && (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.') take_gpu(ret, e->d_name);
    if (d != NULL) closedir(d);
    return 0;
}

static bool is_gpu(const char *device) {
    GP_AUTO_FREE char *vendor_path = xasprintf("/sys/bus/pci/devices/%s/vendor", device);
    GP_AUTO_FREE char *class_path = xasprintf("/sys/bus/pci/devices/%s/class", device);
    GP_AUTO_STR struct str vendor = {0}, class = {0};
    /* 0300 VGA, 0302 3D controller: not the audio and USB functions of the same card */
    return read_fact(vendor_path, &vendor) && str_starts(vendor.s, "0x10de") && read_fact(class_path, &class) &&
           (str_starts(class.s, "0x0300") || str_starts(class.s, "0x0302"));
}

static int count_on_bus(void) {
    int n = 0;
    DIR *d = opendir("/sys/bus/pci/devices");
    for (const struct dirent *e = NULL; d != NULL && (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.' && is_gpu(e->d_name)) n++;
    if (d != NULL) closedir(d);
    return n;
}

int machine_gpu_count(void) {
    int n = 0;
    DIR *d = opendir("/dev");
    for (const struct dirent *e = NULL; d != NULL && (e = readdir(d)) != NULL;) {
        int64_t index = 0;
        if (str_starts(e->d_name, "nvidia") && str_to_i64(e->d_name + strlen("nvidia"), 0, 255, &index)) n++;
    }
    if (d != NULL) closedir(d);
    return n > 0 ? n : count_on_bus(); /* a missing driver must not look like a machine without GPUs */
}

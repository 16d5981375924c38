/* SPDX-License-Identifier: Apache-2.0 */
/* The files that nodes share with the machine: an overlay's lower layer must not change under its nodes, but a package
 * manager changes it. Then a node's programs fail, with "Stale file handle" or in other ways. Any thread. */
#include "base/gp_base.h"

#include "providers/local/lower.h"

#include "base/clock.h"
#include "base/fs.h"

#include <sys/stat.h>

struct watched {
    const char *path, *what;
};
static const struct watched watched[] = {
    {"var/lib/dpkg/status", "dpkg changed its packages"},
    {"var/lib/rpm/rpmdb.sqlite", "rpm changed its packages"},
    {"usr/lib/sysimage/rpm/rpmdb.sqlite", "rpm changed its packages"},
    {"var/lib/pacman/local", "pacman changed its packages"},
    {"usr/bin", "files of /usr/bin were replaced"},
    {"usr/sbin", "files of /usr/sbin were replaced"},
    {"usr/lib", "files of /usr/lib were replaced"},
    {"usr/lib64", "files of /usr/lib64 were replaced"},
    {"usr/lib/x86_64-linux-gnu", "libraries were replaced"},
    {"usr/lib/aarch64-linux-gnu", "libraries were replaced"},
    {"usr/local/bin", "files of /usr/local/bin were replaced"},
    {"usr/local/lib", "files of /usr/local/lib were replaced"},
};

char *lower_changed(const char *root, int64_t since_s) {
    for (size_t i = 0; i < GP_ARRAY_LEN(watched); i++) {
        GP_AUTO_FREE char *path = fs_join(root, watched[i].path);
        struct stat st;
        char when[32];
        if (stat(path, &st) != 0 || (int64_t)st.st_mtim.tv_sec <= since_s) continue;
        time_format_utc(when, sizeof when, (int64_t)st.st_mtim.tv_sec);
        return xasprintf("%s on this machine at %s, while the node used its files", watched[i].what, when);
    }
    return NULL;
}

char *local_trouble(const struct resource *node) {
    return node->created_s > 0 ? lower_changed("/", node->created_s) : NULL;
}

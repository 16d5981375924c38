/* SPDX-License-Identifier: Apache-2.0 */
/* Hosts from the outputs of Terraform (`terraform output -json`): whatever the file has, a host that is taken has an
 * address, a port and paths in the form of a hosts file's. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "providers/ssh/hosts_private.h"
#include "spec/spec.h"

#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds) {
    if (!holds) abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    GP_AUTO_FD int fd = memfd_create("outputs", MFD_CLOEXEC);
    must(fd >= 0 && fs_write_all(fd, data, size) == 0);
    GP_AUTO_FREE char *path = xasprintf(SPEC_TERRAFORM "/proc/self/fd/%d", fd);
    struct ssh_host_list hosts = {0};
    struct gp_error err = {0};
    if (ssh_hosts_terraform(path, NULL, &hosts, &err) != 0) {
        must(err.code == GP_EUSAGE && strchr(err.msg, '\n') == NULL);
        return 0;
    }
    must(hosts.list.len > 0);
    for (size_t i = 0; i < hosts.list.len; i++) {
        const struct ssh_host *h = &hosts.list.items[i];
        must(h->address[0] != '\0' && h->address[0] != '-' && strpbrk(h->address, " /\n") == NULL && h->port > 0);
    }
    ssh_host_list_clear(&hosts);
    return 0;
}

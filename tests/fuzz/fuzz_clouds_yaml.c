/* SPDX-License-Identifier: Apache-2.0 */
/* A clouds.yaml of OpenStack, with the cloud that it names first; its secrets are in no error. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "base/log.h"
#include "providers/openstack/os_int.h"

#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct os_config c = {0};
    struct gp_error err = {0};
    char path[64];
    GP_AUTO_FD int fd = memfd_create("clouds", MFD_CLOEXEC);
    if (fd < 0 || fs_write_all(fd, data, size) != 0) return 0;
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    setenv("OS_CLIENT_CONFIG_FILE", path, 1);
    setenv("OS_CLIENT_SECURE_FILE", "/dev/null", 1);
    setenv("OS_CLOUD", "c", 1);
    int r = os_config_load(&c, &err);
    if (r == 0 && (c.auth_url == NULL || c.source == NULL || c.auth_type == NULL)) abort();
    if (c.password.len >= 8 && strstr(err.msg, secret_reveal(&c.password)) != NULL) abort();
    os_config_clear(&c);
    log_close();
    return 0;
}

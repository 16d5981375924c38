/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of the agent's shared files that glibc 2.28 lacks: gpuprov-agent-cuda is dynamic and must run there.
 * (The static agent contains its own glibc.) Any thread. */
#include "base/gp_base.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The C library names its parameters in its own way.
 * NOLINTBEGIN(readability-inconsistent-declaration-parameter-name) */

/* glibc 2.33 made these functions; before, headers turned them into others. On 64-bit machines struct
 * stat is the kernel's own. */
int fstatat(int dir, const char *path, struct stat *ret, int flags) {
    return (int)syscall(SYS_newfstatat, dir, path, ret, flags);
}

int stat(const char *path, struct stat *ret) { return fstatat(AT_FDCWD, path, ret, 0); }

int lstat(const char *path, struct stat *ret) { return fstatat(AT_FDCWD, path, ret, AT_SYMLINK_NOFOLLOW); }

int fstat(int fd, struct stat *ret) { return fstatat(fd, "", ret, AT_EMPTY_PATH); }

/* glibc 2.32; NULL for an error that is not in this table. */
const char *strerrorname_np(int errnum) {
#define NAME(e) \
    { e, #e }
    static const struct {
        int errnum;
        const char *name;
    } names[] = {NAME(EACCES),      NAME(EADDRINUSE),   NAME(EADDRNOTAVAIL), NAME(EAGAIN),       NAME(EBADF),
                 NAME(EBUSY),       NAME(ECONNABORTED), NAME(ECONNREFUSED),  NAME(ECONNRESET),   NAME(EDQUOT),
                 NAME(EEXIST),      NAME(EFBIG),        NAME(EHOSTUNREACH),  NAME(EINTR),        NAME(EINVAL),
                 NAME(EIO),         NAME(EISDIR),       NAME(EMFILE),        NAME(ENAMETOOLONG), NAME(ENETDOWN),
                 NAME(ENETUNREACH), NAME(ENFILE),       NAME(ENODEV),        NAME(ENOENT),       NAME(ENOMEM),
                 NAME(ENOSPC),      NAME(ENOSYS),       NAME(ENOTCONN),      NAME(ENOTDIR),      NAME(EPERM),
                 NAME(EPIPE),       NAME(EROFS),        NAME(ETIMEDOUT)};
#undef NAME
    for (size_t i = 0; i < GP_ARRAY_LEN(names); i++)
        if (names[i].errnum == errnum) return names[i].name;
    return NULL;
}

/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */

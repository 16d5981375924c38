/* SPDX-License-Identifier: Apache-2.0 */
/* fakekernel.so, in a test host's /etc/ld.so.preload: lets programs see another running kernel than the machine's.
 *   /etc/lab-kernel         its release, which uname(2) and /proc/sys/kernel/osrelease answer
 *   /run/lab-modules        the loaded modules, read as /proc/modules
 *   /etc/lab-modprobe-errno a number: every load fails with it (126, 129: key rejected; 19: no device)
 *   /etc/lab-busy           loaded modules cannot be removed
 * A module "loads" when its vermagic fits the release: nothing enters the machine's kernel, which may have no modules at
 * all. A loaded nvidia module also gives /run/lab-nvidiactl, read as /dev/nvidiactl, and /run/lab-nvrm, read as
 * /proc/driver/nvidia/version. /sys/module is /run/lab-sys. Static programs are not deceived.
 * libc's headers call the parameters of its functions otherwise:
 * NOLINTBEGIN(readability-inconsistent-declaration-parameter-name) */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#define MODULES "/run/lab-modules"
#define NVRM "/run/lab-nvrm"
#define CTL "/run/lab-nvidiactl"
#define SYS "/run/lab-sys/"

static long raw(long nr, const long x[6]) {
    long r = 0;
    register long r10 __asm__("r10") = x[3];
    register long r8 __asm__("r8") = x[4];
    register long r9 __asm__("r9") = x[5];
    __asm__ volatile("syscall"
                     : "=a"(r)
                     : "a"(nr), "D"(x[0]), "S"(x[1]), "d"(x[2]), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    if (r >= 0 || r <= -4096) return r;
    errno = (int)-r;
    return -1;
}

static int word(const char *path, char *to, size_t size) {
    FILE *f = fopen(path, "re");
    if (!f) return -1;
    char *got = fgets(to, (int)size, f);
    fclose(f);
    if (!got) return -1;
    to[strcspn(to, "\n")] = '\0';
    return to[0] ? 0 : -1;
}

int uname(struct utsname *u) {
    int r = (int)raw(SYS_uname, (const long[6]){(long)u});
    if (r == 0) (void)word("/etc/lab-kernel", u->release, sizeof u->release);
    return r;
}

/* What a module's own information has under a key that begins with a 0: "\0version=". Empty: nothing. */
static void info_of(const char *image, size_t n, const char *key, size_t key_n, char *to, size_t size) {
    const char *at = memmem(image, n, key, key_n);
    to[0] = '\0';
    if (at) snprintf(to, size, "%.*s", (int)(image + n - at - (ptrdiff_t)key_n), at + key_n);
}
#define INFO(key, to) info_of(image, n, key, sizeof key - 1, to, sizeof to)

/* What kmod reads of a loaded module below /sys/module. */
static void sys_put(const char *module, const char *file, const char *text) {
    char path[400];
    (void)mkdir(SYS, 0755);
    snprintf(path, sizeof path, SYS "%s", module);
    (void)mkdir(path, 0755);
    snprintf(path, sizeof path, SYS "%s/%s", module, file);
    if (!text) {
        (void)unlink(path);
        *strrchr(path, '/') = '\0';
        (void)rmdir(path);
        return;
    }
    FILE *f = fopen(path, "we");
    if (f) fputs(text, f);
    if (f) fclose(f);
}

static int load(const char *image, size_t n) {
    char release[70] = "?", want[80], name[64], license[32], number[16], version[64];
    (void)word("/etc/lab-kernel", release, sizeof release);
    if (word("/etc/lab-modprobe-errno", number, sizeof number) == 0) {
        errno = atoi(number);
        return -1;
    }
    snprintf(want, sizeof want, "vermagic=%s ", release);
    INFO("\0version=", version);
    INFO("\0license=", license);
    INFO("\0name=", name); /* Debian's nvidia-current.ko calls itself nvidia */
    if (!memmem(image, n, want, strlen(want)) || !name[0]) {
        errno = ENOEXEC;
        return -1;
    }
    FILE *f = fopen(MODULES, "ae");
    if (f) {
        fprintf(f, "%s %zu 0 - Live 0x0000000000000000\n", name, n);
        fclose(f);
    }
    sys_put(name, "initstate", "live\n");
    sys_put(name, "refcnt", "0\n");
    if (strncmp(name, "nvidia", 6) != 0 || strchr(name, '_')) return 0;
    f = fopen(NVRM, "we");
    if (f) {
        fprintf(f, "NVRM version: NVIDIA UNIX %s  %s  Release Build\n",
                strcmp(license, "NVIDIA") == 0 ? "x86_64 Kernel Module" : "Open Kernel Module for x86_64", version);
        fclose(f);
    }
    f = fopen(CTL, "we");
    if (f) fclose(f);
    return 0;
}

static int load_file(int fd) {
    struct stat st;
    if (fstat(fd, &st)) return -1;
    char *image = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (image == MAP_FAILED) return -1;
    int r = load(image, (size_t)st.st_size);
    munmap(image, (size_t)st.st_size);
    return r;
}

static int unload(const char *name) {
    char line[512];
    if (access("/etc/lab-busy", F_OK) == 0) {
        errno = EBUSY;
        return -1;
    }
    FILE *f = fopen(MODULES, "re"), *to = fopen(MODULES ".new", "we");
    int found = 0;
    while (f && to && fgets(line, sizeof line, f)) {
        size_t n = strlen(name);
        if (strncmp(line, name, n) == 0 && line[n] == ' ') found = 1;
        else fputs(line, to);
    }
    if (f) fclose(f);
    if (to) fclose(to);
    if (found) {
        (void)rename(MODULES ".new", MODULES);
        sys_put(name, "refcnt", NULL);
        sys_put(name, "initstate", NULL);
    }
    if (found && strcmp(name, "nvidia") == 0) {
        (void)unlink(NVRM);
        (void)unlink(CTL);
    }
    errno = ENOENT;
    return found ? 0 : -1;
}

long syscall(long nr, ...) {
    long x[6];
    va_list a;
    va_start(a, nr);
    for (int i = 0; i < 6; i++) x[i] = va_arg(a, long);
    va_end(a);
    if (nr == SYS_finit_module) return load_file((int)x[0]);
    if (nr == SYS_delete_module) return unload((const char *)x[0]);
    return raw(nr, x);
}
/* of a compressed module, which kmod unpacks itself */
int init_module(const void *image, unsigned long n, const char *options) {
    (void)options;
    return load(image, n);
}
int delete_module(const char *name, unsigned flags) {
    (void)flags;
    return unload(name);
}

static const char *instead(const char *path) {
    static __thread char sys[512];
    if (!path) return path;
    if (strncmp(path, "/sys/module/", 12) == 0) {
        snprintf(sys, sizeof sys, SYS "%s", path + 12);
        return sys;
    }
    if (strcmp(path, "/proc/modules") == 0) return MODULES;
    if (strcmp(path, "/proc/sys/kernel/osrelease") == 0) return "/etc/lab-kernel";
    if (strcmp(path, "/proc/driver/nvidia/version") == 0) return NVRM;
    if (strcmp(path, "/dev/nvidiactl") == 0) return CTL;
    return path;
}

static FILE *next_fopen(const char *name, const char *path, const char *mode) {
    FILE *(*next)(const char *, const char *) = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, name);
    return next(instead(path), mode);
}
FILE *fopen(const char *path, const char *mode) { return next_fopen("fopen", path, mode); }
FILE *fopen64(const char *path, const char *mode) { return next_fopen("fopen64", path, mode); }

static int at(int dir, const char *path, int flags, int mode) {
    return (int)raw(SYS_openat, (const long[6]){dir, (long)instead(path), flags, mode});
}
#define MODE(last)                                        \
    int mode = 0;                                         \
    if (flags & (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))) { \
        va_list a;                                        \
        va_start(a, last);                                \
        mode = va_arg(a, int);                            \
        va_end(a);                                        \
    }
int open(const char *path, int flags, ...) {
    MODE(flags)
    return at(AT_FDCWD, path, flags, mode);
}
int open64(const char *path, int flags, ...) {
    MODE(flags)
    return at(AT_FDCWD, path, flags | O_LARGEFILE, mode);
}
int openat(int dir, const char *path, int flags, ...) {
    MODE(flags)
    return at(dir, path, flags, mode);
}
int openat64(int dir, const char *path, int flags, ...) {
    MODE(flags)
    return at(dir, path, flags | O_LARGEFILE, mode);
}

/* `test -r` and `test -e` of a shell. */
int access(const char *path, int how) {
    return (int)raw(SYS_faccessat, (const long[6]){AT_FDCWD, (long)instead(path), how});
}
int faccessat(int dir, const char *path, int how, int flags) {
    return (int)raw(SYS_faccessat2, (const long[6]){dir, (long)instead(path), how, flags});
}
int eaccess(const char *path, int how) { return faccessat(AT_FDCWD, path, how, AT_EACCESS); }
static int stat_of(const char *path, struct stat *to, int flags) {
    return (int)raw(SYS_newfstatat, (const long[6]){AT_FDCWD, (long)instead(path), (long)to, flags});
}
int stat(const char *path, struct stat *to) { return stat_of(path, to, 0); }
int lstat(const char *path, struct stat *to) { return stat_of(path, to, AT_SYMLINK_NOFOLLOW); }
int stat64(const char *path, struct stat64 *to) { return stat_of(path, (struct stat *)to, 0); }
int lstat64(const char *path, struct stat64 *to) { return stat_of(path, (struct stat *)to, AT_SYMLINK_NOFOLLOW); }
/* NOLINTEND(readability-inconsistent-declaration-parameter-name) */

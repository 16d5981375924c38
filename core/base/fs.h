/* SPDX-License-Identifier: Apache-2.0 */
/* Files: whole reads with a cap, atomic durable writes, folders, removal, random names, passing descriptors. */
#ifndef GP_BASE_FS_H
#define GP_BASE_FS_H

#include "base/error.h"
#include "base/str.h"

#include <sys/types.h>

/* Reads a whole file, at most max bytes (larger: -GP_EIO). ret: zeroed or initialised str, appended to; its s is
 * never NULL afterwards, also for an empty file and after a failure. ENOENT: -GP_ENOTFOUND. */
int fs_read(const char *path, size_t max, struct str *ret, struct gp_error *err);
/* The same for a text: a file with a NUL byte is -GP_EIO, because all behind it would be passed over. */
int fs_read_text(const char *path, size_t max, struct str *ret, struct gp_error *err);
/* Appends the last max bytes of a regular file, NUL bytes as '?'. ret->s as with fs_read. */
int fs_read_end(const char *path, size_t max, struct str *ret, struct gp_error *err);
/* Writes through a temporary file in the same folder, fsync, rename, fsync of the folder. */
int fs_write_atomic(const char *path, const void *data, size_t n, unsigned mode, struct gp_error *err);
/* For a path that the user names, and that is written to: follows its links, those of folders on the way too. Refused,
 * -GP_EIO, are links of other users than root in folders that everybody can write or that belong to another user than
 * root, and a last one of others that leads nowhere. The path may be absent. Caller frees *ret. */
int fs_follow(const char *path, char **ret, struct gp_error *err);
/* Opens a folder of a path that fs_follow gave: its descriptor, or -errno; a link that was put on the way since is
 * -ELOOP or -ENOTDIR. */
int fs_open_folder(const char *path);
/* The same as fs_follow, then opens for writing; flags: O_CREAT, O_APPEND, O_RDWR; mode: of a new file. In a folder
 * that everybody can write not a file, pipe or device of another user, and neither there nor in another user's folder a
 * file with a second name. A pipe: blocks until somebody reads. */
int fs_open_output(const char *path, int flags, unsigned mode, int *ret_fd, struct gp_error *err);
/* The same as fs_follow, then writes. Devices and pipes are written to (a pipe: blocks until somebody reads), but none
 * that another user put into a folder that everybody can write; everything else is as fs_write_atomic. Links stay. */
int fs_write_output(const char *path, const void *data, size_t n, unsigned mode, struct gp_error *err);
/* The same as fs_follow, then removes the file. Absent: success. */
int fs_remove_output(const char *path, struct gp_error *err);
/* The same, but a file with that content and mode stays as it is: a full disk does not matter then. */
int fs_write_changed(const char *path, const void *data, size_t n, unsigned mode, struct gp_error *err);
int fs_mkdirs(const char *path, unsigned mode, struct gp_error *err);
/* Removes a tree without following links or crossing mounts. Absent: success. */
int fs_remove_tree(const char *path, struct gp_error *err);
bool fs_exists(const char *path);
char *fs_join(const char *a, const char *b); /* caller frees; b absolute: b */
/* "~/x" to the home folder; anything else copied. */
char *fs_expand_home(const char *path);
/* Path of `rel` seen from the folder that holds `base_file`. */
char *fs_relative_to(const char *base_file, const char *rel);
/* The umask of this process, without changing it for a moment, which umask() does for all threads. 077 where /proc is
 * not mounted. */
unsigned fs_umask(void);
/* Of the file system of an open file or folder: what this user may still write, and its size. False: not known. */
bool fs_room(int fd, uint64_t *ret_free, uint64_t *ret_size);
int fs_random(void *p, size_t n, struct gp_error *err); /* getrandom */
/* n random bytes as 2n hex digits; dst 2n+1 bytes. */
int fs_random_hex(char *dst, size_t n, struct gp_error *err);
/* $XDG_STATE_HOME/gpuprov or ~/.local/state/gpuprov, made 0700. GPUPROV_STATE_DIR overrides. -GP_EENV: it belongs to
 * another user, or its group or every user can write it. */
int fs_state_dir(char **ret, struct gp_error *err);
/* Opens a file of the state folder that is written in place, made 0600 with O_CREAT: never through a link, and only a
 * regular file of this user with one name. flags: of open(2). A lock, a log, the journal; files that are replaced as a
 * whole have fs_write_atomic. */
int fs_open_kept(const char *path, int flags, int *ret_fd, struct gp_error *err);
/* The same without opening it, for SQLite: closing a descriptor would drop its locks. An absent file is fit. */
int fs_check_kept(const char *path, struct gp_error *err);
int fs_state_path(char **ret, struct gp_error *err); /* the same path; nothing is made or checked */
int fs_write_all(int fd, const void *p, size_t n);   /* 0 or -errno */

/* A descriptor through a Unix socket (SCM_RIGHTS), with n bytes of text (sent: 1 to 64): sendmsg and recvmsg, and
 * what they return. recv: *ret_fd is the new descriptor (close-on-exec), or stays as it is when none came; one
 * that was there already is closed. */
ssize_t fs_send_fd(int sock, const void *text, size_t n, int fd);
ssize_t fs_recv_fd(int sock, void *text, size_t n, int *ret_fd);

#endif

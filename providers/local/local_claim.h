/* SPDX-License-Identifier: Apache-2.0 */
/* The state folder of local stacks, which is this provider's cloud:
 *   BASE = STATE/local             0700; flock on it is the one lock
 *   BASE/NAME@OWNER/claim.json     the stack's identity; the folder appears whole, by rename
 *   BASE/NAME@OWNER/holder.json    pid, start time, boot id: on disk before the holder may begin
 *   BASE/NAME@OWNER/ctl            the holder's socket, 0600
 *   BASE/NAME@OWNER/nodes/         uppers of the overlays
 *   BASE/.new-*, BASE/.dead-*      on the way in or out: swept by whoever holds the lock next
 * Controller and holder both use it; nothing here needs privilege. */
#ifndef GP_LOCAL_CLAIM_H
#define GP_LOCAL_CLAIM_H

#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"
#include "base/vec.h"

#include <sys/types.h>

struct local_claim {
    char *dir; /* absolute path of the stack's folder */
    char *owner, *name, *uid, *spec_hash, *unit;
    int64_t created_s, expires_s; /* wall */
};
void local_claim_clear(struct local_claim *c);
#define GP_AUTO_CLAIM GP_CLEANUP(local_claim_clear)
struct local_claims {
    VEC_OF(struct local_claim) list;
};
void local_claims_clear(struct local_claims *l);
#define GP_AUTO_CLAIMS GP_CLEANUP(local_claims_clear)

/* STATE/local, made 0700. Caller frees. */
int local_base(const char *state_dir, char **ret, struct gp_error *err);
/* Folder of a stack; caller frees. */
char *local_dir(const char *base, const char *owner, const char *name);

/* Takes the lock of BASE (released by closing *ret_fd; O_CLOEXEC) and removes what a killed process
 * left half-made or half-removed. */
int local_lock(const char *base, int64_t deadline_ms, const struct gp_cancel *cancel, int *ret_fd,
               struct gp_error *err);
/* Removes the same, unless somebody has the lock: for those that need no lock. Never waits for it. */
void local_tidy(const char *base);

/* -GP_ENOTFOUND when there is no such stack; -GP_EIO when one of its words has not its form (decode.h). */
int local_claim_read(const char *dir, struct local_claim *ret, struct gp_error *err);
/* Under the lock. c->dir, owner, name, uid, ... set. -GP_EEXISTS: somebody has it. */
int local_claim_make(const char *base, const struct local_claim *c, struct gp_error *err);
/* Writes another deadline to the claim. Only its holder may, because it ends when the file is replaced by another. */
int local_claim_move(const char *dir, int64_t expires_s, struct gp_error *err);
/* Every claimed stack below BASE; owner and name may be NULL (any). No BASE: none. A claim that cannot be
 * read fails it at the end: ret holds all others then. */
int local_claims_read(const char *base, const char *owner, const char *name, struct local_claims *ret,
                      struct gp_error *err);

struct local_record {
    pid_t pid;
    uint64_t start; /* clock ticks since boot, /proc/PID/stat field 22 */
    uint64_t pidns; /* inode of the holder's own pid namespace: for people who look */
    char boot_id[40];
};
/* Fills start and boot_id of a live process. */
int local_record_of(pid_t pid, struct local_record *ret, struct gp_error *err);
int local_record_write(const char *dir, const struct local_record *r, struct gp_error *err);
/* pidfd of the recorded holder if that very process lives, else -1 (no record, other boot, pid used
 * by somebody else, zombie). */
int local_holder_pidfd(const char *dir);

/* Kills the holder and waits until all that lived in it is dead. Success when it was dead already. */
int local_holder_kill(const char *dir, int64_t deadline_ms, struct gp_error *err);
/* Under the lock, holder dead: removes the stack's folder and cgroup. Absent: success. */
int local_remove(const char *base, const char *dir, const char *uid, struct gp_error *err);

/* Removes a tree whose files may belong to several ids. Absent: success. */
int local_remove_tree(const char *path, struct gp_error *err);

/* Where as root a holder has its own cgroup (so that the end of the caller's does not end it), or
 * NULL without a cgroup2 mount; caller frees. */
char *local_cgroup(const char *uid);

/* Runs `__holder WHAT ARG` in a sealed copy of this executable, input on stdin; what it says is
 * appended to out. *ret_ok: its last line was "ok" (taken off). Any thread may: the child is spawned,
 * not forked. Cancelled or late: the child is killed first. */
int local_spawn(const char *what, const char *arg, const char *input, int64_t deadline_ms,
                const struct gp_cancel *cancel, struct str *out, bool *ret_ok, struct gp_error *err);

#endif

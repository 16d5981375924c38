/* SPDX-License-Identifier: Apache-2.0 */
/* The folder of a rank: rank.jsonl (its lines) and pid (their writer). One thread. */
#ifndef GP_AGENT_RANK_DIR_H
#define GP_AGENT_RANK_DIR_H

#include "base/error.h"

#include <sys/types.h>

struct rank_owner {
    pid_t pid;           /* leader of its own session */
    int64_t start_ticks; /* /proc/PID/stat's starttime: detects a reused pid */
    char boot_id[40];
};
int rank_owner_write(const char *dir, pid_t pid, struct gp_error *err);
/* -GP_ENOTFOUND when there is none. */
int rank_owner_read(const char *dir, struct rank_owner *ret, struct gp_error *err);
bool rank_owner_alive(const struct rank_owner *o);
/* Processes of the owner's session that still run (zombies do not count); with kill, ends them. */
int rank_session_count(const struct rank_owner *o, bool kill_them);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* A job's log: bytes with offsets from 0, in files log.0, log.1 ... of 16 MiB, of which the last 1 GiB stay. Each file
 * is allocated before it is used, and the oldest one is used again when the disk is short: a full disk costs old lines,
 * not new ones. The file log.head has what a reader needs. One writer, any number of readers; one thread. */
#ifndef GP_AGENT_JOB_LOG_H
#define GP_AGENT_JOB_LOG_H

#include "validate/agent/job/job_slots.h"

#define JOB_SEGMENT_BYTES ((int64_t)16 << 20)
#define JOB_SEGMENTS 64
/* Space that is left to the job: with less, the log uses its oldest file again. */
#define JOB_LOG_SPARE ((int64_t)512 << 20)
#define JOB_ATTEMPTS 17

/* Between `end` of one attempt and `start` of the next there is nothing: its end may have been lost with the boot. */
struct log_mark {
    int64_t end, start;
};
struct log_head {
    int64_t segment;       /* bytes of a file */
    int64_t base, total;   /* offsets of the first byte that is kept, and behind the last one */
    int64_t lost, lost_at; /* bytes that could not be written, and the offset where the last of them would be */
    struct log_mark marks[JOB_ATTEMPTS];
    int64_t n_marks; /* of attempts 2, 3 ... */
};
bool log_head_parse(const char *text, struct log_head *ret);
void log_head_render(const struct log_head *h, struct str *ret);

/* --- the writer --- */
struct job_log {
    int dir;           /* the job's folder */
    struct slots slot; /* log.head */
    struct log_head head;
    int fd;        /* of the file that is written */
    int64_t index; /* its number */
    int64_t spare; /* of the file that is allocated for later; -1: none */
};
/* Makes the log of a new job. -GP_EIO: the disk has no space for two files, or cannot be written. */
int job_log_create(const char *dir, struct gp_error *err);
/* Opens it for writing. rebooted: the end of the last attempt may be missing, so this one begins behind it. again: a
 * further attempt begins. */
int job_log_open(struct job_log *l, const char *dir, bool again, bool rebooted, struct gp_error *err);
/* Never fails: bytes that cannot be written are counted. */
void job_log_put(struct job_log *l, const char *p, size_t n);
/* Makes what was put visible to readers. */
void job_log_show(struct job_log *l);
/* Frees the oldest file, not the newest. False: there is none. */
bool job_log_release(struct job_log *l);
/* Frees what was allocated and not used. */
void job_log_close(struct job_log *l);

/* --- readers --- */
/* The newest head. -GP_ENOTFOUND, -GP_EPROTO as slots_get. */
int job_log_head(const char *dir, struct log_head *ret, struct gp_error *err);
/* Up to n bytes at `at`, which is in [base, total): how many. 0: those bytes are not there (any more); *ret_next is
 * the offset of the next file. */
size_t job_log_read(const char *dir, const struct log_head *h, int64_t at, char *p, size_t n, int64_t *ret_next);

#endif

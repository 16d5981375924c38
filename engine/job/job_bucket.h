/* SPDX-License-Identifier: Apache-2.0 */
/* Outputs and checkpoints whose place is a bucket. They are fetched from the nodes into a folder of this machine, below
 * the state folder, and sent from there; no node gets credentials. A mark beside such a folder exists as long as it may
 * have something that the bucket does not have. Blocks on the network. The verb's thread, but for job_bucket_mark,
 * _unmark and _put. */
#ifndef GP_ENGINE_JOB_BUCKET_H
#define GP_ENGINE_JOB_BUCKET_H

#include "engine/job/job_session.h"
#include "engine/transfer/bucket_pace.h"

/* The folder of this machine for an output or a checkpoint: `to` itself, or that of a bucket: STATE/buckets/STACK/HASH.
 * Caller frees. */
char *job_bucket_folder(const struct engine *e, const char *stack, const char *to);
/* Whether the spec's buckets can be listed and written with the credentials of this machine: before anything is
 * launched. */
int job_bucket_check(const struct job_session *s, struct gp_error *err);
/* Fetches the checkpoint from its bucket, in place of a folder that is here: before anything is launched, and once per
 * session. A folder with a mark was not sent to the end by a gpuprov that was killed or refused: it is used, with a
 * warning. -GP_EIO: also a mark that is not sound. */
int job_bucket_bring(struct job_session *s, struct gp_error *err);
/* Whose files: borrowed. */
struct job_bucket_of {
    const struct engine *e;
    const struct event_sink *sink;
    const char *stack;
};
/* Marks the folder of `to`, on disk, before files of nodes come into it; 0 if `to` is no bucket. *ret_new: it had no
 * mark. Any thread. */
int job_bucket_mark(const struct job_bucket_of *of, const char *to, bool *ret_new, struct gp_error *err);
/* The folder has nothing that the bucket does not have. Any thread. */
void job_bucket_unmark(const struct job_bucket_of *of, const char *to);
/* Sends the folder of `to`, with an event; 0 if `to` is no bucket. *ret_whole: the bucket has all of it but links to
 * folders, so job_bucket_unmark may follow if nothing came into it meanwhile. Any thread. */
int job_bucket_put(const struct job_bucket_of *of, const char *to, struct bucket_pace *pace,
                   const struct gp_cancel *cancel, struct tree_stats *ret, bool *ret_whole, struct gp_error *err);
/* Sends all folders of the job, those of one kind of store within one limit (opts->fetch_ms). Sets s->unsent, or
 * s->unkept; ret->stored has what was done. The first failure is err, and names the folder and what becomes of it.
 * left: the nodes stay, because they have files that are not here. */
int job_bucket_send(struct job_session *s, bool left, struct gp_error *err);
/* The job has ended well and its nodes may go, but s->unsent: the next `run` of it only sends (job_bucket_left). */
void job_bucket_note(const struct job_session *s);
/* All is in the buckets that they can keep: removes the note, and the folders but those of outputs that have more. A
 * checkpoint's folder with a mark is renamed to FOLDER.kept-TIME, with a warning. */
void job_bucket_done(const struct job_session *s);
/* For a stack that does not exist: sends what is left of an earlier run. *ret_was: it was of the same job, and the
 * result is its. -GP_EUSAGE: its files are not all here, or the spec names other buckets now. Without success the note
 * and the files stay, and no job may begin. */
int job_bucket_left(struct job_session *s, bool *ret_was, struct gp_error *err);

#endif

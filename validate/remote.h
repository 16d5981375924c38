/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by run_node.c, run_local.c and gang_session.c: the agent on a node, how a command's end reads, events. */
#ifndef GP_VALIDATE_REMOTE_H
#define GP_VALIDATE_REMOTE_H

#include "ssh/ssh.h"
#include "validate/lines.h"
#include "validate/validate.h"

/* Longer than any check's own deadline on the node: what the controller waits beyond it. */
#define AGENT_GRACE_MS 30000
/* What loading a driver may take on a node before the clock of its checks starts. */
#define AGENT_LOAD_MS 120000

/* sh: sets $A to the agent's path (the CUDA one when asked for and there) and runs "$A" with `args`
 * appended, as root where asked and possible without a password. */
void agent_command(struct str *cmd, bool cuda, bool as_root, const char *args);

/* `run` and its options for the node checks of this validation: words with blanks between them, none of
 * which needs quoting. Caller frees. */
char *agent_run_args(const struct validate_env *env);
/* How long to wait for its end: loading, the checks' time, and what a watchdog needs. */
int64_t agent_run_wait_ms(const struct validate_env *env);

/* Makes of *cmd what a login shell of any kind can run: sh, which first writes AGENT_MARK as a line of
 * its own to stdout and stderr. */
void agent_command_end(struct str *cmd);
/* What a shell's start-up files print (an echo in ~/.bashrc) comes before the agent's own words: true
 * for lines that are not the agent's. heard: {stdout, stderr}, both false when a command begins. */
#define AGENT_MARK "::gpuprov-agent"
bool agent_line_foreign(bool heard[2], bool is_stderr, const char *line);

/* Why the stream ended, for people: "the agent was killed by SIGKILL", ... Caller frees. */
char *agent_end_reason(const struct agent_stream *s, const struct ssh_result *r, int64_t waited_ms);

/* The ids of checks, comma-joined. Caller frees. */
char *check_ids(const struct check_info *const *checks, size_t n);
int64_t check_seconds(const struct check_info *const *checks, size_t n);
bool check_any_needs(const struct check_info *const *checks, size_t n, unsigned need);

/* One event per start (r NULL) or result. */
void check_event(const struct event_sink *sink, int slot, enum node_phase phase, const struct check_info *info,
                 const struct check_result *r);

/* check_result_worsen of a sample's result with the check's suggestion; said as an event when it was good
 * until then. */
struct sample;
void validate_worsen(const struct validate_env *env, const struct sample *one, enum verdict v, const char *code,
                     const char *message);

/* The plan's left-out checks of this kind (gang or not), one by one, as skipped results: false when
 * there are no more. *i starts at 0. */
bool check_left_out(const struct validate_env *env, bool gang, size_t *i, struct check_result *ret);

#endif

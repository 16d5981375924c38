/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by run_node.c, run_local.c and gang_session.c: the agent's command line, the text for its end, events. */
#ifndef GP_VALIDATE_REMOTE_H
#define GP_VALIDATE_REMOTE_H

#include "ssh/ssh.h"
#include "validate/lines.h"
#include "validate/validate.h"

/* The controller waits this long beyond a check's own deadline on the node. */
#define AGENT_GRACE_MS 30000
/* Time to load a driver on a node, before the time of its checks begins. */
#define AGENT_LOAD_MS 120000

/* sh: sets $A to the agent's path (with cuda the CUDA agent, if it exists) and runs "$A" with `args` appended; with
 * as_root as root, if possible without a password. */
void agent_command(struct str *cmd, bool cuda, bool as_root, const char *args);

/* `run` and its options for the node checks of this validation: words separated by blanks, without need of quoting.
 * Caller frees. */
char *agent_run_args(const struct validate_env *env, bool same_clock);
/* The time to wait for its end: loading, the checks' time, and the watchdog's. */
int64_t agent_run_wait_ms(const struct validate_env *env);

/* Wraps *cmd so that any login shell can run it: in sh, which first writes AGENT_MARK as a line of its own to stdout
 * and stderr. */
void agent_command_end(struct str *cmd);
/* True for lines that are not the agent's: a shell's start-up files may print before it (an echo in ~/.bashrc).
 * heard: {stdout, stderr}, both false when a command begins. */
#define AGENT_MARK "::gpuprov-agent"
bool agent_line_foreign(bool heard[2], bool is_stderr, const char *line);

/* Why the stream ended, as text: "the agent was killed by SIGKILL", ... Caller frees. */
char *agent_end_reason(const struct agent_stream *s, const struct ssh_result *r, int64_t waited_ms);

/* The ids of checks, comma-joined. Caller frees. */
char *check_ids(const struct check_info *const *checks, size_t n);
int64_t check_seconds(const struct check_info *const *checks, size_t n);
bool check_any_needs(const struct check_info *const *checks, size_t n, unsigned need);

/* One event per start (r NULL) or result. */
void check_event(const struct event_sink *sink, int slot, enum node_phase phase, const struct check_info *info,
                 const struct check_result *r);

/* check_result_worsen of a sample's result with the check's suggestion; emits an event if it was good until then. */
struct sample;
void validate_worsen(const struct validate_env *env, const struct sample *one, enum verdict v, const char *code,
                     const char *message);

/* The plan's left-out checks of this kind (gang or not), one by one, as skipped results: false when
 * there are no more. *i starts at 0. */
bool check_left_out(const struct validate_env *env, bool gang, size_t *i, struct check_result *ret);

#endif

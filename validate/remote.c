/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by run_node.c and gang_session.c: the agent's command line, the text for its end, events. No I/O. Any
 * thread. */
#include "base/gp_base.h"

#include "validate/remote.h"

#include "bootstrap/bootstrap.h"
#include "validate/judge.h"
#include "validate/samples.h"

void agent_command(struct str *cmd, bool cuda, bool as_root, const char *args) {
    str_add(cmd, "D=" GP_NODE_DIR "/agent; A=$D/gpuprov-agent; ");
    if (cuda) str_add(cmd, "test -x \"$D/gpuprov-agent-cuda\" && A=$D/gpuprov-agent-cuda; ");
    str_add(cmd, "test -x \"$A\" || { echo \"there is no agent at $A\" >&2; exit 127; }; ");
    if (as_root) str_addf(cmd, "test \"$(id -u)\" = 0 || ! sudo -n true 2>/dev/null || exec sudo -n \"$A\" %s; ", args);
    str_addf(cmd, "exec \"$A\" %s", args);
}

void agent_command_end(struct str *cmd) {
    GP_AUTO_STR struct str script = {0};
    str_add(&script, "echo; echo " AGENT_MARK "; { echo; echo " AGENT_MARK "; } >&2; ");
    str_add_mem(&script, cmd->s, cmd->len);
    str_clear(cmd);
    str_add(cmd, "exec sh -c ");
    str_add_shquoted(cmd, script.s);
}

bool agent_line_foreign(bool heard[2], bool is_stderr, const char *line) {
    bool foreign = !heard[is_stderr];
    heard[is_stderr] = heard[is_stderr] || str_eq(line, AGENT_MARK);
    return foreign;
}

char *agent_end_reason(const struct agent_stream *s, const struct ssh_result *r, int64_t waited_ms) {
    const char *last = s->last_err[0] ? s->last_err : NULL;
    if (s->bad.code && r->end != SSH_LOST) /* a line cut by a lost connection is not an error */
        return xstrdup(s->bad.msg);
    switch (r->end) {
    case SSH_LOST: return xstrdup("lost the connection to the node");
    case SSH_SIGNALED: return xasprintf("the agent was killed by SIG%s", r->signal);
    case SSH_TIMED_OUT: {
        char t[32];
        duration_format(t, sizeof t, waited_ms);
        return xasprintf("the agent had not ended after %s", t);
    }
    case SSH_EXITED: break;
    }
    return xasprintf("the agent ended early with exit status %d%s%s", r->status, last ? ": " : "", last ? last : "");
}

char *check_ids(const struct check_info *const *checks, size_t n) {
    GP_AUTO_STR struct str s = {0};
    for (size_t i = 0; i < n; i++) str_addf(&s, "%s%s", i ? "," : "", checks[i]->id);
    return str_steal(&s);
}

int64_t check_seconds(const struct check_info *const *checks, size_t n) {
    int64_t sum = 0;
    for (size_t i = 0; i < n; i++) sum += check_stated(checks[i], GPUS_USUAL) + checks[i]->longer;
    return sum;
}

bool check_any_needs(const struct check_info *const *checks, size_t n, unsigned need) {
    for (size_t i = 0; i < n; i++)
        if (checks[i]->needs & need) return true;
    return false;
}

void check_event(const struct event_sink *sink, int slot, enum node_phase phase, const struct check_info *info,
                 const struct check_result *r) {
    if (!r) {
        event_emit(sink, slot, phase, EVENT_START, info->id, "up to %d s on a sound node",
                   check_stated(info, GPUS_USUAL) + info->longer);
        return;
    }
    enum event_status st = r->verdict == VERDICT_PASS   ? EVENT_DONE
                           : r->verdict == VERDICT_FAIL ? EVENT_FAIL
                                                        : EVENT_WARN;
    if (r->verdict == VERDICT_SKIPPED && !r->required) st = EVENT_INFO; /* reported, without consequence */
    bool text = r->message && *r->message;
    event_emit(sink, slot, phase, st, info->id, "%s%s%s", verdict_name(r->verdict), text ? ": " : "",
               text ? r->message : "");
}

void validate_worsen(const struct validate_env *env, const struct sample *one, enum verdict v, const char *code,
                     const char *message) {
    bool was_better = one->result->verdict < v;
    check_result_worsen(one->result, v, code, message, one->info->suggestion);
    if (was_better)
        check_event(env->sink, one->node ? one->node->slot : -1, one->node ? NODE_CHECKING : NODE_GANG, one->info,
                    one->result);
}

bool check_left_out(const struct validate_env *env, bool gang, size_t *i, struct check_result *ret) {
    const struct strv *out = &env->plan->left_out;
    while (*i < out->n) {
        const char *line = out->v[(*i)++];
        size_t n = strcspn(line, " ");
        GP_AUTO_FREE char *id = xstrndup(line, n);
        const struct check_info *info = check_find(id);
        if (!info || (info->level == CHECK_GANG) != gang) continue;
        const char *open = strchr(line, '(');
        GP_AUTO_FREE char *why = xstrdup(open ? open + 1 : "");
        size_t len = strlen(why);
        if (len && why[len - 1] == ')') why[len - 1] = 0;
        check_result_make(ret, id, VERDICT_SKIPPED, "left_out", why);
        /* A check that cannot apply to this spec is not required. */
        ret->required = strv_has(&env->spec->validate.require, id);
        return true;
    }
    return false;
}

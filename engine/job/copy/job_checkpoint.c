/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a node gets the checkpoint that is here, or keeps its own. Any thread. */
#include "base/gp_base.h"

#include "engine/job/copy/job_checkpoint.h"

#include "bootstrap/bootstrap.h"

#define EACH_MS 30000
#define ALL_MS 60000

/* The note is one line: the stack's uid, "sending" or "sent", the path. A folder that cannot be read counts as full. */
static const char head[] = "cd || exit 1\n"
                           "m=" GP_NODE_DIR "/checkpoint\n"
                           "put() { printf '%s\\n' \"$1\" >\"$m.new\" && mv -f \"$m.new\" \"$m\"; }\n";
static const char claim[] = "full=\n"
                            "if [ -d \"$p\" ]; then full=$(ls -A \"$p\") || full=unknown\n"
                            "elif [ -e \"$p\" ] || [ -h \"$p\" ]; then full=file; fi\n"
                            "was=$(cat \"$m\" 2>/dev/null)\n"
                            "case $was in\n"
                            "\"$u sent $p\") ;;\n"
                            "*\" sent $p\"|*\" sending $p\") full= ;;\n"
                            "esac\n"
                            "if [ -n \"$full\" ]; then\n"
                            "  [ \"$was\" = \"$u sent $p\" ] || put \"$u sent $p\" 2>/dev/null\n"
                            "  echo keep; exit 0\n"
                            "fi\n"
                            "if [ \"$some\" = 1 ]; then put \"$u sending $p\" || exit 1\n"
                            "else put \"$u sent $p\" 2>/dev/null; fi\n"
                            "echo send\n";

static void add_head(struct str *script, const char *uid, const char *path) {
    str_add(script, head);
    str_add(script, "u=");
    str_add_shquoted(script, uid);
    str_add(script, "\np=");
    str_add_shquoted(script, path);
    str_add(script, "\n");
}

static int ask(struct node_link *l, const struct str *script, struct ssh_result *ret, struct gp_error *err) {
    int r = node_link_sh(l, "the note of its checkpoint", script, EACH_MS, clock_deadline(ALL_MS), ret, err);
    if (r != 0 || ret->status == 0) return r;
    str_one_line(ret->err.s);
    return gp_fail(err, GP_EIO, "%s: whether it has a checkpoint could not be noted there: %.200s", l->target.label,
                   ret->err.len > 0 ? ret->err.s : "the script failed");
}

int job_checkpoint_claim(struct node_link *l, const char *uid, const char *path, bool some, bool *ret_send,
                         struct gp_error *err) {
    GP_AUTO_STR struct str script = {0};
    GP_AUTO_SSH_RESULT struct ssh_result res = {0};
    add_head(&script, uid, path);
    str_add(&script, some ? "some=1\n" : "some=0\n");
    str_add(&script, claim);
    int r = ask(l, &script, &res, err);
    if (r != 0) return r;
    const char *said = res.out.s != NULL ? res.out.s : "";
    *ret_send = str_ends(said, "send\n"); /* the login shell may print something first */
    if (*ret_send || str_ends(said, "keep\n")) return 0;
    return gp_fail(err, GP_EPROTO, "%s: it did not say whether it has a checkpoint: check the login shell of its user",
                   l->target.label);
}

int job_checkpoint_sent(struct node_link *l, const char *uid, const char *path, struct gp_error *err) {
    GP_AUTO_STR struct str script = {0};
    GP_AUTO_SSH_RESULT struct ssh_result res = {0};
    add_head(&script, uid, path);
    str_add(&script, "put \"$u sent $p\"\n");
    return ask(l, &script, &res, err);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Makes the definition of a job, its key and its request. Pure; any thread. */
#include "base/gp_base.h"

#include "engine/job/def/job_def.h"

#include "base/hash.h"
#include "base/json.h"

void job_def_clear(struct job_def *d) {
    free(d->run);
    *d = (struct job_def){0};
}

static char *command_text(char *const *cmd, int n) {
    GP_AUTO_STR struct str text = {0};
    if (n == 1) return xstrdup(cmd[0]);
    for (int i = 0; i < n; i++) {
        if (i > 0) str_addc(&text, ' ');
        str_add_shquoted(&text, cmd[i]);
    }
    return str_steal(&text);
}

static json_t *text_or_null(const char *s) { return s != NULL ? json_any_text(s) : json_null(); }

/* The files of the working folder are not part of it: a job goes on while they are edited, and outputs may be below
 * it. */
static void make_key(struct job_def *d) {
    const struct spec_job *j = &d->spec->job;
    GP_AUTO_JSON json_t *env = json_array();
    GP_AUTO_JSON json_t *secrets = json_array();
    for (size_t i = 0; i < j->env.n; i++) json_array_append_new(env, json_any_text(j->env.v[i]));
    for (size_t i = 0; i < d->spec->secrets.len; i++)
        json_array_append_new(secrets, json_any_text(d->spec->secrets.items[i].env));
    GP_AUTO_JSON json_t *all =
        json_pack("{s:s, s:o, s:o, s:O, s:O, s:b, s:o, s:i, s:I, s:i}", "schema", "gpuprov-job-key/v1", "setup",
                  text_or_null(j->setup), "run", text_or_null(d->run), "env", env, "secrets", secrets, "rank0",
                  (int)d->rank0, "image", text_or_null(j->image), "nodes", d->ranks, "max_ms",
                  (json_int_t)j->max_duration_ms, "restart", j->restart);
    /* absent keys leave the key of a job as it was before they existed */
    if (spec_job_ends_sick(j)) json_object_set_new(all, "on_unhealthy", json_string("stop"));
    if (j->on_preempt != NULL) json_object_set_new(all, "on_preempt", json_any_text(j->on_preempt));
    GP_AUTO_FREE char *text = json_text_exact(all, 0);
    sha256_hex(text, strlen(text), d->key);
}

/* A request is JSON: other bytes would be changed on the way. */
static bool is_text(const char *s) {
    uint32_t c = 0;
    size_t left = strlen(s);
    for (size_t n = 1; left > 0 && n > 0; s += n, left -= n) n = str_utf8(s, left, &c);
    return left == 0;
}

int job_def_check_secrets(const struct bootstrap_secret *secrets, size_t n, struct gp_error *err) {
    for (size_t i = 0; i < n; i++)
        if (!is_text(secrets[i].value.len > 0 ? secret_reveal(&secrets[i].value) : ""))
            return gp_fail(err, GP_EUSAGE, "the secret '%s' is not UTF-8 text: a job cannot get it", secrets[i].env);
    return 0;
}

int job_def_make(const struct spec *spec, char *const *cmd, int n_cmd, struct job_def *ret, struct gp_error *err) {
    if (n_cmd == 0 && spec->job.run == NULL)
        return gp_fail(err, GP_EUSAGE,
                       "%s has no command: add 'run' to 'job', or give the command after '--': 'gpuprov run SPEC -- "
                       "python train.py'",
                       spec->path);
    for (int i = 0; i < n_cmd; i++)
        if (!is_text(cmd[i])) return gp_fail(err, GP_EUSAGE, "word %d of the command is not UTF-8 text", i + 1);
    *ret = (struct job_def){.spec = spec, .ranks = spec->nodes, .rank0 = spec_job_on_rank0(&spec->job)};
    ret->run = n_cmd > 0 ? command_text(cmd, n_cmd) : xstrdup(spec->job.run);
    make_key(ret);
    return 0;
}

/* --- the request --- */

static void add_name(struct str *out, const char *name, bool first) {
    if (!first) str_addc(out, ',');
    str_addf(out, "\"%s\":", name);
}

static void add_text(struct str *out, const char *name, const char *text) {
    add_name(out, name, false);
    if (text == NULL) {
        str_add(out, "null");
        return;
    }
    str_addc(out, '"');
    str_add_json(out, text, strlen(text));
    str_addc(out, '"');
}

static void add_pair(struct str *out, const char *name, const char *value, bool first) {
    add_name(out, name, first);
    str_addc(out, '"');
    str_add_json(out, value, strlen(value));
    str_addc(out, '"');
}

/* In a container setup and run share one, so that what setup installs is there. */
static char *in_one(const char *setup, const char *run) {
    GP_AUTO_STR struct str text = {0};
    if (setup != NULL) {
        str_add(&text, "sh -c ");
        str_add_shquoted(&text, setup);
        str_add(&text, " || { s=$?; echo \"gpuprov: job.setup failed with exit code $s\" >&2; exit $s; }\n");
    }
    str_add(&text, run);
    return str_steal(&text);
}

void job_def_request(const struct job_def *d, const char *id, const struct job_place *place,
                     const struct bootstrap_secret *secrets, size_t n_secrets, struct str *ret) {
    const struct spec_job *j = &d->spec->job;
    bool box = j->image != NULL;
    GP_AUTO_STRV struct strv env = {0};
    job_env_make(d->spec, place, &env);
    GP_AUTO_FREE char *whole = box ? in_one(j->setup, d->run) : xstrdup(d->run);
    GP_AUTO_FREE char *run = job_text_make(d->spec, place, &env, id, whole);
    /* on the node itself also where the job is in a container */
    GP_AUTO_FREE char *preempt =
        j->on_preempt == NULL || box ? xstrdup(j->on_preempt) : job_text_make(d->spec, place, &env, id, j->on_preempt);
    GP_AUTO_FREE char *setup = !box && j->setup != NULL ? job_text_make(d->spec, place, &env, id, j->setup) : NULL;
    str_addf(ret, "{\"schema\":\"gpuprov-job/v1\",\"id\":\"%s\",\"key\":\"%s\",\"rank\":%d,\"ranks\":%d", id, d->key,
             place->rank, place->ranks);
    add_text(ret, "cwd", "~/" JOB_CWD);
    add_text(ret, "setup", setup);
    add_text(ret, "run", run);
    add_text(ret, "preempt", preempt);
    str_addf(ret, ",\"watch\":{\"on_unhealthy\":\"%s\"", spec_job_ends_sick(j) ? "stop" : "warn");
    add_text(ret, "notices", place->notices);
    str_addc(ret, '}');
    str_add(ret, ",\"env\":{");
    for (size_t i = 0; i < env.n; i++) {
        size_t n = strcspn(env.v[i], "=");
        GP_AUTO_FREE char *name = xstrndup(env.v[i], n);
        add_pair(ret, name, env.v[i] + n + 1, i == 0);
    }
    str_add(ret, "},\"secrets\":{");
    for (size_t i = 0; i < n_secrets; i++) add_pair(ret, secrets[i].env, secret_reveal(&secrets[i].value), i == 0);
    str_addf(ret, "},\"max_s\":%lld,\"grace_s\":%d,\"restart\":%d}", (long long)((j->max_duration_ms + 999) / 1000),
             JOB_GRACE_S, j->restart);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* The strict decoder of a job's request. */
#include "base/gp_base.h"

#include "validate/agent/job/job_request.h"

#include "validate/agent/job/job_json.h"

#define NAME_FIRST "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"

static bool is_hex(const char *s, size_t n) {
    return s != NULL && strlen(s) == n && strspn(s, "0123456789abcdef") == n;
}

bool job_id_ok(const char *id) { return is_hex(id, 16); }

struct member {
    const char *name;
    enum jmap_kind kind;
    bool required;
    void *ret;        /* char **, int64_t *, struct strv * */
    int64_t min, max; /* of a number; of the bytes of a text */
};

static const char *kind_text(enum jmap_kind kind) {
    return kind == JMAP_TEXT ? "a text" : kind == JMAP_INT ? "a whole number" : "an object of texts";
}

static int take_member(struct jmap_item *it, const struct member *m, struct gp_error *err) {
    if (it->kind == JMAP_NULL && !m->required) return 0;
    if (it->kind != m->kind) return gp_fail(err, GP_EPROTO, "'%s' is not %s", m->name, kind_text(m->kind));
    if (m->kind == JMAP_MAP) {
        *(struct strv *)m->ret = it->map;
        it->map = (struct strv){0};
        return 0;
    }
    int64_t size = m->kind == JMAP_INT ? it->number : (int64_t)strlen(it->text);
    if (size < m->min || size > m->max)
        return gp_fail(err, GP_EPROTO, "%s'%s' is not in [%lld, %lld]", m->kind == JMAP_INT ? "" : "the size of ",
                       m->name, (long long)m->min, (long long)m->max);
    if (m->kind == JMAP_INT) *(int64_t *)m->ret = it->number;
    else *(char **)m->ret = GP_STEAL(it->text);
    return 0;
}

static int take_members(struct jmap *json, const struct member *all, size_t n, struct gp_error *err) {
    for (size_t i = 0; i < json->n; i++) {
        size_t k = 0;
        while (k < n && !str_eq(all[k].name, json->v[i].name)) k++;
        if (k == n) return gp_fail(err, GP_EPROTO, "'%.60s' is not a member of %s", json->v[i].name, JOB_SCHEMA);
        int r = take_member(&json->v[i], &all[k], err);
        if (r != 0) return r;
    }
    for (size_t k = 0; k < n; k++)
        if (all[k].required && jmap_find(json, all[k].name) == NULL)
            return gp_fail(err, GP_EPROTO, "'%s' is missing", all[k].name);
    return 0;
}

static int check_names(const char *what, const struct strv *vars, size_t *bytes, struct gp_error *err) {
    for (size_t i = 0; i < vars->n; i += 2) {
        const char *name = vars->v[i];
        size_t n = strlen(name);
        if (n == 0 || n > 256 || strspn(name, NAME_FIRST "0123456789") != n || strspn(name, NAME_FIRST) == 0)
            return gp_fail(err, GP_EPROTO, "'%s' has '%.60s', which is not the name of a variable", what, name);
        if (str_eq(name, JOB_MARK)) return gp_fail(err, GP_EPROTO, "'%s' sets " JOB_MARK, what);
        if (vars->v[i + 1] == NULL)
            return gp_fail(err, GP_EPROTO, "'%s' has null for %.60s, where a text was expected", what, name);
        size_t size = strlen(vars->v[i + 1]);
        if (size > JOB_VALUE_MAX)
            return gp_fail(err, GP_EPROTO, "'%s' has a value for %.60s of more than %zu bytes", what, name,
                           JOB_VALUE_MAX);
        *bytes += n + size + 2;
    }
    return 0;
}

static int check(const struct job_request *q, const char *id, const char *key, struct gp_error *err) {
    size_t bytes = 0;
    if (!job_id_ok(id)) return gp_fail(err, GP_EPROTO, "'id' is not 16 lower hexadecimal digits");
    if (!is_hex(key, 64)) return gp_fail(err, GP_EPROTO, "'key' is not 64 lower hexadecimal digits");
    if (q->rank >= q->ranks) return gp_fail(err, GP_EPROTO, "'rank' is not below 'ranks'");
    if (q->cwd[0] != '/' && !str_starts(q->cwd, "~/"))
        return gp_fail(err, GP_EPROTO, "'cwd' begins neither with / nor with ~/");
    int r = check_names("env", &q->env, &bytes, err);
    if (r == 0) r = check_names("secrets", &q->secrets, &bytes, err);
    for (size_t i = 0; r == 0 && i < q->secrets.n; i += 2)
        for (size_t k = 0; r == 0 && k < q->env.n; k += 2)
            if (str_eq(q->secrets.v[i], q->env.v[k]))
                r = gp_fail(err, GP_EPROTO, "'env' and 'secrets' both have %.60s", q->env.v[k]);
    if (r == 0 && bytes > JOB_VALUES_MAX)
        r = gp_fail(err, GP_EPROTO, "'env' and 'secrets' have more than %zu bytes", JOB_VALUES_MAX);
    return r;
}

/* {"notices": CLOUD or null, "on_unhealthy": "warn" or "stop"} */
static int take_watch(const struct strv *map, struct job_request *q, struct gp_error *err) {
    const char *on = NULL;
    for (size_t i = 0; i < map->n; i += 2) {
        const char *name = map->v[i], *value = map->v[i + 1];
        if (str_eq(name, "on_unhealthy")) on = value;
        else if (!str_eq(name, "notices")) return gp_fail(err, GP_EPROTO, "'%.60s' is not a member of 'watch'", name);
        else if (value != NULL) q->notices = xstrdup(value);
    }
    if (on == NULL || (!str_eq(on, "warn") && !str_eq(on, "stop")))
        return gp_fail(err, GP_EPROTO, "'on_unhealthy' of 'watch' is neither warn nor stop");
    size_t n = q->notices != NULL ? strlen(q->notices) : 1;
    if (n < 1 || n > 32 || (q->notices != NULL && strspn(q->notices, "abcdefghijklmnopqrstuvwxyz") != n))
        return gp_fail(err, GP_EPROTO, "'notices' of 'watch' is not the name of a cloud");
    q->watch = true;
    q->stop_unhealthy = str_eq(on, "stop");
    return 0;
}

int job_request_parse(const char *text, size_t n, struct job_request *ret, struct gp_error *err) {
    GP_CLEANUP(jmap_clear) struct jmap json = {0};
    GP_AUTO_FREE char *schema = NULL, *id = NULL, *key = NULL;
    GP_AUTO_STRV struct strv watch = {0};
    ret->ranks = 1;
    ret->grace_s = 10;
    const int64_t script = JOB_SCRIPT_MAX, year = 366 * 86400;
    const struct member members[] = {{"schema", JMAP_TEXT, true, &schema, 1, 64},
                                     {"id", JMAP_TEXT, true, &id, 16, 16},
                                     {"key", JMAP_TEXT, true, &key, 64, 64},
                                     {"rank", JMAP_INT, false, &ret->rank, 0, 99999},
                                     {"ranks", JMAP_INT, false, &ret->ranks, 1, 100000},
                                     {"cwd", JMAP_TEXT, true, &ret->cwd, 1, 4000},
                                     {"setup", JMAP_TEXT, false, &ret->setup, 0, script},
                                     {"run", JMAP_TEXT, true, &ret->run, 1, script},
                                     {"preempt", JMAP_TEXT, false, &ret->preempt, 0, script},
                                     {"watch", JMAP_MAP, false, &watch, 0, 0},
                                     {"env", JMAP_MAP, false, &ret->env, 0, 0},
                                     {"secrets", JMAP_MAP, false, &ret->secrets, 0, 0},
                                     {"max_s", JMAP_INT, false, &ret->max_s, 0, 10 * year},
                                     {"grace_s", JMAP_INT, false, &ret->grace_s, 0, 3600},
                                     {"restart", JMAP_INT, false, &ret->restart, 0, JOB_RESTART_MAX}};
    int r = jmap_parse(text, n, &json, err);
    const struct jmap_item *named = r == 0 ? jmap_find(&json, "schema") : NULL;
    if (r == 0 && (named == NULL || named->kind != JMAP_TEXT || !str_eq(named->text, JOB_SCHEMA)))
        r = gp_fail(err, GP_EPROTO, "'schema' is not " JOB_SCHEMA ": this agent and gpuprov have different versions");
    if (r == 0) r = take_members(&json, members, GP_ARRAY_LEN(members), err);
    const struct jmap_item *watched = r == 0 ? jmap_find(&json, "watch") : NULL;
    if (watched != NULL && watched->kind == JMAP_MAP) r = take_watch(&watch, ret, err);
    if (r == 0) r = check(ret, id, key, err);
    if (r != 0) return r;
    str_put(ret->id, sizeof ret->id, id);
    str_put(ret->key, sizeof ret->key, key);
    return 0;
}

static void add_member_text(struct str *s, const char *name, const char *text) {
    str_addf(s, ",\"%s\":", name);
    if (text == NULL) {
        str_add(s, "null");
        return;
    }
    str_addc(s, '"');
    str_add_json(s, text, strlen(text));
    str_addc(s, '"');
}

void job_request_json(const struct job_request *q, struct str *ret) {
    str_addf(ret, "{\"schema\":\"" JOB_SCHEMA "\",\"id\":\"%s\",\"key\":\"%s\",\"rank\":%lld,\"ranks\":%lld", q->id,
             q->key, (long long)q->rank, (long long)q->ranks);
    add_member_text(ret, "cwd", q->cwd);
    add_member_text(ret, "setup", q->setup);
    add_member_text(ret, "run", q->run);
    add_member_text(ret, "preempt", q->preempt);
    if (q->watch) {
        str_addf(ret, ",\"watch\":{\"on_unhealthy\":\"%s\"", q->stop_unhealthy ? "stop" : "warn");
        add_member_text(ret, "notices", q->notices);
        str_addc(ret, '}');
    }
    str_add(ret, ",\"env\":{");
    for (size_t i = 0; i < q->env.n; i += 2) {
        str_addf(ret, "%s\"%s\":\"", i > 0 ? "," : "", q->env.v[i]);
        str_add_json(ret, q->env.v[i + 1], strlen(q->env.v[i + 1]));
        str_addc(ret, '"');
    }
    str_addf(ret, "},\"max_s\":%lld,\"grace_s\":%lld,\"restart\":%lld}", (long long)q->max_s, (long long)q->grace_s,
             (long long)q->restart);
}

static void wipe_text(char **s) {
    if (*s != NULL) explicit_bzero(*s, strlen(*s));
    free(*s);
    *s = NULL;
}

void job_request_clear(struct job_request *q) {
    wipe_text(&q->cwd);
    wipe_text(&q->setup);
    wipe_text(&q->run);
    wipe_text(&q->preempt);
    wipe_text(&q->notices);
    jmap_wipe(&q->env);
    jmap_wipe(&q->secrets);
    *q = (struct job_request){0};
}

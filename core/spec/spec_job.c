/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of the spec's block `job`, its rules, and the map of variables in it. The work folder is looked at only when
 * a user's spec is checked. Any thread. */
#include "base/gp_base.h"

#include "base/clock.h"
#include "base/fs.h"
#include "spec/spec_internal.h"

#include <sys/stat.h>

#define NAME_PATTERN "^[A-Za-z_][A-Za-z0-9_]{0,99}$"
#define NODE_PATH "^/?[A-Za-z0-9._+@=,:~-]+(/[A-Za-z0-9._+@=,:~-]+)*/?$"
#define NODE_PATH_DOC "a path of letters, digits and ._+@=,:~-, absolute or relative to the working folder"

static const char *const places[] = {"all", "rank0", NULL};
static const char *const on_faults[] = {"warn", "stop", "replace", NULL};

bool spec_job_on_rank0(const struct spec_job *j) { return str_eq(j->on, "rank0"); }

bool spec_job_replaces(const struct spec_job *j) { return str_eq(j->on_unhealthy, "replace"); }

bool spec_job_ends_sick(const struct spec_job *j) { return str_eq(j->on_unhealthy, "stop") || spec_job_replaces(j); }

char *spec_job_too_long(const struct spec_job *j, int64_t ttl_ms) {
    char most[32], ttl[32];
    if (ttl_ms <= 0 || j->max_duration_ms <= ttl_ms) return NULL;
    duration_format(most, sizeof most, j->max_duration_ms);
    duration_format(ttl, sizeof ttl, ttl_ms);
    return xasprintf("job.max_duration, %s, is longer than limits.ttl, %s: the deadline ends the job before", most,
                     ttl);
}

bool spec_job_reserved(const char *name) {
    static const char *const own[] = {"PATH", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", NULL};
    for (size_t i = 0; own[i] != NULL; i++)
        if (strcmp(own[i], name) == 0) return true;
    return str_starts(name, "GPUPROV_");
}

static const struct yaml_node *own_value(const struct spec_ctx *c, const struct yaml_node *map, const char *key) {
    const struct yaml_node *at = map != NULL ? yaml_get(map, key) : NULL;
    return at != NULL && !spec_is_bad(c, at) ? at : NULL;
}

/* --- the map of variables --- */

static bool has_name(const struct strv *vars, const char *name) {
    size_t n = strlen(name);
    for (size_t i = 0; i < vars->n; i++)
        if (strncmp(vars->v[i], name, n) == 0 && vars->v[i][n] == '=') return true;
    return false;
}

/* An empty value is one: `DEBUG: ""`. */
static const char *var_value(struct spec_ctx *c, const struct yaml_node *at, const char *name) {
    if (at->kind == YAML_SCALAR && at->quoted && at->value[0] == '\0') return "";
    return spec_text_of(c, at, name);
}

void spec_vars_decode(struct spec_ctx *c, const struct spec_field *f, const struct yaml_node *map, struct strv *to) {
    if (map->kind != YAML_MAP) {
        spec_complain(c, map, "'%s' must be a map: %s", f->name, f->example);
        return;
    }
    for (size_t i = 0; i + 1 < map->items.len; i += 2) {
        const struct yaml_node *key = map->items.items[i], *value = map->items.items[i + 1];
        const char *text = NULL;
        if (!spec_match(NAME_PATTERN, key->value))
            spec_complain(c, key, "'%.100s' in '%s' is not the name of a variable", key->value, f->name);
        else if (spec_job_reserved(key->value))
            spec_complain(c, key, "a variable cannot be named '%s': gpuprov sets it itself", key->value);
        else if ((text = var_value(c, value, key->value)) != NULL && !has_name(to, key->value))
            strv_take(to, xasprintf("%s=%s", key->value, text));
    }
}

json_t *spec_vars_json(const struct strv *vars) {
    if (vars->n == 0) return NULL;
    json_t *map = json_object();
    for (size_t i = 0; i < vars->n; i++) {
        const char *value = strchr(vars->v[i], '=');
        GP_AUTO_FREE char *name = xstrndup(vars->v[i], (size_t)(value - vars->v[i]));
        GP_AUTO_FREE char *escaped = spec_escape(value + 1, spec_key_is_script(name)); /* as it is decoded */
        json_object_set_new(map, name, json_string(escaped));
    }
    return map;
}

json_t *spec_vars_schema(void) {
    return json_pack("{s:s, s:{s:s}, s:{s:[s, s, s]}}", "type", "object", "propertyNames", "pattern", NAME_PATTERN,
                     "additionalProperties", "type", "string", "number", "boolean");
}

/* --- paths --- */

static void check_node_path(struct spec_ctx *c, const struct yaml_node *at) {
    GP_AUTO_STRV struct strv parts = {0};
    strv_split(&parts, at->value, "/");
    for (size_t i = 0; i < parts.n; i++)
        if (strcmp(parts.v[i], "..") == 0 || (strcmp(parts.v[i], ".") == 0 && parts.n > 1)) {
            spec_complain(c, at, "'%.100s' has '%s' as a folder: write the path that is meant",
                          spec_shown(at, at->value), parts.v[i]);
            return;
        }
}

/* A place of this machine, made absolute. */
static void local_folder(struct spec_ctx *c, const struct yaml_node *at, char **path) {
    if (*path == NULL) return;
    if (strstr(*path, "://") != NULL && at != NULL && c->names != NULL) {
        spec_complain(c, at,
                      "'%.100s' is not a folder of this machine: for a bucket, mount it with bootstrap.mounts "
                      "and let the job read it there",
                      spec_shown(at, *path));
        return;
    }
    char *expanded = fs_expand_home(*path);
    free(*path);
    *path = expanded;
    spec_absolute(c, path);
    for (size_t n = strlen(*path); n > 1 && (*path)[n - 1] == '/'; n--) (*path)[n - 1] = '\0';
}

/* Where files go: a bucket, or a folder of this machine. Slashes at the end do not count. */
static void place(struct spec_ctx *c, const struct yaml_node *at, char **to) {
    GP_AUTO_BUCKET_URL struct bucket_url bucket = {0};
    struct gp_error why = {0};
    if (!bucket_url_is(*to)) {
        local_folder(c, at, to);
        return;
    }
    if (bucket_url_decode(*to, &bucket, &why) != 0) {
        if (at != NULL) spec_complain(c, at, "%s", why.msg);
        return;
    }
    free(*to);
    *to = xasprintf("%s://%s%s%s", bucket.scheme, bucket.name, bucket.prefix[0] != '\0' ? "/" : "", bucket.prefix);
}

static void rule_output(struct spec_ctx *c, const struct yaml_node *map, void *to_) {
    struct spec_job_output *o = to_;
    const struct yaml_node *to = own_value(c, map, "to");
    place(c, to, &o->to);
    for (size_t i = 0; to != NULL && o->to != NULL && i < c->spec->job.outputs.len; i++) {
        const struct spec_job_output *other = &c->spec->job.outputs.items[i];
        if (other == o) break;
        if (str_eq(other->to, o->to))
            spec_complain(c, to, "two entries of 'outputs' go to '%s'", spec_shown(to, o->to));
    }
}

static void rule_checkpoint(struct spec_ctx *c, const struct yaml_node *map, void *to) {
    struct spec_job_checkpoint *p = to;
    place(c, own_value(c, map, "to"), &p->to);
}

static bool is_in(const char *path, const char *folder) {
    size_t n = folder != NULL ? strlen(folder) : 0;
    return path != NULL && n > 0 && strncmp(path, folder, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

/* What is there is sent back as the checkpoint: results of an earlier job would come back over those of this one. */
static void check_checkpoint_apart(struct spec_ctx *c, const struct yaml_node *map, const struct spec_job *j) {
    const struct yaml_node *block = own_value(c, map, "checkpoint");
    const struct yaml_node *at = block != NULL && block->kind == YAML_MAP ? own_value(c, block, "to") : NULL;
    for (size_t i = 0; at != NULL && i < j->outputs.len; i++)
        if (is_in(j->outputs.items[i].to, j->checkpoint.to)) {
            if (str_eq(j->outputs.items[i].to, j->checkpoint.to))
                spec_complain(c, at, "'checkpoint' and an entry of 'outputs' go to '%s'",
                              spec_shown(at, j->checkpoint.to));
            else if (c->names != NULL) /* older versions took it, and the journal may have it */
                spec_complain(c, at, "an entry of 'outputs' goes to '%s', which is below the 'to' of 'checkpoint'",
                              j->outputs.items[i].to);
            return;
        }
}

static void rule_job(struct spec_ctx *c, const struct yaml_node *map, void *to) {
    struct spec_job *j = to;
    const struct yaml_node *at = own_value(c, map, "workdir");
    struct stat st;
    check_checkpoint_apart(c, map, j);
    local_folder(c, at, &j->workdir);
    if (at == NULL || c->names == NULL || spec_is_bad(c, at)) return;
    if (stat(j->workdir, &st) != 0 || !S_ISDIR(st.st_mode))
        spec_complain(c, at, "'workdir': '%s' is not a folder of this machine; it is relative to the spec",
                      spec_shown(at, j->workdir));
}

void spec_rule_job_root(struct spec_ctx *c, const struct yaml_node *root, const struct spec *s) {
    const struct yaml_node *map = yaml_get(root, "job"), *env = own_value(c, map, "env");
    const struct yaml_node *image = own_value(c, map, "image");
    if (map == NULL || c->names == NULL) return;
    for (size_t i = 0; env != NULL && i < s->secrets.len; i++)
        if (s->secrets.items[i].env != NULL && has_name(&s->job.env, s->secrets.items[i].env))
            spec_complain(c, env, "'env' has '%s', which is a secret too: remove one of them", s->secrets.items[i].env);
    if (image != NULL && s->container.engine == ENGINE_CONTAINERD)
        spec_complain(c, image, "'image' needs 'engine: docker' or 'engine: podman'");
    if (image != NULL && s->container.engine == ENGINE_NONE)
        spec_complain(c, image,
                      "'image' needs a container engine on the nodes: add 'container: {engine: docker}' to "
                      "'bootstrap'");
}

/* Rows read as rows. */
/* clang-format off */
static const struct spec_field output_fields[] = {
    {.name = "path", .type = SPEC_TEXT, .offset = offsetof(struct spec_job_output, path), .required = true,
     .doc = "a file or folder on the node", .example = "results", .pattern = NODE_PATH, .pattern_doc = NODE_PATH_DOC,
     .check = check_node_path, .effect = SPEC_LATER},
    {.name = "to", .type = SPEC_TEXT, .offset = offsetof(struct spec_job_output, to), .required = true,
     .doc = "a folder of this machine, relative to the spec, or a bucket: s3:// or gs://BUCKET/PREFIX; with several "
            "nodes each has a folder in it, named by its rank", .example = "./results", .basename_in_hash = true,
     .effect = SPEC_LATER},
    {.name = "every", .type = SPEC_DURATION, .offset = offsetof(struct spec_job_output, every_ms),
     .def_doc = "only when the job has ended", .doc = "how often it is also fetched while the job runs",
     .example = "5m", .min = 1000, .max = (int64_t)86400000, .effect = SPEC_LATER},
    {0}};
static const struct spec_block output_block = {
    .path = "job.outputs[]",
    .doc = "Results that are fetched from each node when the job has ended, and with `every` before.",
    .fields = output_fields, .size = sizeof(struct spec_job_output), .rules = rule_output};

static const struct spec_field checkpoint_fields[] = {
    {.name = "path", .type = SPEC_TEXT, .offset = offsetof(struct spec_job_checkpoint, path), .required = true,
     .doc = "a file or folder on the node", .example = "checkpoints", .pattern = NODE_PATH,
     .pattern_doc = NODE_PATH_DOC, .check = check_node_path, .effect = SPEC_LATER},
    {.name = "to", .type = SPEC_TEXT, .offset = offsetof(struct spec_job_checkpoint, to), .required = true,
     .doc = "a folder of this machine, relative to the spec, or a bucket: s3:// or gs://BUCKET/PREFIX; what it has is "
            "sent to nodes that have none, before the job starts",
     .example = "./checkpoints", .basename_in_hash = true, .effect = SPEC_LATER},
    {.name = "every", .type = SPEC_DURATION, .offset = offsetof(struct spec_job_checkpoint, every_ms),
     .def_doc = "10m", .doc = "how often it is fetched while the job runs", .example = "5m", .min = 1000,
     .max = (int64_t)86400000, .effect = SPEC_LATER},
    {0}};
static const struct spec_block checkpoint_block = {
    .path = "job.checkpoint", .doc = "State of the job that is fetched while it runs, and sent back to new nodes.",
    .fields = checkpoint_fields, .rules = rule_checkpoint};

static const struct spec_field job_fields[] = {
    {.name = "workdir", .type = SPEC_TEXT, .offset = offsetof(struct spec_job, workdir), .def_doc = "nothing is sent",
     .doc = "a folder of this machine, relative to the spec; it is sent to the working folder of every node",
     .example = ".", .basename_in_hash = true, .effect = SPEC_LATER},
    {.name = "setup", .type = SPEC_TEXT, .offset = offsetof(struct spec_job, setup), .def_doc = "none",
     .doc = "a POSIX sh script that runs on every node before `run`", .example = "pip install -r requirements.txt",
     .script = true, .effect = SPEC_LATER},
    {.name = "env", .type = SPEC_VARS, .offset = offsetof(struct spec_job, env), .def_doc = "none",
     .doc = "environment variables of the job, a map; not PATH, NODE_RANK, WORLD_SIZE, MASTER_ADDR and GPUPROV_*",
     .example = "{EPOCHS: 3}", .effect = SPEC_LATER},
    {.name = "run", .type = SPEC_TEXT, .offset = offsetof(struct spec_job, run),
     .def_doc = "the command after `--` of `gpuprov run`",
     .doc = "a POSIX sh script, run as the login user in the working folder; another exit status than 0 fails the job",
     .example = "torchrun $GPUPROV_TORCHRUN_ARGS train.py", .script = true, .effect = SPEC_LATER},
    {.name = "on", .type = SPEC_TEXT, .offset = offsetof(struct spec_job, on), .choices = places, .def_doc = "all",
     .doc = "which nodes run it: `all` at once, or only node 0 (`rank0`), for launchers such as mpirun",
     .example = "rank0", .effect = SPEC_LATER},
    {.name = "image", .type = SPEC_TEXT, .offset = offsetof(struct spec_job, image), .def_doc = "the node itself",
     .doc = "the container image that `setup` and `run` run in, with the node's network, GPUs and working folder; "
            "it needs `bootstrap.container.engine`",
     .example = "docker.io/pytorch/pytorch:2.9.1-cuda13.0-cudnn9-runtime",
     .pattern = SPEC_IMAGE_PATTERN, .pattern_doc = SPEC_IMAGE_DOC, .effect = SPEC_LATER},
    {.name = "outputs", .type = SPEC_LIST, .offset = offsetof(struct spec_job, outputs), .block = &output_block,
     .doc = "results to fetch", .example = "[{path: results, to: ./results}]", .effect = SPEC_LATER},
    {.name = "checkpoint", .type = SPEC_BLOCK, .offset = offsetof(struct spec_job, checkpoint),
     .block = &checkpoint_block, .doc = "state that outlives the nodes",
     .example = "{path: checkpoints, to: ./checkpoints}"},
    {.name = "max_duration", .type = SPEC_DURATION, .offset = offsetof(struct spec_job, max_duration_ms),
     .def_doc = "no limit but the nodes' deadline", .doc = "how long setup and run may take; the job is ended then, "
            "and has failed", .example = "2h", .min = 1000, .max = (int64_t)30 * 86400000, .effect = SPEC_LATER},
    {.name = "restart", .type = SPEC_INT, .offset = offsetof(struct spec_job, restart), .def_doc = "0",
     .doc = "how often the job runs again on a node that was rebooted", .example = "2", .min = 1, .max = 100,
     .effect = SPEC_LATER},
    {.name = "keep", .type = SPEC_DURATION, .offset = offsetof(struct spec_job, keep_ms),
     .def_doc = "nodes are destroyed at once", .doc = "how long `gpuprov run` keeps the nodes after a failure, at most "
            "until their deadline", .example = "30m", .min = 1000, .max = (int64_t)7 * 86400000, .effect = SPEC_LATER},
    {.name = "on_unhealthy", .type = SPEC_TEXT, .offset = offsetof(struct spec_job, on_unhealthy),
     .choices = on_faults, .def_doc = "warn",
     .doc = "what a new fault of a node does while the job runs: `warn` reports it, `stop` ends the job, `replace` "
            "also destroys that node, launches another one and starts the job again", .example = "replace",
     .effect = SPEC_LATER},
    {.name = "on_preempt", .type = SPEC_TEXT, .offset = offsetof(struct spec_job, on_preempt), .def_doc = "none",
     .doc = "a POSIX sh script that runs on a node when its cloud announces that it takes the node back; then the job "
            "is ended. It has at most 90 s", .example = "kill -USR1 $(cat train.pid)", .script = true,
     .effect = SPEC_LATER},
    {.name = "recover", .type = SPEC_INT, .offset = offsetof(struct spec_job, recover), .def = "3",
     .doc = "how often `gpuprov run` launches nodes again that were preempted, or that `replace` gave back, and starts "
            "the job again; 0: never", .example = "10", .min = 0, .max = 100, .effect = SPEC_LATER},
    {0}};
const struct spec_block spec_job_block = {
    .path = "job", .doc = "The command that `gpuprov run` runs on the nodes once they are ready.",
    .fields = job_fields, .rules = rule_job};
/* clang-format on */

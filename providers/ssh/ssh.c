/* SPDX-License-Identifier: Apache-2.0 */
/* Provider `ssh`: machines that exist already, from a hosts file. A host is taken by an entry in this
 * journal only, so there must be a single writer. `down` releases a host and leaves the machine
 * unchanged; no deadline terminates it. Does not connect to the hosts. One thread at a time. */
#include "base/gp_base.h"

#include "providers/provider.h"
#include "providers/ssh/hosts.h"

#include "base/fs.h"
#include "base/hash.h"
#include "providers/common/ownership.h"
#include "ssh/ssh.h"

#include <errno.h>
#include <fcntl.h>
#include <strings.h>
#include <sys/file.h>
#include <unistd.h>

#define REGION "here"
#define KNOWN_HOSTS "~/.ssh/known_hosts" /* of a host without its own */
#define LOCK_MS 30000
#define STRANGERS_MAX 3 /* named in an error */

struct read_outputs {
    char *path;
    struct ssh_host_list hosts;
};

struct ssh_provider {
    struct provider base;
    struct gp_cancel *cancel;
    struct journal *journal;
    const struct spec *spec;
    char *state_dir;
    bool accept_new;
    const struct event_sink *sink;
    struct strv noted;    /* edits of the hosts file that were reported */
    struct strv released; /* ids that this run released: not taken again at once */
    VEC_OF(struct read_outputs)
    outputs; /* of Terraform, read once in a run: it may take seconds, and files are cheap */
};

static struct ssh_provider *self(struct provider *p) { return (struct ssh_provider *)p; }

static int ssh_open_provider(const struct provider_env *env, struct provider **ret, struct gp_error *err) {
    (void)err;
    struct ssh_provider *s = xcalloc(1, sizeof *s);
    s->base.ops = &provider_ssh;
    s->base.owner = env->owner != NULL ? xstrdup(env->owner) : owner_of_login();
    s->cancel = env->cancel;
    s->journal = env->journal;
    s->spec = env->spec;
    s->state_dir = xstrdup(env->state_dir);
    s->accept_new = env->accept_new_host_key;
    s->sink = env->sink;
    *ret = &s->base;
    return 0;
}

static void ssh_close_provider(struct provider *p) {
    if (p == NULL) return;
    strv_clear(&self(p)->released);
    strv_clear(&self(p)->noted);
    for (size_t i = 0; i < self(p)->outputs.len; i++) {
        free(self(p)->outputs.items[i].path);
        ssh_host_list_clear(&self(p)->outputs.items[i].hosts);
    }
    vec_free(&self(p)->outputs);
    free(self(p)->state_dir);
    free(p->owner);
    free(p);
}

/* Two runs must not take the same host: a run holds this lock until its choice is in the journal. */
static int lock_hosts(struct ssh_provider *s, int *ret_fd, struct gp_error *err) {
    GP_AUTO_FREE char *path = fs_join(s->state_dir, "ssh-hosts.lock");
    GP_AUTO_FD int fd = -1;
    int opened = fs_open_kept(path, O_RDWR | O_CREAT, &fd, err);
    if (opened != 0) return opened;
    int64_t deadline = clock_deadline(LOCK_MS);
    while (flock(fd, LOCK_EX | LOCK_NB) != 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return gp_fail_errno(err, GP_EIO, errno, "could not lock '%s'", path);
        if (clock_left_ms(deadline) == 0)
            return gp_fail(err, GP_EIO, "another gpuprov holds '%s'; try again when it is done", path);
        int r = gp_sleep(20, s->cancel, err);
        if (r != 0) return r;
    }
    *ret_fd = fd;
    fd = -1;
    return 0;
}

/* --- owners of hosts --- */

/* "10.0.0.5:22": the start of an id; equal for two entries of the same machine. */
static char *host_name(const struct ssh_host *h) {
    bool v6 = strchr(h->address, ':') != NULL;
    return xasprintf(v6 ? "[%s]:%u" : "%s:%u", h->address, (unsigned)h->port);
}

/* Ids are never reused, because the journal keeps gone resources. */
static char *host_id(const struct ssh_host *h, const char *uid, int slot, int attempt) {
    GP_AUTO_FREE char *name = host_name(h);
    return xasprintf("%s@%.8s.%d.%d", name, uid, slot, attempt);
}

static bool id_is_of(const char *id, const char *name) {
    size_t n = strlen(name);
    return strncmp(id, name, n) == 0 && id[n] == '@';
}

/* The resource that holds the host now; NULL: none. */
static const struct resource *holder(const struct resource_list *held, const char *name) {
    for (size_t i = 0; i < held->list.len; i++) {
        const struct resource *r = &held->list.items[i];
        if (r->kind == RES_HOST && strcmp(r->provider, "ssh") == 0 && r->state != RES_GONE && id_is_of(r->id, name))
            return r;
    }
    return NULL;
}

static bool was_released(const struct ssh_provider *s, const char *name) {
    for (size_t i = 0; i < s->released.n; i++)
        if (id_is_of(s->released.v[i], name)) return true;
    return false;
}

/* Its key is pinned, is in its own known_hosts file or in the user's, or may be accepted. A known_hosts file of its own
 * is checked at the connection. */
static bool is_trusted(const struct ssh_provider *s, const struct ssh_host *h) {
    if (h->host_keys.n > 0 || h->known_hosts != NULL || s->accept_new) return true;
    GP_AUTO_FREE char *path = fs_expand_home(KNOWN_HOSTS);
    return ssh_known_hosts_has(path, h->address, h->port);
}

static bool gpu_fits(const struct ssh_host *h, const struct spec *spec) {
    if (spec->gpu.count == 0) return true;
    if (h->gpus < spec->gpu.count) return false;
    return spec->gpu.model == NULL || (h->gpu_model != NULL && strcasecmp(spec->gpu.model, h->gpu_model) == 0);
}

struct choice {
    VEC_OF(size_t) free; /* indices of hosts that may be taken */
    int ours;            /* held by this very stack */
    int held, unfit, untrusted, given_up;
    char *held_by;
    struct str strangers; /* the hosts that are not trusted, the first few */
};

static void choice_clear(struct choice *c) {
    vec_free(&c->free);
    free(c->held_by);
    str_clear(&c->strangers);
}

static int choose(struct ssh_provider *s, const struct spec *spec, const struct ssh_host_list *hosts, struct choice *c,
                  struct gp_error *err) {
    GP_AUTO_RESOURCES struct resource_list held = {0};
    int r = journal_resources(s->journal, NULL, &held, err);
    if (r != 0) return r;
    for (size_t i = 0; i < hosts->list.len; i++) {
        const struct ssh_host *h = &hosts->list.items[i];
        GP_AUTO_FREE char *name = host_name(h);
        const struct resource *by = holder(&held, name);
        if (by != NULL && strcmp(by->owner, s->base.owner) == 0 && strcmp(by->stack, spec->name) == 0) {
            c->ours++;
        } else if (by != NULL) {
            c->held++;
            if (c->held_by == NULL) c->held_by = xstrdup(by->stack);
        } else if (!gpu_fits(h, spec)) {
            c->unfit++;
        } else if (!is_trusted(s, h)) {
            if (c->untrusted++ < STRANGERS_MAX)
                str_addf(&c->strangers, "%s%s", c->strangers.len > 0 ? ", " : "", h->address);
        } else if (was_released(s, name)) {
            c->given_up++;
        } else {
            vec_push(&c->free, i);
        }
    }
    return 0;
}

/* "'fleet.yaml' has 5 hosts, 2 free where 4 are needed, 1 held by 'llm', 2 without gpu: H100:8". Capacity that may
 * come: another stack, or this run, can release enough hosts. Otherwise the file or the spec must change. */
static int too_few(const struct choice *c, const struct spec *spec, const char *file, size_t total, int wanted,
                   struct gp_error *err) {
    GP_AUTO_STR struct str why = {0};
    str_add(&why, "");
    if (c->held > 0) str_addf(&why, ", %d held by %s'%s'", c->held, c->held > 1 ? "others such as " : "", c->held_by);
    if (c->ours > 0) str_addf(&why, ", %d in this stack already", c->ours);
    if (c->unfit > 0 && spec->gpu.model != NULL)
        str_addf(&why, ", %d without gpu: %s:%d", c->unfit, spec->gpu.model, spec->gpu.count);
    else if (c->unfit > 0) str_addf(&why, ", %d without the GPUs wanted", c->unfit);
    if (c->given_up > 0) str_addf(&why, ", %d released by this run", c->given_up);
    if (c->untrusted > 0)
        str_addf(&why,
                 ", %d whose host key is not known: %s%s (set host_key, add the key to " KNOWN_HOSTS
                 ", or repeat with --accept-new-host-key)",
                 c->untrusted, c->strangers.s, c->untrusted > STRANGERS_MAX ? ", ..." : "");
    bool may_come = (int)c->free.len + c->held + c->given_up >= wanted;
    int r = gp_fail(err, may_come ? GP_ECAPACITY : GP_EUSAGE, "'%s' has %zu host%s, %zu free where %d %s needed%s",
                    file, total, total == 1 ? "" : "s", c->free.len, wanted, wanted == 1 ? "is" : "are", why.s);
    if (err != NULL) err->scope = GP_SCOPE_OFFER;
    return r;
}

static int load_hosts(struct ssh_provider *s, const char *path, struct ssh_host_list *ret, struct gp_error *err) {
    if (!str_starts(path, SPEC_TERRAFORM)) return ssh_hosts_load(path, s->cancel, ret, err);
    size_t i = 0;
    while (i < s->outputs.len && strcmp(s->outputs.items[i].path, path) != 0) i++;
    if (i == s->outputs.len) {
        struct read_outputs new = {0};
        int r = ssh_hosts_load(path, s->cancel, &new.hosts, err);
        if (r != 0) return r;
        new.path = xstrdup(path);
        vec_push(&s->outputs, new);
    }
    ssh_host_list_copy(ret, &s->outputs.items[i].hosts);
    return 0;
}

static int load_offer_hosts(struct ssh_provider *s, const struct spec *spec, size_t index, struct ssh_host_list *ret,
                            struct gp_error *err) {
    if (index >= spec->offers.len || spec->offers.items[index].hosts == NULL)
        return gp_fail(err, GP_EUSAGE, "the provider 'ssh' needs 'hosts', such as hosts: fleet.yaml");
    return load_hosts(s, spec->offers.items[index].hosts, ret, err);
}

/* A hosts file has none of these facts, and nothing is measured before a host is taken. */
static int check_needs(const struct spec *spec, struct gp_error *err) {
    const char *key = spec->cpus > 0 ? "cpus" : spec->memory_gib > 0 ? "memory" : spec->disk_gib > 0 ? "disk" : NULL;
    if (key == NULL) return 0;
    int r = gp_fail(err, GP_EUSAGE,
                    "ssh: '%s' cannot be checked before a host is taken: remove it, or require it of the nodes with "
                    "validate.floors (gpuprov checks: host.cores, host.memory, host.disk)",
                    key);
    if (err != NULL) err->scope = GP_SCOPE_OFFER;
    return r;
}

static int ssh_offers(struct provider *p, const struct spec *spec, size_t index, struct offer_list *ret,
                      struct gp_error *err) {
    struct ssh_provider *s = self(p);
    GP_AUTO_SSH_HOSTS struct ssh_host_list hosts = {0};
    GP_CLEANUP(choice_clear) struct choice c = {0};
    int r = check_needs(spec, err);
    if (r == 0) r = load_offer_hosts(s, spec, index, &hosts, err);
    if (r == 0) r = choose(s, spec, &hosts, &c, err);
    if (r != 0) return r;
    const char *file = spec->offers.items[index].hosts;
    int wanted = spec->nodes - c.ours;
    if ((int)c.free.len < wanted || c.free.len == 0)
        return too_few(&c, spec, file, hosts.list.len, GP_MAX(wanted, 1), err);
    const struct ssh_host *h = &hosts.list.items[c.free.items[0]];
    struct offer o = {.spec_index = index,
                      .provider = xstrdup("ssh"),
                      .region = xstrdup(REGION),
                      .zone = xstrdup(""),
                      .instance_type = xstrdup("host"),
                      .market = MARKET_ON_DEMAND,
                      .image = xstrdup(""),
                      .image_name = xstrdup("what is installed there"),
                      .subnet = xstrdup(""),
                      .gpu_model = xstrdup(h->gpu_model != NULL ? h->gpu_model : ""),
                      .gpus = GP_MAX(h->gpus, 0),
                      .price_usd_per_h = 0,
                      .price_source = xstrdup("a machine of your own"),
                      .max_count = (int)c.free.len};
    vec_push(&ret->list, o);
    return 0;
}

/* Only the journal keeps the stack's name and uid. They are written at once, under the lock, so that a
 * second call (or run) finds them. */
static int ssh_prepare(struct provider *p, const struct prepare_req *req, struct gp_error *err) {
    struct ssh_provider *s = self(p);
    struct stack *k = req->stack;
    if (req->known != NULL) return 0; /* gpuprov does not control access to these machines */
    if (k->region == NULL || strcmp(k->region, REGION) != 0) {
        free(k->region);
        k->region = xstrdup(REGION);
    }
    if (k->uid != NULL) return 0;
    GP_AUTO_FD int lock = -1;
    int r = lock_hosts(s, &lock, err);
    if (r != 0) return r;
    struct stack known = {0};
    struct gp_error why = {0};
    r = journal_stack_get(s->journal, k->owner, k->name, &known, NULL, &why);
    if (r == 0 && known.uid != NULL && known.uid[0] != '\0') {
        k->uid = GP_STEAL(known.uid);
        stack_clear(&known);
        return 0;
    }
    stack_clear(&known);
    if (r != 0 && r != -GP_ENOTFOUND) return gp_fail(err, why.code, "%s", why.msg);
    char uid[17];
    r = fs_random_hex(uid, 8, err);
    if (r != 0) return r;
    k->uid = xstrdup(uid);
    k->created_s = clock_wall_s();
    return journal_stack_put(s->journal, k, NULL, err);
}

/* --- resources --- */

/* Without a key of its own a host is reached with the keys that ssh itself would try first. */
static char *default_key(const struct spec *spec) {
    static const char *const names[] = {"~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa"};
    if (spec != NULL && spec->access.key != NULL) return xstrdup("");
    for (size_t i = 0; i < GP_ARRAY_LEN(names); i++) {
        GP_AUTO_FREE char *path = fs_expand_home(names[i]);
        if (fs_exists(path)) return GP_STEAL(path);
    }
    return xstrdup("");
}

static void set_way(struct resource *r, const struct ssh_host *h, const struct spec *spec) {
    GP_AUTO_FREE char *keys = strv_join(&h->host_keys, "\n");
    GP_AUTO_FREE char *fallback = default_key(spec);
    resource_set(&r->public_ip, h->address);
    r->ssh_port = h->port;
    resource_set(&r->user, h->user);
    resource_set(&r->host_keys, keys);
    resource_set(&r->bastion, h->bastion);
    resource_set(&r->login_key, h->key != NULL ? h->key : fallback);
    if (h->known_hosts == NULL && h->host_keys.n == 0) {
        GP_AUTO_FREE char *own = fs_expand_home(KNOWN_HOSTS);
        resource_set(&r->known_hosts, own);
    } else {
        resource_set(&r->known_hosts, h->known_hosts);
    }
    r->gpus = h->gpus;
}

static void push_host(const struct create_req *q, const struct ssh_host *h, int slot, struct resource_list *ret) {
    struct resource r = {0};
    GP_AUTO_FREE char *id = host_id(h, q->stack->uid, slot, q->attempt);
    resource_init(&r, RES_HOST, "ssh");
    resource_set(&r.region, REGION);
    resource_set(&r.id, id);
    resource_set(&r.owner, q->stack->owner);
    resource_set(&r.stack, q->stack->name);
    resource_set(&r.uid, q->stack->uid);
    resource_set(&r.spec_hash, q->stack->spec_hash);
    resource_set(&r.instance_type, "host");
    r.slot = slot;
    r.attempt = q->attempt;
    r.state = RES_RUNNING;
    r.billed = false;
    r.price_usd_per_h = 0;
    r.created_s = clock_wall_s();
    set_way(&r, h, q->spec);
    vec_push(&ret->list, r);
}

static void make_token(const struct create_req *q, char dst[65]) {
    GP_AUTO_FREE char *text =
        xasprintf("%s|host|%d|%d|%d|ssh|" REGION, q->stack->uid, q->slot_first, q->slot_count, q->attempt);
    sha256_hex(text, strlen(text), dst);
}

/* An intent, then the hosts, both in the journal: an open intent has taken no host. */
static int open_intent(struct ssh_provider *s, const struct create_req *q, const struct resource_list *made,
                       int64_t *ret_id, struct gp_error *err) {
    char token[65];
    make_token(q, token);
    GP_AUTO_STR struct str body = {0};
    for (size_t i = 0; i < made->list.len; i++) str_addf(&body, "%s%s", i > 0 ? " " : "", made->list.items[i].id);
    int64_t now = clock_wall_s();
    struct intent in = {.uid = q->stack->uid,
                        .provider = (char[]){"ssh"},
                        .region = (char[]){REGION},
                        .zone = (char[]){""},
                        .kind = RES_HOST,
                        .slot_first = q->slot_first,
                        .slot_count = q->slot_count,
                        .attempt = q->attempt,
                        .token = token,
                        .body = body.s,
                        .offer = (char[]){""},
                        .created_s = now,
                        .deadline_s = now + LOCK_MS / 1000,
                        .state = INTENT_OPEN,
                        .note = (char[]){""}};
    int r = journal_intent(s->journal, &in, err);
    *ret_id = in.id;
    return r;
}

static int take_hosts(struct ssh_provider *s, const struct create_req *q, struct resource_list *made,
                      struct gp_error *err) {
    GP_AUTO_SSH_HOSTS struct ssh_host_list hosts = {0};
    GP_CLEANUP(choice_clear) struct choice c = {0};
    GP_AUTO_FD int lock = -1;
    int64_t intent = q->replay != NULL ? q->replay->id : 0;
    int r = load_offer_hosts(s, q->spec, q->offer->spec_index, &hosts, err);
    if (r == 0) r = lock_hosts(s, &lock, err);
    if (r == 0) r = choose(s, q->spec, &hosts, &c, err);
    if (r != 0) return r;
    if ((int)c.free.len < q->slot_count)
        return too_few(&c, q->spec, q->spec->offers.items[q->offer->spec_index].hosts, hosts.list.len, q->slot_count,
                       err);
    for (int i = 0; i < q->slot_count; i++) push_host(q, &hosts.list.items[c.free.items[i]], q->slot_first + i, made);
    if (intent == 0) r = open_intent(s, q, made, &intent, err);
    return r == 0 ? journal_intent_done(s->journal, intent, made, err) : r;
}

static int ssh_create(struct provider *p, const struct create_req *q, struct resource_list *ret, struct gp_error *err) {
    struct ssh_provider *s = self(p);
    GP_AUTO_RESOURCES struct resource_list made = {0};
    struct gp_error why = {0};
    int r = take_hosts(s, q, &made, &why);
    if (r != 0 && q->replay != NULL) journal_intent_end(s->journal, q->replay->id, INTENT_FAILED, why.detail, NULL);
    if (r != 0 && err != NULL) *err = why;
    if (r != 0) return r;
    for (size_t i = 0; i < made.list.len; i++) vec_push(&ret->list, made.list.items[i]);
    vec_free(&made.list);
    return 0;
}

static void add_change(struct str *out, const char *key, const char *old, const char *new) {
    if (str_eq(old, new)) return;
    str_addf(out, "%s%s: %s -> %s", out->len > 0 ? ", " : "", key, old[0] != '\0' ? old : "none",
             new[0] != '\0' ? new : "none");
}

/* Reports an edit of a host that a stack has; once in a run, since each look at the stack lists its hosts. */
static void note_edit(struct ssh_provider *s, const struct resource *old, const struct resource *new,
                      const struct ssh_host *h) {
    GP_AUTO_STR struct str text = {0}, changes = {0};
    if (s->spec == NULL || !str_eq(s->spec->name, old->stack)) return; /* another stack may have another file */
    GP_AUTO_FREE char *name = xstrndup(old->id, strcspn(old->id, "@"));
    if (h == NULL) {
        str_addf(&text,
                 "the hosts file no longer has %s, which node %d is on: the stack keeps it until 'gpuprov down %s'",
                 name, old->slot, old->stack);
    } else {
        add_change(&changes, "user", old->user, new->user);
        add_change(&changes, "key", old->login_key, new->login_key);
        add_change(&changes, "bastion", old->bastion, new->bastion);
        add_change(&changes, "known_hosts", old->known_hosts, new->known_hosts);
        if (changes.len > 0) str_addf(&text, "%s (node %d): %s; used from now on", name, old->slot, changes.s);
        if (!str_eq(old->host_keys, new->host_keys))
            str_addf(&text,
                     "%s%s (node %d): host_key changed; the stack keeps the key that it verified until "
                     "'gpuprov down %s'",
                     text.len > 0 ? "; " : "", name, old->slot, old->stack);
        if (!gpu_fits(h, s->spec))
            str_addf(&text, "%s%s (node %d) no longer has gpu: %s:%d; the stack keeps it until 'gpuprov down %s'",
                     text.len > 0 ? "; " : "", name, old->slot, s->spec->gpu.model ? s->spec->gpu.model : "any",
                     s->spec->gpu.count, old->stack);
    }
    if (text.len == 0 || strv_has(&s->noted, text.s)) return;
    strv_add(&s->noted, text.s);
    event_emit(s->sink, old->slot, NODE_PLANNED, EVENT_WARN, "hosts", "%s", text.s);
}

/* Reports, once in a run, a hosts file that cannot be used for the hosts that its stack has. */
static void note_unread(struct ssh_provider *s, const struct resource_list *known, const struct gp_error *why) {
    for (size_t i = 0; i < known->list.len; i++) {
        const struct resource *k = &known->list.items[i];
        if (!str_eq(k->provider, "ssh") || k->state == RES_GONE || !str_eq(k->stack, s->spec->name)) continue;
        if (strv_has(&s->noted, why->msg)) return;
        strv_add(&s->noted, why->msg);
        event_emit(s->sink, -1, NODE_PLANNED, EVENT_WARN, "hosts",
                   "%s; its hosts are used with the settings that were read last", why->msg);
        return;
    }
}

/* Login settings come from the current hosts file, where it still has the host. */
static void refresh(struct ssh_provider *s, const struct ssh_host_list *hosts, struct resource *r) {
    struct resource old = {0};
    const struct ssh_host *h = NULL;
    for (size_t i = 0; i < hosts->list.len && h == NULL; i++) {
        GP_AUTO_FREE char *name = host_name(&hosts->list.items[i]);
        if (id_is_of(r->id, name)) h = &hosts->list.items[i];
    }
    resource_copy(&old, r);
    if (h != NULL) set_way(r, h, s->spec);
    note_edit(s, &old, r, h);
    resource_clear(&old);
}

static int ssh_list(struct provider *p, const struct list_req *req, struct resource_list *ret, struct gp_error *err) {
    struct ssh_provider *s = self(p);
    GP_AUTO_RESOURCES struct resource_list known = {0};
    GP_AUTO_SSH_HOSTS struct ssh_host_list hosts = {0};
    struct gp_error why = {0};
    if (req->regions != NULL && !req->everywhere && !strv_has(req->regions, REGION)) return 0;
    int r = journal_resources(s->journal, NULL, &known, &why);
    if (req->looked != NULL) coverage_put(req->looked, "ssh", REGION, req->owner, false, r != 0 ? &why : NULL);
    if (r != 0 && err != NULL) *err = why;
    if (r != 0) return r;
    bool read = false; /* every hosts file of the spec */
    for (size_t i = 0; s->spec != NULL && i < s->spec->offers.len; i++) {
        /* A missing or malformed file must not prevent `down` from releasing its hosts. */
        const struct spec_offer *o = &s->spec->offers.items[i];
        if (strcmp(o->provider, "ssh") != 0 || o->hosts == NULL) continue;
        if (load_hosts(s, o->hosts, &hosts, &why) != 0) {
            note_unread(s, &known, &why);
            read = false;
            break;
        }
        read = true;
    }
    for (size_t i = 0; i < known.list.len; i++) {
        const struct resource *k = &known.list.items[i];
        if (k->kind != RES_HOST || strcmp(k->provider, "ssh") != 0 || k->state == RES_GONE ||
            strcmp(k->owner, req->owner) != 0 || (req->stack && strcmp(k->stack, req->stack) != 0))
            continue;
        struct resource copy = {0};
        resource_copy(&copy, k);
        if (read) refresh(s, &hosts, &copy);
        vec_push(&ret->list, copy);
    }
    return 0;
}

static int ssh_destroy(struct provider *p, const struct resource_list *what, struct gp_error *err) {
    struct ssh_provider *s = self(p);
    int worst = 0;
    for (size_t i = 0; i < what->list.len; i++) {
        const struct resource *k = &what->list.items[i];
        if (k->kind != RES_HOST) continue;
        struct gp_error why = {0};
        int r = journal_resource_gone(s->journal, "ssh", k->kind, k->id, &why);
        if (r == 0) strv_add(&s->released, k->id);
        if (r == 0 || worst != 0) continue;
        worst = r;
        if (err != NULL) *err = why;
    }
    return worst;
}

static const struct spec_provider_key spec_keys[] = {{.name = "hosts",
                                                      .example = "fleet.yaml",
                                                      .note =
                                                          "the file that lists the machines; `terraform:DIR` reads the "
                                                          "output `gpuprov_hosts` of Terraform there, `terraform:FILE` "
                                                          "a file with what `terraform output -json` prints",
                                                      .required = true},
                                                     {0}};
/* The machines never end, so only the record of a deadline moves. */
static const struct spec_provider ssh_spec = {
    .name = "ssh", .doc = "Machines that exist already", .keys = spec_keys, .moves_deadline = true};

const struct provider_ops provider_ssh = {
    .name = "ssh",
    .summary = "machines that exist already, from a hosts file; down releases them",
    .spec = &ssh_spec,
    .note = "ssh: machines that exist already: 'down' releases them and leaves them running",
    .ends = ENDS_NEVER,
    .guest_end = GUEST_NOTHING,
    .node_shape = NODE_VM,
    .lent = true,
    .image_refusal = "a host keeps the system that it has",
    .policy_refusal = "there is no account: a login to the host is all that is needed",
    .poll_ms = 5000,
    .replay_max_s = 12 * 3600,
    .unique_claim = false,
    .user_data = false,
    .key_rotation = false,
    .billed = false,
    .boot_timeout_ms = 30000,
    .settle_ms = 0,
    .open = ssh_open_provider,
    .close = ssh_close_provider,
    .offers = ssh_offers,
    .prepare = ssh_prepare,
    .create = ssh_create,
    .list = ssh_list,
    .destroy = ssh_destroy,
    .own_list = true,
    .tag = NULL,
};

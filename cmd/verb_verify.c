/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov verify CERT: checks the signature, the key and the time of a certificate. With --this-machine, or if the
 * boot is equal, it also checks the machine. Exits with the codes of --node-check. */
#include "base/gp_base.h"

#include "app.h"

#include "base/fs.h"
#include "engine/certificate/certify.h"
#include "engine/certificate/machine.h"

struct opts {
    const char *key, *fingerprint;
    bool this_machine;
};
static const struct opt options[] = {{.name = "key",
                                      .type = OPT_TEXT,
                                      .offset = offsetof(struct opts, key),
                                      .arg = "FILE",
                                      .help = "trust this public key (PEM; signing_key.pub of the stack)"},
                                     {.name = "fingerprint",
                                      .type = OPT_TEXT,
                                      .offset = offsetof(struct opts, fingerprint),
                                      .arg = "SHA256:...",
                                      .help = "trust the key with this fingerprint"},
                                     {.name = "this-machine",
                                      .type = OPT_FLAG,
                                      .offset = offsetof(struct opts, this_machine),
                                      .help = "compare with this machine (default: only if the boot id is equal)"},
                                     {0}};

static int read_certificate(const char *path, struct certificate *ret, struct gp_error *err) {
    GP_AUTO_STR struct str text = {0};
    int r = fs_read(path, CERTIFICATE_MAX, &text, err);
    if (r != 0) return r;
    r = certificate_read(text.s != NULL ? text.s : "", text.len, ret, err);
    return r == 0 ? 0 : gp_wrap(err, "'%s'", path);
}

/* The key is trusted if the caller named it, or if it was made on this machine. */
static int check_key(const struct opts *o, const struct certificate *c, struct gp_error *err) {
    GP_AUTO_FREE char *state_dir = NULL;
    GP_AUTO_STR struct str text = {0};
    struct sign_public given = {0};
    const char *want = o->fingerprint;
    if (o->key != NULL) {
        int r = fs_read(o->key, 65536, &text, err);
        if (r != 0) return r;
        if (!sign_public_parse(text.s != NULL ? text.s : "", &given))
            return gp_fail(err, GP_EUSAGE, "'%s' is not an Ed25519 public key in PEM format", o->key);
        want = given.fingerprint;
    }
    if (want == NULL) {
        int r = fs_state_dir(&state_dir, err);
        if (r != 0 || certify_known(state_dir, c)) return r;
        return gp_fail(err, GP_EAUTH,
                       "signed with %s, a key that is not trusted on this machine: give --key or "
                       "--fingerprint",
                       c->key.fingerprint);
    }
    if (strcmp(want, c->key.fingerprint) == 0) return 0;
    return gp_fail(err, GP_EVALIDATE, "signed with another key: %s, not %s", c->key.fingerprint, want);
}

static int check_time(const struct certificate *c, struct gp_error *err) {
    char at[32];
    int64_t now = clock_wall_s();
    time_format_utc(at, sizeof at, c->expires_s);
    if (now >= c->expires_s) return gp_fail(err, GP_EVALIDATE, "the certificate expired at %s: validate again", at);
    time_format_utc(at, sizeof at, c->validated_s);
    if (c->validated_s > now + 600)
        return gp_fail(err, GP_EVALIDATE, "the certificate is dated in the future (%s): check the clocks", at);
    return 0;
}

enum compared { NOT_COMPARED, SAME_MACHINE, OTHER_MACHINE };

static int check_machine(const struct opts *o, const struct certificate *c, enum compared *ret, struct gp_error *err) {
    GP_AUTO_MACHINE struct machine m = {0};
    struct gp_error why = {0};
    int r = machine_read(&m, &why);
    if (!o->this_machine && (r != 0 || strcmp(m.boot_id, c->boot_id) != 0)) return 0;
    if (r == 0) r = certificate_same_machine(c, &m, &why);
    if (r == 0) *ret = SAME_MACHINE;
    if (r == -GP_EVALIDATE) *ret = OTHER_MACHINE; /* any other error: it could not be read */
    if (r != 0) *err = why;
    return r;
}

/* An invalid certificate is a failure. One that could not be checked is unknown. */
static int exit_of(const struct gp_error *err) {
    return err->code == GP_EPROTO || err->code == GP_EVALIDATE ? NODE_CHECK_FAIL : NODE_CHECK_UNKNOWN;
}

static void show(struct invocation *inv, const struct certificate *c, enum compared machine,
                 const struct gp_error *err) {
    char until[32];
    const char *words[] = {"pass", "degraded", "fail", "unknown"};
    time_format_utc(until, sizeof until, c->expires_s);
    if (inv->common->json) {
        json_t *j = json_pack("{s:s}", "verify", words[inv->exit_code]);
        json_object_set_new(j, "this_machine",
                            machine == NOT_COMPARED ? json_null() : json_boolean(machine == SAME_MACHINE));
        if (c->payload != NULL) json_object_set(j, "certificate", c->payload);
        if (err->code != GP_OK) json_object_set_new(j, "error", error_json(err));
        print_json(j);
        return;
    }
    if (err->code != GP_OK) {
        printf("%s: %s\n", words[inv->exit_code], err->msg);
        return;
    }
    printf("%s: %s/%d, run %s, %zu GPU%s%s%s, until %s, signed with %s%s\n", words[inv->exit_code], c->stack, c->node,
           c->run, c->gpus.n, c->gpus.n == 1 ? "" : "s", c->driver[0] != '\0' ? ", driver " : "", c->driver, until,
           c->key.fingerprint,
           machine == SAME_MACHINE ? "; this machine" : "; machine not compared (give --this-machine on the node)");
}

static int run(struct invocation *inv, struct gp_error *err) {
    const struct opts *o = inv->opts;
    GP_AUTO_CERTIFICATE struct certificate c = {0};
    struct gp_error why = {0};
    enum compared machine = NOT_COMPARED;
    if (o->key != NULL && o->fingerprint != NULL)
        return gp_fail(err, GP_EUSAGE, "--key and --fingerprint exclude each other");
    int r = read_certificate(inv->args[0], &c, &why);
    if (r == 0) r = check_key(o, &c, &why);
    if (r == 0) r = check_time(&c, &why);
    if (r == 0) r = check_machine(o, &c, &machine, &why);
    inv->exit_code = r != 0 ? exit_of(&why) : (int)verdict_node_check(c.verdict);
    show(inv, &c, machine, &why);
    return 0;
}

const struct verb verb_verify = {
    .name = "verify",
    .argspec = "CERTIFICATE",
    .help = "checks a certificate's signature, key and time; --this-machine: the machine too",
    .details = "  Exit 0 pass, 1 degraded, 2 fail (changed, expired, of another key or machine), 3 unknown.\n"
               "  Without --this-machine the machine is compared only if the boot is the validated one.\n",
    .examples = "  gpuprov verify node.json                          # signature, key and time\n"
                "  gpuprov verify --key signing_key.pub --this-machine node.json   # on the node\n",
    .run = run,
    .options = options,
    .opts_size = sizeof(struct opts),
    .min_args = 1,
    .max_args = 1,
    .flags = VERB_PLAIN | VERB_NODE_CHECK,
};

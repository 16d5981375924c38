/* SPDX-License-Identifier: Apache-2.0 */
/* The canonical form and the hash: hashes that journals and tags of running stacks hold, and every row of
 * the tables, found by walking them: a key that is added is tested without a line here. Runs from the
 * repository's root. */
#include "base/gp_base.h"

#include "spec_fixture.h"

#include "base/json.h"
#include "base/log.h"
#include "spec/spec_internal.h"

/* --- hashes that are out in the world --- */

static const char all_rows[] =
    "name: all-1\n"
    "nodes: 512\n"
    "gpu: {model: RTX PRO 6000, count: 3}\n"
    "order: listed\n"
    "offers:\n"
    "  - {provider: ssh, hosts: sub/dir/fleet.yaml}\n"
    "  - {provider: aws, regions: [a-1, b-2], zones: [a-1a, b-2b], market: spot, instance_type: p5.48xlarge,\n"
    "     subnet: subnet-0abc1234, role: \"arn:aws:iam::1:instance-profile/x\"}\n"
    "  - {provider: local}\n"
    "limits: {ttl: 30d}\n"
    "image: {id: ami-0123}\n"
    "access: {public_ip: false, bastion: \"[::1]:22\", ssh_from: [10.0.0.0/8], key: agent}\n"
    "bootstrap:\n"
    "  packages: [a, b]\n"
    "  steps: [{name: a, run: 'echo ${X} $${env:Y} /root', check: 'test ${file:-z}'}]\n"
    "validate: {time: 1m, require: [train.ddp], floors: {net.pair.bandwidth: 10 Gbit/s, host.cores.usable: 4},\n"
    "  strict: true, baseline: d/base.json}\n"
    "secrets: [{env: A, from: 'file:/x/y'}, {env: B, from: env:Q}]\n";

static void hashes_stay(void **state) {
    (void)state;
    static const struct {
        const char *path, *text, *hash;
    } rows[] = {
        {"examples/try.yaml", NULL, "a278f8343937aa7db378bf7bc102e309bdc325e17899fcf04c80a45028e88e8f"},
        {"examples/local-2.yaml", NULL, "56b4dbea0c2c3a8799eff492258d55e65eb1ee2e576a9c33d479e1435fbb89e8"},
        {"examples/aws-h100.yaml", NULL, "389f5c81abe96b7f1aebf2ae42927ee6382606df74444ceacc9cf14cbbb052ff"},
        {"examples/ssh-fleet.yaml", NULL, "329667fe0bcf0802a7c40dc7abcd78cd22300f4fd6356630e9ee9fe1743cc2c6"},
        {"tests/fuzz/corpus/spec/all.yaml", NULL, "f60d13abc65055233695d3b6d48bd84423654a948e31779ba1fd2eea39fd255c"},
        {"/x/all.yaml", all_rows, "20d38dedfca8d72ef22e8c5583fad4fa3a70f3bd31b99ff1c613bc2b5a2c0122"},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        GP_AUTO_LOADED struct loaded l = {0};
        if (rows[i].text == NULL) l.r = spec_load(rows[i].path, NULL, &l.spec, &l.problems, &l.err);
        else l.r = spec_load_text(rows[i].path, rows[i].text, strlen(rows[i].text), NULL, &l.spec, &l.problems, &l.err);
        if (l.r != 0) fail_msg("%s: %s", rows[i].path, l.problems.list.items[0].message);
        assert_string_equal(l.spec->hash, rows[i].hash);
    }
}

/* --- every row --- */

/* How to a block: the rows that lead there, outermost first. */
struct way {
    const struct spec_field *via[4];
    size_t n;
};

static const struct spec_block *block_at(const struct way *w, size_t depth) {
    return depth == 0 ? &spec_root : w->via[depth - 1]->block;
}

static size_t providers(void) {
    size_t n = 1;
    while (spec_provider_at(n) != NULL) n++;
    return n;
}

/* Rows that must be there get their example, or their choice number `pick`; where examples are the
 * providers', those of provider number `pick`. */
static const char *example_of(const struct spec_field *f, size_t pick) {
    size_t n = 0;
    const char *const *choices = spec_choices(f);
    while (choices != NULL && choices[n] != NULL) n++;
    if (n > 0 && f->required) return choices[pick % n];
    const struct spec_provider_key *k =
        f->example == NULL ? spec_provider_key(spec_provider_at(pick % providers()), f->name) : NULL;
    return k != NULL && k->example != NULL ? k->example : spec_example(f);
}

/* A spec with `value` at the row f (NULL: without it) in the block that the way leads to, and nothing else
 * that is not required. */
static char *write_spec(const struct way *w, size_t depth, const struct spec_field *f, const char *value, size_t pick) {
    const struct spec_field *own = depth == w->n ? f : w->via[depth];
    struct str out = {0};
    str_add(&out, "{");
    for (const struct spec_field *r = block_at(w, depth)->fields; r->name != NULL; r++) {
        bool needed = r->required;
        if (block_at(w, depth) == &spec_offer_block) {
            const struct spec_provider_key *k = spec_provider_key(spec_provider_at(pick % providers()), r->name);
            needed = needed || (k != NULL && k->required);
        }
        if (needed && r != own) str_addf(&out, "%s: %s, ", r->name, example_of(r, pick));
    }
    /* keys that name a secret */
    if (depth == 0 && (w->n == 0 || strcmp(w->via[0]->name, "secrets") != 0) && own &&
        strcmp(own->name, "secrets") != 0)
        str_add(&out, "secrets: [{env: HF_TOKEN, from: env:HF_TOKEN}], ");
    if (depth < w->n) {
        GP_AUTO_FREE char *inner = write_spec(w, depth + 1, f, value, pick);
        bool list = own->type == SPEC_LIST;
        str_addf(&out, "%s: %s%s%s", own->name, list ? "[" : "", inner, list ? "]" : "");
    } else if (value != NULL) {
        str_addf(&out, "%s: %s", own->name, value);
    }
    str_add(&out, "}");
    return str_steal(&out);
}

static struct spec *load_row(const struct way *w, const struct spec_field *f, const char *value, size_t pick) {
    GP_AUTO_FREE char *text = write_spec(w, 0, f, value, pick);
    GP_AUTO_LOADED struct loaded l = {0};
    l.r = spec_load_text("/x/s.yaml", text, strlen(text), NULL, &l.spec, &l.problems, &l.err);
    return GP_STEAL(l.spec);
}

/* The spec without the row; where its block cannot be without it, without the block. */
static struct spec *without(const struct way *w, const struct spec_field *f, size_t pick) {
    struct spec *s = load_row(w, f, NULL, pick);
    for (struct way up = *w; s == NULL && up.n > 0;) {
        const struct spec_field *block = up.via[--up.n];
        s = load_row(&up, block, NULL, pick);
    }
    return s;
}

/* Another value than example_of(f, pick) where the row must be there. */
static struct spec *another(const struct way *w, const struct spec_field *f, size_t pick) {
    for (size_t i = 1; i < 8 && spec_choices(f) != NULL; i++) {
        struct spec *s = load_row(w, f, example_of(f, pick + i), pick + i);
        if (s != NULL) return s;
    }
    GP_AUTO_FREE char *longer = xasprintf("%sa", example_of(f, pick)), *more = xasprintf("1%s", example_of(f, pick));
    struct spec *s = load_row(w, f, longer, pick);
    return s != NULL ? s : load_row(w, f, more, pick); /* a number */
}

static char *path_of(const struct way *w, const struct spec_field *f) {
    struct str s = {0};
    for (size_t i = 0; i < w->n; i++) str_addf(&s, "%s%s.", w->via[i]->name, w->via[i]->type == SPEC_LIST ? ".0" : "");
    str_add(&s, f->name);
    return str_steal(&s);
}

static void same_again(const char *canonical, const char *hash) {
    GP_AUTO_LOADED struct loaded l = {0};
    l.r = spec_load_text("(journal)", canonical, strlen(canonical), NULL, &l.spec, &l.problems, &l.err);
    if (l.r != 0) fail_msg("%s: %s", canonical, l.problems.list.items[0].message);
    GP_AUTO_FREE char *again = spec_canonical(l.spec);
    assert_string_equal(again, canonical);
    assert_string_equal(l.spec->hash, hash);
}

/* The canonical form keeps how replacements are shown; the hash is that of the values themselves. */
static void replacements_stay(void **state) {
    (void)state;
    static const char *const texts[] = {
        "name: x\noffers: [{provider: local}]\njob: {run: 'true', env: {A: 'a-${env:GP_TEST_SECRET}', B: '$${x'}}\n",
        "name: x\noffers: [{provider: local}]\njob: {run: 'true', env: {A: a-s3cr3t-v4lue, B: '$${x'}}\n"};
    struct loaded l[2] = {{0}, {0}};
    setenv("GP_TEST_SECRET", "s3cr3t-v4lue", 1);
    for (size_t i = 0; i < 2; i++) {
        l[i].r = spec_load_text("/x/s.yaml", texts[i], strlen(texts[i]), NULL, &l[i].spec, &l[i].problems, &l[i].err);
        assert_int_equal(l[i].r, 0);
    }
    unsetenv("GP_TEST_SECRET");
    GP_AUTO_FREE char *text = spec_canonical(l[0].spec), *plain = spec_canonical(l[1].spec);
    assert_non_null(strstr(text, "\"${}\":{\"${env:GP_TEST_SECRET}\":\"s3cr3t-v4lue\""));
    assert_null(strstr(plain, "\"${}\""));
    assert_string_equal(l[0].spec->hash, l[1].spec->hash);
    same_again(text, l[0].spec->hash);
    GP_AUTO_CHANGES struct spec_changes none = {0};
    spec_changes_find(text, l[1].spec, &none);
    assert_int_equal(none.list.len, 0);
    for (size_t i = 0; i < 2; i++) loaded_clear(&l[i]);
    log_close();
}

/* n bytes that begin like nothing else. Caller frees. */
static char *secret_of(size_t n) {
    struct str s = {.max = n + 8};
    for (size_t i = 0; s.len < n; i++) str_addf(&s, "%05zx.", i);
    s.s[n] = '\0';
    return str_steal(&s);
}

/* What a spec with $GP_TEST_SECRET and $GP_TEST_OTHER becomes in the journal, after the redactor forgot both. */
static char *canonical_of(const char *text, const char *secret, const char *other) {
    GP_AUTO_LOADED struct loaded l = {0};
    setenv("GP_TEST_SECRET", secret, 1);
    setenv("GP_TEST_OTHER", other, 1);
    l.r = spec_load_text("/x/s.yaml", text, strlen(text), NULL, &l.spec, &l.problems, &l.err);
    if (l.r != 0) fail_msg("%s", l.problems.list.items[0].message);
    GP_AUTO_FREE char *form = spec_canonical(l.spec);
    same_again(form, l.spec->hash);
    log_close();
    return GP_STEAL(form);
}

#define LETTERS \
    "abcdefghijklmnopqrstuvwxyz-abcdefghijklmnopqrstuvwxyz-abcdefghijklmnopqrstuvwxyz-abcdefghijklmnopqrstuvwxyz-"

/* Whoever reads a spec back knows each replacement, however long it is and whatever its text begins with. */
static void each_replacement_stays(void **state) {
    (void)state;
    static const char *const values[] = {
        "A: '${env:GP_TEST_SECRET}'",
        "A: '" LETTERS LETTERS "${env:GP_TEST_SECRET}'",
        "A: '${env:GP_TEST_SECRET}" LETTERS LETTERS "', B: '${env:GP_TEST_OTHER}" LETTERS LETTERS "'",
        "A: '" LETTERS "-${env:GP_TEST_SECRET}', B: '" LETTERS "-${env:GP_TEST_OTHER}'",
        "A: '" LETTERS "${env:GP_TEST_SECRET}\u00e9\u00e9\u00e9'", /* a character where its text is cut */
        "A: '" LETTERS "-${env:GP_TEST_SECRET}\u00e9\u00e9\u00e9'",
    };
    static const size_t sizes[] = {40, 8800, 65000, 65536};
    static const char spec[] = "name: x\noffers: [{provider: local}]\njob: {run: 'true', env: {%s}}\n";
    for (size_t i = 0; i < GP_ARRAY_LEN(values); i++) {
        for (size_t k = 0; k < GP_ARRAY_LEN(sizes); k++) {
            if (sizes[k] == 65536 && i > 0) continue; /* a value has at most 64 KiB */
            GP_AUTO_FREE char *text = xasprintf(spec, values[i]), *secret = secret_of(sizes[k]);
            GP_AUTO_FREE char *form = canonical_of(text, secret, "an0ther-v4lue-of-thirty-letters");
            GP_AUTO_LOADED struct loaded l = {0};
            l.r = spec_load_text("(journal)", form, strlen(form), NULL, &l.spec, &l.problems, &l.err);
            assert_int_equal(l.r, 0);
            GP_AUTO_FREE char *shown = log_redacted(secret), *other = log_redacted("an0ther-v4lue-of-thirty-letters");
            assert_string_equal(shown, "${env:GP_TEST_SECRET}");
            if (strstr(text, "OTHER") != NULL) assert_string_equal(other, "${env:GP_TEST_OTHER}");
            GP_AUTO_CHANGES struct spec_changes found = {0};
            GP_AUTO_SPEC struct spec *now = good("name: x\noffers: [{provider: local}]\njob: {run: 'true'}\n");
            spec_changes_find(form, now, &found);
            for (size_t c = 0; c < found.list.len; c++)
                if (found.list.items[c].old != NULL) assert_null(strstr(found.list.items[c].old, "00001."));
            log_close();
        }
    }
    unsetenv("GP_TEST_SECRET");
    unsetenv("GP_TEST_OTHER");
}

/* Of the largest spec that is accepted, too; one that the journal could not give back is refused. */
static void replacements_have_a_limit(void **state) {
    (void)state;
    GP_AUTO_FREE char *secret = secret_of(65536);
    for (int n = 16; n <= 17; n++) {
        GP_AUTO_STR struct str text = {0};
        str_add(&text, "name: x\noffers: [{provider: local}]\njob:\n  run: 'true'\n  env:\n");
        for (int i = 0; i < n; i++) str_addf(&text, "    V%d: '${env:GP_TEST_SECRET}'\n", i);
        setenv("GP_TEST_SECRET", secret, 1);
        if (n == 16) free(canonical_of(text.s, secret, ""));
        else bad_at(text.s, 22, 10, "more than 1 MiB");
        log_close();
    }
    unsetenv("GP_TEST_SECRET");
    unsetenv("GP_TEST_OTHER");
}

static void one_row(const struct way *w, const struct spec_field *f) {
    GP_AUTO_FREE char *path = path_of(w, f);
    GP_AUTO_SPEC struct spec *a = NULL;
    size_t pick = 0;
    while (a == NULL && pick < 2 * providers()) a = load_row(w, f, example_of(f, pick), pick), pick++;
    GP_AUTO_FREE char *text = write_spec(w, 0, f, example_of(f, 0), 0);
    if (a == NULL) fail_msg("%s: the row's example is refused: %s", path, text);
    GP_AUTO_SPEC struct spec *b = f->required ? another(w, f, pick - 1) : without(w, f, pick - 1);
    if (b == NULL) fail_msg("%s: found no spec with another value", path);
    GP_AUTO_FREE char *with = spec_canonical(a);
    GP_AUTO_FREE char *other = spec_canonical(b);
    GP_AUTO_JSON json_t *j = json_loads(with, 0, NULL);
    if (json_at(j, path) == NULL) fail_msg("%s is not in the canonical form: %s", path, with);
    if (strcmp(with, other) == 0) fail_msg("%s: another value, the same canonical form: %s", path, with);
    if (strcmp(a->hash, b->hash) == 0) fail_msg("%s: another value, the same hash: %s", path, with);
    same_again(with, a->hash);
    same_again(other, b->hash);

    GP_AUTO_CHANGES struct spec_changes found = {0};
    spec_changes_find(other, a, &found);
    if (found.list.len == 0) fail_msg("%s: another value is no change", path);
    enum spec_effect declared = f->effect;
    for (size_t i = w->n; i-- > 0;)
        if (w->via[i]->effect != SPEC_UNDECLARED) declared = w->via[i]->effect;
    if (declared == SPEC_UNDECLARED) fail_msg("%s: the row has no effect", path);
    bool same = false;
    for (size_t i = 0; i < found.list.len; i++) same = same || found.list.items[i].effect == declared;
    GP_AUTO_STR struct str shown = {0};
    spec_change_text(&found.list.items[0], &shown);
    if (!same) fail_msg("%s: '%s' has another effect than the row", path, shown.s);
    if ((spec_changes_refused(&found) != NULL) != (declared == SPEC_REFUSED)) fail_msg("%s: refused wrongly", path);
}

static size_t walk(struct way *w) {
    size_t n = 0;
    for (const struct spec_field *f = block_at(w, w->n)->fields; f->name != NULL; f++) {
        if (f->offset == SIZE_MAX || f->apart) continue; /* one value only; test_spec_notify.c */
        if (f->block != NULL) {
            w->via[w->n++] = f;
            n += walk(w);
            w->n--;
        } else {
            one_row(w, f);
            n++;
        }
    }
    return n;
}

static void every_row_counts(void **state) {
    (void)state;
    struct way w = {0};
    assert_true(walk(&w) >= 30);
}

/* --- what the flags do --- */

static char *refused_in(const char *old_canonical, const struct spec *now) {
    GP_AUTO_CHANGES struct spec_changes found = {0};
    spec_changes_find(old_canonical, now, &found);
    const struct spec_change *c = spec_changes_refused(&found);
    return c != NULL ? xstrdup(c->key) : NULL;
}

static char *fixed_between(const char *old, const char *now) {
    GP_AUTO_SPEC struct spec *a = good(old);
    GP_AUTO_SPEC struct spec *b = good(now);
    GP_AUTO_FREE char *text = spec_canonical(a);
    return refused_in(text, b);
}

/* Every change as `plan` prints it, one a line. */
static char *changes_between(const char *old, const char *now) {
    GP_AUTO_SPEC struct spec *a = good(old);
    GP_AUTO_SPEC struct spec *b = good(now);
    GP_AUTO_FREE char *text = spec_canonical(a);
    GP_AUTO_CHANGES struct spec_changes found = {0};
    struct str out = {0};
    spec_changes_find(text, b, &found);
    for (size_t i = 0; i < found.list.len; i++) {
        spec_change_text(&found.list.items[i], &out);
        str_addf(&out, " (%s)\n", spec_effect_name(found.list.items[i].effect));
    }
    return str_steal(&out);
}

static void changes_are_shown(void **state) {
    (void)state;
    static const struct {
        const char *old, *now, *shown;
    } cases[] = {
        {"name: t\nlimits: {ttl: 30m}\n", "name: t\nlimits: {ttl: 2h}\n", "limits.ttl: 30m -> 2h (deadline)\n"},
        {"name: t\n", "name: t\nlimits: {max_price: 0.50 USD/h, max_cost: 500USD}\n",
         "limits.max_price: (none) -> 0.5 USD/h (later)\nlimits.max_cost: (none) -> 500 USD (later)\n"},
        {"name: t\naccess: {ssh_from: [10.0.0.0/8]}\n", "name: t\n",
         "access.ssh_from: [10.0.0.0/8] -> (this machine's own public address) (access)\n"},
        {"name: t\nnodes: 2\n", "name: t\n", "nodes: 2 -> 1 (scaled)\n"},
        {"name: t\nbootstrap: {steps: [{name: a, run: 'echo one'}, {name: b, run: x}]}\n",
         "name: t\nbootstrap: {steps: [{name: a, run: 'echo two'}, {name: c, run: x}]}\n",
         "bootstrap.steps[b]: removed (repeated)\nbootstrap.steps[a].run: changed (repeated)\n"
         "bootstrap.steps[c]: added (repeated)\n"},
        {"name: t\nvalidate: {strict: true, floors: {net.pair.bandwidth: 10 Gbit/s}}\n", "name: t\n",
         "validate.floors: {net.pair.bandwidth: 1.25 GB/s} -> {} (repeated)\nvalidate.strict: true -> false "
         "(repeated)\n"},
        {"name: t\ngpu: H100:8\noffers: [{provider: aws}]\n", "name: t\ngpu: H100:4\noffers: [{provider: aws}]\n",
         "gpu: {model: H100, count: 8} -> {model: H100, count: 4} (refused)\n"},
        {"name: t\noffers: [{provider: aws}, {provider: local}]\n",
         "name: t\noffers: [{provider: local}, {provider: aws}]\n", "offers: another order (later)\n"},
        {"name: t\noffers: [{provider: aws, market: spot}]\n", "name: t\noffers: [{provider: aws}]\n",
         "offers[0].market: spot -> on-demand (refused)\n"},
        {"name: t\n", "name: t\noffers: [{provider: local}, {provider: aws}]\n", "offers: 1 -> 2 (refused)\n"},
        {"name: t\n", "name: t\ncpus: 16\nmemory: 64GB\ndisk: 1.5 TB\n",
         "cpus: (any) -> 16 (refused)\nmemory: (any) -> 60 GiB (refused)\n"
         "disk: (the image's) -> 1397 GiB (refused)\n"},
        {"name: t\ndisk: 512GiB\n", "name: t\ndisk: 0.5TiB\n", ""},
        {"name: t\n", "name: t\n", ""},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        GP_AUTO_FREE char *shown = changes_between(cases[i].old, cases[i].now);
        assert_string_equal(shown != NULL ? shown : "", cases[i].shown);
    }
}

/* A value that came from ${env:..} is in the journal's copy, and in a script it is often a secret. */
static void scripts_are_not_shown(void **state) {
    (void)state;
    setenv("GP_TEST_TOKEN", "hunter2-first", 1);
    GP_AUTO_SPEC struct spec *a = good("name: t\nbootstrap: {steps: [{name: a, run: 'login ${env:GP_TEST_TOKEN}'}]}\n");
    setenv("GP_TEST_TOKEN", "hunter2-second", 1);
    GP_AUTO_SPEC struct spec *b = good("name: t\nbootstrap: {steps: [{name: a, run: 'login ${env:GP_TEST_TOKEN}'}]}\n");
    GP_AUTO_FREE char *text = spec_canonical(a);
    assert_non_null(strstr(text, "hunter2-first"));
    GP_AUTO_CHANGES struct spec_changes found = {0};
    spec_changes_find(text, b, &found);
    assert_int_equal(found.list.len, 1);
    assert_string_equal(found.list.items[0].key, "bootstrap.steps[a].run");
    assert_null(found.list.items[0].old);
    assert_null(found.list.items[0].now);
}

static void fixed_keys_are_named(void **state) {
    (void)state;
    GP_AUTO_FREE char *key = fixed_between("name: t\naccess: {key: a}\n", "name: t\naccess: {key: b}\n");
    assert_string_equal(key, "access.key");
    GP_AUTO_FREE char *offers = fixed_between("name: t\n", "name: t\noffers: [{provider: aws}]\n");
    assert_string_equal(offers, "offers[0].provider");
    GP_AUTO_FREE char *none = fixed_between("name: t\n", "name: t\nnodes: 2\nlimits: {ttl: 1h}\n");
    assert_null(none);
}

/* The same offers in another order are the same machines. */
static void order_of_offers_is_free(void **state) {
    (void)state;
    static const char old[] = "name: t\noffers: [{provider: aws, market: spot}, {provider: aws}, {provider: local}]\n";
    static const struct {
        const char *now;
        bool same;
    } cases[] = {
        {"name: t\noffers: [{provider: local}, {provider: aws}, {provider: aws, market: spot}]\n", true},
        {"name: t\noffers: [{provider: aws, market: on-demand}, {provider: local}, {provider: aws, market: spot}]\n",
         true},
        {"name: t\noffers: [{provider: local}, {provider: aws}, {provider: aws}]\n", false},
        {"name: t\noffers: [{provider: local}, {provider: aws, market: spot}]\n", false},
        {"name: t\noffers: [{provider: local}, {provider: aws}, {provider: aws, market: spot, role: r}]\n", false},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        GP_AUTO_FREE char *found = fixed_between(old, cases[i].now);
        if ((found == NULL) != cases[i].same) fail_msg("%s: %s", cases[i].now, found != NULL ? found : "accepted");
    }
}

/* A journal of a program that did not know a key yet: the key counts as its default. */
static void fixed_key_of_later(void **state) {
    (void)state;
    GP_AUTO_SPEC struct spec *now = good("name: t\n");
    GP_AUTO_SPEC struct spec *closed = good("name: t\naccess: {public_ip: false}\n");
    const char *old = "{\"name\":\"t\",\"offers\":[{\"provider\":\"local\"}],\"image\":\"auto\"}";
    GP_AUTO_FREE char *same = refused_in(old, now);
    assert_null(same);
    GP_AUTO_FREE char *other = refused_in(old, closed);
    assert_string_equal(other, "access.public_ip");
    GP_AUTO_FREE char *broken = refused_in("{", closed);
    assert_null(broken);
}

#define WITH_LABEL \
    "{\"name\": \"x\", \"offers\": [{\"provider\": \"local\"}], \"${}\": {\"%s\": \"notify[0] is a command\"}}"

/* A label in a form is a replacement and states nothing of its own; a user's spec has no labels at all. */
static void labels_of_a_form(void **state) {
    (void)state;
    static const struct {
        const char *label, *shown; /* NULL: refused */
    } rows[] = {
        {"${env:A}", "${env:A}"},
        {"${file:a b.txt} (2)", "${file:a b.txt}"},
        {"notify[${env:A}] is a command", "notify[${env:A}] is a command"},
        {"notify[${env:A}] ${file:b}", "notify[${env:A}] ${file:b}"},
        {"...${env:A}...", "...${env:A}..."},
        {"local nodes share this kernel (see ${env:A})", "${env:A}"},
        {"notify[${env:A}] is no command", "${env:A}"},
        {"${env:A} is a command, which is free", "${env:A}"},
        {"0.10 USD/h in ${region}", NULL},
        {"nothing is left of it ${}", NULL},
        {"nothing is left ${env:a b} ${file:-x}", NULL},
        {"nothing is left $${env:A}", NULL},
        {"free", NULL},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(rows); i++) {
        GP_AUTO_FREE char *text = xasprintf(WITH_LABEL, rows[i].label);
        GP_AUTO_LOADED struct loaded l = {0}, own = {0};
        l.r = spec_load_form("x.plan", text, validate_names(), &l.spec, &l.problems, &l.err);
        if ((l.r == 0) != (rows[i].shown != NULL)) fail_msg("%s: %d", rows[i].label, l.r);
        GP_AUTO_FREE char *shown = log_redacted("notify[0] is a command");
        assert_string_equal(shown, rows[i].shown != NULL ? rows[i].shown : "notify[0] is a command");
        log_close();
        own.r = spec_load_text("x.yaml", text, strlen(text), validate_names(), &own.spec, &own.problems, &own.err);
        assert_int_equal(own.r, -GP_EUSAGE);
        assert_non_null(strstr(own.problems.list.items[0].message, "unknown key '${}'"));
        GP_AUTO_SPEC struct spec *now = good("name: x\noffers: [{provider: local}]\n");
        GP_AUTO_CHANGES struct spec_changes none = {0};
        spec_changes_find(text, now, &none); /* the journal's form, which no decoder has seen */
        GP_AUTO_FREE char *later = log_redacted("notify[0] is a command");
        assert_string_equal(later, rows[i].shown != NULL ? rows[i].shown : "***");
        log_close();
    }
}

int main(void) {
    provider_specs_register();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(replacements_stay),     cmocka_unit_test(each_replacement_stays),
        cmocka_unit_test(labels_of_a_form),      cmocka_unit_test(replacements_have_a_limit),
        cmocka_unit_test(hashes_stay),           cmocka_unit_test(every_row_counts),
        cmocka_unit_test(fixed_keys_are_named),  cmocka_unit_test(order_of_offers_is_free),
        cmocka_unit_test(fixed_key_of_later),    cmocka_unit_test(changes_are_shown),
        cmocka_unit_test(scripts_are_not_shown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* core/model/image.h: the text of a baked image's facts, and which image a spec gets; core/spec/spec_bake.c: the spec of
 * the node that is baked. */
#include "base/gp_base.h"

#include "base/fs.h"
#include "folder.h"
#include "model/image.h"
#include "model/image_key.h"
#include "spec_fixture.h"

#define HASH "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void facts_survive_their_text(void **state) {
    (void)state;
    struct image_facts a = {
        .bootstrap = HASH, .arch = "x86_64", .gpu = "H100", .driver = "580.65.06", .verdict = "ready"};
    struct image_facts b;
    GP_AUTO_STR struct str text = {0};
    image_facts_text(&a, &text);
    assert_true(image_facts_parse(&b, text.s));
    assert_memory_equal(&a, &b, sizeof a);
    /* the longest of all fits a tag */
    memset(a.arch, 'a', IMAGE_WORD - 1);
    memcpy(a.gpu, a.arch, IMAGE_WORD);
    memcpy(a.base, a.arch, IMAGE_WORD);
    memcpy(a.driver, a.arch, IMAGE_WORD);
    memcpy(a.cuda, a.arch, IMAGE_WORD);
    memcpy(a.verdict, a.arch, IMAGE_WORD);
    str_reset(&text);
    image_facts_text(&a, &text);
    assert_true(text.len <= 256);
    assert_true(image_facts_parse(&b, text.s));
    assert_memory_equal(&a, &b, sizeof a);
}

/* The table's longest names differ behind the place where a word of the tag ends. */
static void long_names_stay_apart(void **state) {
    (void)state;
    struct spec_image image = {0};
    struct spec a = {.gpu = {.model = (char[]){"RTX PRO 6000 Blackwell Server Edition"}, .count = 1}},
                b = {.gpu = {.model = (char[]){"RTX PRO 6000 Blackwell Workstation Edition"}, .count = 1}},
                c = {.gpu = {.model = (char[]){"rtx pro 6000 blackwell server edition"}, .count = 1}};
    struct image_facts want, has;
    GP_AUTO_STR struct str text = {0};
    image_facts_wanted(&a, &image, "x86_64", &want);
    image_facts_text(&want, &text);
    assert_true(image_facts_parse(&has, text.s));
    assert_null(image_differs(&want, &has));
    image_facts_wanted(&c, &image, "x86_64", &want);
    memcpy(want.bootstrap, has.bootstrap, sizeof want.bootstrap);
    assert_null(image_differs(&want, &has));
    image_facts_wanted(&b, &image, "x86_64", &want);
    GP_AUTO_FREE char *why = image_differs(&want, &has);
    assert_non_null(why);
    assert_non_null(strstr(why, "its GPU model is RTX-PRO-6000-B"));
}

static void strange_texts_are_no_facts(void **state) {
    (void)state;
    static const char *const bad[] = {
        "",
        "v1",
        "v2 bootstrap=" HASH " arch=a gpu=- base=- driver=- cuda=- verdict=ready",
        "v1 bootstrap=" HASH " gpu=- arch=a base=- driver=- cuda=- verdict=ready",
        "v1 bootstrap=abc arch=a gpu=- base=- driver=- cuda=- verdict=ready",
        "v1 bootstrap=" HASH " arch=- gpu=- base=- driver=- cuda=- verdict=ready",
        "v1 bootstrap=" HASH " arch= gpu=- base=- driver=- cuda=- verdict=ready",
        "v1 bootstrap=" HASH " arch=$(x) gpu=- base=- driver=- cuda=- verdict=ready",
        "v1 bootstrap=" HASH " arch=a gpu=- base=- driver=- cuda=- verdict=ready more=1",
        "v1 bootstrap=" HASH " arch=aaaaaaaaaaaaaaaaaaaaaaaaa gpu=- base=- driver=- cuda=- verdict=ready",
    };
    struct image_facts f;
    for (size_t i = 0; i < GP_ARRAY_LEN(bad); i++)
        if (image_facts_parse(&f, bad[i])) fail_msg("'%s' was read", bad[i]);
    assert_false(image_facts_parse(&f, NULL));
}

static void add(struct resource_list *l, const char *id, const char *name, const struct image_facts *f, int64_t at) {
    struct resource r;
    GP_AUTO_STR struct str text = {0};
    resource_init(&r, RES_IMAGE, "aws");
    image_facts_text(f, &text);
    resource_set(&r.id, id);
    resource_set(&r.stack, name);
    resource_set(&r.region, "here");
    resource_set(&r.image, text.s);
    r.state = RES_RUNNING;
    r.ours = true;
    r.created_s = at;
    vec_push(&l->list, r);
}

static const char *chosen(const struct resource_list *l, const struct image_facts *want, const char *region,
                          char **ret_why) {
    free(*ret_why);
    *ret_why = NULL;
    const struct resource *r = image_choose(l, want, "aws", region, "llm", NULL, ret_why);
    assert_true((r == NULL) == (*ret_why != NULL));
    return r != NULL ? r->id : "";
}

static void the_newest_that_fits_is_chosen(void **state) {
    (void)state;
    struct image_facts want = {.bootstrap = HASH, .arch = "x86_64", .gpu = "H100"};
    struct image_facts good = want, bad = want;
    str_put(good.verdict, sizeof good.verdict, "ready");
    str_put(good.base, sizeof good.base, "ubuntu-24.04");
    bad = good;
    GP_AUTO_RESOURCES struct resource_list l = {0};
    GP_AUTO_FREE char *why = NULL;
    assert_string_equal(chosen(&l, &want, "here", &why), "");
    assert_non_null(strstr(why, "no baked image of this owner is at aws here"));
    add(&l, "old", "llm", &good, 10);
    add(&l, "new", "other", &good, 20);
    str_put(bad.arch, sizeof bad.arch, "aarch64");
    add(&l, "arm", "llm", &bad, 30);
    assert_string_equal(chosen(&l, &want, "here", &why), "new");
    assert_string_equal(chosen(&l, &want, "there", &why), "");
    assert_non_null(strstr(why, "arm of 'llm': it is in here"));
    l.list.items[1].state = RES_PENDING;
    assert_string_equal(chosen(&l, &want, "here", &why), "old");
    l.list.items[0].state = RES_STOPPED;
    assert_string_equal(chosen(&l, &want, "here", &why), "");
    assert_non_null(strstr(why, "arm of 'llm': it is for aarch64, the node is x86_64"));
    l.list.items[0].state = l.list.items[1].state = RES_RUNNING;
    str_put(want.base, sizeof want.base, "ubuntu-24.04");
    assert_string_equal(chosen(&l, &want, "here", &why), "new");
    str_put(want.base, sizeof want.base, "debian-12");
    assert_string_equal(chosen(&l, &want, "here", &why), "");
    want.base[0] = '\0';
    str_put(want.gpu, sizeof want.gpu, "B200");
    assert_string_equal(chosen(&l, &want, "here", &why), "");
    l.list.len = 2;
    assert_string_equal(chosen(&l, &want, "here", &why), "");
    assert_non_null(strstr(why, "old of 'llm': its GPU model is H100, the spec's is B200"));
    resource_set(&l.list.items[0].image, "v1 planted");
    assert_string_equal(chosen(&l, &want, "here", &why), "");
    l.list.len = 3;
}

static struct image_facts fitting(void) {
    struct image_facts f = {.bootstrap = HASH, .arch = "x86_64", .gpu = "H100"};
    str_put(f.verdict, sizeof f.verdict, "ready");
    return f;
}

static void tags_alone_do_not_count(void **state) {
    (void)state;
    struct image_facts want = fitting(), good = fitting();
    GP_AUTO_RESOURCES struct resource_list l = {0};
    GP_AUTO_FREE char *why = NULL;
    add(&l, "ours", "llm", &good, 10);
    add(&l, "foreign", "llm", &good, 20);
    l.list.items[1].ours = false;
    assert_string_equal(chosen(&l, &want, "here", &why), "ours");
    l.list.items[0].ours = false;
    assert_string_equal(chosen(&l, &want, "here", &why), "");
    assert_non_null(strstr(why, "no baked image at aws here is proven: ours, foreign fit by tags"));
    assert_non_null(strstr(why, "copy the file signing_key"));
    l.list.items[0].ours = true;
    str_put(want.gpu, sizeof want.gpu, "B200");
    assert_string_equal(chosen(&l, &want, "here", &why), "");
    assert_non_null(strstr(why, "ours of 'llm': its GPU model is H100")); /* not that of the newer foreign one */
}

static const struct proof_key *key_of(const char *secret) {
    static struct proof_key key;
    proof_key_make(&key, "test", secret, strlen(secret));
    return &key;
}

static void prove(struct resource *r, const struct proof_key *key) {
    char proof[PROOF_SIZE];
    proof_of_image(key, r, proof);
    resource_set(&r->proof, proof);
}

static void a_proof_holds_for_one_image_with_its_facts(void **state) {
    (void)state;
    struct image_facts good = fitting(), other = fitting();
    GP_AUTO_STR struct str edited = {0};
    GP_AUTO_RESOURCES struct resource_list l = {0}, none = {0};
    str_put(other.cuda, sizeof other.cuda, "12.8");
    image_facts_text(&other, &edited);
    add(&l, "ami-1", "llm", &good, 10);
    add(&l, "ami-2", "llm", &good, 20);
    struct resource *one = &l.list.items[0], *copy = &l.list.items[1];
    prove(one, key_of("mine"));
    resource_set(&copy->proof, one->proof);
    image_mark_ours(&l, &none, key_of("mine"));
    assert_true(one->ours);
    assert_false(copy->ours); /* another id */
    image_mark_ours(&l, &none, key_of("another"));
    assert_false(one->ours);
    image_mark_ours(&l, &none, NULL);
    assert_false(one->ours);
    char **const fields[] = {&one->image, &one->uid, &one->owner, &one->region};
    for (size_t i = 0; i < GP_ARRAY_LEN(fields); i++) {
        GP_AUTO_FREE char *was = xstrdup(*fields[i]);
        resource_set(fields[i], i == 0 ? edited.s : "x");
        image_mark_ours(&l, &none, key_of("mine"));
        assert_false(one->ours);
        resource_set(fields[i], was);
    }
    image_mark_ours(&l, &none, key_of("mine"));
    assert_true(one->ours);
}

static void a_record_counts_without_a_proof(void **state) {
    (void)state;
    struct image_facts good = fitting();
    GP_AUTO_RESOURCES struct resource_list l = {0}, records = {0};
    struct resource record, snapshot;
    add(&l, "ami-1", "llm", &good, 10);
    add(&l, "ami-2", "llm", &good, 10);
    image_record(&l.list.items[0], &record);
    assert_string_equal(record.uid, IMAGE_RECORD_UID);
    vec_push(&records.list, record);
    for (int i = 0; i < 2; i++) {
        resource_init(&snapshot, RES_SNAPSHOT, "aws");
        resource_set(&snapshot.id, i == 0 ? "snap-1" : "snap-2");
        resource_set(&snapshot.region, "here");
        resource_set(&snapshot.of_image, i == 0 ? "ami-1" : "");
        vec_push(&l.list, snapshot);
    }
    image_mark_ours(&l, &records, NULL);
    assert_true(l.list.items[0].ours && l.list.items[2].ours);
    assert_false(l.list.items[1].ours || l.list.items[3].ours);
    resource_set(&l.list.items[0].image, "v1 edited");
    image_mark_ours(&l, &records, NULL);
    assert_false(l.list.items[0].ours);
    records.list.items[0].ours = false; /* a row that says less than a record */
    image_mark_ours(&l, &records, NULL);
    assert_false(l.list.items[2].ours);
}

static void a_snapshot_belongs_to_the_image_that_the_cloud_names(void **state) {
    (void)state;
    struct image_facts good = fitting();
    GP_AUTO_RESOURCES struct resource_list l = {0};
    struct resource s;
    add(&l, "ami-1", "llm", &good, 10);
    add(&l, "ami-2", "llm", &good, 10);
    resource_init(&s, RES_SNAPSHOT, "aws");
    resource_set(&s.id, "snap-1");
    resource_set(&s.region, "here");
    resource_set(&s.uid, "0123456789abcdef");
    for (size_t i = 0; i < 2; i++) resource_set(&l.list.items[i].uid, s.uid);
    assert_null(image_of_snapshot(&l, &s)); /* equal tags are no reason */
    resource_set(&l.list.items[1].snapshots, "snap-11 snap-1");
    assert_string_equal(image_of_snapshot(&l, &s)->id, "ami-2");
    resource_set(&l.list.items[0].snapshots, "snap-1"); /* somebody registered an image with it */
    l.list.items[0].ours = false;
    assert_string_equal(image_of_snapshot(&l, &s)->id, "ami-2");
    resource_set(&l.list.items[1].snapshots, "");
    resource_set(&s.of_image, "ami-2");
    assert_string_equal(image_of_snapshot(&l, &s)->id, "ami-2");
    resource_clear(&s);
}

static void the_key_is_that_of_the_signing_key(void **state) {
    (void)state;
    struct gp_error err = {0};
    struct proof_key a = {0}, b = {0};
    char dir[256], other[256];
    assert_non_null(make_folder(dir, sizeof dir, "image-key"));
    assert_non_null(make_folder(other, sizeof other, "image-key"));
    assert_int_equal(image_key_load(dir, false, &a, &err), 0);
    assert_false(a.known);
    assert_int_equal(image_key_load(dir, true, &a, &err), 0);
    assert_int_equal(image_key_load(dir, false, &b, &err), 0);
    assert_true(a.known && b.known);
    assert_memory_equal(a.bytes, b.bytes, sizeof a.bytes);
    assert_int_equal(image_key_load(other, true, &b, &err), 0);
    assert_memory_not_equal(a.bytes, b.bytes, sizeof a.bytes);
    GP_AUTO_FREE char *path = fs_join(other, "signing_key");
    assert_int_equal(fs_write_atomic(path, "", 0, 0600, &err), 0); /* a full disk */
    assert_true(image_key_load(other, true, &b, &err) < 0);
    assert_non_null(strstr(err.msg, "signing_key"));
    assert_false(b.known);
    assert_int_equal(fs_remove_tree(dir, NULL), 0);
    assert_int_equal(fs_remove_tree(other, NULL), 0);
}

static struct spec *spec_of(const char *text) {
    struct spec *s = NULL;
    struct spec_problems problems = {0};
    struct gp_error err = {0};
    if (spec_load_text("t.yaml", text, strlen(text), NULL, &s, &problems, &err) != 0) fail_msg("%s", err.msg);
    spec_problems_clear(&problems);
    return s;
}

static bool alone(const char *check) { return strncmp(check, "net.pair", 8) != 0; }

static void only_the_bootstrap_counts(void **state) {
    (void)state;
    GP_AUTO_SPEC struct spec *a = spec_of("name: a\nbootstrap: {packages: [htop]}\n");
    GP_AUTO_SPEC struct spec *b = spec_of("name: b\nnodes: 3\nimage: baked\nbootstrap: {packages: [htop]}\n");
    GP_AUTO_SPEC struct spec *c = spec_of("name: a\nbootstrap: {packages: [tmux]}\n");
    char ha[65], hb[65], hc[65];
    spec_bootstrap_hash(a, ha);
    spec_bootstrap_hash(b, hb);
    spec_bootstrap_hash(c, hc);
    assert_string_equal(ha, hb);
    assert_string_not_equal(ha, hc);
    assert_string_equal(b->image.baked, BAKED_REQUIRE);
    assert_null(a->image.baked);
}

static void one_node_is_baked_from_the_base(void **state) {
    (void)state;
    GP_AUTO_SPEC struct spec *s = spec_of("name: llm\nnodes: 4\nimage: {os: ubuntu-24.04, baked: prefer}\n"
                                          "validate: {require: [net.pair, train.ddp], floors: {net.pair: 1 GB/s}}\n");
    GP_AUTO_FREE char *form = spec_bake_form(s, "llm-bake", alone);
    GP_AUTO_SPEC struct spec *bake = spec_of(form);
    assert_string_equal(bake->name, "llm-bake");
    assert_int_equal(bake->nodes, 1);
    assert_string_equal(bake->image.os, "ubuntu-24.04");
    assert_null(bake->image.baked);
    assert_int_equal(bake->validate.require.n, 1);
    assert_string_equal(bake->validate.require.v[0], "train.ddp");
    assert_int_equal(bake->validate.floors.len, 0);
}

int main(void) {
    provider_specs_register();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(facts_survive_their_text),
        cmocka_unit_test(long_names_stay_apart),
        cmocka_unit_test(strange_texts_are_no_facts),
        cmocka_unit_test(the_newest_that_fits_is_chosen),
        cmocka_unit_test(tags_alone_do_not_count),
        cmocka_unit_test(a_proof_holds_for_one_image_with_its_facts),
        cmocka_unit_test(a_record_counts_without_a_proof),
        cmocka_unit_test(a_snapshot_belongs_to_the_image_that_the_cloud_names),
        cmocka_unit_test(the_key_is_that_of_the_signing_key),
        cmocka_unit_test(only_the_bootstrap_counts),
        cmocka_unit_test(one_node_is_baked_from_the_base),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Replies of S3 and of Cloud Storage as a hostile or broken store could send them: lists with their pages, metadata of an
 * object, errors. What is taken are paths that stay below an empty folder. */
#include "base/gp_base.h"

#include "tests/fuzz/cloud_replies.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void make_world(void) {
    static const char text[] = "{\"type\": \"authorized_user\", \"client_id\": \"c\", \"client_secret\": \"s\", "
                               "\"refresh_token\": \"r\"}";
    fuzz_home();
    GP_AUTO_FREE char *path = fs_join(home, "adc.json");
    must(fs_write_atomic(path, text, sizeof text - 1, 0600, NULL) == 0, "no credentials", path);
    setenv("GOOGLE_APPLICATION_CREDENTIALS", path, 1);
    setenv("CLOUDSDK_CONFIG", home, 1);
    setenv("AWS_ACCESS_KEY_ID", "key", 1);
    setenv("AWS_SECRET_ACCESS_KEY", "secret", 1);
    setenv("AWS_REGION", "us-east-1", 1);
    setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:1", 1);
}

static size_t look(const char *url, const uint8_t *data, size_t size) {
    GP_AUTO_BUCKET struct bucket *b = NULL;
    GP_AUTO_BUCKET_OBJECTS struct bucket_objects found = {0};
    struct gp_error err = {0};
    replies_set((const char *)data, size);
    int r = bucket_open(url, NULL, NULL, &b, &err);
    look_at_error(r, &err);
    if (r != 0) return 0;
    r = b->ops->list(b, &found, &err);
    look_at_error(r, &err);
    for (size_t i = 0; i < found.list.len; i++) {
        const struct bucket_object *o = &found.list.items[i];
        must(bucket_path_valid(o->path, strlen(o->path)), "a path", o->path);
        must(o->sha256[0] == '\0' || bucket_sha256_valid(o->sha256), "a hash", o->sha256);
        must(i == 0 || r != 0 || strcmp(found.list.items[i - 1].path, o->path) < 0, "the order", o->path);
    }
    for (size_t i = 0; i < found.notes.n; i++)
        for (const char *p = found.notes.v[i]; *p != '\0'; p++)
            must((unsigned char)*p >= 0x20 && *p != 0x7f, "a control character in a note", found.notes.v[i]);
    if (found.list.len == 0) return 0;
    struct bucket_object one = {.path = found.list.items[0].path};
    gp_error_clear(&err);
    r = b->ops->stat(b, &one, &err);
    look_at_error(r, &err);
    must(one.sha256[0] == '\0' || bucket_sha256_valid(one.sha256), "a hash", one.sha256);
    return found.list.len;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    if (home[0] == '\0') make_world();
    size_t n = look("s3://models/runs", data, size);
    n += look("gs://models/runs", data, size);
    look_at_yield((const char *)data, size, 0, n);
    return 0;
}

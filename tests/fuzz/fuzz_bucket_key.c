/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as the key of an object, as a bucket lists it: what is taken is a path that stays below an empty folder,
 * and makes the same key again. */
#include "base/gp_base.h"

#include "providers/bucket/bucket.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct bucket *b, const char *key, size_t n) {
    GP_AUTO_BUCKET_OBJECTS struct bucket_objects found = {0};
    if (bucket_objects_add(b, &found, key, n, 1, NULL, NULL) != 0) abort();
    for (size_t i = 0; i < found.notes.n; i++)
        for (const char *p = found.notes.v[i]; *p != '\0'; p++)
            if ((unsigned char)*p < 0x20 || *p == 0x7f) abort();
    if (found.list.len == 0) return;
    const char *path = found.list.items[0].path;
    GP_AUTO_STRV struct strv parts = {0};
    GP_AUTO_FREE char *again = bucket_key(b, path);
    if (strlen(again) != n || memcmp(again, key, n) != 0) abort();
    strv_split(&parts, path, "/");
    size_t length = 0;
    for (size_t i = 0; i < parts.n; i++) {
        const char *s = parts.v[i];
        if (strcmp(s, ".") == 0 || strcmp(s, "..") == 0 || strlen(s) > 255) abort();
        length += strlen(s) + 1;
    }
    if (path[0] == '/' || length != strlen(path) + 1) abort(); /* else an empty part */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    struct bucket whole = {.name = (char[]){"b"}, .prefix = (char[]){""}, .text = (char[]){"s3://b"}};
    struct bucket part = {.name = (char[]){"b"}, .prefix = (char[]){"runs/llm"}, .text = (char[]){"s3://b/runs/llm"}};
    GP_AUTO_STR struct str below = {0};
    str_add(&below, "runs/llm/");
    str_add_mem(&below, (const char *)data, size);
    check(&whole, (const char *)data, size);
    check(&part, (const char *)data, size);
    check(&part, below.s, below.len);
    return 0;
}

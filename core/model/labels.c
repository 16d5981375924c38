// SPDX-License-Identifier: Apache-2.0
/* Labels of clouds. The code of a value: a-z, 0-9 and '-' stay, '_' begins the code of another character: with a
 * letter its upper case, with a digit one of OTHERS, with '-' two hex digits of any other byte. */
#include "base/gp_base.h"

#include "model/labels.h"

#include <ctype.h>

#define OTHERS ":.+=,@ /*_" /* "_0" to "_9" */

const struct label_limits labels_ec2 = {.prefix = "gpuprov:", .key_max = 128, .value_max = 256, .labels_max = 50};
const struct label_limits labels_gcp = {
    .prefix = "gpuprov-", .key_max = 63, .value_max = 63, .labels_max = 64, .coded = true};
/* A key may not have <>%&\?/ */
const struct label_limits labels_azure = {
    .prefix = "gpuprov:", .key_max = 512, .value_max = 256, .labels_max = 50, .slash = '.'};

/* Lambda: keys of ^[a-z][a-z0-9-:]+$; it gives no number of tags. ssh_key: the comment of an SSH key. */
const struct label_limits labels_lambda = {.prefix = "gpuprov:", .key_max = 55, .value_max = 128, .labels_max = 50};
/* Shadeform: tags are words, here KEY=VALUE; no limits are documented. */
const struct label_limits labels_shadeform = {
    .prefix = "gpuprov-", .key_max = 63, .value_max = 63, .labels_max = 50, .coded = true};
const struct label_limits labels_ssh_key = {
    .prefix = "", .key_max = 63, .value_max = 1024, .labels_max = 50, .coded = true};
/* nova: metadata keys and values of 255 characters; the quota metadata_items is 128 unless the operator changed it */
const struct label_limits labels_openstack = {.prefix = "gpuprov:", .key_max = 255, .value_max = 255, .labels_max = 64};
/* variables of a container's environment */
const struct label_limits labels_runpod = {
    .prefix = "GPUPROV_TAG_", .key_max = 128, .value_max = 4096, .labels_max = 64};

/* 20 tags of a resource, "aliyun" and "acs:" are not allowed at the front of a key. */
const struct label_limits labels_alibaba = {.prefix = "gpuprov:", .key_max = 128, .value_max = 128, .labels_max = 20};

void labels_add(struct label_list *l, const char *key, const char *value) {
    struct label one = {xstrdup(key), xstrdup(value)};
    vec_push(&l->list, one);
}

void labels_clear(struct label_list *l) {
    for (size_t i = 0; i < l->list.len; i++) {
        free(l->list.items[i].key);
        free(l->list.items[i].value);
    }
    vec_free(&l->list);
}

static const char *get(const struct label_list *l, const char *key) {
    for (size_t i = 0; i < l->list.len; i++)
        if (strcmp(l->list.items[i].key, key) == 0) return l->list.items[i].value;
    return NULL;
}

/* --- the code --- */

static void code(struct str *out, const char *value) {
    for (const char *p = value; *p != '\0'; p++) {
        const char *other = strchr(OTHERS, *p);
        if ((*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9') || *p == '-') str_addc(out, *p);
        else if (*p >= 'A' && *p <= 'Z') str_addf(out, "_%c", *p - 'A' + 'a');
        else if (other != NULL) str_addf(out, "_%d", (int)(other - OTHERS));
        else str_addf(out, "_-%02x", (unsigned char)*p);
    }
}

/* False: not a result of code(). */
static bool decode(struct str *out, const char *coded) {
    GP_AUTO_STR struct str again = {0};
    str_add(out, "");
    for (const char *p = coded; *p != '\0'; p++) {
        if (*p != '_') {
            str_addc(out, *p);
        } else if (*++p >= 'a' && *p <= 'z') {
            str_addc(out, (char)(*p - 'a' + 'A'));
        } else if (*p >= '0' && *p <= '9') {
            str_addc(out, OTHERS[*p - '0']);
        } else if (*p == '-' && isxdigit((unsigned char)p[1]) && isxdigit((unsigned char)p[2])) {
            char hex[3] = {p[1], p[2], '\0'};
            char c = (char)strtol(hex, NULL, 16);
            if (c == '\0') return false;
            str_addc(out, c);
            p += 2;
        } else {
            return false;
        }
    }
    str_add(&again, "");
    code(&again, out->s);
    return strcmp(again.s, coded) == 0;
}

/* --- keys --- */

/* The key "region/NAME" may be too long and has a '/': its label's key has a hash of NAME (FNV-1a), its value NAME. */
static char *hashed_key(const char *tag, const char *name) {
    uint64_t hash = 14695981039346656037u;
    for (const char *p = name; *p != '\0'; p++) hash = (hash ^ (unsigned char)*p) * 1099511628211u;
    return xasprintf("%s-%016llx", tag, (unsigned long long)hash);
}

static char *key_of_part(const struct label_limits *limits, const char *key, size_t part) {
    return part == 0 ? xasprintf("%s%s", limits->prefix, key) : xasprintf("%s%s-%zu", limits->prefix, key, part);
}

/* --- write --- */

struct writing {
    const struct label_limits *limits;
    struct label_list *out;
    bool fits;
};

static void write_label(struct writing *w, const char *key, size_t part, const char *value) {
    GP_AUTO_FREE char *whole = key_of_part(w->limits, key, part);
    w->fits = w->fits && strlen(whole) <= w->limits->key_max && strlen(value) <= w->limits->value_max;
    labels_add(w->out, whole, value);
}

static void write_coded(struct writing *w, const char *key, const char *value) {
    GP_AUTO_STR struct str coded = {0};
    size_t max = w->limits->value_max, at = 0, part = 0;
    str_add(&coded, "");
    code(&coded, value);
    do {
        GP_AUTO_FREE char *piece = xstrndup(coded.s + at, GP_MIN(coded.len - at, max));
        write_label(w, key, part++, piece);
        at += strlen(piece);
    } while (at < coded.len);
}

static void on_tag(void *ctx, const char *key, const char *value) {
    struct writing *w = ctx;
    const char *slash = strchr(key, '/');
    if (!w->limits->coded) {
        GP_AUTO_FREE char *allowed = xstrdup(key);
        if (slash != NULL && w->limits->slash != '\0') allowed[slash - key] = w->limits->slash;
        write_label(w, allowed, 0, value);
    } else if (slash != NULL) {
        GP_AUTO_FREE char *tag = xstrndup(key, (size_t)(slash - key));
        GP_AUTO_FREE char *hashed = hashed_key(tag, slash + 1);
        write_coded(w, hashed, slash + 1);
    } else {
        write_coded(w, key, value);
    }
}

bool labels_write(const struct label_limits *limits, const struct tags *t, struct label_list *ret) {
    struct writing w = {.limits = limits, .out = ret, .fits = true};
    size_t before = ret->list.len;
    tags_each(t, on_tag, &w);
    return w.fits && ret->list.len - before <= limits->labels_max;
}

/* --- read --- */

/* Joins and decodes the parts of a value. False: not cut and encoded as write_coded does. */
static bool join(const struct label_limits *limits, const struct label_list *labels, const char *key, const char *first,
                 struct str *ret) {
    GP_AUTO_STR struct str coded = {0};
    const char *piece = first;
    str_add(&coded, first);
    for (size_t part = 1; part <= limits->labels_max; part++) {
        GP_AUTO_FREE char *next_key = key_of_part(limits, key, part);
        const char *next = get(labels, next_key);
        if (next == NULL) break;
        if (strlen(piece) != limits->value_max || next[0] == '\0') return false;
        str_add(&coded, next);
        piece = next;
    }
    return strlen(piece) <= limits->value_max && !coded.truncated && decode(ret, coded.s);
}

/* "region-0123456789abcdef" */
static bool is_region_key(const char *key) {
    size_t n = strlen(TAGS_REGION); /* with its '/' */
    return strlen(key) == n + 16 && strncmp(key, TAGS_REGION, n - 1) == 0 && key[n - 1] == '-' &&
           strspn(key + n, "0123456789abcdef") == 16;
}

static void read_coded(const struct label_limits *limits, const struct label_list *labels, const char *key,
                       const char *first, struct tags *ret) {
    GP_AUTO_STR struct str value = {0};
    bool region = is_region_key(key);
    if (!region && !tags_is_key(key)) return; /* a further part, or not gpuprov's */
    bool ok = join(limits, labels, key, first, &value);
    if (ok && region) {
        GP_AUTO_FREE char *named = xasprintf(TAGS_REGION "%s", value.s);
        GP_AUTO_FREE char *hashed = hashed_key("region", value.s);
        ok = strcmp(hashed, key) == 0;
        if (ok) tags_read(ret, named, TAGS_YES);
    } else if (ok) {
        tags_read(ret, key, value.s);
    }
    if (!ok) tags_complain(ret, key, "encoded as gpuprov encodes values");
}

/* "region.NAME" is "region/NAME" again. */
static void read_slash(const struct label_limits *limits, const char *key, const char *value, struct tags *ret) {
    GP_AUTO_FREE char *whole = xstrdup(key);
    size_t n = strlen(TAGS_REGION) - 1;
    if (limits->slash != '\0' && strncmp(key, TAGS_REGION, n) == 0 && key[n] == limits->slash) whole[n] = '/';
    else if (limits->slash != '\0' && strchr(key, '/') != NULL) return; /* not a key that gpuprov writes there */
    tags_read(ret, whole, value);
}

void labels_read(const struct label_limits *limits, const struct label_list *labels, struct tags *ret) {
    size_t prefix = strlen(limits->prefix);
    tags_init(ret);
    for (size_t i = 0; i < labels->list.len; i++) {
        const struct label *l = &labels->list.items[i];
        if (!str_starts(l->key, limits->prefix)) continue;
        if (limits->coded) read_coded(limits, labels, l->key + prefix, l->value, ret);
        else read_slash(limits, l->key + prefix, l->value, ret);
    }
}

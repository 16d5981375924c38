/* SPDX-License-Identifier: Apache-2.0 */
/* Tags as labels of one cloud, with its prefix and its limits of keys and values. Where a cloud takes fewer characters
 * or shorter values, values are encoded and cut into several labels ("gpuprov-spec", "gpuprov-spec-1").
 * labels_read decodes exactly the output of labels_write; everything else is bad. Pure; any thread. */
#ifndef GP_MODEL_LABELS_H
#define GP_MODEL_LABELS_H

#include "base/vec.h"
#include "model/tags.h"

struct label {
    char *key, *value;
};
struct label_list {
    VEC_OF(struct label) list;
};
void labels_add(struct label_list *l, const char *key, const char *value); /* copies */
void labels_clear(struct label_list *l);
#define GP_AUTO_LABELS GP_CLEANUP(labels_clear)

/* One row per cloud. */
struct label_limits {
    const char *prefix;                    /* of every key that is gpuprov's */
    size_t key_max, value_max, labels_max; /* characters; labels of one resource */
    bool coded;                            /* keys and values are of a-z, 0-9, '-' and '_' only */
    char slash;                            /* stands for the '/' of a key where it is not allowed; 0: it is */
};
extern const struct label_limits labels_ec2, labels_gcp, labels_lambda, labels_lambda_key;
extern const struct label_limits labels_ec2, labels_gcp;
extern const struct label_limits labels_openstack; /* of servers; only claims have tags with a '/' in the key */
extern const struct label_limits labels_ec2, labels_gcp, labels_runpod;
extern const struct label_limits labels_ec2, labels_gcp, labels_lambda, labels_ssh_key;
extern const struct label_limits labels_ec2, labels_gcp, labels_azure;
extern const struct label_limits labels_ec2, labels_gcp, labels_alibaba;
extern const struct label_limits labels_ec2, labels_gcp, labels_lambda, labels_shadeform, labels_ssh_key;

/* Every tag that is set, appended. False: they do not fit the limits. */
bool labels_write(const struct label_limits *limits, const struct tags *t, struct label_list *ret);
/* The labels of one resource; those without the prefix are ignored. ret: not initialised; caller clears. */
void labels_read(const struct label_limits *limits, const struct label_list *labels, struct tags *ret);

#endif

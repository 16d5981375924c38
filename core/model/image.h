/* SPDX-License-Identifier: Apache-2.0 */
/* What a baked image has, as its one tag `image` records it, whose it is, and whether it fits a spec. Anyone in the
 * account may have written the tags: a text that does not have exactly this form is no baked image, and an image counts
 * only with a record of this machine or a proof (proof.h). Pure; any thread. */
#ifndef GP_MODEL_IMAGE_H
#define GP_MODEL_IMAGE_H

#include "base/error.h"
#include "base/str.h"
#include "model/proof.h"
#include "model/stack.h"
#include "spec/spec.h"

#define IMAGE_WORD 24 /* so that the whole fits a tag; a longer name is cut and ends in a hash of the whole */

/* "-" in the text: none. */
struct image_facts {
    char bootstrap[65];                        /* spec_bootstrap_hash */
    char arch[IMAGE_WORD];                     /* uname -m */
    char gpu[IMAGE_WORD];                      /* the spec's model; other characters are '-'; "": no GPU */
    char base[IMAGE_WORD];                     /* os or id that the spec named; "": auto */
    char driver[IMAGE_WORD], cuda[IMAGE_WORD]; /* versions found on the node; "": none */
    char verdict[IMAGE_WORD];                  /* of its validation: "ready" */
};
/* The text is at most 256 characters, of letters, digits, blanks and "=._-+:/". */
void image_facts_text(const struct image_facts *f, struct str *out);
bool image_facts_parse(struct image_facts *f, const char *text);

/* What the spec wants of an image for nodes with that architecture and GPU model. */
void image_facts_wanted(const struct spec *spec, const struct spec_image *image, const char *arch,
                        struct image_facts *ret);
/* NULL: it fits. Else what differs, in words; caller frees. */
char *image_differs(const struct image_facts *want, const struct image_facts *has);

/* --- whose it is --- */
/* The journal's record of an image that this machine made. It has the uid "", because the image outlives its stack, and
 * the hash of its facts instead of a spec's, so that facts which somebody edited do not count. Initialises ret. */
#define IMAGE_RECORD_UID ""
void image_record(const struct resource *image, struct resource *ret);
/* Sets `ours` of every image and snapshot of the list, and of nothing else: the records (journal_resources with the uid
 * of records) have it, or its proof holds. A snapshot is that of a recorded image if the cloud states it. key: NULL or
 * not known: no proof holds. */
void image_mark_ours(struct resource_list *listed, const struct resource_list *records, const struct proof_key *key);
/* The image of the list that the snapshot belongs to, by what the cloud states and never by tags; NULL: none. */
const struct resource *image_of_snapshot(const struct resource_list *l, const struct resource *snapshot);

/* The newest available image of the list that is ours and fits `want` in `region`; NULL: none, and *ret_why (caller
 * frees) has the reason with the next step. name: of the spec, whose images are named first in the reason. unfit: what
 * else speaks against an image, in words, or NULL; may be NULL itself. Borrowed. */
const struct resource *image_choose(const struct resource_list *images, const struct image_facts *want,
                                    const char *provider, const char *region, const char *name,
                                    char *(*unfit)(const struct resource *image), char **ret_why);

#endif

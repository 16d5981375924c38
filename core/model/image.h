/* SPDX-License-Identifier: Apache-2.0 */
/* What a baked image has, as its one tag `image` records it, and whether it fits a spec. Anyone in the account may have
 * written the tag: a text that does not have exactly this form is no baked image. Pure; any thread. */
#ifndef GP_MODEL_IMAGE_H
#define GP_MODEL_IMAGE_H

#include "base/error.h"
#include "base/str.h"
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

/* The newest available image of the list that fits `want` in `region`; NULL: none, and *ret_why (caller frees) has the
 * reason with the next step. name: of the spec, whose images are named first in the reason. unfit: what else speaks
 * against an image, in words, or NULL; may be NULL itself. Borrowed. */
const struct resource *image_choose(const struct resource_list *images, const struct image_facts *want,
                                    const char *provider, const char *region, const char *name,
                                    char *(*unfit)(const struct resource *image), char **ret_why);

#endif

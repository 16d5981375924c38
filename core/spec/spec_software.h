/* SPDX-License-Identifier: Apache-2.0 */
/* The keys of `bootstrap` that choose GPU software (driver, cuda, cudnn, nccl), decoded, and the wish of the solver
 * that they make. Plain data. */
#ifndef GP_SPEC_SPEC_SOFTWARE_H
#define GP_SPEC_SPEC_SOFTWARE_H

#include "base/str.h"
#include "software/software.h"

/* NULL: the key is not written, which differs from "auto" on machines that existed before. */
struct spec_driver {
    char *branch;  /* "auto", "none", a branch "580" or a full version "580.95.05" */
    char *flavour; /* "open", "proprietary" */
    char *source;  /* "nvidia", "distro", or the http(s) URL of a mirror of NVIDIA's repositories */
    bool replace;  /* a driver that was installed in another way is removed */
};
struct spec_cuda {
    char *version;       /* "auto": the newest runtime libraries; "none"; "13.0": the toolkit of that version */
    struct strv runtime; /* versions of which only the runtime libraries are wanted; excludes version */
};
struct spec_software {
    struct spec_driver driver;
    struct spec_cuda cuda;
    char *cudnn, *nccl; /* "auto", "none" or a version */
};

struct spec;
bool spec_driver_written(const struct spec *s);   /* a key of `driver` that decides about the driver */
bool spec_software_written(const struct spec *s); /* any key of this block's */
struct spec_offer;
/* Whether gpuprov launches the nodes of this offer from an image with a system of its own: its provider takes the key
 * `image`, and they are no containers. */
bool spec_offer_launched(const struct spec_offer *o);
/* The wish of nodes of offers.items[offer], without facts of a node: fill in os, kernel, gpu, loaded where they are
 * known. launched: gpuprov launches the nodes from an image, so an unwritten key means auto; else it means none.
 * runtime: index of cuda.runtime, or 0. Strings are borrowed from the spec. */
struct software_wish spec_software_wish(const struct spec *s, size_t offer, bool launched, size_t runtime);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The spec's block `bootstrap.python`, decoded. Plain data. */
#ifndef GP_SPEC_SPEC_PYTHON_H
#define GP_SPEC_SPEC_PYTHON_H

#include "base/str.h"

#define SPEC_PYTHON_VENV "/opt/venv"                               /* where `venv` is absent */
#define SPEC_PYTHON_TORCH_INDEX "https://download.pytorch.org/whl" /* where `torch_index` is absent */

struct spec_python {
    bool wanted;          /* a key of the block was given */
    char *version;        /* "3.12"; NULL: the distribution's */
    char *venv;           /* absolute path; NULL: SPEC_PYTHON_VENV */
    struct strv packages; /* "numpy==2.1.0" */
    char *requirements;   /* the text of the file, which always has a newline; NULL: none */
    char *torch;          /* "auto", "none" or a version; NULL: "none" */
    char *index;          /* URL of a package index; NULL: the node's own setting, else PyPI */
    char *torch_index;    /* URL of the folder of torch's indexes; NULL: SPEC_PYTHON_TORCH_INDEX */
    char *index_auth;     /* name of the secret with "user:password" for `index` and `torch_index`; NULL: none */
};

/* A package of this name is wanted: by `torch`, `packages` or `requirements`. name: in lower case, without - and _. */
bool spec_python_asks(const struct spec_python *p, const char *name);
bool spec_python_torch(const struct spec_python *p); /* torch is to be installed */

#endif

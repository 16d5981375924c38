/* SPDX-License-Identifier: Apache-2.0 */
/* The decoded block `bootstrap.container`. */
#ifndef GP_SPEC_CONTAINER_H
#define GP_SPEC_CONTAINER_H

#include "base/str.h"

enum spec_engine { ENGINE_NONE, ENGINE_DOCKER, ENGINE_PODMAN, ENGINE_CONTAINERD };
struct spec_container {
    enum spec_engine engine; /* ENGINE_NONE: nothing of containers is set up or required */
    struct strv images;      /* each with a tag or a digest */
    char *registry_auth;     /* `env` of an entry of secrets; NULL: none */
};
const char *spec_engine_name(enum spec_engine e); /* "none", "docker", ... */
/* Packages of the engine on a system such as "debian-12"; NULL: it has none. */
const char *spec_engine_packages(enum spec_engine e, const char *os);

#endif

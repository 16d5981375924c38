/* SPDX-License-Identifier: Apache-2.0 */
/* Private to validate/agent/cache/: the settings of one package cache, and its store of files. */
#ifndef GP_AGENT_CACHE_H
#define GP_AGENT_CACHE_H

#include "base/error.h"
#include "validate/agent/cache/cache_request.h"

/* Read-only after the start. */
struct cache {
    int lock;           /* of the folder: only the process that listens holds it */
    const char *dir;    /* private, on the node's own disk: peers, lease, port, store/ */
    const char *bind;   /* the only address that it listens on */
    const char *fetch;  /* a sh script: FETCH URL FILE */
    struct strv always; /* origins that the caller allows */
};

/* A file of the store while one process sends it. The file is either complete and verified, or it grows. */
struct cache_file {
    int fd;        /* -1: not there yet */
    bool complete; /* its SHA-256 is that of its name */
    int64_t there; /* bytes that may be sent: the last byte of a file is kept back until it is verified */
};

/* Starts a fetch in a process of its own, unless the file is there or is being fetched. -GP_EIO: no room. */
int cache_fetch(const struct cache *c, const struct cache_request *q, struct gp_error *err);
/* Looks at the file again. False: it is not there and nobody fetches it any more. */
bool cache_look(const struct cache *c, const struct cache_request *q, struct cache_file *f);
/* Whether packages of this origin are fetched: the caller's list and the node's own package sources, which are read
 * each time, because a step may have added one. */
bool cache_origin_allowed(const struct cache *c, const char *origin);
/* Answers one connection. */
void cache_serve(const struct cache *c, int fd);

#endif

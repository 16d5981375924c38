/* SPDX-License-Identifier: Apache-2.0 */
/* A request to the package cache, decoded strictly, and the rules that decide whether it is fetched. No I/O; any
 * thread. */
#ifndef GP_AGENT_CACHE_REQUEST_H
#define GP_AGENT_CACHE_REQUEST_H

#include "base/str.h"

#define CACHE_HEAD_MAX 8192
#define CACHE_SIZE_MAX ((int64_t)64 << 30)

/* GET /SHA256/SIZE/SCHEME/HOST[:PORT]/PATH HTTP/1.1: the content is named by its hash and its size, so that nothing
 * else is ever sent. */
struct cache_request {
    char sha256[65];
    int64_t size;
    char origin[300]; /* "host:port" */
    char url[2048];   /* "https://host:port/path": letters, digits and characters without a meaning for sh */
};

/* Bytes of the head with its empty line; 0: not complete yet. */
size_t cache_head_size(const char *data, size_t n);
/* head: n bytes that end with the empty line. False: *ret_status ("400 Bad Request") and *ret_why are the answer, both
 * static. */
bool cache_request_parse(const char *head, size_t n, struct cache_request *ret, const char **ret_status,
                         const char **ret_why);
/* An origin that no source of packages can be: an address of this machine, of its link or of a cloud's metadata. */
bool cache_origin_refused(const char *origin);
/* Adds "host:port" of every http and https URL in the text of package sources (sources.list, .sources, .repo, lists of
 * mirrors). */
void cache_origins_add(struct strv *origins, const char *text);
/* The address of a peer in the form of the list of peers: IPv4 in IPv6 becomes IPv4. */
bool cache_peer_known(const char *peers, const char *address);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* The storage part of a spec's block `bootstrap`: files, limits and mounts. Plain data, owned by the spec. Included
 * by spec.h. */
#ifndef GP_SPEC_SPEC_STORAGE_H
#define GP_SPEC_SPEC_STORAGE_H

#include "base/str.h"
#include "base/vec.h"

struct spec_file {
    char *from;   /* absolute: a file or folder of this machine */
    char *to;     /* absolute: its path on the node */
    char *mode;   /* "0640"; NULL: as the local file, without write permission for others */
    char *sha256; /* of the content here, when the spec was loaded: part of the spec's hash; NULL: not looked at */
    char *owner;  /* "user" or "user:group"; NULL: the login user */
};

struct spec_node_limits {
    char *memlock; /* "unlimited" or "64GiB"; NULL: left alone */
    int nofile;    /* open files of a process; 0: left alone */
    int hugepages; /* of the node's default size; 0: left alone */
};
#define SPEC_NOFILE_AUTO 1048576

enum spec_mount_mode { MOUNT_WRITE, MOUNT_READ };
struct spec_mount {
    char *at;                                    /* absolute */
    char *nvme, *volume, *nfs, *lustre, *bucket; /* exactly one */
    char *fs;                                    /* of nvme and volume; NULL: ext4, or the one that is there */
    char *options;                               /* "a,b=c"; NULL: none */
    char *endpoint, *region;                     /* of bucket; may be NULL */
    struct strv secrets;                         /* of bucket: names of the spec's `secrets` */
    enum spec_mount_mode mode;
};

struct spec_storage {
    VEC_OF(struct spec_mount) mounts;
    VEC_OF(struct spec_file) files;
    size_t files_found, bytes_found; /* by all entries, when the spec was loaded */
    struct spec_node_limits limits;
};

#endif

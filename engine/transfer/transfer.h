/* SPDX-License-Identifier: Apache-2.0 */
/* Files and folders between this machine and a node: only differences, checked by hash, continued after a lost
 * connection. The node's side is the agent's verb `tree` (core/tree has the format that both sides speak). Each
 * function blocks until it is done and uses one command on the link's session; the link belongs to the calling
 * thread. A lost connection is opened again and the transfer goes on where it was; so does a repetition after this
 * process was killed, or after a full disk was cleaned up.
 *
 * struct tree_stats (tree/tree.h) has what was done.
 *
 * Copied: folders, regular files (mode 0777 of them, time of change, holes), symbolic links (as links). Not copied:
 * owners, hard links as such, extended attributes, sockets, pipes and devices. */
#ifndef GP_ENGINE_TRANSFER_H
#define GP_ENGINE_TRANSFER_H

#include "base/str.h"
#include "ssh/link.h"
#include "tree/tree.h"

#define TREE_SILENT_MS 60000        /* the agent gives a sign of life every 10 s */
#define TREE_LIMIT "TRANSFER_LIMIT" /* detail of a -GP_ETIMEOUT: no repetition before the caller's own end helps */

struct pace;

struct tree_up_req {
    const char *from; /* local folder or file. A link is followed here, but not below */
    const char *to;   /* on the node: absolute, or relative to the home folder; made with its parents. Of a file: its
                         path, or a folder that exists (or ends in '/'), in which it keeps its name */
    bool ignore;      /* rules of .gpuprovignore files (gitignore syntax) apply, and .git folders stay here */
    const struct strv *omit; /* folders of this machine below `from` that stay here, whatever the rules are; NULL */
    bool mirror;             /* remove what only the node has below `to`, but not what the rules ignore, and omit */
    bool by_hash;            /* compare hashes of files with equal size and time of change too */
    struct tree_sums *sums;  /* of `from`, shared by copies to several nodes, so that it is read once; NULL */
    int64_t deadline_ms;     /* monotonic; 0: none */
    /* Called now and then with the state so far, in the calling thread; NULL: not. */
    void (*progress)(void *ctx, const struct tree_stats *so_far);
    void *ctx;
};
/* Copies to the node. ret: zeroed; filled as far as known also after an error. Errors: -GP_EUSAGE: `from` cannot be
 * read; -GP_EIO: local or remote disk (detail "DISK_FULL" when full); -GP_EBOOTSTRAP: the node's agent is not there
 * or is of another version; -GP_EPROTO: it answered nonsense; -GP_ETIMEOUT, -GP_EREACH, -GP_ECANCELLED. Single files
 * that cannot be read or changed while they were read are notes, not errors.
 * An agent that is silent for TREE_SILENT_MS, or whose transfer makes no progress (pace.h), is asked again on a new
 * connection, twice: then -GP_EREACH. All attempts together have an end too (pace.h), but with deadline_ms: then that
 * one is it. */
int tree_up(struct node_link *l, const struct tree_up_req *req, struct tree_stats *ret, struct gp_error *err);

struct tree_down_req {
    const char *from; /* on the node: a folder or a file; absolute, or relative to the home folder */
    const char *to;   /* local: made with its parents. Of a file: as in tree_up_req */
    bool keep_name;   /* a folder goes to `to`/NAME, NAME being the last part of `from`; a file has that name always */
    bool mirror, by_hash;
    bool durable; /* all is on disk before it returns: for a caller that ends the node next */
    int64_t deadline_ms;
    struct pace *pace; /* of several transfers of one node, which share their end; NULL: its own */
    void (*progress)(void *ctx, const struct tree_stats *so_far);
    void *ctx;
};
/* Copies from the node, which is not trusted: its answer is held against `from` (tree_expect_path), nothing is written
 * outside `to`, and links that lead out of it are left out with a note. Errors: as tree_up; -GP_ENOTFOUND: the node
 * has no `from`; -GP_EIO with "DISK_FULL" also before anything came, if it does not fit here. */
int tree_down(struct node_link *l, const struct tree_down_req *req, struct tree_stats *ret, struct gp_error *err);

struct tree_many {
    struct node_link *link; /* its own for each node */
    const char *address;    /* where the other nodes reach it; NULL: nowhere. Only private addresses are used (10/8,
                               172.16/12, 192.168/16, 100.64/10, fc00::/7, loopback): content is not encrypted there */
    struct tree_stats stats;
    int rc; /* of this node, with err */
    struct gp_error err;
};
/* Copies one folder to many nodes: gpuprov sends it to the first, and each node that has it gives it to others over
 * their own network, so the time grows with the logarithm of n. What a node got from another one is compared by hash
 * with the folder here; what differs, or could not be fetched (an event of status warn says why), is sent from here.
 * A single file goes from here to each. req->progress is not called. One thread per node. 0 if all nodes have it; else
 * the code and the error of the first that has not, and the others are completed all the same. */
int tree_up_many(struct tree_many *nodes, size_t n, const struct tree_up_req *req, const struct gp_cancel *cancel,
                 struct gp_error *err);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Copies a folder or a file as a stream of bytes between two sides: the giver reads it, the taker writes it. A side
 * does no I/O but on its own files: the caller carries the bytes (feed, out), so the same code runs in the agent over
 * its standard streams and in gpuprov over SSH. What the other side sends is foreign and decoded strictly: neither
 * side reads or writes outside its root, whatever arrives. One side belongs to one thread.
 *
 * The taker compares what it has by size and time of change, else by hash, and asks only for what differs. A file
 * grows under a name of its own beside its place, and is renamed when its hash is right, so a repetition after a
 * crash continues it. */
#ifndef GP_TREE_H
#define GP_TREE_H

#include "base/clock.h"
#include "base/error.h"
#include "base/str.h"

/* Of one transfer; all counts are of regular files unless stated otherwise. */
struct tree_stats {
    uint64_t files, bytes;           /* in the source, after the ignore rules: files, their logical sizes */
    uint64_t files_sent, bytes_sent; /* that differed: files, bytes that crossed the connection */
    uint64_t bytes_fetched;          /* tree_up_many: came from another node */
    uint64_t removed;                /* files, links and folders (mirror) */
    uint64_t left_out;               /* not copied; see notes */
    struct strv notes;               /* why, at most 20 lines, clean text: "'x': the link leads out of the folder" */
};
void tree_stats_clear(struct tree_stats *s);
#define GP_AUTO_TREE_STATS GP_CLEANUP(tree_stats_clear)

/* What moved in one transfer: the measure of its progress. Signs of life and notes do not count. */
struct tree_work {
    uint64_t bytes; /* this side sent, or the other side sent of lists, wants and content, also of a part of a frame */
    uint64_t entries; /* that the other side looked at, by its own count */
    uint64_t hashed;  /* bytes that it compared, by its own count: no more than this side has to compare */
};

/* Called often while one call of tree_work lists or removes much: the other side must not take this one for gone. May
 * call tree_ping, tree_out and tree_sent. fn NULL: nothing is called. */
struct tree_beat {
    void (*fn)(void *ctx);
    void *ctx;
};

/* Hashes that givers of the same root found, for all of them. Any thread. */
struct tree_sums;
struct tree_sums *tree_sums_new(void);
void tree_sums_free(struct tree_sums *s);

struct tree_give_opts {
    const char *root; /* folder or file */
    bool ignore;      /* apply ignore files (ignore.h), and leave out .git */
    /* Folders below root that are not given, as if an ignore file of their parent named them: paths of this machine,
     * which may lead there through links or "..". NULL: none. Outlives the side. */
    const struct strv *omit;
    struct tree_sums *sums; /* or NULL; outlives the side */
    struct tree_beat beat;
    const struct gp_cancel *cancel;
};

/* What was requested of the giver. The taker holds the answer against it before it writes anything. Made by one of the
 * functions below: there is no default, and a zeroed one refuses every answer. */
enum tree_asked { TREE_ASKED_NOTHING, TREE_ASKED_PATH, TREE_ASKED_LIST, TREE_ASKED_ANY };
struct tree_expect {
    enum tree_asked asked;
    const char *path;
    unsigned char list[32];
};
/* A foreign giver was asked for `path` (borrowed until tree_taker). A file must have its last part as name, and is
 * refused where that part names a folder ("x/", ".", "~"). No rules may come, links that lead out of the root are left
 * out, modes are those of this process's umask at most, and all of it must fit on the disk. */
struct tree_expect tree_expect_path(const char *path);
/* A foreign giver was asked for a folder, and its list must have this hash (tree_list_hash): nothing is made before. */
struct tree_expect tree_expect_list(const unsigned char hash[32]);
/* The giver is the program that this one works for, and may choose: gpuprov, to its agent. */
struct tree_expect tree_expect_any(void);

struct tree_take_opts {
    const char *root; /* made with its parents. Of a file: its path, or a folder that exists (or ends in '/'), where it
                         gets the requested name; of tree_expect_any the giver's */
    bool keep_name;   /* a folder goes to root/NAME, NAME being the last part of the requested path if that has one */
    bool mirror;      /* remove what the giver does not have, but not what its rules ignore */
    bool by_hash;     /* compare hashes of files with equal size and time of change too */
    bool inside;      /* leave out links that lead out of root */
    bool durable;     /* all is on disk before the end */
    uint64_t id;      /* of the transfer. A taker of the same id that still has the root (its connection hangs) is
                         killed; 0: never */
    struct tree_beat beat;
    const struct gp_cancel *cancel;
};
struct tree_side;
/* Copies opts; nothing is opened before tree_work. Free with tree_side_free. */
struct tree_side *tree_giver(const struct tree_give_opts *opts);
struct tree_side *tree_taker(const struct tree_take_opts *opts, const struct tree_expect *expect);
void tree_side_free(struct tree_side *s);

/* Takes bytes of the other side and writes the files in them to disk. Errors: -GP_EPROTO: not what a sound other side
 * sends; -GP_EIO: this side's disk (detail DISK_FULL when full); the other side's own failure (see
 * tree_side_remote). */
int tree_feed(struct tree_side *s, const void *p, size_t n, struct gp_error *err);
/* Bytes for the other side; borrowed until the next call. tree_sent drops the first n of them. */
const void *tree_out(const struct tree_side *s, size_t *ret_n);
void tree_sent(struct tree_side *s, size_t n);
enum tree_state {
    TREE_BUSY,  /* call tree_work again, when tree_out was sent if there is much of it */
    TREE_WAITS, /* for bytes of the other side */
    TREE_ENDED  /* successfully: send the rest of tree_out */
};
/* Works for a few milliseconds on this side's files; the first call of a giver lists all of root. */
int tree_work(struct tree_side *s, enum tree_state *ret, struct gp_error *err);
void tree_ping(struct tree_side *s);   /* so that the other side knows we are alive, and how far this one is */
void tree_looked(struct tree_side *s); /* counts one entry; the next tree_beat reports the count */
void tree_fail(struct tree_side *s, const struct gp_error *why); /* reports it to the other side */
/* The error came from the other side. */
bool tree_side_remote(const struct tree_side *s);
const struct tree_stats *tree_side_stats(const struct tree_side *s);
/* The last part of a path, without slashes at its end; NULL if that names no folder by itself (".", "..", "/", "~").
 * Caller frees. */
char *tree_last_part(const char *path);
struct tree_work tree_side_work(const struct tree_side *s); /* none of its members decreases */

/* --- from node to node --- */
/* The list of a root as a giver would send it. Caller frees. *ret_size: of the files in it. *ret_folder: it is one.
 * Blocks on local files. */
int tree_list_bytes(const struct tree_give_opts *opts, void **ret, size_t *ret_n, uint64_t *ret_size, bool *ret_folder,
                    struct gp_error *err);
/* The hash of such a list, for tree_expect_list. */
void tree_list_hash(const void *list, size_t n, unsigned char ret[32]);
/* A giver that gives what this list names, and nothing else of the folder root. Copies the list. -GP_EPROTO: it is
 * no list of a folder. */
int tree_giver_listed(const char *root, const void *list, size_t n, struct tree_side **ret, struct gp_error *err);
/* Looks for the end of a list in the n bytes at p from *at on, which it moves behind the last whole frame. *ret_whole:
 * the list ends at *at. -GP_EPROTO: it is none. */
int tree_list_scan(const void *p, size_t n, size_t *at, bool *ret_whole, struct gp_error *err);

/* --- what gpuprov asks of the agent, at the front of its stream --- */
enum tree_verb {
    TREE_GIVE,  /* the folder or file to gpuprov */
    TREE_TAKE,  /* from gpuprov */
    TREE_SHARE, /* a list follows: give that to other nodes, until the stream ends. Answer: the port */
    TREE_FETCH, /* take it from another node. Answer: the bytes that came */
    TREE_VERB_END
};
#define TREE_TOKEN 32
struct tree_request {
    enum tree_verb verb;
    char *path; /* absolute, or relative to the home folder, also as "~/x" */
    bool ignore, mirror, by_hash, inside, durable;
    uint64_t id;
    char *peer;                      /* share: the own address to listen at; fetch: the other node's; else NULL */
    uint16_t port;                   /* fetch: of the other node */
    unsigned char token[TREE_TOKEN]; /* share, fetch: who knows it is one of the nodes */
    unsigned char list[32];          /* fetch: the hash of the list that the other node must send */
};
void tree_request_clear(struct tree_request *r);
/* The request as bytes, for TREE_SHARE and TREE_FETCH. Caller frees. */
void *tree_request_bytes(const struct tree_request *r, size_t *ret_n);
/* The agent's answer to these: greets and answers, in one piece. Caller frees. why NULL: success. */
void *tree_answer_bytes(uint64_t value, const struct gp_error *why, size_t *ret_n);
/* Decodes the answer among the first n bytes. *ret_there false: not all of it came yet. The agent's own failure:
 * its code. */
int tree_answer_get(const void *p, size_t n, bool *ret_there, uint64_t *ret, struct gp_error *err);
/* gpuprov's side: asks first, and expects the agent's greeting. */
void tree_side_ask(struct tree_side *s, const struct tree_request *r);
/* The agent's side: greets. */
void tree_side_greet(struct tree_side *s);
/* After it: the other side greets too, because it is no gpuprov that asked. */
void tree_side_expect(struct tree_side *s);
/* Decodes the request at the front of the n bytes at p. 0, and *ret_used 0: more bytes are needed. -GP_EPROTO: it is
 * none, or one of another version. */
int tree_request_get(const void *p, size_t n, struct tree_request *ret, size_t *ret_used, struct gp_error *err);

#endif

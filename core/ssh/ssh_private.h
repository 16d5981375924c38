/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of core/ssh; no file outside core/ssh includes this. */
#ifndef GP_SSH_PRIVATE_H
#define GP_SSH_PRIVATE_H

#include "base/vec.h"
#include "ssh/ssh.h"

#include <libssh2.h>

struct ssh_tunnel;

struct ssh_session {
    LIBSSH2_SESSION *lib;
    int fd;           /* the transport; behind a bastion one end of a socketpair */
    bool tcp;         /* fd is TCP: quick acknowledgements are requested */
    bool dead;        /* lost, or abandoned during a call: no more I/O */
    bool ready;       /* logged in */
    bool had_channel; /* the server gave one before */
    int lost_errno;   /* why the transport ended; 0: the other side closed it */
    /* Bytes that the transport did not take yet. libssh2 never sees a full socket, because it would require
     * that its call be repeated with the same pointers before any other call. Bounded, because callers send
     * only when this is empty. */
    struct str out;
    size_t out_off;
    size_t early_bytes;        /* received before login: capped, against endless banners */
    int64_t heard_ms;          /* when bytes were last received */
    int64_t nudged_ms;         /* when a keepalive was last sent (tunnels, and sessions that beat) */
    bool beats;                /* something is sent every 20 s (ssh_beat) */
    char *label, *where;       /* "llm/1", "10.0.0.1:22" */
    char *host_key;            /* "ssh-ed25519 AAAA..." */
    struct ssh_tunnel *tunnel; /* the bastion's side; NULL when direct */
};

/* One attempt to open: the data of its parts. Errors of these functions do not have the label; ssh_open
 * adds it. err->retryable: another attempt may help. */
struct ssh_attempt {
    const struct ssh_target *target;
    int64_t deadline_ms;
    const struct gp_cancel *cancel;
    const char *where;
    void (*waiting)(void *ctx, const char *why); /* may be NULL */
    void *ctx;
};
/* Deadline of a part of an attempt: at most ms from now. */
int64_t ssh_part_deadline(const struct ssh_attempt *a, int64_t ms);

/* --- target.c --- */
/* "10.0.0.1:22", "[::1]:2222"; caller frees. */
char *ssh_where(const char *host, uint16_t port);
uint16_t ssh_port(const struct ssh_target *t);
bool ssh_read_u32(const unsigned char **p, const unsigned char *end, uint32_t *ret);
/* An SSH string: length and bytes, borrowed from the buffer. */
bool ssh_read_string(const unsigned char **p, const unsigned char *end, const unsigned char **ret, size_t *ret_n);
void ssh_put_u32(struct str *s, uint32_t v);
void ssh_put_string(struct str *s, const void *p, size_t n);
/* Decodes; blanks are skipped. False: not base64. */
bool ssh_unbase64(const char *text, size_t n, struct str *ret);
/* "ssh-ed25519 AAAA..." of a public key blob; caller frees; NULL when the blob is malformed. */
char *ssh_blob_line(const void *blob, size_t n);
/* Blob of a line "TYPE BASE64 [comment]". False: malformed. */
bool ssh_line_blob(const char *line, struct str *ret);
/* "SHA256:..." (unpadded). */
void ssh_blob_fingerprint(const void *blob, size_t n, char *dst, size_t dst_n);

/* --- connect.c, dial.c: a connected, non-blocking descriptor --- */
int ssh_connect(const struct ssh_attempt *a, const char *host, uint16_t port, int *ret_fd, struct gp_error *err);
int ssh_unix_connect(const char *path, const char *what, int *ret_fd, struct gp_error *err);
int ssh_dial(const char *socket_path, const char *host, uint16_t port, int64_t deadline_ms,
             const struct gp_cancel *cancel, int *ret_fd, struct gp_error *err);
void ssh_tune_tcp(int fd);

/* --- session.c --- */
/* Sends the data in s->out and waits until bytes were received (or sent).
 * 0, -GP_ETIMEOUT or -GP_ECANCELLED (err set: "timed out", "cancelled"). */
int ssh_wait(struct ssh_session *s, int64_t deadline_ms, const struct gp_cancel *cancel, struct gp_error *err);
short ssh_wait_events(const struct ssh_session *s); /* poll's */
void ssh_flush(struct ssh_session *s);
bool ssh_flushed(const struct ssh_session *s);
void ssh_quick_ack(const struct ssh_session *s);
/* gp_fail with libssh2's own words added. */
int ssh_fail_lib(struct ssh_session *s, struct gp_error *err, enum gp_code code, const char *fmt, ...) GP_PRINTF(4, 5);
int ssh_fail_detail(struct gp_error *err, enum gp_code code, const char *detail, const char *fmt, ...) GP_PRINTF(4, 5);
/* Sets algorithms in order of preference; leaves out those that this libssh2 lacks. */
int ssh_prefer(struct ssh_session *s, int method, const char *list, struct gp_error *err);
/* One attempt, directly or through the bastion. */
int ssh_open_once(const struct ssh_attempt *a, struct ssh_session **ret, struct gp_error *err);

/* --- hostkey.c --- */
/* Puts the key types that are known for this host first, so that the server shows one of them. */
int ssh_hostkey_prefer(const struct ssh_attempt *a, struct ssh_session *s, struct gp_error *err);
int ssh_hostkey_check(const struct ssh_attempt *a, struct ssh_session *s, struct gp_error *err);

/* --- auth.c, keyfile.c, agent.c --- */
int ssh_login(const struct ssh_attempt *a, struct ssh_session *s, struct gp_error *err);

struct ssh_keyfile {
    char *type;      /* "ssh-ed25519"; NULL: not known (an encrypted key in an old form) */
    struct str blob; /* public key blob; empty when not known */
    bool encrypted;
};
void ssh_keyfile_clear(struct ssh_keyfile *k);
#define GP_AUTO_SSH_KEYFILE GP_CLEANUP(ssh_keyfile_clear)
/* Decodes the type of the key in a PEM text. name: for messages ("key '/x'"). -GP_EAUTH detail KEY. */
int ssh_keyfile_inspect(const char *name, const struct secret *pem, struct ssh_keyfile *ret, struct gp_error *err);
/* Reads a private key file: absent, unreadable, open to others, not a key: -GP_EAUTH detail KEY. */
int ssh_keyfile_read(const char *path, struct secret *ret, struct gp_error *err);
/* Fails when this libssh2 cannot sign with a key of this type. */
int ssh_keytype_usable(const char *name, const char *type, struct gp_error *err);

/* --- key_sign.c: a private key, ready to sign. libssh2's own key code leaks (1.10, ECDSA) and is not in
 * every build of it. --- */
struct ssh_signer {
    void *key; /* EVP_PKEY */
};
int ssh_signer_load(const char *name, const struct secret *pem, struct ssh_signer *ret, struct gp_error *err);
void ssh_signer_clear(struct ssh_signer *g);
#define GP_AUTO_SSH_SIGNER GP_CLEANUP(ssh_signer_clear)
/* data: the argument of libssh2's callback; ret_sig: the bare signature that it returns. */
int ssh_signer_sign(const struct ssh_signer *g, const unsigned char *data, size_t n, struct str *ret_sig,
                    struct gp_error *err);
/* With this algorithm, whatever data is. */
int ssh_signer_sign_as(const struct ssh_signer *g, const char *name, const unsigned char *data, size_t n,
                       struct str *ret_sig, struct gp_error *err);
/* key_verify.c: whether sig is of data by the key with that public blob: ed25519, or RSA with rsa-sha2-512. False also
 * for a blob of another type, or a malformed one. */
bool ssh_signature_holds(const struct str *blob, const struct str *data, const struct str *sig);
/* The algorithm that data names: "ssh-ed25519", "rsa-sha2-512"; false: malformed. */
bool ssh_sign_algorithm(const unsigned char *data, size_t n, char *dst, size_t dst_n);
/* The base64 part of an openssh-key-v1 text, decoded, after its magic. False: not one. */
bool ssh_openssh_key_body(const struct secret *pem, struct str *raw, const unsigned char **ret_p,
                          const unsigned char **ret_end);

struct ssh_agent_key {
    struct str blob;
    char *type, *comment;
};
struct ssh_agent {
    int fd;
    VEC_OF(struct ssh_agent_key) keys;
    int64_t deadline_ms; /* of the calls below */
    const struct gp_cancel *cancel;
};
/* Connects to $SSH_AUTH_SOCK and lists. No agent: -GP_ENOTFOUND. ret: {.fd = -1}. */
int ssh_agent_open(struct ssh_agent *a, int64_t deadline_ms, const struct gp_cancel *cancel, struct gp_error *err);
void ssh_agent_close(struct ssh_agent *a);
#define GP_AUTO_SSH_AGENT GP_CLEANUP(ssh_agent_close)
/* ret_sig: the bare signature, as libssh2's callback returns it. */
int ssh_agent_sign(struct ssh_agent *a, const struct ssh_agent_key *key, const unsigned char *data, size_t n,
                   struct str *ret_sig, struct gp_error *err);
/* With this algorithm, whatever data is. *ret_algorithm: what the agent used, for an old one uses another; may be NULL;
 * caller frees. */
int ssh_agent_sign_as(struct ssh_agent *a, const struct ssh_agent_key *key, const char *algorithm,
                      const unsigned char *data, size_t n, struct str *ret_sig, char **ret_algorithm,
                      struct gp_error *err);

/* --- exec.c: one command as a state machine that never blocks --- */
enum ssh_task_phase { TASK_OPEN, TASK_START, TASK_IO, TASK_CLOSE, TASK_DONE };
struct ssh_line {
    struct str text;
    bool skipping; /* the rest of a line that was too long */
};
struct ssh_task {
    struct ssh_session *session;
    const char *command;
    struct ssh_exec_opts opts;
    struct ssh_result *result;
    enum ssh_task_phase phase;
    LIBSSH2_CHANNEL *channel;
    size_t in_off;
    bool hold_eof; /* more of stdin follows, which on_line puts in place (put.c) */
    bool eof_sent;
    bool stopped;     /* a callback stopped the command */
    bool heard;       /* output was handed on since the last pull */
    int64_t pull_ms;  /* when to pull again at the latest */
    int64_t heard_ms; /* when output came last, later by the time in `pull` */
    bool again;       /* stopped for fairness: step again without waiting */
    int64_t close_by_ms;
    int64_t open_at_ms, open_until_ms; /* channel refused: when to retry, and until when; 0: not refused */
    struct ssh_line lines[2];
    int rc;
    struct gp_error err;
};
void ssh_task_init(struct ssh_task *t, struct ssh_session *s, const char *command, const struct ssh_exec_opts *opts,
                   struct ssh_result *result);
void ssh_task_step(struct ssh_task *t);    /* until it would block or phase is TASK_DONE */
void ssh_task_nudge(struct ssh_task *t);   /* sends a keepalive, so that a silent tunnel is detected */
void ssh_task_timeout(struct ssh_task *t); /* the deadline passed */
void ssh_task_cancel(struct ssh_task *t);
/* The last non-empty line of text, at most 160 bytes of it. */
void ssh_last_line(const struct str *from, char *dst, size_t n);
int64_t ssh_task_deadline(const struct ssh_task *t); /* when to wake at the latest */
bool ssh_task_late(const struct ssh_task *t);        /* for ssh_task_timeout */
void ssh_task_clear(struct ssh_task *t);
int ssh_tasks_run(struct ssh_task **tasks, size_t n, const struct gp_cancel *cancel); /* many.c */

/* --- bastion.c --- */
int ssh_tunnel_open(const struct ssh_attempt *a, struct ssh_tunnel **ret, int *ret_fd, struct gp_error *err);
void ssh_tunnel_close(struct ssh_tunnel *t); /* joins its thread */
void ssh_gates_clear(void);

#endif

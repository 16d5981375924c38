/* SPDX-License-Identifier: Apache-2.0 */
/* SSH through libssh2, its only user. Sessions are non-blocking inside; every function here blocks until it is
 * done. One session belongs to one thread at a time. Every wait ends at its deadline
 * or at once on cancellation. */
#ifndef GP_SSH_H
#define GP_SSH_H

#include "base/clock.h"
#include "base/error.h"
#include "base/secret.h"
#include "base/str.h"

struct ssh_target {
    char *label;       /* "llm/1": starts every error message */
    char *host;        /* name or address */
    uint16_t port;     /* 0: 22 */
    char *dial_socket; /* not NULL: get a connected descriptor from this unix socket ("dial HOST PORT\n",
                          answered by "ok\n" + SCM_RIGHTS or "error TEXT\n") instead of connecting */
    char *user;
    struct strv host_keys; /* accepted: "ssh-ed25519 AAAA..." or "SHA256:..."; any one is enough */
    char *known_hosts;     /* OpenSSH known_hosts file, or NULL */
    bool accept_new;       /* an unknown key is accepted and added to known_hosts (the caller reports
                              it); a changed one never is */
    char *key_path;        /* private key file, or NULL */
    struct secret key_pem; /* private key in memory (wins over key_path); empty: none */
    bool use_agent;
    struct ssh_target *bastion; /* NULL: direct; owned */
};
void ssh_target_clear(struct ssh_target *t);
void ssh_target_copy(struct ssh_target *to, const struct ssh_target *from);
/* Host, port (0: not given) and user (NULL: not given) of "[user@]host[:port]", IPv6 with a port in brackets,
 * each in its form (base/form.h): -GP_EUSAGE when not. The fields of ret must be empty. */
int ssh_target_parse(const char *text, struct ssh_target *ret, struct gp_error *err);
#define GP_AUTO_SSH_TARGET GP_CLEANUP(ssh_target_clear)

struct ssh_session;

int ssh_global_init(struct gp_error *err); /* main, once, before threads */
void ssh_global_exit(void);

/* Connects, checks the host key, logs in. Refused, unreachable, hanging, no banner: retried with
 * jitter until the deadline, then -GP_EREACH naming the last cause. A wrong host key (detail
 * "HOST_KEY", see late_host_key), a key that cannot be read or used (detail "KEY"): at once, -GP_EAUTH.
 * Login refused (detail "LOGIN"): at once, -GP_EAUTH, unless login_grace_ms > 0: retried that long. */
struct ssh_open_opts {
    int64_t deadline_ms;    /* monotonic */
    int64_t login_grace_ms; /* how long "permission denied" may mean "user not made yet" */
    bool late_host_key;     /* another host key may mean "not replaced yet": retried until the deadline. Nothing is
                               sent to a server with another key */
    const struct gp_cancel *cancel;
    void (*waiting)(void *ctx, const char *why); /* called at each retry with ssh_reason; may be NULL */
    void *ctx;
};
int ssh_open(const struct ssh_target *t, const struct ssh_open_opts *opts, struct ssh_session **ret,
             struct gp_error *err);
/* Why an attempt failed, in a few words and without the address, so that equal reasons of many nodes are equal:
 * "connection refused", "no SSH banner". Borrowed from why or static. */
const char *ssh_reason(const struct gp_error *why);
void ssh_close(struct ssh_session *s); /* never blocks for more than a second */
void ssh_cleanup(struct ssh_session **s);
#define GP_AUTO_SSH GP_CLEANUP(ssh_cleanup)
/* The host key that the server showed: "ssh-ed25519 AAAA..." (borrowed). */
const char *ssh_host_key(const struct ssh_session *s);
/* Why the connection ended, after SSH_LOST: "connection reset" (static text). */
const char *ssh_lost_why(const struct ssh_session *s);

enum ssh_end { SSH_EXITED, SSH_SIGNALED, SSH_LOST, SSH_TIMED_OUT };
struct ssh_result {
    enum ssh_end end;
    int status;          /* SSH_EXITED */
    char signal[16];     /* SSH_SIGNALED: "KILL" */
    struct str out, err; /* capped at max_output each; `truncated` is set when more was received
                            and dropped; the command continues */
    uint64_t out_bytes;  /* all received bytes, kept or not */
};
void ssh_result_clear(struct ssh_result *r);
#define GP_AUTO_SSH_RESULT GP_CLEANUP(ssh_result_clear)

enum ssh_pull {
    SSH_PULL_WAIT,  /* nothing until more output of the command was handed on, or for a few seconds */
    SSH_PULL_AGAIN, /* busy with work of its own: call again at once */
    SSH_PULL_EOF,   /* nothing any more */
    SSH_PULL_STOP   /* stop the command, as on_line does */
};
struct ssh_exec_opts {
    const void *in; /* sent to stdin, then EOF; NULL: EOF at once */
    size_t in_len;
    /* Instead of `in`: called when the connection takes more of stdin. *ret_n bytes at *ret, which stay until `pulled`
     * tells how many of them were sent. The result counts only without bytes. A stream in both directions: each is
     * stopped by a slow other side, and memory stays bounded. Called at least every few seconds. */
    enum ssh_pull (*pull)(void *ctx, const void **ret, size_t *ret_n);
    void (*pulled)(void *ctx, size_t n);
    /* Instead of lines and of ret->out: stdout as it arrives. Not called again before it returned, so it may block on a
     * local disk, and the other side waits. Return false to stop. May be NULL. */
    bool (*on_data)(void *ctx, const void *p, size_t n);
    int64_t deadline_ms; /* 0: none */
    int64_t silent_ms;   /* ends it as the deadline does when it printed nothing for so long; 0: never. Time in the
                            callbacks does not count, nor does stderr beside on_data */
    size_t max_output;   /* 0: 1 MiB */
    const struct gp_cancel *cancel;
    /* Called with each complete line (without newline, at most 64 KiB, NUL bytes replaced) as it arrives. An
     * incomplete line before a lost connection or the deadline is dropped; one at the command's own end is
     * passed. Return false to stop the command (end = SSH_TIMED_OUT with status -1). May be
     * NULL. */
    bool (*on_line)(void *ctx, bool is_stderr, const char *line, size_t len);
    void *ctx;
};
/* Runs through the login shell's "-c". 0: the command ended, the connection was lost or the deadline
 * passed (see ret->end; in the last two cases the remote command may continue). Negative only for
 * cancellation and local errors. After SSH_LOST the session is dead: close it. */
int ssh_exec(struct ssh_session *s, const char *command, const struct ssh_exec_opts *opts, struct ssh_result *ret,
             struct gp_error *err);
/* Reports to a node with limits.controller that a gpuprov is connected: the node stores that, and from now on something
 * is sent every 20 s while a command runs. For each new session. Blocks for a round trip. */
void ssh_beat(struct ssh_session *s, const struct gp_cancel *cancel);
/* ssh_exec that turns everything but exit 0 into an error naming the command and its last line. */
int ssh_run(struct ssh_session *s, const char *what, const char *command, const struct ssh_exec_opts *opts,
            struct str *ret_out, struct gp_error *err);

/* Runs one command on each of many sessions with one poll loop, in the calling thread. Sessions must
 * not be in use elsewhere. Fills jobs[i].result and jobs[i].rc/err; returns when all ended or the
 * deadline passed or cancel. */
struct ssh_job {
    struct ssh_session *session;
    const char *command;
    struct ssh_exec_opts opts; /* opts.deadline_ms per job */
    struct ssh_result result;
    int rc;
    struct gp_error err;
};
int ssh_exec_many(struct ssh_job *jobs, size_t n, const struct gp_cancel *cancel, struct gp_error *err);

/* A file to copy to many nodes: hashed and packed once, then read-only (for any number of threads). */
struct ssh_blob {
    const void *data; /* borrowed: must outlive the blob. NULL: unpacked for each node that has no gzip */
    size_t n;
    char sha256[65];
    void *packed; /* gzip form, or NULL when that saves nothing */
    size_t packed_n;
};
void ssh_blob_make(const void *data, size_t n, struct ssh_blob *ret);
void ssh_blob_clear(struct ssh_blob *b);
/* The n bytes of its packed form. NULL: damaged. Caller frees. */
void *ssh_blob_unpack(const struct ssh_blob *b);
#define GP_AUTO_SSH_BLOB GP_CLEANUP(ssh_blob_clear)

/* Copies bytes to `path` (created with mode, atomically: temporary file in the same folder, sha256
 * checked on the node, rename; missing folders are created). Not sent when the node's file already has this
 * checksum; compressed with gzip when that saves bytes and the node has gzip. Full disk:
 * -GP_EIO. */
int ssh_put_blob(struct ssh_session *s, const char *path, unsigned mode, const struct ssh_blob *blob,
                 int64_t deadline_ms, const struct gp_cancel *cancel, bool *ret_sent, struct gp_error *err);
/* The same for one node. */
int ssh_put(struct ssh_session *s, const char *path, unsigned mode, const void *data, size_t n, int64_t deadline_ms,
            const struct gp_cancel *cancel, bool *ret_sent, struct gp_error *err);

/* --- keys --- */
/* A fresh ed25519 pair: private in OpenSSH PEM form, public as one authorized_keys line. */
int ssh_key_make(const char *comment, struct secret *ret_private, char **ret_public, struct gp_error *err);
/* Public line of a private key file (reads PATH.pub, else derives it from an unencrypted ed25519 /
 * ECDSA key). Clear errors for RSA with an old libssh2 (see ssh_rsa_ok), encrypted keys, wrong mode. */
int ssh_key_public(const char *private_path, char **ret_line, struct gp_error *err);
/* "SHA256:..." of a public line. */
int ssh_key_fingerprint(const char *public_line, char *dst, size_t n, struct gp_error *err);
bool ssh_rsa_ok(void); /* the libssh2 in use can sign with rsa-sha2 (>= 1.11) */
/* First identity of the running agent as a public line; -GP_ENOTFOUND without agent or identity. */
int ssh_agent_public(char **ret_line, struct gp_error *err);

/* A private key: in memory, else its file, else the agent's. */
struct ssh_key_ref {
    const struct secret *pem; /* NULL or empty: none */
    const char *path;         /* NULL: none. A file with a passphrase is used through the agent */
    const char *public_line;  /* of that key: names it at the agent */
};
/* Secret bytes that only who can sign with the key can have, equal each time: its signature of name_space and text in
 * the form of OpenSSH's PROTOCOL.sshsig, so that it is no signature of anything else. Only ed25519 and RSA: others sign
 * differently each time, -GP_EUSAGE. -GP_EAUTH, -GP_ENOTFOUND: the key cannot be read or is not in the agent. May block
 * on the agent for up to a minute, because it may prompt. */
int ssh_key_secret(const struct ssh_key_ref *key, const char *name_space, const char *text,
                   const struct gp_cancel *cancel, struct secret *ret, struct gp_error *err);

/* "TYPE BASE64" of a host key line, rebuilt from its decoded base64, without its comment. Only the
 * types that gpuprov trusts as host keys; -GP_EUSAGE for anything else. Caller frees. */
int ssh_host_key_line(const char *line, char **ret, struct gp_error *err);

/* OpenSSH client config blocks for the target (Host alias) and its bastions (Host alias.bastion), appended
 * to out. Writes known_hosts lines into dir/known_hosts.ALIAS. self_exe: the program whose hidden verbs
 * __dial (dial sockets) and __known_host (fingerprints) ssh starts. A target with a malformed value
 * (base/form.h) is refused as a whole: -GP_EUSAGE, out is unchanged. */
int ssh_client_config(const struct ssh_target *t, const char *alias, const char *dir, const char *self_exe,
                      struct str *out, struct gp_error *err);
/* Whether OpenSSH's file has a key of this host, whatever its type. Reads only the file. */
bool ssh_known_hosts_has(const char *path, const char *host, uint16_t port);

/* The `gpuprov __known_host` side: appends the known_hosts line "HOST TYPE BASE64" when the key has one of
 * the fingerprints, else nothing. */
int ssh_known_host(const char *const *fingerprints, size_t n, const char *host, const char *type, const char *base64,
                   struct str *out, struct gp_error *err);
/* The `gpuprov __dial` side: gets a descriptor from the dial socket and passes it on stdout. */
int ssh_dial_pass(const char *socket_path, const char *host, uint16_t port, struct gp_error *err);

#endif

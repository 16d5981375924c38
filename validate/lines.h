/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's JSON lines, decoded on the controller. agent_line_decode is pure; agent_stream keeps one agent's
 * results and gives a verdict to each check without one: never a pass. */
#ifndef GP_VALIDATE_LINES_H
#define GP_VALIDATE_LINES_H

#include "base/error.h"
#include "base/vec.h"
#include "model/report.h"
#include "validate/suite/checks.h"
#include "validate/suite/protocol.h"

enum agent_line_type {
    AGENT_HELLO,   /* agent, host, boot_id, pid, rank, size */
    AGENT_LOADED,  /* load_ms: the driver is loaded; the time of the checks begins */
    AGENT_START,   /* check */
    AGENT_RESULT,  /* check, result */
    AGENT_END,     /* verdict, reason */
    AGENT_STARTED, /* pid: a rank went to the background */
    AGENT_LISTEN,  /* addr: rank 0 waits for the others there */
    AGENT_AT,      /* offset, alive: end of the output of `follow` */
    AGENT_OTHER    /* of an unknown type: ignored */
};
struct agent_line {
    enum agent_line_type type;
    char check[64];
    char addr[64];
    char agent[40]; /* AGENT_HELLO: its gpuprov version; "" */
    char host[80];  /* AGENT_HELLO: the node's own name; "" */
    char boot_id[40];
    char reason[200]; /* AGENT_END: why it ended early; "" if it did not */
    int64_t pid, offset, load_ms;
    int64_t rank; /* the line's rank, where several ranks write one stream; -1: none */
    int64_t size; /* AGENT_HELLO of a rank; else 0 */
    bool alive;
    enum verdict verdict;
    struct check_result result; /* AGENT_RESULT: owned */
};
/* Zeroes ret first. -GP_EPROTO: not JSON, too long, a field missing or of a wrong type, another protocol version.
 * Pure. */
int agent_line_decode(const char *line, size_t len, struct agent_line *ret, struct gp_error *err);
void agent_line_clear(struct agent_line *l);

enum agent_check_state { AGENT_CHECK_WAITING, AGENT_CHECK_RUNNING, AGENT_CHECK_DONE };
struct agent_check {
    const struct check_info *info;
    enum agent_check_state state;
    struct check_result result; /* AGENT_CHECK_DONE */
};
struct agent_stream {
    VEC_OF(struct agent_check) checks;
    bool hello, ended;
    enum verdict worst; /* of the agent's own verdicts, before they were judged here */
    char addr[64];      /* from AGENT_LISTEN; "" */
    char host[80];      /* from AGENT_HELLO; "" */
    char boot_id[40];   /* from AGENT_HELLO; "" */
    /* Set by the owner: the required sender of hello. size 0: not a rank; boot "": any. */
    int64_t want_rank, want_size;
    char want_boot_id[40];
    int64_t pid, offset; /* from AGENT_STARTED, AGENT_AT */
    int64_t load_ms;     /* from AGENT_LOADED; -1: not received */
    bool started, at, alive;
    struct gp_error bad; /* the first unreadable line; nothing is read after it */
    char last_err[240];  /* the last line of its stderr: for messages only */
    /* Called once per start (result NULL), once per result, and again when a result is withdrawn
     * (agent_stream_doubt); may be NULL. May change the result: it is judged here. */
    void (*told)(void *ctx, const struct check_info *info, struct check_result *result);
    void *ctx;
};
void agent_stream_init(struct agent_stream *s, const struct check_info *const *checks, size_t n);
void agent_stream_clear(struct agent_stream *s);
/* Takes one line. False: the stream must not be read any further; the cause is in s->bad: a line before the hello, a
 * second hello or one of another rank, boot or gpuprov, a pass of a check that was not begun, a result that was not
 * requested, a second result, or a line after the end. An end with a reason, or with a worse verdict than the
 * results, withdraws them. */
bool agent_stream_line(struct agent_stream *s, bool is_stderr, const char *line, size_t len);
/* The same for a line that is decoded already (agent_line_decode), of one rank's among several; takes its result. */
bool agent_stream_take(struct agent_stream *s, struct agent_line *l);
bool agent_stream_complete(const struct agent_stream *s); /* every check has its result */
bool agent_stream_began(const struct agent_stream *s);    /* at least one check was started */
/* Gives every check without a result one: error when it was running, skipped when it never began. If the stream
 * broke off (no end, or trouble), earlier passes are withdrawn. */
void agent_stream_finish(struct agent_stream *s, const char *reason);
/* The agent did not run: each check without a result is an error, not skipped. */
void agent_stream_fail(struct agent_stream *s, const char *reason);
/* Withdraws passes: pass and degraded become error, because of a later failure. */
void agent_stream_doubt(struct agent_stream *s, const char *reason);

/* Makes a result on the controller's side, without metrics. */
void check_result_make(struct check_result *r, const char *check, enum verdict v, const char *code,
                       const char *message);

#endif

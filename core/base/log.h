/* SPDX-License-Identifier: Apache-2.0 */
/* Trace output (--trace=http,ssh,state) to stderr; code below the engine prints nothing else. The redactor replaces
 * every value that is registered with log_redact by '***', with log_redact_as by a text, and each password in a URL.
 * The program also edits every error with it (base/error.h). */
#ifndef GP_BASE_LOG_H
#define GP_BASE_LOG_H

#include "base/error.h"
#include "base/secret.h"

enum log_part { LOG_HTTP = 1, LOG_SSH = 2, LOG_STATE = 4, LOG_NODE = 8 };

/* "http,ssh,state,node" or "all". Unknown names: -GP_EUSAGE listing the valid ones. main only. */
int log_enable(const char *parts, struct gp_error *err);
bool log_on(enum log_part part);
void log_trace(enum log_part part, const char *fmt, ...) GP_PRINTF(2, 3);
/* Registers a value that no trace line and no error text may show, in its own form, as str_add_clean gives it,
 * percent-encoded, in base64 and as JSON has it. Whoever reads a secret registers it before it is used. Values shorter
 * than 6 bytes are ignored. */
void log_redact(const struct secret *value);
/* The same; NULL: nothing. */
void log_redact_text(const char *value);
/* Registers a value that is shown as `shown`, such as "${env:TOKEN}", in traces, errors, events and plans. One of 6 to
 * 11 bytes is found as a whole word, a shorter one only in single quotes: "us" is a part of many words. */
void log_redact_as(const char *value, const char *shown);
/* The value is no secret after all: undoes log_redact_as of the same value. */
void log_reveal(const char *value);
/* Replaces registered values in text, secrets by '***'; also one that was cut after its first 16 bytes, and at the
 * beginning of a line the rest of one of 1 KiB or more. Values that overlap are replaced as one: by the text of the
 * first, or by '***' if a secret or a password goes on behind it. A few sentences of the program stay whatever is
 * registered: "may still be billed", for instance. Caller frees the result. */
char *log_redacted(const char *text);
/* Foreign output as str_add_clean gives it, without secrets: cleaned first, because escape sequences inside a secret
 * would hide it. Caller frees. */
char *log_cleaned(const char *foreign);
void log_close(void); /* forgets the registered secrets; main, last */

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Trace output (--trace=http,ssh,state) to stderr; code below the engine prints nothing else. The redactor
 * replaces every secret registered with log_redact by '***'. */
#ifndef GP_BASE_LOG_H
#define GP_BASE_LOG_H

#include "base/error.h"
#include "base/secret.h"

enum log_part { LOG_HTTP = 1, LOG_SSH = 2, LOG_STATE = 4, LOG_NODE = 8 };

/* "http,ssh,state,node" or "all". Unknown names: -GP_EUSAGE listing the valid ones. main only. */
int log_enable(const char *parts, struct gp_error *err);
bool log_on(enum log_part part);
void log_trace(enum log_part part, const char *fmt, ...) GP_PRINTF(2, 3);
/* Registers a value that no trace line may show. Values shorter than 6 bytes are ignored. */
void log_redact(const struct secret *value);
/* Replaces registered secrets in text, in place of each '***'; caller frees the result. */
char *log_redacted(const char *text);
void log_close(void); /* forgets the registered secrets; main, last */

#endif

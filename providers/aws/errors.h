/* SPDX-License-Identifier: Apache-2.0 */
/* AWS error codes: one table from a code (never an HTTP status) to what it means here. */
#ifndef GP_AWS_ERRORS_H
#define GP_AWS_ERRORS_H

#include "base/error.h"
#include "base/json.h"
#include "base/xml.h"

enum aws_class {
    AWS_NO,      /* refused for good: nothing was done */
    AWS_SLOW,    /* refused for now (throttled): nothing was done, try again */
    AWS_TROUBLE, /* the cloud's own trouble: it may have acted */
    AWS_STALE,   /* credentials expired: get new ones, try again once */
    AWS_CLOCK    /* our clock differs too much: correct it, try again once */
};

struct aws_error_row {
    const char *code; /* "X.*": every code that starts with "X." or is X */
    enum gp_code gp;
    enum gp_scope scope;
    enum aws_class class;
    const char *advice; /* what a person does next; "" when the cloud's own words say it */
};

/* Never NULL: an unknown code gets a row of scope OFFER that says so. */
const struct aws_error_row *aws_error_row(const char *code);

/* What a reply said; borrowed from the reply. */
struct aws_said {
    const char *code, *message, *request_id; /* "" when absent */
};
/* Both forms of the XML: Response/Errors/Error and ErrorResponse/Error(s). False: no error in it. */
bool aws_said_xml(const struct xml_node *root, struct aws_said *ret);
/* {"__type": "a.b#Code", "message": ...}. */
bool aws_said_json(const json_t *j, struct aws_said *ret);

/* Sets err from the table: "WHAT: CODE: MESSAGE: advice (request ID)". Returns -err->code. */
int aws_fail(struct gp_error *err, const char *what, const struct aws_said *said);

#endif

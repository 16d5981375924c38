/* SPDX-License-Identifier: Apache-2.0 */
/* AWS error codes: one table from a code (never an HTTP status) to what it means here, and where a reply has it. */
#ifndef GP_AWS_ERRORS_H
#define GP_AWS_ERRORS_H

#include "base/json.h"
#include "base/xml.h"
#include "providers/common/refusal.h"

/* Never NULL: an unknown code gets a row of scope OFFER. */
const struct cloud_error *aws_error_row(const char *code);

/* Both forms of the XML: Response/Errors/Error and ErrorResponse/Error(s). False: no error in it. */
bool aws_said_xml(const struct xml_node *root, struct cloud_said *ret);
/* {"__type": "a.b#Code", "message": ...}. */
bool aws_said_json(const json_t *j, struct cloud_said *ret);

#endif

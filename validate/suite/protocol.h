/* SPDX-License-Identifier: Apache-2.0 */
/* Protocol between the controller and the agents: its version, its lines, verdicts. The lines are
 * described in docs/agent-protocol.md. */
#ifndef GP_PROTOCOL_H
#define GP_PROTOCOL_H

#include "base/verdict.h"

#define AGENT_PROTOCOL 1
#define AGENT_LINE_MAX ((size_t)60 << 10) /* bytes with the newline; ssh cuts lines at 64 KiB */

#endif

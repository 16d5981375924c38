/* SPDX-License-Identifier: Apache-2.0 */
/* TCP at addresses of one interface. */
#ifndef GP_AGENT_TCP_H
#define GP_AGENT_TCP_H

#include "base/clock.h"
#include "base/error.h"

#include <netinet/in.h>
#include <sys/socket.h>

union tcp_address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};
/* A numeric address, but not that of all interfaces. */
bool tcp_address_parse(const char *text, int port, union tcp_address *a, socklen_t *n);
/* Listens at one address; port 0: any. The descriptor (non-blocking), or -1 and err. */
int tcp_listen(const char *bind_to, int port, int *ret_port, struct gp_error *err);
/* Connects until the deadline. The descriptor (non-blocking), or -1 and err. */
int tcp_connect(const char *to, int port, int64_t deadline_ms, struct gp_error *err);

#endif

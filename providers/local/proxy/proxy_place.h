/* SPDX-License-Identifier: Apache-2.0 */
/* Where an address leads, for the package proxy: to another machine, or to this one. No state; any thread. */
#ifndef GP_LOCAL_PROXY_PLACE_H
#define GP_LOCAL_PROXY_PLACE_H

#include <stdbool.h>

struct sockaddr;

/* In rising order of what is kept from nodes: each request has a highest place that it may go to. */
enum proxy_place {
    PLACE_FAR,      /* another machine */
    PLACE_HERE,     /* this machine by any of its addresses, its links, or no single machine (multicast, broadcast) */
    PLACE_METADATA, /* what a cloud tells an instance about itself */
    PLACE_UNKNOWN   /* the kernel could not be asked, or no internet address */
};

/* By the address alone; of an IPv6 address that carries an IPv4 address, also by that one. */
enum proxy_place proxy_place_by_form(const struct sockaddr *a);
/* Also by what this machine's network says at this moment: its interfaces' addresses and its routing tables. */
enum proxy_place proxy_place(const struct sockaddr *a);
/* A name that means this machine or a cloud's metadata without a look-up. */
bool proxy_name_is_near(const char *host);

#endif

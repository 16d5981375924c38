/* SPDX-License-Identifier: Apache-2.0 */
/* Links and addresses inside a stack's own network namespace, through rtnetlink by hand: no `ip`
 * binary is needed and nothing outside the caller's namespace is touched. All return 0 or -errno and
 * act on the calling process's current network namespace; the holder's only thread calls them. */
#ifndef GP_LOCAL_NETNS_H
#define GP_LOCAL_NETNS_H

#include "base/gp_base.h"

#define LOCAL_BRIDGE "br0"
#define LOCAL_GATEWAY "10.91.0.1" /* the bridge: the holder's own address, where the proxy listens */
#define LOCAL_PREFIX 16
#define LOCAL_PROXY_PORT 3128
#define LOCAL_SLOTS_MAX 512

/* Address of a node: slot 0 is 10.91.0.2; no address ends in .0, .1 or .255. */
void net_node_ip(int slot, char dst[20]);

int net_bridge_add(void); /* LOCAL_BRIDGE with a fixed hardware address */
int net_link_up(const char *dev);
int net_addr_add(const char *dev, const char *ip); /* /16; there already: success */
/* The connected route again, with quick acknowledgements: an SSH login takes 50 ms instead of 140. */
int net_route_quickack(const char *dev, const char *ip);
/* The node of this slot is there, or no longer: its hardware address for good. The machine's one table of addresses
 * learned by ARP has room for 1,024 of all namespaces together, as many as 32 nodes that meet each other need. */
int net_neighbour(const char *dev, int slot, bool there);
/* A veth pair: `dev` on the bridge here, `eth0` with an address made from the slot in the namespace
 * that peer_ns (a descriptor) is. */
int net_veth_add(const char *dev, int slot, int peer_ns);
int net_link_del(const char *dev);

#endif

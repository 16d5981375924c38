/* SPDX-License-Identifier: Apache-2.0 */
/* rtnetlink by hand: one request, one acknowledgement. Single-threaded holder only; never touches
 * the machine's own network namespace. */
#include "base/gp_base.h"

#include "providers/local/ns/netns.h"

#include <arpa/inet.h>
#include <errno.h>
#include <linux/if_link.h>
#include <linux/neighbour.h>
#include <linux/rtnetlink.h>
#include <linux/veth.h>
#include <net/if.h>
#include <sys/socket.h>
#include <unistd.h>

struct request {
    union {
        struct nlmsghdr h;
        char room[1024];
    } u;
};

static void *tail(struct request *q) { return q->u.room + NLMSG_ALIGN(q->u.h.nlmsg_len); }

/* Starts a message with a body of n zeroed bytes. */
static void *start(struct request *q, size_t n) {
    memset(q, 0, sizeof *q);
    q->u.h.nlmsg_len = (uint32_t)NLMSG_LENGTH(n);
    return NLMSG_DATA(&q->u.h);
}

/* n zeroed bytes at the end, for a nested body. */
static void *grow(struct request *q, size_t n) {
    void *p = tail(q);
    q->u.h.nlmsg_len = (uint32_t)(NLMSG_ALIGN(q->u.h.nlmsg_len) + n);
    return p;
}

static struct rtattr *add(struct request *q, int type, const void *data, size_t n) {
    struct rtattr *a = tail(q);
    a->rta_type = (unsigned short)type;
    a->rta_len = (unsigned short)RTA_LENGTH(n);
    if (n > 0) memcpy(RTA_DATA(a), data, n);
    q->u.h.nlmsg_len = (uint32_t)(NLMSG_ALIGN(q->u.h.nlmsg_len) + RTA_ALIGN(a->rta_len));
    return a;
}

static void add_text(struct request *q, int type, const char *s) { add(q, type, s, strlen(s) + 1); }

static void end_nested(struct request *q, struct rtattr *a) {
    a->rta_len = (unsigned short)((char *)tail(q) - (char *)a);
}

static int run(struct request *q, int type, int flags) {
    GP_AUTO_FD int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (s < 0) return -errno;
    q->u.h.nlmsg_type = (uint16_t)type;
    q->u.h.nlmsg_flags = (uint16_t)(NLM_F_REQUEST | NLM_F_ACK | flags);
    if (send(s, q, q->u.h.nlmsg_len, 0) < 0) return -errno;
    struct {
        struct nlmsghdr h;
        struct nlmsgerr e;
        char more[1200];
    } reply = {0};
    ssize_t n = recv(s, &reply, sizeof reply, 0);
    if (n < 0) return -errno;
    if ((size_t)n < NLMSG_LENGTH(sizeof reply.e) || reply.h.nlmsg_type != NLMSG_ERROR) return -EPROTO;
    return reply.e.error;
}

static int index_of(const char *dev) {
    unsigned i = if_nametoindex(dev);
    return i == 0 ? -ENODEV : (int)i;
}

void net_node_ip(int slot, char dst[20]) { snprintf(dst, 20, "10.91.%d.%d", slot / 250, slot % 250 + 2); }

int net_link_up(const char *dev) {
    struct request q;
    struct ifinfomsg *i = start(&q, sizeof *i);
    i->ifi_index = index_of(dev);
    if (i->ifi_index < 0) return i->ifi_index;
    i->ifi_flags = i->ifi_change = IFF_UP;
    return run(&q, RTM_NEWLINK, 0);
}

int net_link_del(const char *dev) {
    struct request q;
    struct ifinfomsg *i = start(&q, sizeof *i);
    i->ifi_index = index_of(dev);
    if (i->ifi_index < 0) return i->ifi_index;
    return run(&q, RTM_DELLINK, 0);
}

int net_addr_add(const char *dev, const char *ip) {
    struct request q;
    struct ifaddrmsg *a = start(&q, sizeof *a);
    struct in_addr in;
    int index = index_of(dev);
    if (index < 0) return index;
    if (inet_aton(ip, &in) == 0) return -EINVAL;
    a->ifa_family = AF_INET;
    a->ifa_prefixlen = LOCAL_PREFIX;
    a->ifa_index = (unsigned)index;
    add(&q, IFA_LOCAL, &in, sizeof in);
    add(&q, IFA_ADDRESS, &in, sizeof in);
    int r = run(&q, RTM_NEWADDR, NLM_F_CREATE);
    return r == -EEXIST ? 0 : r;
}

int net_route_quickack(const char *dev, const char *ip) {
    struct request q;
    struct rtmsg *m = start(&q, sizeof *m);
    struct in_addr src, net;
    int index = index_of(dev);
    uint32_t one = 1;
    if (index < 0) return index;
    if (inet_aton(ip, &src) == 0) return -EINVAL;
    net.s_addr = htonl(ntohl(src.s_addr) & 0xffff0000U);
    m->rtm_family = AF_INET;
    m->rtm_dst_len = LOCAL_PREFIX;
    m->rtm_table = RT_TABLE_MAIN;
    m->rtm_protocol = RTPROT_KERNEL; /* replaces the kernel's own connected route */
    m->rtm_scope = RT_SCOPE_LINK;
    m->rtm_type = RTN_UNICAST;
    add(&q, RTA_DST, &net, sizeof net);
    add(&q, RTA_PREFSRC, &src, sizeof src);
    add(&q, RTA_OIF, &index, sizeof index);
    struct rtattr *metrics = add(&q, RTA_METRICS, NULL, 0);
    add(&q, RTAX_QUICKACK, &one, sizeof one);
    end_nested(&q, metrics);
    return run(&q, RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE);
}

/* Locally administered, the same for the same slot: a replaced node is found without new ARP. */
static void hardware_address(int number, unsigned char mac[6]) {
    const unsigned char m[6] = {0x02, 0x5b, 0, 0, (unsigned char)(number >> 8), (unsigned char)(number & 255)};
    memcpy(mac, m, 6);
}

int net_neighbour(const char *dev, int slot, bool there) {
    struct request q;
    struct ndmsg *m = start(&q, sizeof *m);
    struct in_addr in;
    unsigned char mac[6];
    char ip[20];
    int index = index_of(dev);
    if (index < 0) return index;
    net_node_ip(slot, ip);
    if (inet_aton(ip, &in) == 0) return -EINVAL;
    hardware_address(slot + 2, mac);
    m->ndm_family = AF_INET;
    m->ndm_ifindex = index;
    m->ndm_state = NUD_PERMANENT;
    add(&q, NDA_DST, &in, sizeof in);
    if (there) add(&q, NDA_LLADDR, mac, sizeof mac);
    return run(&q, there ? RTM_NEWNEIGH : RTM_DELNEIGH, there ? NLM_F_CREATE | NLM_F_REPLACE : 0);
}

int net_bridge_add(void) {
    struct request q;
    unsigned char mac[6];
    start(&q, sizeof(struct ifinfomsg));
    hardware_address(1, mac);
    add_text(&q, IFLA_IFNAME, LOCAL_BRIDGE);
    add(&q, IFLA_ADDRESS, mac, sizeof mac);
    struct rtattr *info = add(&q, IFLA_LINKINFO, NULL, 0);
    add_text(&q, IFLA_INFO_KIND, "bridge");
    end_nested(&q, info);
    return run(&q, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
}

int net_veth_add(const char *dev, int slot, int peer_ns) {
    struct request q;
    struct ifinfomsg *i = start(&q, sizeof *i);
    int master = index_of(LOCAL_BRIDGE);
    unsigned char mac[6];
    if (master < 0) return master;
    i->ifi_flags = i->ifi_change = IFF_UP;
    hardware_address(slot + 2, mac);
    add_text(&q, IFLA_IFNAME, dev);
    add(&q, IFLA_MASTER, &master, sizeof master);
    struct rtattr *info = add(&q, IFLA_LINKINFO, NULL, 0);
    add_text(&q, IFLA_INFO_KIND, "veth");
    struct rtattr *data = add(&q, IFLA_INFO_DATA, NULL, 0);
    struct rtattr *peer = add(&q, VETH_INFO_PEER, NULL, 0);
    grow(&q, sizeof(struct ifinfomsg));
    add_text(&q, IFLA_IFNAME, "eth0");
    add(&q, IFLA_ADDRESS, mac, sizeof mac);
    add(&q, IFLA_NET_NS_FD, &peer_ns, sizeof peer_ns);
    end_nested(&q, peer);
    end_nested(&q, data);
    end_nested(&q, info);
    return run(&q, RTM_NEWLINK, NLM_F_CREATE | NLM_F_EXCL);
}

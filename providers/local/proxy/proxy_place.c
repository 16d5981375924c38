/* SPDX-License-Identifier: Apache-2.0 */
/* Where an address leads. Forms are decided by tables; this machine's own addresses by the kernel, at the moment of the
 * question, because an interface may get one at any time. Blocks only for one netlink request. Any thread. */
#include "base/gp_base.h"

#include "providers/local/proxy/proxy_place.h"

#include "base/fs.h"
#include "base/str.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <linux/rtnetlink.h>
#include <netinet/in.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#define LOOPBACK_INDEX 1 /* of "lo" in every network namespace */

static enum proxy_place further(enum proxy_place a, enum proxy_place b) { return a > b ? a : b; }

/* --- by form --- */

/* 169.254.169.0/24 and .170.0/24: EC2, Google, Azure, OpenStack, and EC2's credentials of containers. */
static enum proxy_place form_v4(uint32_t ip) {
    static const struct {
        uint32_t net;
        int bits;
        enum proxy_place place;
    } nets[] = {
        {0xa9fea900, 24, PLACE_METADATA}, {0xa9feaa00, 24, PLACE_METADATA},
        {0xa9fe2a2a, 32, PLACE_METADATA},                               /* Scaleway */
        {0xa9fe0017, 32, PLACE_METADATA},                               /* Tencent Cloud */
        {0x646464c8, 32, PLACE_METADATA},                               /* Alibaba Cloud */
        {0xa83f8110, 32, PLACE_METADATA},                               /* Azure's WireServer */
        {0xc00000c0, 32, PLACE_METADATA},                               /* Oracle Cloud */
        {0x00000000, 8, PLACE_HERE},                                    /* "this host" */
        {0x7f000000, 8, PLACE_HERE},      {0xa9fe0000, 16, PLACE_HERE}, /* link-local */
        {0xe0000000, 3, PLACE_HERE},                                    /* multicast, reserved, broadcast */
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(nets); i++)
        if ((ip ^ nets[i].net) >> (32 - nets[i].bits) == 0) return nets[i].place;
    return PLACE_FAR;
}

static bool has_prefix(const struct in6_addr *ip, const char *prefix, size_t bytes) {
    struct in6_addr p;
    return inet_pton(AF_INET6, prefix, &p) == 1 && memcmp(ip, &p, bytes) == 0;
}

static enum proxy_place form_v6(const struct in6_addr *ip) {
    static const struct {
        const char *prefix;
        size_t bytes;
        enum proxy_place place;
    } nets[] = {
        {"fd00:ec2::", 4, PLACE_METADATA}, /* EC2: metadata, credentials of pods, clock, names */
        {"fd20:ce::254", 16, PLACE_METADATA},
        {"fd00:c1::a9fe:a9fe", 16, PLACE_METADATA},
        {"fd00:42::42", 16, PLACE_METADATA},
        {"fe80::a9fe:a9fe", 16, PLACE_METADATA}, /* OpenStack */
        {"::", 16, PLACE_HERE},
        {"::1", 16, PLACE_HERE},
        {"ff00::", 1, PLACE_HERE},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(nets); i++)
        if (has_prefix(ip, nets[i].prefix, nets[i].bytes)) return nets[i].place;
    bool link = ip->s6_addr[0] == 0xfe && (ip->s6_addr[1] & 0x80) != 0; /* fe80::/10, and fec0::/10 of old */
    return link ? PLACE_HERE : PLACE_FAR;
}

/* --- IPv4 addresses that an IPv6 address carries --- */

static uint32_t four(const struct in6_addr *ip, size_t a, size_t b, size_t c, size_t d) {
    const uint8_t *s = ip->s6_addr;
    return (uint32_t)s[a] << 24 | (uint32_t)s[b] << 16 | (uint32_t)s[c] << 8 | s[d];
}

/* The address, as far as the form says that there is one; ret has room for 4. */
static size_t carried(const struct in6_addr *ip, uint32_t ret[4]) {
    uint32_t last = four(ip, 12, 13, 14, 15);
    size_t n = 0;
    /* compatible, mapped, translated (RFC 2765), NAT64 */
    if (has_prefix(ip, "::", 12) || has_prefix(ip, "::ffff:0:0", 12) || has_prefix(ip, "::ffff:0:0:0", 12) ||
        has_prefix(ip, "64:ff9b::", 12))
        ret[n++] = last;
    if (has_prefix(ip, "64:ff9b:1::", 6)) { /* NAT64 of a site: after 48, 56, 64 or 96 bits (RFC 6052) */
        ret[n++] = four(ip, 6, 7, 9, 10);
        ret[n++] = four(ip, 7, 9, 10, 11);
        ret[n++] = four(ip, 9, 10, 11, 12);
        ret[n++] = last;
    } else if (has_prefix(ip, "2002::", 2)) { /* 6to4 */
        ret[n++] = four(ip, 2, 3, 4, 5);
    } else if (has_prefix(ip, "2001::", 4)) { /* Teredo: the server, and the client, inverted */
        ret[n++] = four(ip, 4, 5, 6, 7);
        ret[n++] = ~last;
    } else if (four(ip, 8, 9, 10, 11) == 0x00005efe || four(ip, 8, 9, 10, 11) == 0x02005efe) { /* ISATAP */
        ret[n++] = last;
    }
    return n;
}

/* --- this machine --- */

struct route_query {
    struct nlmsghdr h;
    struct rtmsg m;
    char room[64];
};

static int exchange(struct route_query *q, char *reply, size_t size, ssize_t *ret_n) {
    struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
    GP_AUTO_FD int s = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    if (s < 0) return -1;
    if (sendto(s, q, q->h.nlmsg_len, 0, (const struct sockaddr *)&kernel, sizeof kernel) < 0) return -1;
    *ret_n = recv(s, reply, size, 0);
    return *ret_n < 0 ? -1 : 0;
}

/* A packet there would leave by loopback, or is delivered on this machine: the kernel's own answer. */
static enum proxy_place place_of_route(int family, const void *ip, size_t n) {
    struct route_query q = {.h = {.nlmsg_type = RTM_GETROUTE, .nlmsg_flags = NLM_F_REQUEST},
                            .m = {.rtm_family = (unsigned char)family, .rtm_dst_len = (unsigned char)(n * 8)}};
    union {
        struct nlmsghdr h;
        char room[4096];
    } reply;
    ssize_t got = 0;
    struct rtattr *dst = (struct rtattr *)(void *)q.room;
    dst->rta_type = RTA_DST;
    dst->rta_len = (unsigned short)RTA_LENGTH(n);
    memcpy(RTA_DATA(dst), ip, n);
    q.h.nlmsg_len = (uint32_t)(NLMSG_LENGTH(sizeof q.m) + dst->rta_len);
    if (exchange(&q, reply.room, sizeof reply.room, &got) != 0 || (size_t)got < sizeof reply.h) return PLACE_UNKNOWN;
    if (reply.h.nlmsg_len > (size_t)got) return PLACE_UNKNOWN;
    if (reply.h.nlmsg_type == NLMSG_ERROR) {
        const struct nlmsgerr *e = NLMSG_DATA(&reply.h);
        bool whole = reply.h.nlmsg_len >= NLMSG_LENGTH(sizeof *e);
        /* no route, or one that refuses: nothing can be reached there, least of all this machine */
        return whole && e->error < 0 && e->error != -EPERM && e->error != -EOPNOTSUPP ? PLACE_FAR : PLACE_UNKNOWN;
    }
    const struct rtmsg *m = NLMSG_DATA(&reply.h);
    if (reply.h.nlmsg_type != RTM_NEWROUTE || reply.h.nlmsg_len < NLMSG_LENGTH(sizeof *m)) return PLACE_UNKNOWN;
    if (m->rtm_type != RTN_UNICAST) return PLACE_HERE;
    size_t left = reply.h.nlmsg_len - NLMSG_LENGTH(sizeof *m);
    for (const struct rtattr *a = RTM_RTA(m); RTA_OK(a, left); a = RTA_NEXT(a, left)) {
        int out = 0;
        if (a->rta_type != RTA_OIF || RTA_PAYLOAD(a) != sizeof out) continue;
        memcpy(&out, RTA_DATA(a), sizeof out);
        if (out == LOOPBACK_INDEX) return PLACE_HERE;
    }
    return PLACE_FAR;
}

/* An address of an interface may have its local route in a table that a plain look-up does not use (VRF). */
static enum proxy_place place_of_interface(int family, const void *ip, size_t n) {
    struct ifaddrs *list = NULL;
    enum proxy_place place = PLACE_FAR;
    if (getifaddrs(&list) != 0) return PLACE_UNKNOWN;
    for (const struct ifaddrs *i = list; i != NULL; i = i->ifa_next) {
        if (i->ifa_addr == NULL || i->ifa_addr->sa_family != family) continue;
        const void *own = family == AF_INET ? (const void *)&((const struct sockaddr_in *)(void *)i->ifa_addr)->sin_addr
                                            : &((const struct sockaddr_in6 *)(void *)i->ifa_addr)->sin6_addr;
        if (memcmp(own, ip, n) == 0) place = PLACE_HERE;
    }
    freeifaddrs(list);
    return place;
}

static enum proxy_place place_now(int family, const void *ip, size_t n) {
    return further(place_of_route(family, ip, n), place_of_interface(family, ip, n));
}

/* now: also by this machine's network. */
static enum proxy_place place_v4(uint32_t ip, bool now) {
    struct in_addr a = {.s_addr = htonl(ip)};
    enum proxy_place place = form_v4(ip);
    return now && place == PLACE_FAR ? place_now(AF_INET, &a, sizeof a) : place;
}

static enum proxy_place place_v6(const struct in6_addr *ip, bool now) {
    enum proxy_place place = form_v6(ip);
    uint32_t v4[4], last = four(ip, 12, 13, 14, 15);
    if (place != PLACE_FAR) return place;
    size_t n = carried(ip, v4);
    for (size_t i = 0; i < n; i++) place = further(place, place_v4(v4[i], now));
    /* A site's own prefix of NAT64 cannot be told from another one, so the last four bytes count in every address, but
     * only for what is not hit by chance: one of this machine's own, or a cloud's metadata. */
    enum proxy_place end = form_v4(last);
    if (end == PLACE_METADATA) place = further(place, end);
    if (now && end == PLACE_FAR) {
        struct in_addr a = {.s_addr = htonl(last)};
        place = further(place, place_of_interface(AF_INET, &a, sizeof a));
    }
    return now && place == PLACE_FAR ? place_now(AF_INET6, ip, sizeof *ip) : place;
}

static enum proxy_place place_of(const struct sockaddr *a, bool now) {
    if (a->sa_family == AF_INET)
        return place_v4(ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr), now);
    if (a->sa_family == AF_INET6) return place_v6(&((const struct sockaddr_in6 *)(const void *)a)->sin6_addr, now);
    return PLACE_UNKNOWN;
}

enum proxy_place proxy_place_by_form(const struct sockaddr *a) { return place_of(a, false); }
enum proxy_place proxy_place(const struct sockaddr *a) { return place_of(a, true); }

bool proxy_name_is_near(const char *host) {
    static const char *const names[] = {
        "localhost",     "localhost.localdomain",      "ip6-localhost",     "ip6-loopback",
        "instance-data", "instance-data.ec2.internal", "metadata",          "metadata.google.internal",
        "metadata.goog", "metadata.tencentyun.com",    "metadata.internal", NULL};
    char plain[256], own[256] = "";
    size_t n = strlen(host);
    while (n > 0 && host[n - 1] == '.') n--;
    if (n == 0 || n >= sizeof plain) return n > 0;
    memcpy(plain, host, n);
    plain[n] = '\0';
    if (gethostname(own, sizeof own - 1) == 0 && own[0] != '\0' && strcasecmp(plain, own) == 0) return true;
    if (n > 10 && strcasecmp(plain + n - 10, ".localhost") == 0) return true;
    for (const char *const *p = names; *p != NULL; p++)
        if (strcasecmp(plain, *p) == 0) return true;
    return false;
}

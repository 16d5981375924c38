/* SPDX-License-Identifier: Apache-2.0 */
/* The holder's nodes: made in gangs, started again after a reboot, ended, told about. Each node's own
 * set-up runs in its own process (node.c). The holder's one thread only. */
#include "base/gp_base.h"

#include "providers/local/holder.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "providers/local/decode.h"
#include "providers/local/ns/netns.h"
#include "providers/local/ns/userns.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define TELL_ENDED_MS (10 * 60 * 1000)

static const char *state_word(enum local_state s) {
    static const char *const words[] = {[LOCAL_STARTING] = "starting",
                                        [LOCAL_RUNNING] = "running",
                                        [LOCAL_OFF] = "off",
                                        [LOCAL_FAILED] = "failed",
                                        [LOCAL_ENDED] = "ended"};
    return words[s];
}

struct local_node *nodes_at(struct holder *h, int slot) {
    for (size_t i = 0; i < h->nodes.len; i++)
        if (h->nodes.items[i]->slot == slot && h->nodes.items[i]->state != LOCAL_ENDED) return h->nodes.items[i];
    return NULL;
}

struct local_node *nodes_by_id(struct holder *h, const char *id) {
    for (size_t i = 0; i < h->nodes.len; i++)
        if (strcmp(h->nodes.items[i]->id, id) == 0) return h->nodes.items[i];
    return NULL;
}

json_t *nodes_json(const struct holder *h) {
    json_t *list = json_array();
    for (size_t i = 0; i < h->nodes.len; i++) {
        const struct local_node *n = h->nodes.items[i];
        json_array_append_new(list, json_pack("{s:s, s:i, s:i, s:s, s:s, s:s, s:s, s:s, s:i, s:i, s:I, s:s}", "id",
                                              n->id, "slot", n->slot, "attempt", n->attempt, "token", n->token, "ip",
                                              n->ip, "host_key", n->host_key, "state", state_word(n->state), "why",
                                              n->why, "gpus", n->gpus, "boots", n->boots, "created",
                                              (json_int_t)n->created_s, "image", n->image));
    }
    return list;
}

static void veth_name(int slot, char dst[16]) { snprintf(dst, 16, "node%d", slot); }

/* Tells this node and all others of each other, or the others that it is gone. Best effort: without it ARP finds them,
 * as long as its table has room. */
static void tell_neighbours(struct holder *h, const struct local_node *n, bool there) {
    for (size_t i = 0; i < h->nodes.len; i++) {
        const struct local_node *m = h->nodes.items[i];
        if (m == n || m->net_fd < 0 || m->state == LOCAL_ENDED) continue;
        if (setns(m->net_fd, CLONE_NEWNET) == 0) net_neighbour("eth0", n->slot, there);
        if (there && setns(n->net_fd, CLONE_NEWNET) == 0) net_neighbour("eth0", m->slot, true);
    }
    if (setns(h->home_net, CLONE_NEWNET) != 0) _exit(1);
}

/* A network namespace of its own, kept over reboots, with one end of a veth pair in it. */
static int give_net(struct holder *h, struct local_node *n, struct gp_error *err) {
    char dev[16];
    veth_name(n->slot, dev);
    int r = unshare(CLONE_NEWNET) == 0 ? 0 : -errno;
    if (r == 0) {
        n->net_fd = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
        r = n->net_fd >= 0 ? net_link_up("lo") : -errno;
        if (setns(h->home_net, CLONE_NEWNET) != 0) _exit(1); /* lost between two: end it all */
    }
    if (r == 0) r = net_veth_add(dev, n->slot, n->net_fd);
    if (r == 0 && setns(n->net_fd, CLONE_NEWNET) != 0) r = -errno;
    if (r == 0) {
        r = net_addr_add("eth0", n->ip);
        if (r == 0) r = net_link_up("eth0");
        if (r == 0) r = net_route_quickack("eth0", n->ip);
    }
    if (setns(h->home_net, CLONE_NEWNET) != 0) _exit(1);
    if (r == 0) tell_neighbours(h, n, true);
    if (r == 0) return 0;
    return gp_fail_errno(err, GP_EENV, -r, "could not create the network of node %d", n->slot);
}

static int start_node(struct holder *h, struct local_node *n, struct gp_error *err) {
    int p[2];
    bool first = n->boots == 0;
    if (pipe2(p, O_CLOEXEC) != 0)
        return gp_fail_errno(err, GP_EENV, errno, "could not create a pipe for node %d", n->slot);
    pid_t pid = ns_clone(CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWCGROUP);
    if (pid == 0) node_main(h, n, p[1], first);
    close(p[1]);
    if (pid < 0) {
        close(p[0]);
        return gp_fail_errno(err, GP_EENV, -pid, "could not create the namespaces of node %d", n->slot);
    }
    n->pid = pid;
    n->ready_fd = p[0];
    n->boots++;
    n->state = LOCAL_STARTING;
    n->why[0] = '\0';
    str_reset(&n->said);
    return 0;
}

static void set_failed(struct local_node *n, const char *why) {
    n->state = LOCAL_FAILED;
    str_put(n->why, sizeof n->why, why);
    n->why[strcspn(n->why, "\n")] = '\0';
}

void nodes_heard(struct holder *h, struct local_node *n) {
    char buf[1024];
    (void)h;
    if (n->ready_fd < 0) return;
    ssize_t got = read(n->ready_fd, buf, sizeof buf);
    if (got > 0 && n->said.len < 4096) {
        str_add_mem(&n->said, buf, (size_t)got);
        return;
    }
    close(n->ready_fd); /* end of file: its init runs now, or it died */
    n->ready_fd = -1;
    const char *said = n->said.s ? n->said.s : "";
    if (n->state != LOCAL_STARTING) return;
    if (str_starts(said, "ready ") && strchr(said, '\n') != NULL) {
        if (n->host_key[0] == '\0') { /* later boots do not change what was pinned */
            str_put(n->host_key, sizeof n->host_key, said + 6);
            n->host_key[strcspn(n->host_key, "\n")] = '\0';
        }
        n->state = LOCAL_RUNNING;
    } else {
        set_failed(n, str_starts(said, "error ") ? said + 6 : "the process that starts it died");
    }
}

/* The uppers may be large: a child removes them while the holder goes on. */
static void remove_files(struct holder *h, struct local_node *n) {
    if (n->dir[0] == '\0') return;
    pid_t pid = fork();
    if (pid == 0) {
        GP_AUTO_FREE char *path = xasprintf("%s/nodes/%s", h->cfg.dir, n->dir);
        _exit(fs_remove_tree(path, NULL) == 0 ? 0 : 1);
    }
    n->dir[0] = '\0';
}

void nodes_end(struct holder *h, struct local_node *n) {
    char dev[16];
    if (n->state == LOCAL_ENDED) return;
    if (n->pid > 0) {
        kill(n->pid, SIGKILL); /* our own child, reaped below: everything in it ends with it */
        waitpid(n->pid, NULL, 0);
        n->pid = 0;
    }
    if (n->ready_fd >= 0) close(n->ready_fd);
    n->ready_fd = -1;
    veth_name(n->slot, dev);
    if (n->net_fd >= 0) {
        tell_neighbours(h, n, false);
        net_link_del(dev);
        close(n->net_fd);
    }
    n->net_fd = -1;
    n->state = LOCAL_ENDED;
    n->why[0] = '\0';
    n->ended_ms = clock_ms();
    remove_files(h, n);
}

/* An ended node is told about for a while, so that whoever looks sees its end, and then forgotten. */
static void forget_ended(struct holder *h) {
    size_t kept = 0;
    for (size_t i = 0; i < h->nodes.len; i++) {
        struct local_node *n = h->nodes.items[i];
        if (n->state != LOCAL_ENDED || clock_ms() - n->ended_ms < TELL_ENDED_MS) {
            h->nodes.items[kept++] = n;
            continue;
        }
        str_clear(&n->said);
        free(n);
    }
    h->nodes.len = kept;
}

/* How a node's init ended: reboot(2) in a pid namespace shows as a signal. */
static void init_ended(struct holder *h, struct local_node *n, int status) {
    int sig = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    n->pid = 0;
    if (n->ready_fd >= 0) nodes_heard(h, n);
    if (n->ready_fd >= 0) nodes_heard(h, n);
    if (n->state == LOCAL_FAILED) return;
    if (sig == SIGHUP) {
        struct gp_error err = {0};
        if (start_node(h, n, &err) != 0) set_failed(n, err.msg);
    } else if (sig == SIGINT) {
        n->state = LOCAL_OFF;
        str_put(n->why, sizeof n->why, "powered off");
    } else {
        snprintf(n->why, sizeof n->why, "its init ended (%s %d)", sig ? "signal" : "status",
                 sig ? sig : WEXITSTATUS(status));
        n->state = LOCAL_FAILED;
    }
}

void nodes_reap(struct holder *h) {
    int status = 0;
    for (pid_t pid = waitpid(-1, &status, WNOHANG); pid > 0; pid = waitpid(-1, &status, WNOHANG)) {
        if (pid == h->proxy_pid) {
            fprintf(stderr, "the package proxy ended (status %x): packages cannot be fetched\n", (unsigned)status);
            h->proxy_pid = 0;
        }
        for (size_t i = 0; i < h->nodes.len; i++)
            if (h->nodes.items[i]->pid == pid) init_ended(h, h->nodes.items[i], status);
    }
    forget_ended(h);
}

static int make_node(struct holder *h, const struct local_wanted *w, int slot, struct gp_error *err) {
    char random[9];
    int r = fs_random_hex(random, 4, err);
    if (r != 0) return r;
    struct local_node *n = xcalloc(1, sizeof *n);
    n->slot = slot;
    n->net_fd = n->ready_fd = -1;
    n->attempt = w->attempt;
    n->gpus = w->gpus;
    n->created_s = clock_wall_s();
    /* an id is never used twice, also when a slot is filled again */
    snprintf(n->id, sizeof n->id, "local-%.24s-%d-%s", h->cfg.uid, slot, random);
    snprintf(n->name, sizeof n->name, "%.40s-%d", h->cfg.name, slot);
    snprintf(n->dir, sizeof n->dir, "%d-%s", slot, random);
    str_put(n->token, sizeof n->token, w->token);
    str_put(n->image, sizeof n->image, w->image);
    net_node_ip(slot, n->ip);
    vec_push(&h->nodes, n);
    r = node_prepare(h, n, w->login_pubkey, err);
    if (r == 0) r = give_net(h, n, err);
    if (r == 0) r = start_node(h, n, err);
    return r;
}

/* A slot that is taken: by this very request (then it is there already), by a node that is off or
 * broken (then it is replaced), or by another run's. */
static int look_at_slot(struct holder *h, int slot, const char *token, bool *ret_have, struct gp_error *err) {
    struct local_node *n = nodes_at(h, slot);
    *ret_have = false;
    if (n == NULL) return 0;
    if (n->state == LOCAL_OFF || n->state == LOCAL_FAILED) {
        nodes_end(h, n);
        return 0;
    }
    if (strcmp(n->token, token) != 0)
        return gp_fail(err, GP_EEXISTS,
                       "node %d already exists, from another launch (%s): list and "
                       "continue with it",
                       slot, n->id);
    *ret_have = true;
    return 0;
}

int nodes_create(struct holder *h, const json_t *req, struct gp_error *err) {
    struct local_wanted w = {0};
    bool have[LOCAL_SLOTS_MAX] = {false};
    int r = local_decode_wanted(req, &w, err);
    if (r != 0) return r;
    int named = h->cfg.nodes, first = w.slot_first, count = w.slot_count;
    h->cfg.nodes = GP_MAX(named, w.nodes);
    for (int s = first; r == 0 && s < first + count; s++) r = look_at_slot(h, s, w.token, &have[s], err);
    if (r != 0) return r;
    for (size_t i = 0; i < h->nodes.len && h->cfg.nodes > named; i++)
        if (h->nodes.items[i]->state != LOCAL_ENDED) node_learn_hosts(h, h->nodes.items[i], named);
    for (int s = first; r == 0 && s < first + count; s++)
        if (!have[s]) r = make_node(h, &w, s, err);
    for (int s = first; r != 0 && s < first + count; s++) {
        struct local_node *n = nodes_at(h, s);
        if (n != NULL) nodes_end(h, n); /* all or none */
    }
    return r;
}

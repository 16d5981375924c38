/* SPDX-License-Identifier: Apache-2.0 */
/* comm_ops on NCCL, and the communicator of the nccl.* checks. Never blocks in NCCL or the driver: the communicator
 * is non-blocking, streams are polled, every wait has a deadline and answers the peers over tcp meanwhile; an
 * operation that does not end is aborted. Collectives run on a stream of their own. Rank 0 makes the unique id and
 * sends it over the authenticated tcp links. One thread. */
#include "base/gp_base.h"

#include "nccl_cuda.h"

#include "base/clock.h"

#include <limits.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define START_MS 120000 /* the driver's and NCCL's own start */
enum { NCCL_SUM = 0, NCCL_INT8 = 0 };

struct comm {
    const struct nccl_api *api;
    const struct cuda_api *cu;
    struct device *dev;
    struct comm *meet, *world; /* world: of a group, the communicator that it was split from; else NULL */
    const struct gang_who *who;
    nccl_handle h;
    cu_stream stream;
    cu_event before, marks[2]; /* before: reached when this GPU comes to the collective */
    int rank, size, version;
    bool dead, began; /* began: something was queued since the last wait */
    int64_t deadline_ms, stall_ms, start_ms;
    uint64_t ops;
    struct gp_error kept; /* of queueing: reported by the next wait */
    int log;              /* NCCL's log: a file in memory */
    char log_path[40];
};

const char *nccl_op_name(enum nccl_op op) {
    static const char *const names[] = {"all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all"};
    return names[op];
}

const char *comm_type_name(enum comm_type t) {
    static const char *const names[] = {"float", "half", "bfloat16", "int32"};
    return names[t];
}

size_t comm_type_bytes(enum comm_type t) { return t == COMM_F16 || t == COMM_BF16 ? 2 : 4; }

static int type_of(enum comm_type t) {
    static const int types[] = {[COMM_F32] = 7, [COMM_F16] = 6, [COMM_BF16] = 9, [COMM_I32] = 2};
    return types[t];
}

bool nccl_is_dead(const struct comm *c) { return c->dead; }
int nccl_size(const struct comm *c) { return c->size; }
int nccl_version(const struct comm *c) { return c->version; }
int64_t nccl_start_ms(const struct comm *c) { return c->start_ms; }
const char *nccl_log_path(const struct comm *c) { return c->log_path; }

/* --- errors and waiting --- */

static int world_rank(const struct comm *c) { return c->world != NULL ? c->world->rank : c->rank; }

/* Sets err from NCCL's error, with the culprit if the code identifies it. */
static int nccl_fail(struct comm *c, nccl_result r, const char *what, struct gp_error *err) {
    const char *more = c->api->last_error(c->h);
    int rc = gp_fail(err, GP_EIO, "%s: NCCL failed with '%s' (%d)%s%.200s", what, c->api->error_string(r), r,
                     more != NULL && *more ? ": " : "", more != NULL ? more : "");
    bool own = r == NCCL_CUDA_ERROR || r == NCCL_SYSTEM_ERROR || r == NCCL_INTERNAL_ERROR;
    if (own) comm_blame(err, world_rank(c));
    return rc;
}

static void pause_a_moment(long *us) {
    struct timespec t = {.tv_nsec = *us * 1000};
    nanosleep(&t, NULL);
    *us = GP_MIN(*us * 2, 1000);
}

/* Once per round of a wait: reads messages of peers and NCCL's state. */
static int look_around(struct comm *c, const char *what, struct gp_error *err) {
    nccl_result state = NCCL_OK;
    int rc = comm_tcp_serve(c->meet, err);
    if (rc != 0) return rc;
    nccl_result r = c->h != NULL ? c->api->async_error(c->h, &state) : NCCL_OK;
    if (r == NCCL_OK) r = state;
    return r == NCCL_OK || r == NCCL_IN_PROGRESS ? 0 : nccl_fail(c, r, what, err);
}

static int too_late(struct comm *c, const char *what, struct gp_error *err) {
    bool arrived = !c->began || c->cu->event_query(c->before) == 0;
    gp_fail(err, GP_ETIMEOUT, "%s did not end before its deadline%s", what,
            arrived ? "" : ": this GPU did not reach it");
    if (!arrived) comm_blame(err, world_rank(c));
    return -GP_ETIMEOUT;
}

/* Waits until NCCL has accepted the call (it may still be queued in the stream). */
static int wait_taken(struct comm *c, nccl_handle h, int64_t deadline_ms, const char *what, struct gp_error *err) {
    for (long us = 20;; pause_a_moment(&us)) {
        nccl_result state = NCCL_OK;
        nccl_result r = c->api->async_error(h, &state);
        if (r == NCCL_OK && state == NCCL_OK) return 0;
        if (r != NCCL_OK || state != NCCL_IN_PROGRESS) return nccl_fail(c, r ? r : state, what, err);
        int rc = comm_tcp_serve(c->meet, err);
        if (rc != 0) return rc;
        if (clock_left_ms(deadline_ms) == 0) return too_late(c, what, err);
    }
}

static int wait_stream(struct comm *c, int64_t deadline_ms, const char *what, struct gp_error *err) {
    for (long us = 5;; pause_a_moment(&us)) {
        cu_result r = c->cu->stream_query(c->stream);
        if (r != 0 && r != CU_NOT_READY) {
            cuda_fail(err, r, "%s", what);
            return comm_blame(err, world_rank(c));
        }
        if (r == 0) {
            nccl_result state = NCCL_OK;
            nccl_result e = c->api->async_error(c->h, &state);
            if (e == NCCL_OK && (state == NCCL_OK || state == NCCL_IN_PROGRESS)) return 0;
            return nccl_fail(c, e ? e : state, what, err);
        }
        int rc = us > 100 ? look_around(c, what, err) : 0;
        if (rc != 0) return rc;
        if (clock_left_ms(deadline_ms) == 0) return too_late(c, what, err);
    }
}

static int64_t op_deadline(const struct comm *c, int64_t expected_ms) {
    return GP_MIN(c->deadline_ms, clock_deadline(c->stall_ms + expected_ms));
}

static void kill_handle(struct comm *c) {
    if (!c->dead && c->h != NULL) c->api->abort(c->h);
    c->h = NULL;
    c->dead = true;
}

/* --- the outcome on each rank --- */

struct fate {
    int32_t code; /* enum gp_code */
    int32_t culprit;
    uint64_t ops;
    char text[240];
};

/* All ranks exchange their outcome and reach the same conclusion. */
static int agree(struct comm *c, struct gp_error *own, const char *what, struct gp_error *err) {
    struct fate mine = {.code = (int32_t)own->code, .culprit = comm_culprit(own), .ops = c->ops};
    struct fate *all = xcalloc((size_t)c->size, sizeof *all);
    str_put(mine.text, sizeof mine.text, own->msg);
    int rc = own->code == GP_ELOST /* tcp is gone too */
                 ? gp_fail(err, GP_ELOST, "%s", own->msg)
                 : comm_tcp.all_gather(c->meet, (dev_addr)(uintptr_t)&mine, (dev_addr)(uintptr_t)all, sizeof mine, err);
    if (rc != 0 && own->code == GP_ELOST && comm_culprit(own) >= 0) comm_blame(err, comm_culprit(own));
    int first = -1, blamed = -1, behind = -1;
    for (int i = 0; rc == 0 && i < c->size; i++) {
        all[i].text[sizeof all[i].text - 1] = '\0';
        if (all[i].code != 0 && first < 0) first = i;
        if (all[i].code != 0 && all[i].culprit >= 0 && blamed < 0) blamed = i;
        if (all[i].ops < all[0].ops || all[i].ops < mine.ops) behind = i;
    }
    if (rc == 0 && first >= 0) {
        int told = blamed >= 0 ? blamed : first;
        bool env = all[told].code == GP_EENV;
        rc = gp_fail(err, env ? GP_EENV : GP_EVALIDATE, "rank %d: %s%s", told, all[told].text,
                     all[told].text[0] ? "" : what);
        if (blamed >= 0) comm_blame(err, all[blamed].culprit);
        else if (behind >= 0) comm_blame(err, behind);
    }
    if (rc != 0) kill_handle(c);
    free(all);
    return rc;
}

/* --- its start --- */

struct library { /* each rank's library */
    int32_t version;
    char why[200];
};

static int load_alike(struct comm *c, struct gp_error *err) {
    struct library mine = {0}, *all = xcalloc((size_t)c->size, sizeof *all);
    struct gp_error own = {0};
    if (nccl_load(&c->api, &c->version, &own) == 0) mine.version = c->version;
    str_put(mine.why, sizeof mine.why, own.msg);
    int rc = comm_tcp.all_gather(c->meet, (dev_addr)(uintptr_t)&mine, (dev_addr)(uintptr_t)all, sizeof mine, err);
    char a[16], b[16];
    for (int i = 0; rc == 0 && i < c->size; i++) {
        all[i].why[sizeof all[i].why - 1] = '\0';
        if (all[i].version == 0) {
            rc = gp_fail(err, GP_EENV, "rank %d: %s", i, all[i].why);
        } else if (all[0].version != 0 && all[i].version != all[0].version) {
            nccl_version_text(all[0].version, a);
            nccl_version_text(all[i].version, b);
            rc = gp_fail(err, GP_EENV,
                         "NCCL versions differ: rank 0 has %s, rank %d has %s; install the same version on all nodes",
                         a, i, b);
        }
        if (rc != 0 && err->detail[0] == '\0') comm_blame(err, i);
    }
    free(all);
    return rc;
}

static struct nccl_config config_of(const struct comm *c) {
    return (struct nccl_config){.size = sizeof(struct nccl_config),
                                .magic = 0xcafebeef,
                                .version = (unsigned)GP_MIN(c->version, NCCL_VERSION_OLDEST),
                                .blocking = 0,
                                .cga_cluster_size = NCCL_UNDEFINED,
                                .min_ctas = NCCL_UNDEFINED,
                                .max_ctas = NCCL_UNDEFINED,
                                .split_share = NCCL_UNDEFINED};
}

static int open_stream(struct comm *c, struct gp_error *err) {
    enum { NON_BLOCKING = 1, NO_TIMING = 2 };
    cu_result r = c->cu->context_use(cuda_context(c->dev));
    if (r == 0) r = c->cu->stream_new(&c->stream, NON_BLOCKING);
    if (r == 0) r = c->cu->event_new(&c->before, NO_TIMING);
    for (size_t i = 0; i < GP_ARRAY_LEN(c->marks) && r == 0; i++) r = c->cu->event_new(&c->marks[i], 0);
    if (r == 0) return 0;
    cuda_fail(err, r, "create a stream for NCCL");
    return comm_blame(err, world_rank(c));
}

static void close_stream(struct comm *c) {
    if (c->before != NULL) c->cu->event_free(c->before);
    for (size_t i = 0; i < GP_ARRAY_LEN(c->marks); i++)
        if (c->marks[i] != NULL) c->cu->event_free(c->marks[i]);
    /* a stream that still holds work would block */
    if (c->stream != NULL && c->cu->stream_query(c->stream) == 0) c->cu->stream_free(c->stream);
}

/* Meets the ranks with the same id. */
static int meet_by_id(struct comm *c, const struct nccl_id *id, struct gp_error *err) {
    struct nccl_config config = config_of(c);
    int64_t most_ms = c->world != NULL ? 2 * c->stall_ms : GP_MIN(START_MS, 6 * c->stall_ms);
    int64_t deadline = GP_MIN(c->deadline_ms, clock_deadline(most_ms));
    nccl_result r = c->api->init(&c->h, c->size, *id, c->rank, &config);
    if (r != NCCL_OK && r != NCCL_IN_PROGRESS) return nccl_fail(c, r, "start NCCL", err);
    return wait_taken(c, c->h, deadline, "NCCL's start", err);
}

/* NCCL reports its choices only in its log. A file in memory leaves nothing behind on the node. */
static void open_log(struct comm *c) {
    c->log = memfd_create("gpuprov-nccl", MFD_CLOEXEC);
    if (c->log < 0) return;
    snprintf(c->log_path, sizeof c->log_path, "/proc/self/fd/%d", c->log);
    nccl_setting("NCCL_DEBUG", "INFO");
    nccl_setting("NCCL_DEBUG_SUBSYS", "INIT,NET,TUNING,GRAPH");
    nccl_setting("NCCL_DEBUG_FILE", c->log_path);
}

static int nccl_init(const struct comm_setup *s, struct comm **ret, struct gp_error *err) {
    struct comm *c = xcalloc(1, sizeof *c);
    struct gp_error own = {0};
    struct nccl_id id = {{0}};
    int64_t began = clock_ms();
    c->rank = s->rank;
    c->size = s->size;
    c->dev = s->dev;
    c->cu = cuda_of(s->dev);
    c->meet = s->meet;
    c->who = s->who;
    c->deadline_ms = s->deadline_ms;
    c->stall_ms = s->stall_ms > 0 ? s->stall_ms : 20000;
    open_log(c);
    int rc = load_alike(c, err);
    if (rc == 0) {
        if (open_stream(c, &own) == 0 && c->rank == 0) {
            nccl_result r = c->api->unique_id(&id);
            if (r != NCCL_OK) nccl_fail(c, r, "create NCCL's unique id", &own);
        }
        rc = comm_tcp.broadcast(c->meet, (dev_addr)(uintptr_t)&id, sizeof id, 0, err);
    }
    if (rc == 0) {
        if (own.code == GP_OK) meet_by_id(c, &id, &own);
        rc = agree(c, &own, "NCCL's start failed", err);
    }
    c->start_ms = clock_ms() - began;
    bool unexplained = rc == -GP_EVALIDATE && comm_culprit(err) < 0 && c->stream != NULL;
    if (rc == 0 || unexplained) {
        *ret = c;
        return rc;
    }
    if (c->api != NULL) kill_handle(c);
    close_stream(c);
    free(c);
    return rc;
}

static void nccl_abort(struct comm *c, const char *reason, int culprit) {
    (void)culprit; /* the owner of the communicator informs peers over tcp */
    if (c == NULL) return;
    if (reason == NULL && !c->dead && c->h != NULL) {
        struct gp_error ignored = {0};
        nccl_result r = c->api->finalize(c->h);
        bool ended = r == NCCL_OK ||
                     (r == NCCL_IN_PROGRESS && wait_taken(c, c->h, clock_deadline(1000), "its end", &ignored) == 0);
        if (ended) c->api->destroy(c->h);
        else c->api->abort(c->h);
        c->h = NULL;
        c->dead = true;
    }
    kill_handle(c);
    close_stream(c);
    if (c->world == NULL && c->log > 0) close(c->log);
    free(c);
}

/* --- queueing --- */

static void *at(dev_addr p) { return (void *)(uintptr_t)p; }

static nccl_result all_to_all(struct comm *c, const struct nccl_call *a) {
    size_t bytes = a->count * comm_type_bytes(a->type);
    nccl_result r = c->api->group_start();
    for (int i = 0; i < c->size && r == NCCL_OK; i++) {
        r = c->api->send(at(a->send + (size_t)i * bytes), a->count, type_of(a->type), i, c->h, c->stream);
        if (r == NCCL_OK || r == NCCL_IN_PROGRESS)
            r = c->api->recv(at(a->recv + (size_t)i * bytes), a->count, type_of(a->type), i, c->h, c->stream);
        if (r == NCCL_IN_PROGRESS) r = NCCL_OK;
    }
    nccl_result end = c->api->group_end();
    return r != NCCL_OK ? r : end;
}

static int queue_one(struct comm *c, const struct nccl_call *a, struct gp_error *err) {
    nccl_result r = NCCL_OK;
    int type = type_of(a->type);
    if (c->dead) return gp_fail(err, GP_ELOST, "NCCL's communicator has already ended");
    if (!c->began && c->cu->event_record(c->before, c->stream) == 0) c->began = true;
    switch (a->op) {
    case NCCL_ALL_REDUCE:
        r = c->api->all_reduce(at(a->send), at(a->recv), a->count, type, NCCL_SUM, c->h, c->stream);
        break;
    case NCCL_ALL_GATHER: r = c->api->all_gather(at(a->send), at(a->recv), a->count, type, c->h, c->stream); break;
    case NCCL_REDUCE_SCATTER:
        r = c->api->reduce_scatter(at(a->send), at(a->recv), a->count, type, NCCL_SUM, c->h, c->stream);
        break;
    case NCCL_BROADCAST:
        r = c->api->broadcast(at(a->send), at(a->recv), a->count, type, a->root, c->h, c->stream);
        break;
    case NCCL_ALL_TO_ALL: r = all_to_all(c, a); break;
    case NCCL_OPS: return gp_fail(err, GP_EINTERNAL, "unknown collective");
    }
    c->ops++;
    if (r == NCCL_IN_PROGRESS) return wait_taken(c, c->h, op_deadline(c, 0), nccl_op_name(a->op), err);
    return r == NCCL_OK ? 0 : nccl_fail(c, r, nccl_op_name(a->op), err);
}

void nccl_queue(struct comm *c, const struct nccl_call *a) {
    if (c->kept.code == GP_OK) queue_one(c, a, &c->kept);
}

void nccl_keep(struct comm *c, const struct gp_error *err) {
    if (c->kept.code != GP_OK) return;
    c->kept = *err;
    comm_blame(&c->kept, world_rank(c)); /* its GPU failed before the collective */
}

/* Waits until this rank's queued work is done. */
static int settle(struct comm *c, int64_t deadline_ms, const char *what, struct gp_error *err) {
    int rc = 0;
    if (c->kept.code != GP_OK) {
        if (err != NULL) *err = c->kept;
        rc = -(int)c->kept.code;
        c->kept = (struct gp_error){0};
    }
    if (rc == 0 && c->dead) rc = gp_fail(err, GP_ELOST, "NCCL's communicator has already ended");
    if (rc == 0) rc = wait_stream(c, deadline_ms, what, err);
    c->began = false;
    if (rc != 0) kill_handle(c);
    return rc;
}

int nccl_wait(struct comm *c, int64_t expected_ms, struct gp_error *err) {
    struct gp_error own = {0};
    settle(c, op_deadline(c, expected_ms), "the collective", &own);
    if (c->world == NULL) return agree(c, &own, "the collective failed", err);
    if (own.code != GP_OK && err != NULL) *err = own;
    return -(int)own.code;
}

int nccl_follow_device(struct comm *c, struct gp_error *err) {
    cu_result r = c->cu->context_use(cuda_context(c->dev));
    if (r == 0) r = c->cu->event_record(c->before, cuda_stream(c->dev));
    if (r == 0) r = c->cu->stream_wait(c->stream, c->before, 0);
    c->began = r == 0; /* the event marks the start of the first collective on this GPU */
    return r == 0 ? 0 : cuda_fail(err, r, "order NCCL after the device");
}

int nccl_mark(struct comm *c, int which, struct gp_error *err) {
    cu_result r = c->cu->event_record(c->marks[which], c->stream);
    return r == 0 ? 0 : cuda_fail(err, r, "record an event");
}

int nccl_elapsed(struct comm *c, double *ret_s, struct gp_error *err) {
    float ms = 0;
    cu_result r = c->cu->event_elapsed(&ms, c->marks[0], c->marks[1]);
    if (r != 0) return cuda_fail(err, r, "measure its time");
    *ret_s = (double)ms / 1000;
    return 0;
}

/* --- comm_ops --- */

static int nccl_all_reduce(struct comm *c, const struct all_reduce_args *a, struct gp_error *err) {
    struct nccl_call call = {.op = NCCL_ALL_REDUCE, .type = a->type, .count = a->count, .send = a->buf, .recv = a->buf};
    int rc = nccl_follow_device(c, err);
    if (rc == 0) rc = queue_one(c, &call, err);
    if (rc != 0) kill_handle(c);
    return rc;
}

static int nccl_flush(struct comm *c, int64_t deadline_ms, struct gp_error *err) {
    if (!c->began && c->kept.code == GP_OK) return 0;
    return settle(c, GP_MIN(deadline_ms, c->deadline_ms), "the all-reduce", err);
}

static int nccl_bytes(struct comm *c, nccl_result r, const char *what, struct gp_error *err) {
    int rc = 0;
    c->ops++;
    if (r == NCCL_IN_PROGRESS) rc = wait_taken(c, c->h, op_deadline(c, 0), what, err);
    else if (r != NCCL_OK) rc = nccl_fail(c, r, what, err);
    if (rc == 0) return settle(c, op_deadline(c, 0), what, err);
    kill_handle(c);
    return rc;
}

static int ready(struct comm *c, struct gp_error *err) {
    return c->dead ? gp_fail(err, GP_ELOST, "NCCL's communicator has already ended") : nccl_follow_device(c, err);
}

static int nccl_broadcast(struct comm *c, dev_addr buf, size_t bytes, int root, struct gp_error *err) {
    int rc = ready(c, err);
    if (rc != 0) return rc;
    return nccl_bytes(c, c->api->broadcast(at(buf), at(buf), bytes, NCCL_INT8, root, c->h, c->stream), "the broadcast",
                      err);
}

static int nccl_all_gather(struct comm *c, dev_addr send, dev_addr recv, size_t bytes, struct gp_error *err) {
    int rc = ready(c, err);
    if (rc != 0) return rc;
    return nccl_bytes(c, c->api->all_gather(at(send), at(recv), bytes, NCCL_INT8, c->h, c->stream), "the all-gather",
                      err);
}

/* Waits for this GPU's earlier work, then for all hosts. */
static int nccl_barrier(struct comm *c, struct gp_error *err) {
    int rc = settle(c, op_deadline(c, 0), "the barrier", err);
    return rc == 0 ? comm_tcp.barrier(c->meet, err) : rc;
}

const struct comm_ops comm_nccl = {.name = "nccl",
                                   .init = nccl_init,
                                   .all_reduce = nccl_all_reduce,
                                   .broadcast = nccl_broadcast,
                                   .all_gather = nccl_all_gather,
                                   .barrier = nccl_barrier,
                                   .flush = nccl_flush,
                                   .abort = nccl_abort};

/* --- groups --- */

struct group_card {
    int32_t color;
    struct nccl_id id; /* of a group's first rank, if the group is not split off */
};

static struct comm *group_new(struct comm *world, const struct group_card *all, int color, int64_t stall_ms) {
    struct comm *c = xcalloc(1, sizeof *c);
    *c = (struct comm){.api = world->api,
                       .cu = world->cu,
                       .dev = world->dev,
                       .meet = world->meet,
                       .world = world,
                       .who = world->who,
                       .version = world->version,
                       .deadline_ms = world->deadline_ms,
                       .stall_ms = stall_ms};
    str_put(c->log_path, sizeof c->log_path, world->log_path);
    for (int i = 0; i < world->size; i++) {
        if (all[i].color != color) continue;
        if (i < world->rank) c->rank++;
        c->size++;
    }
    return c;
}

static int group_split(struct comm *world, int color, struct comm *c, struct gp_error *err) {
    enum { NO_COLOR = -1 };
    struct nccl_config config = config_of(world);
    nccl_handle h = NULL;
    nccl_result r = world->api->split(world->h, color < 0 ? NO_COLOR : color, world->rank, &h, &config);
    if (r != NCCL_OK && r != NCCL_IN_PROGRESS) return nccl_fail(world, r, "split NCCL's communicator", err);
    int64_t deadline = op_deadline(world, 0);
    int rc = wait_taken(world, world->h, deadline, "the split", err);
    if (c == NULL) return rc;
    c->h = h;
    return rc == 0 ? wait_taken(world, h, deadline, "the split", err) : rc;
}

int nccl_group(struct comm *world, int color, int64_t stall_ms, struct comm **ret, struct gp_error *err) {
    struct group_card mine = {.color = color}, *all = xcalloc((size_t)world->size, sizeof *all);
    struct gp_error own = {0};
    if (world->dead && color >= 0 && world->api->unique_id(&mine.id) != NCCL_OK)
        gp_fail(&own, GP_EIO, "cannot create NCCL's unique id");
    int rc = comm_tcp.all_gather(world->meet, (dev_addr)(uintptr_t)&mine, (dev_addr)(uintptr_t)all, sizeof mine, err);
    struct comm *c = rc == 0 && color >= 0 ? group_new(world, all, color, stall_ms) : NULL;
    int first = 0;
    while (rc == 0 && first < world->size && all[first].color != color) first++;
    if (rc == 0 && c != NULL) open_stream(c, &own);
    if (rc == 0 && !world->dead) group_split(world, color, c, &own);
    else if (rc == 0 && c != NULL && own.code == GP_OK) meet_by_id(c, &all[first].id, &own);
    free(all);
    if (rc == 0 && own.code != GP_OK) {
        if (err != NULL) *err = own;
        rc = -(int)own.code;
    }
    if (rc != 0) {
        nccl_group_free(c, true);
        return rc;
    }
    *ret = c;
    return 0;
}

void nccl_group_free(struct comm *c, bool failed) { nccl_abort(c, failed ? "failed" : NULL, -1); }

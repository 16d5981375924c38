/* SPDX-License-Identifier: Apache-2.0 */
/* comm_ops on NCCL, and the communicator of the nccl.* checks. Never blocks in NCCL or the driver: NCCL is called in
 * a thread of the communicator (nccl_caller.h), streams are polled, every wait has a deadline and answers the peers
 * over tcp meanwhile; an operation that does not end is aborted. Collectives run on a stream of their own. Rank 0
 * makes the unique id and sends it over the authenticated tcp links. One thread. */
#include "base/gp_base.h"

#include "nccl_caller.h"

#include "base/clock.h"

#include <limits.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define START_MS 120000 /* the driver's and NCCL's own start */
#define END_MS 5000     /* of ncclCommAbort, or of ncclCommFinalize and ncclCommDestroy */
enum { NCCL_INT8 = 0 };

struct comm {
    const struct nccl_api *api;
    const struct cuda_api *cu;
    struct device *dev;
    struct comm *meet, *world; /* world: of a group, the communicator that it was split from; else NULL */
    const struct gang_who *who;
    struct nccl_caller *k; /* NULL: not started, or dead */
    cu_stream stream;
    cu_event before, marks[2]; /* before: reached when this GPU comes to the collective */
    int rank, size, version;
    bool dead, began; /* began: something was queued since the last wait */
    int64_t deadline_ms, stall_ms, start_ms;
    uint64_t ops;         /* collectives that NCCL accepted, when k was ended */
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

/* By the texts of the CUDA runtime in NCCL, errors 35, 36 and 222: it does not fit the driver, and no GPU is at
 * fault. */
static bool newer_than_driver(const char *text) {
    static const char *const texts[] = {"driver version is insufficient", "not supported in the installed CUDA driver",
                                        "compiled with an unsupported toolchain"};
    bool found = false;
    for (size_t i = 0; i < GP_ARRAY_LEN(texts); i++) found = found || strstr(text, texts[i]) != NULL;
    return found;
}

/* Sets err from NCCL's error, with the culprit if the code identifies it. */
static int nccl_fail(struct comm *c, nccl_result r, const char *what, struct gp_error *err) {
    const char *more = c->api->last_error(c->k != NULL ? c->k->h : NULL);
    if (r == NCCL_CUDA_ERROR && more != NULL && newer_than_driver(more)) {
        char version[16];
        nccl_version_text(c->version, version);
        return gp_fail(err, GP_EENV,
                       "%s (NCCL %s) is built for a newer CUDA than this driver's; update the driver, or "
                       "set GPUPROV_LIBRARY_PATH to the folder of an older NCCL",
                       nccl_path(), version);
    }
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

static int async_failure(struct comm *c, const char *what, struct gp_error *err) {
    nccl_result state = NCCL_OK;
    nccl_result r = c->k != NULL && c->k->h != NULL ? c->api->async_error(c->k->h, &state) : NCCL_OK;
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

/* Waits until NCCL has accepted all calls (they may still be queued in the stream). */
static int wait_called(struct comm *c, int64_t deadline_ms, const char *what, struct gp_error *err) {
    for (long us = 50; !nccl_caller_idle(c->k, us); us = GP_MIN(us * 2, 1000)) {
        int rc = comm_tcp_serve(c->meet, err);
        if (rc != 0) return rc;
        if (clock_left_ms(deadline_ms) == 0) return too_late(c, what, err);
    }
    if (c->k->result != NCCL_OK) return nccl_fail(c, c->k->result, c->k->what, err);
    if (c->k->cuda == 0) return 0;
    cuda_fail(err, c->k->cuda, "%s", c->k->what);
    return comm_blame(err, world_rank(c));
}

static int wait_stream(struct comm *c, int64_t deadline_ms, const char *what, struct gp_error *err) {
    int rc = wait_called(c, deadline_ms, what, err);
    for (long us = 5; rc == 0; pause_a_moment(&us)) {
        cu_result r = c->cu->stream_query(c->stream);
        if (r != 0 && r != CU_NOT_READY) {
            cuda_fail(err, r, "%s", what);
            return comm_blame(err, world_rank(c));
        }
        if (r == 0) return async_failure(c, what, err);
        if (us > 100) rc = comm_tcp_serve(c->meet, err);
        if (rc == 0 && us > 100) rc = async_failure(c, what, err);
        if (rc == 0 && clock_left_ms(deadline_ms) == 0) rc = too_late(c, what, err);
    }
    return rc;
}

static int64_t op_deadline(const struct comm *c, int64_t expected_ms) {
    return GP_MIN(c->deadline_ms, clock_deadline(c->stall_ms + expected_ms));
}

static void end_handle(struct comm *c, enum nccl_task_kind how) {
    if (c->k != NULL) c->ops = nccl_caller_calls(c->k);
    if (c->k != NULL && !nccl_caller_free(c->k, how, END_MS)) {
        c->stream = NULL; /* still in use */
        c->before = c->marks[0] = c->marks[1] = NULL;
    }
    c->k = NULL;
    c->dead = true;
}

static void kill_handle(struct comm *c) { end_handle(c, NCCL_TASK_ABORT); }

static int already_dead(struct gp_error *err) {
    return gp_fail(err, GP_ELOST, "NCCL's communicator has already ended");
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
    struct fate mine = {.code = (int32_t)own->code,
                        .culprit = comm_culprit(own),
                        .ops = c->k != NULL ? nccl_caller_calls(c->k) : c->ops};
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
                                .blocking = 1,
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

/* After open_stream. */
static void open_caller(struct comm *c) {
    struct nccl_config config = config_of(c);
    c->k = nccl_caller_new(c->api, c->cu, cuda_context(c->dev), c->stream, &config);
    c->k->size = c->size;
}

/* Meets the ranks with the same id. */
static int meet_by_id(struct comm *c, const struct nccl_id *id, struct gp_error *err) {
    struct nccl_task t = {.kind = NCCL_TASK_INIT, .what = "start NCCL", .size = c->size, .rank = c->rank, .id = *id};
    int64_t most_ms = c->world != NULL ? 2 * c->stall_ms : GP_MIN(START_MS, 6 * c->stall_ms);
    int64_t deadline = GP_MIN(c->deadline_ms, clock_deadline(most_ms));
    open_caller(c);
    int rc = nccl_caller_put(c->k, &t, err);
    return rc == 0 ? wait_called(c, deadline, "NCCL's start", err) : rc;
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
    bool opened = false;
    int rc = load_alike(c, err);
    if (rc == 0) {
        opened = open_stream(c, &own) == 0;
        if (opened && c->rank == 0) {
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
    bool unexplained = rc == -GP_EVALIDATE && comm_culprit(err) < 0 && opened;
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
    end_handle(c, reason == NULL ? NCCL_TASK_END : NCCL_TASK_ABORT);
    close_stream(c);
    if (c->world == NULL && c->log > 0) close(c->log);
    free(c);
}

/* --- queueing --- */

static int queue_typed(struct comm *c, const struct nccl_call *a, int type, struct gp_error *err) {
    struct nccl_task t = {.kind = NCCL_TASK_CALL, .what = nccl_op_name(a->op), .call = *a, .type = type};
    if (c->dead) return already_dead(err);
    if (!c->began && c->cu->event_record(c->before, c->stream) == 0) c->began = true;
    return nccl_caller_put(c->k, &t, err);
}

static int queue_one(struct comm *c, const struct nccl_call *a, struct gp_error *err) {
    return queue_typed(c, a, type_of(a->type), err);
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
    if (rc == 0 && c->dead) rc = already_dead(err);
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
    int rc = c->dead ? already_dead(err) : wait_called(c, op_deadline(c, 0), "the collective before", err);
    if (rc != 0) return rc;
    cu_result r = c->cu->context_use(cuda_context(c->dev));
    if (r == 0) r = c->cu->event_record(c->before, cuda_stream(c->dev));
    if (r == 0) r = c->cu->stream_wait(c->stream, c->before, 0);
    c->began = r == 0; /* the event marks the start of the first collective on this GPU */
    return r == 0 ? 0 : cuda_fail(err, r, "order NCCL after the device");
}

void nccl_mark(struct comm *c, int which) {
    struct nccl_task t = {.kind = NCCL_TASK_MARK, .what = "record an event", .event = c->marks[which], .which = which};
    if (c->kept.code == GP_OK && !c->dead) nccl_caller_put(c->k, &t, &c->kept);
}

double nccl_host_us(const struct comm *c, int calls) {
    return c->k == NULL ? 0 : (double)(c->k->marked_ns[1] - c->k->marked_ns[0]) / 1000 / calls;
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

static int nccl_bytes(struct comm *c, const struct nccl_call *call, const char *what, struct gp_error *err) {
    int rc = nccl_follow_device(c, err);
    if (rc == 0) rc = queue_typed(c, call, NCCL_INT8, err);
    if (rc == 0) return settle(c, op_deadline(c, 0), what, err);
    kill_handle(c);
    return rc;
}

static int nccl_broadcast(struct comm *c, dev_addr buf, size_t bytes, int root, struct gp_error *err) {
    struct nccl_call call = {.op = NCCL_BROADCAST, .count = bytes, .send = buf, .recv = buf, .root = root};
    return nccl_bytes(c, &call, "the broadcast", err);
}

static int nccl_all_gather(struct comm *c, dev_addr send, dev_addr recv, size_t bytes, struct gp_error *err) {
    struct nccl_call call = {.op = NCCL_ALL_GATHER, .count = bytes, .send = send, .recv = recv};
    return nccl_bytes(c, &call, "the all-gather", err);
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
    int32_t color, dead; /* dead: this rank's communicator of all ranks */
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
    struct nccl_task t = {.kind = NCCL_TASK_SPLIT, .what = "split NCCL's communicator", .color = color};
    t.rank = world->rank;
    if (c != NULL) {
        open_caller(c);
        t.child = c->k;
    }
    int rc = nccl_caller_put(world->k, &t, err);
    if (rc == 0) rc = wait_called(world, op_deadline(world, 0), "the split", err);
    if (rc == 0 && c != NULL) c->k->awaited = false;
    if (rc != 0) kill_handle(world); /* the next groups meet by an id */
    return rc;
}

/* The ranks of a group meet by the unique id of its first one. */
static int group_meet(struct comm *world, const struct group_card *all, struct comm *c, struct gp_error *err) {
    struct nccl_id id = {{0}}, *ids = xcalloc((size_t)world->size, sizeof *ids);
    struct gp_error own = {0};
    int first = 0, color = all[world->rank].color;
    while (all[first].color != color) first++;
    if (c != NULL && first == world->rank && world->api->unique_id(&id) != NCCL_OK)
        gp_fail(&own, GP_EIO, "cannot create NCCL's unique id");
    int rc = comm_tcp.all_gather(world->meet, (dev_addr)(uintptr_t)&id, (dev_addr)(uintptr_t)ids, sizeof id, err);
    if (rc == 0 && own.code != GP_OK) {
        if (err != NULL) *err = own;
        rc = -(int)own.code;
    }
    if (rc == 0 && c != NULL) rc = meet_by_id(c, &ids[first], err);
    free(ids);
    return rc;
}

int nccl_group(struct comm *world, int color, int64_t stall_ms, struct comm **ret, struct gp_error *err) {
    struct group_card mine = {.color = color, .dead = world->dead}, *all = xcalloc((size_t)world->size, sizeof *all);
    struct gp_error own = {0};
    int rc = comm_tcp.all_gather(world->meet, (dev_addr)(uintptr_t)&mine, (dev_addr)(uintptr_t)all, sizeof mine, err);
    struct comm *c = rc == 0 && color >= 0 ? group_new(world, all, color, stall_ms) : NULL;
    bool dead = false;
    for (int i = 0; i < world->size; i++) dead = dead || all[i].dead;
    if (rc == 0 && c != NULL) open_stream(c, &own);
    if (rc == 0 && dead) {
        kill_handle(world);
        rc = group_meet(world, all, own.code == GP_OK ? c : NULL, err);
    } else if (rc == 0) {
        rc = group_split(world, color, c, err);
    }
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

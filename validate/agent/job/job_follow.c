/* SPDX-License-Identifier: Apache-2.0 */
/* `job follow`: a job's log from an offset, as lines, until the job has ended. A reader may be cut at any byte and
 * continue from the last "@at" that it got. Any number at once; they only read. One thread. */
#include "base/gp_base.h"

#include "base/clock.h"
#include "base/fs.h"
#include "validate/agent/job/job.h"
#include "validate/agent/job/job_health.h"
#include "validate/agent/verbs.h"

#include <errno.h>
#include <unistd.h>

#define CHUNK ((size_t)256 << 10)
#define PIECE ((size_t)32 << 10) /* bytes of a line that is sent in parts; ssh cuts lines at 64 KiB */
#define PART_MS 200              /* the end of a line is awaited so long */
#define ALIVE_MS 1000
#define STATE_MS 200
#define FAST_MS 10
#define SLOW_MS 100

struct follower {
    struct job_home home;
    const char *id;
    char *dir;
    int64_t at;               /* everything before it was sent */
    int64_t shown;            /* attempts whose mark was sent, or that began before the first offset */
    int64_t lost;             /* of the head's, already reported */
    int64_t said_at, part_at; /* clock_ms of the last output; since when the end of a line is missing (0: it is not) */
    bool full;                /* more than a chunk was there */
    struct health health;
    struct str out;
    char *chunk;
};

static int flush(struct follower *f, struct gp_error *err) {
    if (f->out.len == 0) return 0;
    int r = fs_write_all(STDOUT_FILENO, f->out.s, f->out.len);
    str_reset(&f->out);
    f->said_at = clock_ms();
    return r == 0 ? 0 : gp_fail_errno(err, GP_EIO, -r, "cannot write to stdout");
}

/* Adds the n bytes as lines. all: also the end without a newline. How many were added. */
static size_t add_lines(struct str *out, const char *p, size_t n, bool all) {
    size_t done = 0;
    while (done < n) {
        size_t left = n - done, most = GP_MIN(left, PIECE);
        const char *end = memchr(p + done, '\n', most);
        size_t size = end != NULL ? (size_t)(end - (p + done)) : most;
        if (end == NULL && most < PIECE && !all) break;
        str_addc(out, end != NULL ? '=' : '+');
        str_add_mem(out, p + done, size);
        str_addc(out, '\n');
        done += size + (end != NULL ? 1 : 0);
    }
    return done;
}

static void add_dropped(struct follower *f, int64_t bytes) {
    if (bytes > 0) str_addf(&f->out, "@{\"dropped\":%lld}\n", (long long)bytes);
}

/* Marks and gaps at f->at. The offset where reading has to stop. */
static int64_t pass_marks(struct follower *f, const struct log_head *h) {
    for (int64_t i = f->shown; i < h->n_marks; i++) {
        const struct log_mark *m = &h->marks[i];
        if (f->at < m->end) return m->end;
        f->at = GP_MAX(f->at, m->start);
        f->shown = i + 1;
        str_addf(&f->out, "@{\"attempt\":%lld}\n", (long long)i + 2);
    }
    return h->total;
}

/* Up to a chunk from f->at, across files. *ret_hole: behind it bytes are missing up to that offset; else -1. */
static size_t fill(struct follower *f, const struct log_head *h, int64_t *ret_hole) {
    size_t n = 0;
    *ret_hole = -1;
    while (n < CHUNK && f->at + (int64_t)n < h->total) {
        int64_t next = 0;
        size_t got = job_log_read(f->dir, h, f->at + (int64_t)n, f->chunk + n, CHUNK - n, &next);
        if (got == 0) {
            *ret_hole = next;
            break;
        }
        n += got;
    }
    return n;
}

/* Adds bytes from f->at to `stop`, at most a chunk. all: also the end without a newline. */
static void add_bytes(struct follower *f, struct log_head *h, int64_t stop, bool all) {
    int64_t hole = -1, before = f->at;
    h->total = stop;
    size_t n = fill(f, h, &hole);
    bool late = f->part_at != 0 && clock_ms() - f->part_at >= PART_MS;
    bool last = f->at + (int64_t)n == stop;
    f->at += (int64_t)add_lines(&f->out, f->chunk, n, hole >= 0 || (last && (all || late)));
    if (hole >= 0) {
        add_dropped(f, hole - f->at);
        f->at = hole;
    }
    f->full = n == CHUNK;
    f->part_at = f->at != before ? 0 : f->part_at != 0 ? f->part_at : clock_ms();
}

static void add_findings(struct follower *f) {
    GP_AUTO_STR struct str s = {0};
    while (health_next(&f->health, &s)) {
        str_addf(&f->out, "@{\"health\":%s}\n", s.s);
        str_reset(&s);
    }
}

/* Sends what there is now, at most a chunk. *ret_more: there was something. final: nothing follows. */
static int pass_on(struct follower *f, bool final, bool *ret_more, struct gp_error *err) {
    struct log_head h;
    int64_t before = f->at;
    int r = job_log_head(f->dir, &h, err);
    if (r != 0) return r;
    add_findings(f);
    if (f->at < h.base) {
        add_dropped(f, h.base - f->at);
        f->at = h.base;
    }
    if (h.lost > f->lost && f->at >= h.lost_at) {
        add_dropped(f, h.lost - f->lost);
        f->lost = h.lost;
    }
    int64_t stop = pass_marks(f, &h);
    f->full = false;
    if (f->at < stop) add_bytes(f, &h, stop, final || f->shown < h.n_marks);
    else f->part_at = 0;
    *ret_more = f->at != before;
    if (*ret_more) str_addf(&f->out, "@{\"at\":%lld}\n", (long long)f->at);
    return flush(f, err);
}

static int say_end(struct follower *f, const struct job *j, struct gp_error *err) {
    str_add(&f->out, "@{\"end\":");
    job_state_json(&j->st, job_log_bytes(&f->home, f->id), &f->out);
    str_add(&f->out, "}\n");
    return flush(f, err);
}

static int follow(struct follower *f, int64_t end_ms, struct gp_error *err) {
    int64_t look_at = 0, wait = FAST_MS, goal = -1;
    struct job j = {.alive = true};
    for (bool ended = false;;) {
        bool more = false;
        /* before the read, so that everything written before the end is read */
        if (!ended && clock_left_ms(look_at) == 0) {
            int r = job_settle(&f->home, f->id, &j, err);
            if (r != 0) return r;
            ended = j.st.phase == JOB_ENDED;
            look_at = clock_deadline(STATE_MS);
        }
        int r = pass_on(f, ended, &more, err);
        if (r == 0 && ended && !more) return say_end(f, &j, err);
        if (r != 0) return r;
        if (clock_left_ms(end_ms) == 0) {
            if (goal < 0) goal = job_log_bytes(&f->home, f->id);
            if (!f->full || f->at >= goal) return 0; /* what was there at the end of the time is sent */
        }
        if (clock_ms() - f->said_at >= ALIVE_MS) {
            str_add(&f->out, "@{\"alive\":true}\n");
            r = flush(f, err);
            if (r != 0) return r;
        }
        wait = more ? FAST_MS : GP_MIN(2 * wait, SLOW_MS);
        if (!ended && !f->full) gp_sleep(wait, NULL, NULL);
    }
}

int job_follow(const char *id, int argc, char **argv) {
    struct follower f = {.home.lock = -1, .id = id, .said_at = clock_ms(), .health = HEALTH_NONE};
    int64_t from = 0, seconds = -1;
    struct gp_error err = {0};
    struct log_head h;
    const struct arg args[] = {
        {"--from", ARG_INT, false, &from}, {"--seconds", ARG_INT, false, &seconds}, {.name = NULL}};
    int r = args_parse(argc, argv, args, &err);
    if (r == 0 && from < 0) r = gp_fail(&err, GP_EUSAGE, "--from is negative");
    if (r == 0) r = job_home_open(&f.home, false, &err);
    if (r == 0) {
        f.dir = job_path(&f.home, id, NULL);
        r = job_log_head(f.dir, &h, &err);
        if (r == -GP_ENOTFOUND) {
            gp_error_clear(&err);
            r = gp_fail(&err, GP_ENOTFOUND, "this node has no job %s", id);
        }
    }
    if (r == 0) {
        f.at = from;
        f.lost = from > h.lost_at ? h.lost : 0;
        while (f.shown < h.n_marks && h.marks[f.shown].start < from) f.shown++;
        (void)health_open_read(&f.health, f.dir);
        f.chunk = xmalloc(CHUNK);
        r = follow(&f, seconds >= 0 ? clock_deadline(seconds * 1000) : GP_NEVER, &err);
    }
    free(f.chunk);
    free(f.dir);
    str_clear(&f.out);
    health_close(&f.health);
    job_home_close(&f.home);
    return r == 0 ? 0 : job_failed("follow", &err);
}

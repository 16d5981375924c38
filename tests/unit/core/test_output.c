/* SPDX-License-Identifier: Apache-2.0 */
/* Progress writers, tables, the text report: what reaches a terminal, a pipe and a program. */
#include "base/gp_base.h"

#include "folder.h"
#include "output/output.h"
#include "output/report_forms.h"
#include "output/width.h"

#include <fcntl.h>
#include <jansson.h>
#include <pty.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmocka.h>

static void widths_and_cuts(void **state) {
    (void)state;
    assert_int_equal(text_width("abc"), 3);
    assert_int_equal(text_width("\xe4\xb8\xad\xe6\x96\x87"), 4); /* two wide */
    assert_int_equal(text_width("e\xcc\x81"), 1);                /* combining */
    assert_int_equal(text_width("\xf0\x9f\x98\x80"), 2);         /* emoji */
    assert_int_equal(text_width("\xff\xc0"), 2);                 /* invalid: a '?' each */
    struct {
        const char *in;
        size_t width;
        const char *out;
        size_t used;
    } cases[] = {
        {"hello", 5, "hello", 5},
        {"hello", 4, "hel\xe2\x80\xa6", 4},
        {"hello", 1, "\xe2\x80\xa6", 1},
        {"hello", 0, "", 0},
        {"\xe4\xb8\xad\xe6\x96\x87", 3, "\xe4\xb8\xad\xe2\x80\xa6", 3},
        {"\xe4\xb8\xad\xe6\x96\x87", 2, "\xe2\x80\xa6", 1},
        {"a\033[2Jb\nc", 99, "a?[2Jb?c", 8},
        {"x\xc2\x9by", 9, "x?y", 3},     /* C1 CSI */
        {"x\xe2\x80\xaey", 9, "x?y", 3}, /* right-to-left override */
        {"cut\xe4\xb8", 9, "cut??", 5},
    };
    for (size_t i = 0; i < GP_ARRAY_LEN(cases); i++) {
        GP_AUTO_STR struct str out = {0};
        assert_int_equal(text_fit(&out, cases[i].in, cases[i].width), cases[i].used);
        assert_string_equal(out.s != NULL ? out.s : "", cases[i].out);
    }
    GP_AUTO_STR struct str pad = {0};
    text_pad(&pad, "\xe4\xb8\xad", 4);
    assert_string_equal(pad.s, "\xe4\xb8\xad  ");
}

static char *read_back(FILE *f) {
    fflush(f);
    long n = ftell(f);
    rewind(f);
    char *text = xcalloc((size_t)n + 1, 1);
    assert_int_equal(fread(text, 1, (size_t)n, f), n);
    return text;
}

static void tables_fit_their_content(void **state) {
    (void)state;
    GP_AUTO_FILE FILE *f = tmpfile();
    struct table t = {0};
    table_head(&t, "node", "place", "verdict", NULL);
    table_row(&t, "llm/0", "\xe4\xb8\xad", "ready", NULL);
    table_row(&t, "llm/10", "here", "", NULL);
    table_print(&t, f);
    table_clear(&t);
    GP_AUTO_FREE char *text = read_back(f);
    assert_string_equal(text, "node    place  verdict\n"
                              "llm/0   \xe4\xb8\xad     ready\n"
                              "llm/10  here\n");
}

static void emit_some(struct progress *p) {
    const struct event_sink *s = progress_sink(p);
    event_emit(s, -1, NODE_LAUNCHING, EVENT_INFO, "", "two nodes");
    event_emit(s, 0, NODE_LAUNCHING, EVENT_START, "", "asked for");
    event_emit(s, 1, NODE_REACHING, EVENT_PROGRESS, "ssh", "connection refused");
    event_emit(s, 1, NODE_REACHING, EVENT_PROGRESS, "ssh", "connection refused again");
    event_emit(s, 1, NODE_BOOTSTRAPPING, EVENT_WARN, "packages", "slow \"mirror\"\n\033[31m");
    event_emit(s, 0, NODE_FAILED, EVENT_FAIL, "", "no disk");
    event_emit(s, 1, NODE_READY, EVENT_DONE, "", "%s", "");
}

static void plain_lines(void **state) {
    (void)state;
    GP_AUTO_FILE FILE *f = tmpfile();
    struct progress *p = NULL;
    struct gp_error err = {0};
    assert_int_equal(progress_open(OUTPUT_AUTO, f, "llm", 2, NULL, &p, &err), 0);
    emit_some(p);
    progress_close(p);
    GP_AUTO_FREE char *text = read_back(f);
    assert_non_null(strstr(text, "] llm: two nodes\n"));
    assert_non_null(strstr(text, "] llm/0 launch: asked for\n"));
    assert_null(strstr(text, "refused")); /* only waits: a line for all nodes after 10 s (test_waits.c) */
    assert_non_null(strstr(text, "bootstrap: warning: packages: slow \"mirror\""));
    assert_non_null(strstr(text, "] llm/0: failed: no disk\n"));
    assert_non_null(strstr(text, "] llm/1 ready: done\n"));
    assert_null(strchr(text, '\033'));
}

static void json_lines_and_the_log(void **state) {
    (void)state;
    GP_AUTO_FILE FILE *f = tmpfile();
    char dir[200];
    assert_non_null(make_folder(dir, sizeof dir, "output"));
    GP_AUTO_FREE char *log = xasprintf("%s/log", dir);
    GP_AUTO_FD int fd = open(log, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct progress *p = NULL;
    struct gp_error err = {0};
    assert_int_equal(progress_open(OUTPUT_JSON, f, "llm", 2, log, &p, &err), 0);
    emit_some(p);
    progress_close(p);
    GP_AUTO_FREE char *text = read_back(f);
    size_t lines = 0;
    char *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_error_t e;
        json_t *j = json_loads(line, JSON_REJECT_DUPLICATES, &e);
        assert_non_null(j);
        assert_string_equal(json_string_value(json_object_get(j, "stack")), "llm");
        assert_int_equal(strlen(json_string_value(json_object_get(j, "t"))), 24);
        json_t *node = json_object_get(j, "node");
        assert_true(lines == 0 ? json_is_null(node) : json_is_integer(node));
        json_decref(j);
        lines++;
    }
    assert_int_equal(lines, 7);
    GP_AUTO_FILE FILE *again = fdopen(dup(fd), "r");
    size_t logged = 0;
    for (int c = fgetc(again); c != EOF; c = fgetc(again)) logged += c == '\n';
    assert_int_equal(logged, 7);
    unlink(log);
    rmdir(dir);
}

static void a_log_that_cannot_be_opened(void **state) {
    (void)state;
    struct progress *p = NULL;
    struct gp_error err = {0};
    assert_int_equal(progress_open(OUTPUT_QUIET, stderr, "x", 1, "/nonexistent/log", &p, &err), -GP_EIO);
    assert_non_null(strstr(err.msg, "/nonexistent/log"));
}

/* Reads everything the live writer sends to a terminal of that size. */
static char *live(unsigned short rows, unsigned short columns, int nodes) {
    int master = -1, slave = -1;
    struct winsize size = {.ws_row = rows, .ws_col = columns};
    assert_int_equal(openpty(&master, &slave, NULL, NULL, &size), 0);
    GP_AUTO_FD int master_fd = master;
    FILE *to = fdopen(slave, "w");
    struct progress *p = NULL;
    struct gp_error err = {0};
    assert_int_equal(progress_open(OUTPUT_LIVE, to, "llm", nodes, NULL, &p, &err), 0);
    emit_some(p);
    for (int i = 2; i < nodes; i++)
        event_emit(progress_sink(p), i, NODE_REACHING, EVENT_PROGRESS, "ssh",
                   "waiting for a banner that is a rather long story to tell in one line");
    /* Until the area has been drawn with them. */
    struct str *all = xcalloc(1, sizeof *all);
    while (all->s == NULL || strstr(all->s, nodes > 2 ? "waiting" : "ready") == NULL) {
        char buf[4096];
        ssize_t n = read(master, buf, sizeof buf);
        assert_true(n > 0);
        str_add_mem(all, buf, (size_t)n);
    }
    progress_close(p);
    fputs("@end", to);
    fclose(to);
    while (strstr(all->s, "@end") == NULL) {
        char buf[4096];
        ssize_t n = read(master, buf, sizeof buf);
        assert_true(n > 0);
        str_add_mem(all, buf, (size_t)n);
    }
    char *text = str_steal(all);
    free(all);
    return text;
}

/* Longest line as the terminal sees it, without escapes. */
static size_t longest_line(const char *text) {
    size_t longest = 0;
    GP_AUTO_STR struct str line = {0};
    str_add(&line, "");
    for (const char *p = text;; p++) {
        if (*p == '\033') {
            p++;
            while (*p != '\0' && !((*p >= 'A' && *p <= 'Z') || (*p >= 'a' && *p <= 'z'))) p++;
            continue;
        }
        if (*p == '\n' || *p == '\r' || *p == '\0') {
            longest = GP_MAX(longest, text_width(line.s));
            str_reset(&line);
            str_add(&line, "");
            if (*p == '\0') return longest;
            continue;
        }
        str_addc(&line, *p);
    }
}

static void live_area(void **state) {
    (void)state;
    GP_AUTO_FREE char *text = live(24, 80, 2);
    assert_non_null(strstr(text, "llm/0"));
    assert_non_null(strstr(text, "\033[J")); /* redraws in place */
    assert_non_null(strstr(text, "llm/0\033[0m: failed: no disk"));
    /* What stays is above; the last thing is not the live area. */
    const char *last = strrchr(text, 'J');
    assert_null(strstr(last, "llm  "));
    assert_null(strstr(text, "\033[31m\n")); /* a node's own escape never comes through */
}

static void live_fits_narrow_terminals(void **state) {
    (void)state;
    GP_AUTO_FREE char *text = live(10, 50, 30);
    /* Lines that stay may be longer (the terminal wraps them); what is redrawn may not. */
    const char *area = strstr(text, "more:");
    assert_non_null(area);
    GP_AUTO_FREE char *first = xstrndup(text, (size_t)(area - text));
    char *from = strrchr(first, 'J');
    assert_true(longest_line(from != NULL ? from + 1 : first) < 60);
    size_t rows = 0;
    for (const char *p = from != NULL ? from : first; *p; p++) rows += *p == '\n';
    assert_true(rows <= 12);
}

struct screen {
    int master;
    FILE *to;
    struct progress_hub hub;
    struct progress *p;
    struct str all;
};

static void screen_open(struct screen *s, int nodes) {
    int slave = -1;
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    struct gp_error err = {0};
    *s = (struct screen){.hub = {.lock = PTHREAD_MUTEX_INITIALIZER, .news = true}};
    assert_int_equal(openpty(&s->master, &slave, NULL, NULL, &size), 0);
    s->to = fdopen(slave, "w");
    assert_int_equal(progress_open_in(&s->hub, OUTPUT_LIVE, s->to, "llm", nodes, NULL, &s->p, &err), 0);
}

/* Reads until the terminal got the text after what was read before. */
static void screen_wait(struct screen *s, const char *text) {
    size_t from = s->all.len;
    while (s->all.s == NULL || s->all.len <= from || strstr(s->all.s + from, text) == NULL) {
        char buf[4096];
        ssize_t n = read(s->master, buf, sizeof buf);
        assert_true(n > 0);
        str_add_mem(&s->all, buf, (size_t)n);
    }
}

static void screen_close(struct screen *s) {
    progress_close(s->p);
    fclose(s->to);
    close(s->master);
    str_clear(&s->all);
    pthread_mutex_destroy(&s->hub.lock);
}

static void news_of_a_job_stay(void **state) {
    (void)state;
    struct screen s;
    screen_open(&s, 2);
    const struct event_sink *to = progress_sink(s.p);
    event_emit(to, -1, NODE_READY, EVENT_START, "job", "job 1 runs on 2 nodes");
    screen_wait(&s, "llm/1  \033[32mrunning"); /* though nothing was reported of the node: not "planned" */
    assert_non_null(strstr(s.all.s, "2 running"));
    event_emit(to, 0, NODE_READY, EVENT_PROGRESS, "fetching", "out: 1.0 MB of 2.0 MB");
    screen_wait(&s, "llm/0  \033[32mfetching");
    assert_non_null(strstr(s.all.s, "1 fetching, 1 running"));
    event_emit(to, 0, NODE_READY, EVENT_INFO, "files", "out: 1 file, unchanged");
    event_emit(to, -1, NODE_READY, EVENT_DONE, "files", "out: 2 files are in here");
    event_emit(to, -1, NODE_GONE, EVENT_DONE, "", "nothing is left");
    screen_wait(&s, "llm\033[0m: nothing is left");
    assert_non_null(strstr(s.all.s, "llm\033[0m: job: job 1 runs on 2 nodes"));
    assert_non_null(strstr(s.all.s, "llm\033[0m: files: out: 2 files are in here"));
    assert_null(strstr(s.all.s, "llm/0\033[0m ready: files")); /* one line for all nodes is enough */
    screen_close(&s);
}

static void a_signal_clears_the_area(void **state) {
    (void)state;
    struct screen s;
    screen_open(&s, 2);
    event_emit(progress_sink(s.p), 0, NODE_REACHING, EVENT_PROGRESS, "ssh", "refused");
    screen_wait(&s, "refused");
    size_t before = s.all.len;
    progress_hub_lines(&s.hub);
    event_emit(progress_sink(s.p), 0, NODE_ENDING, EVENT_START, "destroy", "instance i-1");
    screen_wait(&s, "instance i-1");
    const char *after = s.all.s + before;
    assert_non_null(strstr(after, "llm/0\033[0m ending: destroy: instance i-1\r\n"));
    assert_null(strstr(after, "  llm/0  ")); /* no area any more */
    screen_close(&s);
}

static void one_clock_for_all_writers(void **state) {
    (void)state;
    struct progress_hub hub = {.lock = PTHREAD_MUTEX_INITIALIZER};
    GP_AUTO_FILE FILE *f = tmpfile();
    struct progress *p = NULL;
    struct gp_error err = {0};
    assert_int_equal(progress_open_in(&hub, OUTPUT_PLAIN, f, "llm", 1, NULL, &p, &err), 0);
    progress_close(p);
    hub.started_ms -= 77000; /* as if it had been so long ago */
    assert_int_equal(progress_open_in(&hub, OUTPUT_PLAIN, f, "llm", 1, NULL, &p, &err), 0);
    event_emit(progress_sink(p), 0, NODE_READY, EVENT_INFO, "files", "fetched");
    progress_close(p);
    GP_AUTO_FREE char *text = read_back(f);
    assert_string_equal(text, "[  77s] llm/0 ready: files: fetched\n");
    pthread_mutex_destroy(&hub.lock);
}

/* A check over all nodes is one line, whoever reports it. These two warnings are different, and FNV-1a of status, step
 * and text has one value for both: a node could hide the line of another. */
static void lines_of_a_gang(void **state) {
    (void)state;
    static const char *const texts[] = {"V3W-03k-npk0K3eJalxA1E", "R1R723c,-68QXpfIblKN0F"};
    GP_AUTO_FILE FILE *f = tmpfile();
    struct progress *p = NULL;
    assert_int_equal(progress_open(OUTPUT_PLAIN, f, "llm", 2, NULL, &p, NULL), 0);
    for (int node = 0; node < 2; node++)
        for (size_t i = 0; i < GP_ARRAY_LEN(texts); i++)
            event_emit(progress_sink(p), node, NODE_GANG, EVENT_WARN, "", "%s", texts[i]);
    progress_close(p);
    GP_AUTO_FREE char *text = read_back(f);
    for (size_t i = 0; i < GP_ARRAY_LEN(texts); i++) {
        const char *line = strstr(text, texts[i]);
        assert_non_null(line);
        assert_null(strstr(line + 1, texts[i]));
    }
}

static void no_colour_when_asked(void **state) {
    (void)state;
    setenv("NO_COLOR", "1", 1);
    GP_AUTO_FREE char *text = live(24, 80, 2);
    unsetenv("NO_COLOR");
    assert_null(strstr(text, "\033[0m"));
    assert_null(strstr(text, "\033[36m"));
}

static void add_metric(struct check_result *c, const char *name, double v, const char *unit, double floor,
                       const char *source) {
    struct metric m = {.name = xstrdup(name),
                       .value = v,
                       .unit = xstrdup(unit),
                       .has_floor = true,
                       .floor = floor,
                       .source = xstrdup(source)};
    vec_push(&c->metrics, m);
}

static void report_says_why(void **state) {
    (void)state;
    struct report r = {.stack = xstrdup("llm"), .started_s = 1800000000, .took_ms = 4200};
    struct report_node n = {.slot = 1,
                            .id = xstrdup("i-1"),
                            .place = xstrdup("aws us-east-2a"),
                            .address = xstrdup("10.0.0.1"),
                            .host = xstrdup("h")};
    struct check_result bad = {.check = xstrdup("net.bandwidth"),
                               .verdict = VERDICT_FAIL,
                               .required = true,
                               .code = xstrdup("slow"),
                               .message = xstrdup("slower than it must be"),
                               .suggestion = xstrdup("look at the \033[1mfabric")};
    add_metric(&bad, "bandwidth", 0.4, "GB/s", 1.2, "spec");
    struct check_result good = {.check = xstrdup("host.cpu"),
                                .verdict = VERDICT_PASS,
                                .code = xstrdup(""),
                                .message = xstrdup("2 cores"),
                                .suggestion = xstrdup("")};
    vec_push(&n.checks, bad);
    vec_push(&n.checks, good);
    vec_push(&r.nodes, n);
    GP_AUTO_STR struct str out = {0};
    report_text(&r, &(struct report_style){.utf8 = true, .width = 100}, &out);
    assert_non_null(strstr(out.s, "llm/1  NOT READY  aws us-east-2a, 10.0.0.1, host h, i-1\n"));
    assert_non_null(strstr(out.s, "fail      net.bandwidth  slower than it must be [required]\n"));
    assert_non_null(strstr(out.s, "            bandwidth  0.4 GB/s  \xe2\x94\x81"));
    assert_non_null(strstr(out.s, "do: look at the ?[1mfabric\n"));
    assert_non_null(strstr(out.s, "pass      host.cpu       2 cores\n"));
    assert_non_null(strstr(out.s, "llm: 0 of 1 node ready, validated 2027-01-15T08:00:00Z in 4.2s"));
    assert_non_null(strstr(out.s, "  at least 1.2 GB/s (spec)\n"));
    assert_null(strchr(out.s, '\033'));
    GP_AUTO_STR struct str plain = {0};
    report_text(&r, &(struct report_style){.width = 80}, &plain);
    assert_non_null(strstr(plain.s, "            bandwidth  0.4 GB/s  ===------|  at least 1.2 GB/s (spec)\n"));
    for (const char *s = plain.s; *s != '\0'; s++) assert_true((unsigned char)*s < 0x80);
    GP_AUTO_STR struct str coloured = {0};
    report_text(&r, &(struct report_style){.colour = true, .width = 100}, &coloured);
    assert_non_null(strstr(coloured.s, "\033[31mfail"));
    report_clear(&r);
}

int main(void) {
    setenv("TERM", "xterm-256color", 1);
    unsetenv("NO_COLOR");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(widths_and_cuts),
        cmocka_unit_test(tables_fit_their_content),
        cmocka_unit_test(plain_lines),
        cmocka_unit_test(json_lines_and_the_log),
        cmocka_unit_test(a_log_that_cannot_be_opened),
        cmocka_unit_test(live_area),
        cmocka_unit_test(live_fits_narrow_terminals),
        cmocka_unit_test(lines_of_a_gang),
        cmocka_unit_test(no_colour_when_asked),
        cmocka_unit_test(news_of_a_job_stay),
        cmocka_unit_test(a_signal_clears_the_area),
        cmocka_unit_test(one_clock_for_all_writers),
        cmocka_unit_test(report_says_why),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

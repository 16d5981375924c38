/* SPDX-License-Identifier: Apache-2.0 */
/* The entry point: sets up signals and libraries, runs the verb in its own thread, returns the exit code. Signals
 * are blocked in every thread; main reads them from a signalfd while the verb runs. The first signal cancels the
 * verb. The second prints what is left and exits at once. Nothing else in the program exits. */
#include "base/gp_base.h"

#include "app.h"
#include "verbs.h"

#include "base/fs.h"
#include "providers/provider.h"
#include "ssh/ssh.h"

#include <errno.h>
#include <fcntl.h>
#include <locale.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

struct work {
    struct invocation *inv;
    struct gp_error err;
    int rc;
    int done_fd; /* eventfd: readable when the verb has ended */
};

static void *work_main(void *arg) {
    struct work *w = arg;
    w->rc = w->inv->verb->run(w->inv, &w->err);
    app_settle(w->inv);
    uint64_t one = 1;
    ssize_t n = write(w->done_fd, &one, sizeof one);
    (void)n;
    return NULL;
}

static void say(const char *text) { (void)fs_write_all(STDERR_FILENO, text, strlen(text)); }

/* For the second signal: takes no lock that a worker may hold, and does not return. */
static void leave_now(struct app *app) {
    bool billed = false;
    GP_AUTO_FREE char *left = app_left_text(app, &billed);
    say(left[0] == '\0' ? "\ngpuprov: stopped; no node and no billed resource is known\n" : "\ngpuprov: stopped\n");
    say(left);
    _exit(billed ? 8 : 130);
}

#define QUICK_MS 300 /* a verb that ends within this time after a signal needs no explanation */

static int wait_for_verb(struct work *w, struct app *app, const sigset_t *signals, struct gp_error *err) {
    GP_AUTO_FD int sfd = signalfd(-1, signals, SFD_CLOEXEC | SFD_NONBLOCK);
    if (sfd < 0) return gp_fail_errno(err, GP_EENV, errno, "could not create a signalfd");
    bool cancelled = false, said = false;
    for (;;) {
        struct pollfd p[2] = {{.fd = w->done_fd, .events = POLLIN}, {.fd = sfd, .events = POLLIN}};
        int n = poll(p, 2, cancelled && !said ? QUICK_MS : -1);
        if (n < 0 && errno != EINTR) return gp_fail_errno(err, GP_EENV, errno, "could not wait for the verb");
        if (n == 0) {
            say("\ngpuprov: stopping after the calls under way; press Ctrl-C again to exit at once\n");
            said = true;
        }
        struct signalfd_siginfo info;
        while (read(sfd, &info, sizeof info) == (ssize_t)sizeof info) {
            if (cancelled) leave_now(app);
            cancelled = true;
            app_cancel(app);
        }
        if (p[0].revents != 0) return 0;
    }
}

/* libssh2 keeps process-wide state, so it is initialised once, before any thread. http.c initialises libcurl;
 * OpenSSL initialises itself. */
static int init_libraries(struct app *app, struct gp_error *err) {
    int r = ssh_global_init(err);
    if (r == 0) app->libraries = true;
    return r;
}

static int run_in_thread(struct invocation *inv, const sigset_t *signals, struct gp_error *err) {
    struct app *app = inv->app;
    int r = init_libraries(app, err);
    if (r != 0) return r;
    GP_AUTO_FD int done = eventfd(0, EFD_CLOEXEC);
    if (done < 0) return gp_fail_errno(err, GP_EENV, errno, "could not create an eventfd");
    struct work w = {.inv = inv, .done_fd = done};
    pthread_t thread = 0;
    int e = pthread_create(&thread, NULL, work_main, &w);
    if (e != 0) return gp_fail_errno(err, GP_EENV, e, "could not start a thread");
    r = wait_for_verb(&w, app, signals, err);
    if (r != 0) app_cancel(app);
    pthread_join(thread, NULL);
    if (r != 0) return r;
    *err = w.err;
    return w.rc;
}

static int run_verb(struct invocation *inv, struct gp_error *err) {
    sigset_t signals;
    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    if (inv->verb->flags & VERB_RAW) return inv->verb->run(inv, err);
    if (signal(SIGPIPE, SIG_IGN) == SIG_ERR) return gp_fail_errno(err, GP_EENV, errno, "could not ignore SIGPIPE");
    int r = 0;
    if (inv->verb->flags & VERB_PLAIN) {
        r = inv->verb->run(inv, err);
        app_clear(inv->app);
    } else {
        sigset_t before;
        pthread_sigmask(SIG_BLOCK, &signals, &before);
        r = run_in_thread(inv, &signals, err);
        app_clear(inv->app);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
    }
    return r;
}

static void add_options_hint(struct gp_error *err, const char *of) {
    size_t n = strlen(err->msg);
    if (str_starts(err->msg, "unknown option") && strchr(err->msg, ';') == NULL)
        snprintf(err->msg + n, sizeof err->msg - n, "; 'gpuprov help %s' lists the options", of);
}

/* Reads the common options, the verb and the verb's own options. */
static int parse(int argc, char **argv, struct common_opts *common, struct invocation *inv, struct opt_args *args,
                 struct gp_error *err) {
    struct opt_set sets[2] = {{common_options, common}, {NULL, NULL}};
    struct opt_args none = {0};
    int used = 0;
    int r = options_parse(sets, 1, argc - 1, argv + 1, true, &none, &used, err);
    opt_args_clear(&none);
    if (r != 0) {
        add_options_hint(err, "-a");
        return r;
    }
    const char *name = used + 1 < argc ? argv[used + 1] : NULL;
    if (name == NULL) name = "help";
    inv->verb = verb_find(common->version ? "version" : name);
    if (common->version) return 0;
    if (inv->verb == NULL) return verb_unknown(name, err);
    int rest_argc = used + 2 < argc ? argc - used - 2 : 0;
    char **rest_argv = argv + used + 2;
    if (inv->verb->flags & VERB_RAW) {
        inv->args = rest_argv;
        inv->n_args = rest_argc;
        return 0;
    }
    if (inv->verb->opts_size > 0) inv->opts = xcalloc(1, inv->verb->opts_size);
    sets[1] = (struct opt_set){inv->verb->options, inv->opts};
    options_init(inv->verb->options, inv->opts);
    if (rest_argc > 0) r = options_parse(sets, 2, rest_argc, rest_argv, false, args, NULL, err);
    if (r != 0) add_options_hint(err, inv->verb->name);
    if (r != 0) return gp_wrap(err, "%s", inv->verb->name);
    if (common->version) { /* given after the verb */
        inv->verb = verb_find("version");
        return 0;
    }
    inv->args = args->args.items;
    inv->n_args = (int)args->args.len;
    inv->rest = args->rest;
    inv->n_rest = args->n_rest;
    return 0;
}

static int check_args(const struct invocation *inv, struct gp_error *err) {
    const struct verb *v = inv->verb;
    if (inv->rest != NULL && !(v->flags & VERB_REST))
        return gp_fail(err, GP_EUSAGE, "%s takes no arguments after '--'", v->name);
    for (int i = 0; i < inv->n_args; i++)
        if (inv->args[i][0] == '\0')
            return gp_fail(err, GP_EUSAGE, "%s: an argument is empty: usage: gpuprov %s %s", v->name, v->name,
                           v->argspec);
    if (inv->n_args >= v->min_args && inv->n_args <= v->max_args) return 0;
    if (inv->n_args > v->max_args && (v->flags & VERB_REST))
        return gp_fail(err, GP_EUSAGE, "%s: put '--' before the command '%s'", v->name, inv->args[v->max_args]);
    return gp_fail(err, GP_EUSAGE, "%s: usage: gpuprov %s%s%s", v->name, v->name, v->argspec[0] ? " " : "", v->argspec);
}

static bool reader_left(void) {
    struct pollfd p = {.fd = STDOUT_FILENO, .events = POLLOUT};
    return poll(&p, 1, 0) > 0 && (p.revents & POLLERR) != 0;
}

/* Lost output is reported for stdout only: a run whose result was not written must not exit 0. The errno of an
 * earlier failed write belongs to the verb's thread and is not known here. */
static int flush_stdout(struct gp_error *err) {
    bool before = ferror(stdout) != 0;
    int e = fflush(stdout) == 0 ? 0 : errno;
    if ((!before && e == 0) || e == EPIPE || reader_left()) return 0;
    if (e == 0) return gp_fail(err, GP_EIO, "could not write the whole result to stdout; check the free disk space");
    return gp_fail_errno(err, GP_EIO, e, "could not write the result to stdout");
}

static int become(char **argv, struct gp_error *err) {
    signal(SIGPIPE, SIG_DFL);
    execvp(argv[0], argv);
    return gp_fail_errno(err, GP_EENV, errno, "could not start '%s'", argv[0]);
}

/* Progress has printed the error as the failure of a node. */
static bool was_printed(const struct strv *failed, const struct gp_error *err) {
    for (size_t i = 0; i < failed->n; i++)
        if (str_starts(err->msg, failed->v[i])) return true;
    return false;
}

static void show_error(const struct invocation *inv, const struct common_opts *common, const struct gp_error *err) {
    const struct strv *failed = &inv->app->failed;
    if (inv->error_shown) return;
    if (!common->json && was_printed(failed, err))
        fprintf(stderr, "gpuprov: %zu node%s failed: the reason%s above\n", failed->n, failed->n == 1 ? "" : "s",
                failed->n == 1 ? " is" : "s are");
    else fprintf(stderr, "gpuprov: %s\n", err->msg);
    if (common->json) print_error_json(err, NULL);
}

/* --json applies even if another option is invalid. */
static bool wants_json(int argc, char **argv) {
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--json") == 0) return true;
    return false;
}

/* Schedulers read these exit codes. 1 is "degraded", so wrong usage exits with 3. */
static bool node_check_language(int argc, char **argv, const struct verb *verb) {
    if (verb != NULL && verb->flags & VERB_NODE_CHECK) return true;
    for (int i = 1; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (strcmp(argv[i], "--node-check") == 0) return true;
    return false;
}

/* If descriptor 0, 1 or 2 is closed at the start, the next socket or file would get its number, and progress would
 * be written into it. stdout is opened read-only, so that a lost result is reported. */
static void keep_standard_fds(void) {
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF)
            (void)open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY);
}

/* Keys and credentials are in this process's memory. So it writes no core file, also not to a crash handler, and
 * only root can trace it. Children inherit the core limit. The holder of local nodes must stay dumpable until
 * newuidmap has mapped it; it clears the flag itself (providers/local/holder.c). */
static void keep_memory_in(int argc, char **argv) {
    const struct rlimit none = {0};
    (void)setrlimit(RLIMIT_CORE, &none);
    if (argc < 2 || strcmp(argv[1], verb_holder.name) != 0) (void)prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
}

int main(int argc, char **argv) {
    keep_memory_in(argc, argv);
    keep_standard_fds();
    setlocale(LC_CTYPE, "");
    provider_specs_register();
    struct app app = {.lock = PTHREAD_MUTEX_INITIALIZER, .hub.lock = PTHREAD_MUTEX_INITIALIZER};
    struct common_opts common = {.json = wants_json(argc, argv)};
    struct invocation inv = {.common = &common, .app = &app};
    GP_AUTO_OPT_ARGS struct opt_args args = {0};
    struct gp_error err = {0};
    int r = parse(argc, argv, &common, &inv, &args, &err);
    if (r == 0 && common.help && !(inv.verb->flags & VERB_RAW)) {
        show_help(inv.verb == &verb_help_verb ? NULL : inv.verb, false, common.json);
    } else if (r == 0) {
        if (!(inv.verb->flags & VERB_RAW)) r = check_args(&inv, &err);
        if (r == 0) r = run_verb(&inv, &err);
    }
    free(inv.opts);
    if (r == 0) r = flush_stdout(&err);
    if (r == 0 && inv.exec_argv != NULL) r = become(inv.exec_argv, &err);
    if (r != 0) show_error(&inv, &common, &err);
    strv_clear(&app.failed);
    if (r == 0) return inv.exit_code;
    if (node_check_language(argc, argv, inv.verb)) return NODE_CHECK_UNKNOWN;
    int code = gp_exit_code((enum gp_code) - r);
    struct gp_error lost = {0};
    return flush_stdout(&lost) == 0 ? code : gp_exit_worst(code, gp_exit_code(GP_EIO));
}

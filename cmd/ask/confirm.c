/* SPDX-License-Identifier: Apache-2.0 */
/* Asks a yes-or-no question on the terminal. Runs in the verb's thread; Ctrl-C ends the wait through the engine. */
#include "base/gp_base.h"

#include "cmd/ask/confirm.h"

#include <errno.h>
#include <poll.h>
#include <strings.h>
#include <unistd.h>

bool confirm_can_ask(const struct invocation *inv) {
    return !inv->common->json && isatty(STDIN_FILENO) == 1 && isatty(STDERR_FILENO) == 1;
}

/* The terminal gives one line per read. A longer line than `size` is no answer. */
static int read_answer(struct engine *e, char *dst, size_t size, struct gp_error *err) {
    ssize_t n = -1;
    do {
        int r = gp_wait_fd(STDIN_FILENO, POLLIN, GP_NEVER, &e->cancel, NULL, err);
        if (r != 0) return r;
        n = read(STDIN_FILENO, dst, size - 1);
    } while (n < 0 && errno == EINTR);
    if (n < 0) return gp_fail_errno(err, GP_EIO, errno, "could not read the answer from the terminal");
    dst[n] = '\0';
    dst[strcspn(dst, "\r\n")] = '\0';
    return 0;
}

int confirm_ask(struct engine *e, const char *question, struct gp_error *err) {
    char answer[64] = "";
    fprintf(stderr, "%s [y/N] ", question);
    fflush(stderr);
    int r = read_answer(e, answer, sizeof answer, err);
    if (r != 0 && r != -GP_ECANCELLED) return r;
    if (r != 0) {
        fputc('\n', stderr); /* Ctrl-C leaves the cursor behind the question */
        gp_error_clear(err);
    }
    if (r == 0 && (strcasecmp(answer, "y") == 0 || strcasecmp(answer, "yes") == 0)) return 0;
    return gp_fail(err, GP_ECANCELLED, "not confirmed: nothing was changed");
}

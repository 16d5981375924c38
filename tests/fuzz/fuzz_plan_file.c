/* SPDX-License-Identifier: Apache-2.0 */
/* Plan files: the input as a file, and the input as the member `plan` of a file with the right hash and version, so that
 * what lies behind them is reached. A file that is accepted is of now, has a spec and numbers that the engine counts
 * with. */
#include "base/gp_base.h"

#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "engine/plan_file.h"

#include <sys/mman.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void must(bool holds) {
    if (!holds) abort();
}

static void look(const void *text, size_t n) {
    GP_AUTO_FD int fd = memfd_create("plan", MFD_CLOEXEC);
    must(fd >= 0 && fs_write_all(fd, text, n) == 0);
    GP_AUTO_FREE char *path = xasprintf("/proc/self/fd/%d", fd);
    GP_AUTO_PLAN_FILE struct plan_file f = {0};
    struct gp_error err = {0};
    (void)plan_file_is(path);
    int r = plan_file_read(path, &f, &err);
    must((r == 0) == (err.code == GP_OK) && (r == 0) == (f.spec != NULL));
    if (r != 0) return;
    must(f.created_s > 0 && f.created_s - clock_wall_s() <= 300 && f.id != NULL && f.plan != NULL);
    struct offer o = {.provider = xstrdup("local"), .region = xstrdup("here"), .instance_type = xstrdup("node")};
    (void)plan_file_may_use(&f, &o);
    offer_clear(&o);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    look(data, size);
    GP_AUTO_JSON json_t *plan = json_loadb((const char *)data, size, 0, NULL);
    if (!json_is_object(plan)) return 0;
    json_object_set_new(plan, "gpuprov", json_string(GP_VERSION));
    if (json_is_integer(json_object_get(plan, "created")) && json_int(plan, "created", 0) == 1)
        json_object_set_new(plan, "created", json_integer(clock_wall_s())); /* for the corpus, which gets older */
    char hash[65];
    GP_AUTO_FREE char *text = json_text_exact(plan, 0);
    sha256_hex(text, strlen(text), hash);
    GP_AUTO_JSON json_t *file =
        json_pack("{s:s, s:s, s:s, s:O}", "schema", PLAN_FILE_SCHEMA, "sha256", hash, "note", "", "plan", plan);
    GP_AUTO_FREE char *whole = json_text_exact(file, 0);
    look(whole, strlen(whole));
    return 0;
}

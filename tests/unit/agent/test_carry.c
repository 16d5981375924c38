/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's side of a transfer gives signs of life: gpuprov takes a silent one for hung. */
#include "base/gp_base.h"

#include "folder.h"
#include "validate/agent/tree/carry.c"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/socket.h>

#include <cmocka.h>

#define PING_BYTES (5 + 16) /* type and length; entries and bytes that were looked at */

#define PING_MS 20
#define LONG_MS 60000

static void *carry_main(void *arg) {
    struct gp_error ignored = {0};
    (void)carry_all(arg, &ignored);
    return NULL;
}

/* The other side is silent, as one that hashes a large file. */
static void it_pings_while_it_waits(void **state) {
    (void)state;
    char folder[256];
    const struct tree_take_opts take = {.root = make_folder(folder, sizeof folder, "carry")};
    int ends[2], beats[2];
    const struct tree_expect any = tree_expect_any();
    struct gp_error err = {0};
    unsigned char got[2 * PING_BYTES] = {0}, line[2] = {0};
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), 0);
    assert_int_equal(pipe(beats), 0);
    struct carry c = {.in = ends[1],
                      .out = ends[1],
                      .control = -1,
                      .beat = beats[1],
                      .ping_ms = PING_MS,
                      .buf = xmalloc(CARRY_BYTES),
                      .side = tree_taker(&take, &any)};
    carry_nonblocking(ends[1]);
    pthread_t thread = 0;
    assert_int_equal(pthread_create(&thread, NULL, carry_main, &c), 0);
    for (size_t n = 0; n < sizeof got; n += (size_t)read(ends[0], got + n, sizeof got - n))
        if (gp_wait_fd(ends[0], POLLIN, clock_deadline(LONG_MS), NULL, NULL, &err) != 0) fail_msg("it is silent");
    assert_memory_equal(got, got + PING_BYTES,
                        PING_BYTES); /* two pings, whole frames, of a side that has done nothing */
    assert_int_equal(got[0], 17);
    assert_int_equal(read(beats[0], line, sizeof line), 2);
    assert_memory_equal(line, "\n\n", 2);
    close(ends[0]);
    pthread_join(thread, NULL);
    tree_side_free(c.side);
    free(c.buf);
    close(ends[1]);
    close(beats[0]);
    close(beats[1]);
    rmdir(folder);
}

/* In one long call of the side: at most one ping per period, and only of a side that is made. */
static void a_beat_pings_when_it_is_time(void **state) {
    (void)state;
    int ends[2];
    unsigned char got[64];
    assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, ends), 0);
    const struct tree_take_opts take = {.root = "/nonexistent"};
    const struct tree_expect any = tree_expect_any();
    struct carry c = {.out = ends[1], .beat = -1, .ping_ms = LONG_MS};
    carry_beat(&c);
    assert_int_equal(read(ends[0], got, sizeof got), -1);
    c.side = tree_taker(&take, &any);
    for (int i = 0; i < 3; i++) carry_beat(&c);
    assert_int_equal(read(ends[0], got, sizeof got), PING_BYTES);
    tree_side_free(c.side);
    close(ends[0]);
    close(ends[1]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_pings_while_it_waits),
        cmocka_unit_test(a_beat_pings_when_it_is_time),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Test program: live_driver NODES STEP_MS [FILE]: walks that many nodes through the story's phases on the
 * live writer, so that a person can look at it in a terminal of any size. With FILE it stands still in the
 * middle until that file is there. Not part of gpuprov. */
#include "base/gp_base.h"

#include "base/clock.h"
#include "output/output.h"

#include <unistd.h>

static const char *const texts[] = {"i-0f3a is pending", "connection refused",     "installing htop (3 of 12)",
                                    "memory 12 GB/s",    "waiting for the others", "step 120 of 200, loss 1.71"};

int main(int argc, char **argv) {
    int64_t nodes = 4, step_ms = 200;
    if (argc > 1 && !str_to_i64(argv[1], 1, 512, &nodes)) return 2;
    if (argc > 2 && !str_to_i64(argv[2], 1, 10000, &step_ms)) return 2;
    struct progress *p = NULL;
    struct gp_error err = {0};
    if (progress_open(OUTPUT_AUTO, stderr, "llm", (int)nodes, NULL, &p, &err) != 0) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    const struct event_sink *s = progress_sink(p);
    for (int64_t t = 0; t < nodes + 8; t++) {
        for (int64_t n = 0; n < nodes; n++) {
            int64_t at = t - n / 2;
            if (at < 0 || at > 6) continue;
            enum node_phase ph = (enum node_phase)(NODE_LAUNCHING + at);
            if (ph == NODE_READY) event_emit(s, (int)n, ph, EVENT_DONE, "", "in %d steps", (int)t);
            else event_emit(s, (int)n, ph, EVENT_PROGRESS, ph == NODE_GANG ? "train.ddp" : "", "%s", texts[at]);
        }
        if (t == 3) event_emit(s, 1, NODE_BOOTSTRAPPING, EVENT_WARN, "packages", "slow mirror");
        while (t == 4 && argc > 3 && access(argv[3], F_OK) != 0) gp_sleep(20, NULL, NULL);
        gp_sleep(step_ms, NULL, NULL);
    }
    progress_close(p);
    printf("node   verdict\n");
    return 0;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* gpuprov version: prints the version and the agents of this build. Initialises no library. */
#include "base/gp_base.h"

#include "app.h"

#include "templates/templates.h"

static int run(struct invocation *inv, struct gp_error *err) {
    (void)err;
    bool agent = template_find("agent/gpuprov-agent.gz") != NULL;
    bool cuda = template_find("agent/gpuprov-agent-cuda.gz") != NULL;
    if (inv->common->json)
        print_json(json_pack("{s:s, s:b, s:b}", "version", GP_VERSION, "agent", (int)agent, "agent_cuda", (int)cuda));
    else
        printf("gpuprov %s (%s)\n", GP_VERSION,
               cuda    ? "with the CUDA agent"
               : agent ? "without the CUDA agent"
                       : "without agents");
    return 0;
}

const struct verb verb_version = {
    .name = "version",
    .argspec = "",
    .help = "prints the version and the agents of this build",
    .examples = "  gpuprov version\n",
    .run = run,
    .flags = VERB_PLAIN,
};

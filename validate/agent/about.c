/* SPDX-License-Identifier: Apache-2.0 */
/* What the agent says of itself: `checks`, `help`. For a person at a node's prompt. One thread. */
#include "base/gp_base.h"

#include "validate/suite/pick.h"
#include "verbs.h"

static const char help_text[] =
    "gpuprov-agent says whether this machine and its GPUs work. It needs nothing on the node, keeps nothing,\n"
    "and speaks JSON lines, or words with --text.\n"
    "\n"
    "  gpuprov-agent run [options]    checks this node\n"
    "      --text               for people; without it JSON lines (docs/agent-protocol.md)\n"
    "      --time 1m            what the checks may take: 1m, 5m, 20m or any other; chooses the cheapest and\n"
    "                           most telling first; beyond 1m memory, stress and the like look longer\n"
    "      --checks a,b         these, in this order, whatever they take ('gpuprov-agent checks' lists them)\n"
    "      --all                go on after the first certain failure\n"
    "      --gpus N             how many GPUs must be here; fewer fail\n"
    "      --gpu-model NAME     which model they must be\n"
    "      --load-limit 2m      how long the driver may take to load, before the time of the checks starts\n"
    "      --floors a,b         a missed limit of these does not end the run: the caller judges by its own\n"
    "      --unjudged           results carry figures and faults: the caller judges the limits\n"
    "      --now-ms MS          the caller's clock, milliseconds since 1970, for host.clock\n"
    "  gpuprov-agent checks           the checks of this program\n"
    "  gpuprov-agent version\n"
    "\n"
    "Exit status of run: 0 pass, 1 degraded, 2 fail, 3 could not tell (a required check that did not run, bad\n"
    "usage). Libraries are also looked for in GPUPROV_LIBRARY_PATH. Run as root it reads the kernel's log too.\n"
    "\n"
    "  gpuprov-agent train [--gpu 0] [--time 8s] [--precision bf16|fp16] [--json]\n"
    "     the timed model of train.ddp alone, on one GPU: its rate, to be held against another program's\n"
    "\n"
    "gpuprov itself starts these for checks over several nodes:\n";

void agent_help(FILE *to) {
    fputs(help_text, to);
    fputs("  gpuprov-agent rank --dir DIR --rank R --size N --bind IP --check a,b [--deadline 60s]\n"
          "                     [--stall 20s] [--seed S] [--steps N]; token and rendezvous on stdin\n"
          "  gpuprov-agent follow --dir DIR [--from OFFSET] [--wait MS]\n"
          "  gpuprov-agent stop --dir DIR\n",
          to);
}

/* Words broken at 100 columns, each line after the first indented. */
static void print_wrapped(const char *text, int indent) {
    int width = 100 - indent, at = 0;
    for (const char *p = text; *p;) {
        int n = (int)strcspn(p, " ");
        if (at && at + 1 + n > width) {
            printf("\n%*s", indent, "");
            at = 0;
        }
        at += printf("%s%.*s", at ? " " : "", n, p);
        p += n;
        p += strspn(p, " ");
    }
    printf("\n");
}

/* The order is the one that `run` would take them in. */
int verb_checks(int argc, char **argv) {
    struct gp_error err = {0};
    const struct arg none[] = {{.name = NULL}};
    if (args_parse(argc, argv, none, &err)) {
        fprintf(stderr, "gpuprov-agent checks: %s\n", err.msg);
        return NODE_CHECK_UNKNOWN;
    }
    struct pick list[GP_ARRAY_LEN(((struct check_list *)0)->items)];
    size_t n = 0;
    for (size_t i = 0; check_table[i].id && n < GP_ARRAY_LEN(list); i++)
        if (agent_check_ops(check_table[i].id))
            list[n++] = (struct pick){
                .info = &check_table[i], .core = check_table[i].core, .required = check_table[i].required};
    pick_sort(list, n);
    printf("%-16s %5s  %-8s  %-9s  %s\n", "check", "takes", "required", "where", "what it finds");
    for (size_t i = 0; i < n; i++) {
        const struct check_info *c = list[i].info;
        const char *where = c->level == CHECK_GANG ? "all nodes" : c->level == CHECK_GPU ? "each GPU" : "node";
        int indent = printf("%-16s %4ds%s %-8s  %-9s  ", c->id, c->seconds, c->stretch ? "+" : " ",
                            c->core       ? "core"
                            : c->required ? "yes"
                                          : "",
                            where);
        print_wrapped(c->finds, indent);
    }
    printf("\ncore: whatever the time; yes: where the time reaches. + looks longer when --time gives more\n"
           "than a minute. In the order in which 'run' takes them.\n");
    return 0;
}

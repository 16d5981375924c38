/* SPDX-License-Identifier: Apache-2.0 */
/* The agent's verbs `checks` and `help`, for a person at a node's prompt. One thread. */
#include "base/gp_base.h"

#include "validate/suite/pick.h"
#include "verbs.h"

static const char help_text[] =
    "gpuprov-agent checks this machine and its GPUs. It needs no other software and leaves nothing behind.\n"
    "It prints JSON lines, or text with --text.\n"
    "\n"
    "  gpuprov-agent run [options]    check this node\n"
    "      --text               print text instead of JSON lines (docs/agent-protocol.md)\n"
    "      --time 1m            time for the checks: 1m, 5m, 20m or any other; the cheapest and most\n"
    "                           telling come first; beyond 1m checks such as memory and stress run longer\n"
    "      --checks a,b         run these checks in this order, whatever their time ('gpuprov-agent checks')\n"
    "      --all                continue after the first certain failure\n"
    "      --gpus N             required number of GPUs; fewer fail\n"
    "      --rdma N             RDMA devices that the cloud attached; fewer fail\n"
    "      --gpu-model NAME     required GPU model\n"
    "      --container-engine E the engine that host.container uses: docker, podman or containerd\n"
    "      --load-limit 2m      time for the driver to load, before the time of the checks begins\n"
    "      --floors a,b         a missed limit of these checks does not end the run: the caller has its own\n"
    "      --unjudged           report figures and faults only: the caller judges the limits\n"
    "      --now-ms MS          the caller's clock, milliseconds since 1970, for host.clock\n"
    "      --now-boot ID        the caller's boot id: in the same boot its clock is this one, and is not compared\n"
    "      --same-clock         the caller runs on this machine: host.clock is skipped\n"
    "  gpuprov-agent checks           list the checks of this program\n"
    "  gpuprov-agent version\n"
    "\n"
    "Exit status of run: 0 pass, 1 degraded, 2 fail, 3 unknown (a required check did not run, wrong\n"
    "usage). GPUPROV_LIBRARY_PATH adds folders to search for libraries. As root it reads the kernel log too.\n"
    "\n"
    "  gpuprov-agent train [--gpu 0] [--time 8s] [--precision bf16|fp16] [--json]\n"
    "     train the timed model of train.ddp on one GPU, to compare its rate with another program's\n"
    "\n"
    "  gpuprov-agent watch [--every 10s] [--time 1h] [--stalled 5m] [--notices CLOUD]\n"
    "     report new faults of GPUs and kernel while other programs run; no --time: until the output is closed\n"
    "     CLOUD (aws, google, azure, alibaba): also its notice that it takes a spot node back\n"
    "\n"
    "gpuprov starts these for checks over several nodes:\n";

void agent_help(FILE *to) {
    fputs(help_text, to);
    fputs("  gpuprov-agent rank --dir DIR --rank R --size N --bind IP --check a,b [--deadline 60s]\n"
          "                     [--stall 20s] [--seed S] [--steps N]; token and rendezvous on stdin\n"
          "  gpuprov-agent follow --dir DIR [--from OFFSET] [--wait MS]\n"
          "  gpuprov-agent stop --dir DIR\n"
          "\n"
          "gpuprov starts this one for bootstrap.cache:\n"
          "  gpuprov-agent cache --dir DIR --bind IP --fetch SCRIPT [--port N] [--lease 60s] [--allow HOST:PORT,...]\n"
          "     fetch packages once for the nodes in DIR/peers; end when DIR/lease is not renewed\n"
          "\n"
          "gpuprov starts these for a job, which goes on when the connection is gone (docs/agent-protocol.md):\n"
          "  gpuprov-agent job start ID                    start the job that stdin describes, in the background\n"
          "  gpuprov-agent job follow ID [--from OFFSET] [--seconds N]   print its log until it ends\n"
          "  gpuprov-agent job state [ID]                  print its state; of the newest job without ID\n"
          "  gpuprov-agent job list                        print the states of all jobs\n"
          "  gpuprov-agent job stop ID [--reason TEXT]     end it and every process that it started\n"
          "  gpuprov-agent job collected ID                note that its outputs were fetched\n"
          "  gpuprov-agent job remove ID                   remove its log and its state\n"
          "  gpuprov-agent job again                       start the job that a reboot ended, where it may\n"
          "\n"
          "gpuprov starts this one to copy files and folders:\n"
          "  gpuprov-agent tree serve   take or give a folder over stdin and stdout\n"
          "  gpuprov-agent tree list DIR [--ignore] [--sha256]\n"
          "     list a folder, one line of JSON per entry; --ignore: by its .gpuprovignore files\n",
          to);
}

/* Text wrapped at 100 columns, each line after the first indented. */
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

/* Lists the checks in the order of `run`. */
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
        int indent =
            printf("%-16s %4ds%s %-8s  %-9s  ", c->id, check_stated(c, GPUS_USUAL) + c->longer, c->stretch ? "+" : " ",
                   c->core       ? "core"
                   : c->required ? "yes"
                                 : "",
                   where);
        print_wrapped(c->finds, indent);
    }
    printf("\ncore: always required; yes: required if the time suffices. + runs longer if --time is more "
           "than\n"
           "a minute. The order is that of 'run'.\n");
    return 0;
}

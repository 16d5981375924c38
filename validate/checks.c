/* SPDX-License-Identifier: Apache-2.0 */
/* The check table: one row per check. Facts only; the code that runs is the agent's. Limits are what a
 * sound machine of any make reaches; a negative limit means that the figure is only reported. */
#include "base/gp_base.h"

#include "validate/checks.h"

#define NO_LIMIT .fail = -1, .degraded = -1, .source = ""

const struct check_info check_table[] = {
    {.id = "host.cores",
     .level = CHECK_NODE,
     .seconds = 1,
     .required = true,
     .finds = "cores that are missing (affinity, cgroup quota), that compute differently from the "
              "others, or that get far less time than the others",
     .how = "reads affinity and cgroup limits, then runs one thread per usable core, each on its own where "
            "no quota forbids it, on the same integer and fp32 arithmetic for 0.3 s and compares all results "
            "bit for bit",
     .suggestion = "replace the node if cores disagree; otherwise look for a cgroup or affinity limit",
     .metrics = {{.name = "usable", .unit = "cores", .positive = true, .fail = 0.5, .degraded = -1,
                  .source = "own: below half a core nothing else can be measured"},
                 {.name = "online", .unit = "cores", .positive = true, NO_LIMIT},
                 {.name = "evenness", .unit = "ratio", NO_LIMIT}}},
    {.id = "host.memory",
     .level = CHECK_NODE,
     .seconds = 2,
     .required = true,
     .finds = "too little memory, and memory that does not give back what was written",
     .how = "reads the machine's size and cgroup limits, writes a pattern and its complement to an "
            "eighth of what is free (at most 256 MiB) and reads both back; one thread's copy rate is "
            "reported",
     .suggestion = "replace the node if words read back wrong; otherwise choose a larger type",
     .metrics = {{.name = "size", .unit = "GiB", .positive = true, .fail = 0.25, .degraded = -1,
                  .source = "own: what the other checks need"},
                 {.name = "available", .unit = "GiB", .fail = 0.125, .degraded = -1,
                  .source = "own: what the other checks need"},
                 {.name = "wrong_words", .unit = "words", .ceiling = true, .fail = 0, .degraded = -1,
                  .source = "memory is exact"},
                 {.name = "copy", .unit = "GB/s", NO_LIMIT}}},
    {.id = "host.disk",
     .level = CHECK_NODE,
     .seconds = 6,
     .required = true,
     .finds = "a full, read-only, failing or very slow disk",
     .how = "writes up to 128 MiB (at most 3 s) to an unnamed file in the home folder, /var/tmp or /tmp, "
            "synced every 16 MiB, drops it from the cache, reads it back and compares every byte",
     .suggestion = "make room or ask for a larger root volume; replace the node if data read back wrong",
     .metrics = {{.name = "free", .unit = "GiB", .fail = 0.25, .degraded = 2,
                  .source = "own: below 2 GiB package installation fails, below 0.25 so do logs"},
                 {.name = "free_files", .unit = "files", .optional = true, .fail = 1000, .degraded = -1,
                  .source = "own: a package installation makes thousands"},
                 {.name = "write", .unit = "MB/s", .positive = true, .fail = 1, .degraded = 10,
                  .source = "own: a single spinning disk writes 100 MB/s"},
                 {.name = "read", .unit = "MB/s", .positive = true, .fail = 1, .degraded = 10,
                  .source = "own: a single spinning disk reads 100 MB/s"}}},
    {.id = "host.clock",
     .level = CHECK_NODE,
     .seconds = 1,
     .required = true,
     .finds = "a clock that is wrong: certificates, tokens and deadlines would fail later",
     .how = "compares the node's clock with the controller's when the check is started (the command's way "
            "to the node counts in, about a second), and asks the kernel whether a time service keeps it",
     .suggestion = "start a time service (chrony, systemd-timesyncd) and run validate again",
     .metrics = {{.name = "offset", .unit = "s", .ceiling = true, .fail = 240, .degraded = 10,
                  .source = "signed cloud requests are refused beyond 5 minutes; 10 s allows for a slow "
                            "connection"},
                 {.name = "estimated_error", .unit = "s", .ceiling = true, NO_LIMIT}}},
    {.id = "host.kernlog",
     .level = CHECK_NODE,
     .needs = NEED_ROOT, /* the agent is run as root for it where sudo asks for nothing */
     .seconds = 1,
     .required = false,
     .finds = "what the kernel has already seen: GPU errors (Xid, SXid), machine checks, memory errors, "
              "failing disks and file systems, processes killed for memory, cores that stood still",
     .how = "reads what there still is of the kernel's log since boot (how many lines were overwritten is "
            "said); Xid numbers are judged by NVIDIA's catalogue of immediate "
            "actions; where the log may not be read the check is skipped",
     .suggestion = "replace the node",
     .metrics = {{.name = "failures", .unit = "lines", .ceiling = true, .fail = 0, .degraded = -1,
                  .source = "NVIDIA Xid catalogue; any hardware error on a fresh node"},
                 {.name = "warnings", .unit = "lines", .ceiling = true, .fail = -1, .degraded = 0,
                  .source = "NVIDIA Xid catalogue; corrected errors"}}},
    {.id = "gpu.presence",
     .level = CHECK_GPU,
     .needs = NEED_NOTHING, /* that there is none is what it says */
     .seconds = 3,
     .required = true,
     .finds = "GPUs that are missing, a driver that is missing, broken, of two versions or not started "
              "(NVSwitch fabric), a GPU that differs from the others",
     .how = "counts /dev/nvidiaN, loads libcuda, starts it (each error is told apart and has its own "
            "advice), compares its GPUs with what was bought and with NVML, reads names and memory; makes "
            "no context",
     .suggestion = "replace the node if a GPU is missing; otherwise do what the message says",
     .metrics = {{.name = "gpus", .unit = "GPUs", NO_LIMIT}}},
    {.id = "gpu.memfill",
     .level = CHECK_GPU,
     .needs = NEED_GPU,
     .seconds = 18, /* eight GPUs, one after the other */
     .required = true,
     .finds = "GPU memory that does not give back what was written, crossed address lines, a GPU that "
              "cannot run a kernel",
     .how = "takes nearly all free memory of each GPU, fills it by a kernel with three patterns (each "
            "word's own address, a hash, its complement), reads all of it back by a second kernel and "
            "counts wrong words; the first ones are named by address and bits",
     .suggestion = "replace the node; give the provider the GPU's PCI address and the wrong bits",
     .metrics = {{.name = "wrong_words", .unit = "words", .ceiling = true, .fail = 0, .degraded = -1,
                  .source = "memory is exact"},
                 {.name = "tested", .unit = "%", .positive = true, .fail = 5, .degraded = 75,
                  .source = "DCGM's memory test needs 75 % of the memory; less means that something "
                            "holds the rest"},
                 {.name = "gpus", .unit = "GPUs", NO_LIMIT},
                 {.name = "rate", .unit = "GB/s", .positive = true, NO_LIMIT}}},
    {.id = "net.pair",
     .level = CHECK_GANG,
     .needs = NEED_PEERS,
     .seconds = 8,
     .required = true,
     .finds = "a pair of nodes whose private network is slow, lossy, one-sided or corrupts data (between "
              "host memories over TCP: nothing is said about GPUs, NVLink or RDMA)",
     .how = "every pair of ranks (every pair of neighbours above 4 ranks), one after the other: 200 "
            "round trips of 8 bytes, then 6 to 64 MiB each way over TCP on the private addresses, every "
            "byte compared",
     .suggestion = "place the nodes in one zone or placement group; replace the rank that is in every "
                   "slow pair",
     .metrics = {{.name = "latency", .unit = "us", .ceiling = true, .positive = true, .fail = 20000, .degraded = 2000,
                  .source = "own: within one region a round trip takes under 2 ms; the median of the "
                            "worst pair"},
                 {.name = "bandwidth", .unit = "GB/s", .positive = true, .fail = 0.01, .degraded = 0.05,
                  .source = "own: 1 Gbit/s Ethernet carries 0.11 GB/s; the worst pair"},
                 {.name = "wrong_bytes", .unit = "bytes", .ceiling = true, .fail = 0, .degraded = -1,
                  .source = "TCP promises none"}}},
    {.id = "train.ddp",
     .level = CHECK_GANG,
     .needs = NEED_NOTHING,
     .seconds = 20,
     .required = true,
     .finds = "a node whose CPU computes wrong, or that loses or corrupts what it is sent, hangs, dies or "
              "lags: what would ruin a training run (on the nodes' CPUs, also where there are GPUs: no GPU "
              "takes part, and none is proven by it)",
     .how = "trains a small GPT data-parallel for 200 steps on a Markov source of 64 symbols (entropy "
            "1.386) and holds every one of: loss below 1.55; parameters bit-identical on all ranks after "
            "every step; known-answer all-reduce exact; the sum of every all-reduced gradient within rounding of the "
            "ranks' own sums; one rank and all ranks agree on the summed "
            "gradient within 2 * gamma(n-1) * sum|g| (gamma(k) = k*u/(1-k*u), u = 2^-24, n ranks); every 4th step "
            "each rank recomputes its neighbour's gradient and both hashes agree; tokens and a finite "
            "non-zero gradient on every rank",
     .suggestion = "replace the rank that is named; with no rank named run validate again and look at "
                   "net.pair",
     .metrics = {{.name = "loss", .unit = "nats", .ceiling = true, .positive = true, .fail = 1.55, .degraded = -1,
                  .source = "the source's entropy is ln 4 = 1.386; an untrained model has ln 64 = 4.16"},
                 {.name = "tokens_per_s", .unit = "tokens/s", .positive = true, NO_LIMIT},
                 {.name = "efficiency", .unit = "ratio", NO_LIMIT},
                 {.name = "comm_share", .unit = "ratio", .ceiling = true, NO_LIMIT},
                 {.name = "straggler", .unit = "ratio", .ceiling = true, .positive = true, .fail = -1, .degraded = 3,
                  .source = "own: the slowest rank's step against the median rank's; nodes that share "
                            "cores alone reach 2"},
                 {.name = "agreement", .unit = "of bound", .ceiling = true, .fail = 1, .degraded = -1,
                  .source = "rounding of n fp32 additions in any order (Higham, gamma_n)"}}},
    {.id = NULL},
};

size_t check_count(void) { return GP_ARRAY_LEN(check_table) - 1; }

const struct check_info *check_find(const char *id) {
    for (const struct check_info *c = check_table; c->id != NULL; c++)
        if (strcmp(c->id, id) == 0) return c;
    return NULL;
}

/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of bootstrap/: the table of steps, the state of one run of bootstrap, and the
 * function that runs a step beyond the connection (node_step). Short scripts use ssh/link.h. Only
 * the node's own thread uses it. */
#ifndef GP_BOOTSTRAP_STEPS_H
#define GP_BOOTSTRAP_STEPS_H

#include "bootstrap/bootstrap.h"

struct boot_item;
struct boot;
struct boot_files;

/* One row of the table. A step's file defines probe() (0: done already, 10: to be applied, else it
 * has reported the error), and apply() and verify() where the step can be applied. */
struct boot_step {
    const char *name; /* NULL: the item's own name (user steps) */
    const char *file; /* below templates/bootstrap/, without ".sh" */
    bool packages;    /* its file uses pkg.sh, and has REFUSAL */
    bool machine;     /* needs a kernel, driver, init or mounts of the node's own: not for containers */
    bool first;       /* applied before the others, which are probed again after it */
    bool new_facts;   /* the node's facts are others after it */
    bool secrets;     /* its environment has the user's secrets, as GPUPROV_SECRET_NAME */
    int seconds;      /* time limit of each apply() with its verify(); 0: the end of the whole bootstrap */
    int tries;        /* how often apply() may run if it fails or its verify() does; 0: once */
    bool (*wanted)(const struct boot *b);
    /* Adds NAME='value' lines for the file, which has BUDGET, the seconds left, besides. May be NULL. Other lines
     * are another step: a run that an earlier gpuprov started is not taken for this one. */
    void (*vars)(const struct boot *b, const struct boot_item *it, struct str *out);
    /* Replaces the file's apply() and verify(). NULL: those run detached on the node. */
    int (*apply)(struct boot *b, const struct boot_item *it, bool *ret_changed, struct gp_error *err);
};
extern const struct boot_step boot_steps[]; /* in order; ended by a NULL file */

/* A step of this node: a row, and for user steps the spec's step. */
struct boot_item {
    const struct boot_step *step;
    const struct spec_step *user; /* NULL for steps of the table */
    const char *name;             /* borrowed */
    char id[64];                  /* its folder on the node */
    char hash[65];                /* of its content */
    int seconds, tries;           /* of the row, or of the user's step; tries is 1 at least */
    int probe;                    /* result of probe(); -1: none yet */
    char *why;                    /* its error text; owned, may be NULL */
    char *warning;                /* owned, may be NULL */
};

#define BOOT_GPUS_MAX 16
struct boot_gpu { /* PCI ids without the vendor; subsystem 0: not NVIDIA's */
    unsigned device, subsystem;
};
struct boot_facts {
    char arch[32], boot_id[64], user[64];
    char os[48];     /* "ubuntu-24.04", "debian-12", "rhel-9.4", "amzn-2023"; "": it does not say */
    char kernel[96]; /* the running one: uname -r */
    char driver[32]; /* of the loaded nvidia module, "580.65.06"; "": none is loaded */
    bool driver_open;
    bool driver_ours;                    /* gpuprov installed it, or began to */
    struct boot_gpu gpus[BOOT_GPUS_MAX]; /* as the PCI bus lists them */
    int n_gpus, n_nvswitches;
    char *home;
    char *missing; /* a required tool that the node lacks */
    bool root, nvidia;
};

/* An agent of this build. */
struct boot_agent {
    const char *name;
    struct ssh_blob blob; /* without data; its packed form is a part of the program: never cleared */
};
#define BOOT_AGENTS 2

struct boot_software; /* steps_driver.c */
struct boot {
    struct node_link *link;
    const struct bootstrap_req *req;
    VEC_OF(struct boot_item) items;
    struct boot_facts facts;
    struct boot_software *software;  /* NULL: the driver and its libraries are left alone */
    const struct boot_agent *agents; /* shared by all nodes */
    size_t n_agents;
    struct boot_files *files; /* of bootstrap.files, shared by all nodes; NULL: none */
    int applied;
    bool cache_asked;
    bool absent_told;    /* steps of --only that the node does not need were reported */
    char *cache;         /* address of the package cache; NULL: none */
    struct strv changed; /* names of the steps that changed the node */
    struct bootstrap_output failed;
};

#define BOOT_PROBE_TODO 10
#define BOOT_ARCH "x86_64" /* architecture of the agents */
#define BOOT_AGENT_DIR "agent"
#define BOOT_SHORT_MS 60000 /* one attempt of a short script */

/* Fills b->items from the table and the spec. */
int boot_items_make(struct boot *b, struct gp_error *err);
/* Drops the items that req->pick leaves out. */
void boot_pick(struct boot *b);
void boot_clear(struct boot *b);
/* The script that reads the node's facts, and the decoder of its output. Steps are chosen by these facts. */
int boot_facts_script(struct str *out, struct gp_error *err);
void boot_facts_parse(struct boot_facts *f, const char *text, size_t n);
/* Reads them from the node, again after a reboot. */
int boot_facts_get(struct boot *b, struct gp_error *err);
void boot_facts_clear(struct boot_facts *f);
/* The script that probes all steps at once, and the decoder of its output. */
int boot_probe_script(const struct boot *b, struct str *out, struct gp_error *err);
void boot_probe_parse(struct boot *b, const char *text, size_t n);
/* lib.sh + variables + the item's file; `tail`: the calls at the end. */
int boot_item_script(const struct boot *b, const struct boot_item *it, const char *tail, struct str *out,
                     struct gp_error *err);
/* Export lines under internal names: with_secrets of lib.sh gives them their own. Wipe after use. */
void boot_secrets(const struct boot *b, struct str *out);
void boot_var(struct str *out, const char *name, const char *value);
int boot_file(const char *file, struct str *out, struct gp_error *err);

/* steps_container.c */
bool boot_want_container(const struct boot *b);
bool boot_want_toolkit(const struct boot *b);
bool boot_want_images(const struct boot *b);
void boot_engine_vars(const struct boot *b, const struct boot_item *it, struct str *out);
void boot_toolkit_vars(const struct boot *b, const struct boot_item *it, struct str *out);
void boot_images_vars(const struct boot *b, const struct boot_item *it, struct str *out);
/* steps_driver.c: the driver and the libraries above it, chosen by the spec and the node's facts. */
int boot_software_make(struct boot *b, struct gp_error *err);
/* The same without a node: for the image and the GPU that the spec names. */
int boot_software_by_spec(struct boot *b, struct gp_error *err);
void boot_software_clear(struct boot *b);
bool boot_wants_driver_look(const struct boot *b);
bool boot_wants_driver(const struct boot *b);
bool boot_wants_repo(const struct boot *b);
bool boot_wants_fabric(const struct boot *b);
bool boot_wants_imex(const struct boot *b);
bool boot_wants_cuda(const struct boot *b);
bool boot_wants_cudnn(const struct boot *b);
bool boot_wants_nccl(const struct boot *b);
bool boot_wants_holds(const struct boot *b);
void boot_driver_vars(const struct boot *b, const struct boot_item *it, struct str *out);
/* steps_os.c */
bool boot_want_package_locks(const struct boot *b);
void boot_clock_vars(const struct boot *b, const struct boot_item *it, struct str *out);

/* Unpacks the agents; -GP_EBOOTSTRAP when this build contains none. */
int boot_agents_load(struct boot *b, struct gp_error *err);
int boot_agents_put(struct boot *b, const struct boot_item *it, bool *ret_changed, struct gp_error *err);

/* Copies a blob to a path of the login user, through lost connections: a partial copy is not used. */
int boot_put_blob(struct boot *b, const char *step, const char *path, unsigned mode, const struct ssh_blob *blob,
                  bool *ret_sent, struct gp_error *err);

/* bootstrap/steps_files.c, steps_limits.c, steps_mounts.c: the rows of bootstrap.files, limits and mounts. */
bool boot_mounts_disks(const struct boot *b);
bool boot_mounts_shares(const struct boot *b);
bool boot_mounts_buckets(const struct boot *b);
void boot_mounts_vars(const struct boot *b, const struct boot_item *it, struct str *out);
int boot_files_load(struct boot *b, struct gp_error *err); /* reads the local files, once for all nodes */
void boot_files_drop(struct boot *b);
void boot_files_vars(const struct boot *b, const struct boot_item *it, struct str *out);
int boot_files_put(struct boot *b, const struct boot_item *it, bool *ret_changed, struct gp_error *err);
void boot_limits_vars(const struct boot *b, const struct boot_item *it, struct str *out);
int boot_limits_set(struct boot *b, const struct boot_item *it, bool *ret_changed, struct gp_error *err);
/* steps_fabric.c */
bool boot_wants_efa(const struct boot *b);
bool boot_wants_rdma(const struct boot *b);
void boot_fabric_vars(const struct boot *b, const struct boot_item *it, struct str *out);

/* Before an item is applied: finds the package cache, if the item installs packages and the run has one (cache.c). */
void boot_cache(struct boot *b, const struct boot_item *it);

/* Runs apply() and verify() of an item detached on the node, follows it through lost connections and
 * reboots, and kills it at the deadline. Blocks until then. */
int node_step(struct boot *b, const struct boot_item *it, bool *ret_changed, struct gp_error *err);

/* steps_python.c: rows of the table. */
bool want_python(const struct boot *b);
bool want_python_packages(const struct boot *b);
bool want_python_torch(const struct boot *b);
void python_vars(const struct boot *b, const struct boot_item *it, struct str *out);
void python_packages_vars(const struct boot *b, const struct boot_item *it, struct str *out);
/* Reboots the node after its run `run_id` of a step called restart_node, and waits for it. `why` is foreign text,
 * already clean. -GP_EBOOTSTRAP: it did not go down or did not come back within its limit. */
int boot_reboot(struct boot *b, const struct boot_item *it, const char *run_id, const char *why, struct gp_error *err);
void python_torch_vars(const struct boot *b, const struct boot_item *it, struct str *out);

/* The name of a step's folder on the node: readable and unique. user: of the spec, else of the table. */
void boot_step_id(const char *name, bool user, char id[64]);
void boot_hash(char dst[65], const char *const *parts); /* sha256 of NULL-ended parts, hex */
/* "llm/1: step 'packages': ..." as -GP_EBOOTSTRAP, secrets redacted. */
int boot_fail(const struct node_link *l, const char *step, struct gp_error *err, const char *text);
/* Why a short script failed, in one line: its "::error" line, else the last line of its stderr,
 * else its status. Caller frees. */
char *boot_said(const struct ssh_result *r);

#endif

/* SPDX-License-Identifier: Apache-2.0 */
/* Finds libnccl.so.2 at run time, in the folders of the other libraries. Called in a worker process. */
#include "base/gp_base.h"

#include "nccl_cuda.h"

#include <dlfcn.h>

static const struct {
    const char *name;
    size_t offset;
} symbols[] = {
    {"ncclGetVersion", offsetof(struct nccl_api, get_version)},
    {"ncclGetErrorString", offsetof(struct nccl_api, error_string)},
    {"ncclGetLastError", offsetof(struct nccl_api, last_error)},
    {"ncclGetUniqueId", offsetof(struct nccl_api, unique_id)},
    {"ncclCommInitRankConfig", offsetof(struct nccl_api, init)},
    {"ncclCommGetAsyncError", offsetof(struct nccl_api, async_error)},
    {"ncclCommAbort", offsetof(struct nccl_api, abort)},
    {"ncclCommFinalize", offsetof(struct nccl_api, finalize)},
    {"ncclCommDestroy", offsetof(struct nccl_api, destroy)},
    {"ncclCommSplit", offsetof(struct nccl_api, split)},
    {"ncclAllReduce", offsetof(struct nccl_api, all_reduce)},
    {"ncclAllGather", offsetof(struct nccl_api, all_gather)},
    {"ncclReduceScatter", offsetof(struct nccl_api, reduce_scatter)},
    {"ncclBroadcast", offsetof(struct nccl_api, broadcast)},
    {"ncclSend", offsetof(struct nccl_api, send)},
    {"ncclRecv", offsetof(struct nccl_api, recv)},
    {"ncclGroupStart", offsetof(struct nccl_api, group_start)},
    {"ncclGroupEnd", offsetof(struct nccl_api, group_end)},
};

static struct nccl_api api;
static struct str api_path;
static int api_version;

const char *nccl_path(void) { return api_path.s != NULL ? api_path.s : ""; }

void nccl_version_text(int version, char dst[16]) {
    /* below 2.9: 2708; from 2.9 on: 20906 */
    int major = version < 10000 ? version / 1000 : version / 10000;
    int minor = version < 10000 ? version % 1000 / 100 : version % 10000 / 100;
    snprintf(dst, 16, "%d.%d.%d", major % 1000, minor, version % 100);
}

static int judge_version(struct gp_error *err) {
    char have[16], oldest[16];
    nccl_version_text(api_version, have);
    nccl_version_text(NCCL_VERSION_OLDEST, oldest);
    if (api_version < NCCL_VERSION_OLDEST)
        return gp_fail(err, GP_EENV, "%s is NCCL %s; install %s or newer", nccl_path(), have, oldest);
    if (api_version >= 30000)
        return gp_fail(err, GP_EENV, "%s is NCCL %s, a major version unknown to this gpuprov", nccl_path(), have);
    return 0;
}

int nccl_load(const struct nccl_api **ret, int *ret_version, struct gp_error *err) {
    if (!api_version) {
        GP_AUTO_STR struct str why = {0};
        void *lib = library_open("libnccl.so.2", &api_path, &why);
        if (!lib) return gp_fail(err, GP_EENV, "cannot load NCCL: %s", why.s);
        for (size_t i = 0; i < GP_ARRAY_LEN(symbols); i++) {
            void *f = dlsym(lib, symbols[i].name);
            if (!f)
                return gp_fail(err, GP_EENV, "%s lacks %s: it is older than NCCL 2.18", nccl_path(), symbols[i].name);
            memcpy((char *)&api + symbols[i].offset, &f, sizeof f);
        }
        int version = 0;
        if (api.get_version(&version) || version <= 0)
            return gp_fail(err, GP_EENV, "%s does not report its version", nccl_path());
        api_version = version;
    }
    *ret = &api;
    *ret_version = api_version;
    return judge_version(err);
}

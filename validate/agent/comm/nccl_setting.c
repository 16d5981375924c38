/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL reads its settings from the environment only, so this one file may change it: in a rank's worker, a forked
 * process that does so from one thread and ends with its gang. Not by setenv: the driver's and NCCL's own threads
 * run by then, and setenv frees a list that another may be reading. A changed list is a new one, put in place by one
 * store; lists and texts that were replaced are kept until the process ends. */
#include "base/gp_base.h"

#include "comm.h"

#include <unistd.h>

struct kept {
    struct kept *before;
    char *text;
    char *list[];
};
static struct kept *newest; /* keeps replaced lists reachable, so that they are not leaks */

void nccl_setting(const char *name, const char *value) {
    size_t n = 0, key = strlen(name), len = strlen(value);
    while (environ != NULL && environ[n] != NULL) n++;
    struct kept *k = xcalloc(1, sizeof *k + (n + 2) * sizeof k->list[0]);
    k->text = xcalloc(1, key + len + 2);
    memcpy(k->text, name, key);
    k->text[key] = '=';
    memcpy(k->text + key + 1, value, len);
    size_t to = 0;
    for (size_t i = 0; i < n; i++)
        if (strncmp(environ[i], k->text, key + 1) != 0) k->list[to++] = environ[i];
    k->list[to] = k->text;
    k->before = newest;
    newest = k;
    __atomic_store_n(&environ, k->list, __ATOMIC_RELEASE);
}

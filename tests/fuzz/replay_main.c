/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target over every file of a corpus folder, without libFuzzer. An input must not crash
 * it, nothing more; a folder without inputs is a failure. */
#include "base/gp_base.h"

#include "base/fs.h"

#include <dirent.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
extern const bool fuzz_replays;
const bool fuzz_replays = true; /* a target may hold files of its corpus to more than that nothing crashes */

int main(int argc, char **argv) {
    if (argc != 2) {
        fprintf(stderr, "usage: %s CORPUS\n", argv[0]);
        return 2;
    }
    DIR *dir = opendir(argv[1]);
    if (dir == NULL) {
        fprintf(stderr, "%s: cannot open the corpus\n", argv[1]);
        return 2;
    }
    int ran = 0;
    for (struct dirent *e = readdir(dir); e != NULL; e = readdir(dir)) {
        if (e->d_name[0] == '.') continue;
        GP_AUTO_FREE char *path = fs_join(argv[1], e->d_name);
        GP_AUTO_STR struct str text = {0};
        struct gp_error err = {0};
        if (fs_read(path, (size_t)8 << 20, &text, &err) != 0) {
            fprintf(stderr, "%s\n", err.msg);
            return 2;
        }
        printf("%s\n", path); /* the last line names the input that crashed */
        fflush(stdout);
        /* A copy of exactly that size: reading past it is seen by a sanitizer. */
        GP_AUTO_FREE uint8_t *exact = xmalloc(GP_MAX(text.len, (size_t)1));
        if (text.len > 0) memcpy(exact, text.s, text.len);
        LLVMFuzzerTestOneInput(exact, text.len);
        ran++;
    }
    closedir(dir);
    printf("%d inputs\n", ran);
    return ran > 0 ? 0 : 1;
}
